"""Runs read back, and the figures of each of their groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from disco_rl.evaluation.intervals import bootstrap, paired
from disco_rl.evaluation.runner import CONFIG, SUMMARY, read_results


@dataclass(frozen=True)
class Run:
    """A run's name, config and results; `complete` where its summary was written."""

    name: str
    config: dict[str, Any]
    results: list[dict[str, Any]]
    complete: bool

    @property
    def benchmark(self) -> str:
        return self.results[0]["scorer"]

    def groups(self) -> list[str]:
        found = {result["group"] for result in self.results}
        return sorted(found, key=lambda g: (length(g) is None, length(g) or 0, g))

    def of(self, group: str) -> list[dict[str, Any]]:
        return [result for result in self.results if result["group"] == group]


@dataclass(frozen=True)
class Figures:
    """Of one run on one group. Scores in percent; intervals are 95% bootstrap over questions.

    `latency` (median and 95th percentile, seconds) leaves out questions that were resumed.
    `stages` is None for methods without stages, `judge` where no verdict was given (`judged`
    counts verdicts). `grounding` is over `grounded` questions; a failed one counts as 0.
    """

    n: int
    official: float
    interval: tuple[float, float]
    strict: float
    judge: float | None
    judged: int
    failed: int
    empty: int
    truncated: float
    stages: float | None
    grounding: float | None
    grounded: int
    latency: tuple[float, float] | None
    calls: dict[str, float]
    failed_calls: dict[str, float]
    tokens: dict[str, float]
    dollars: float


def find_runs(folder: Path) -> list[Run]:
    """Runs in `folder` or one of its sub-folders, each named by its path from there.

    Raises `ValueError` for none.
    """
    import yaml

    runs = []
    for path in sorted(folder.rglob(CONFIG)):
        results = read_results(path.parent)
        if results:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
            done = (path.parent / SUMMARY).is_file()
            inner = path.parent.relative_to(folder).as_posix()
            name = path.parent.resolve().name if inner == "." else inner
            runs.append(Run(name, config, results, done))
    if not runs:
        raise ValueError(f"{folder}: no evaluation run with results; make one with disco-rl eval")
    return runs


def length(group: str) -> int | None:
    """Tokens of context, which end the group's name (`qa_1 256000`); None where none do."""
    last = group.rpartition(" ")[2]
    return int(last) if last.isdigit() else None


def figures(results: Sequence[dict[str, Any]]) -> Figures:
    scores = [100 * result["scores"]["official"] for result in results]
    judged = [r["scores"]["judge"] for r in results if r["scores"].get("judge") is not None]
    stages = [len(r["record"]["stages"]) for r in results if "stages" in r["record"]]
    grounded = [g for r in results if (g := r.get("grounding")) is not None]
    if grounded:  # else no question has gold evidence, or the method names none
        grounded += [0.0 for r in results if r["error"] is not None and r.get("grounding") is None]
    seconds = sorted(r["seconds"] for r in results if not r["replayed"])
    roles = sorted({role for result in results for role in result["ledger"]})

    def per_item(*keys: str) -> dict[str, float]:
        return {
            role: sum(sum(r["ledger"].get(role, {}).get(k, 0) for k in keys) for r in results)
            / len(results)
            for role in roles
        }

    return Figures(
        n=len(results),
        official=mean(scores),
        interval=bootstrap(scores),
        strict=100 * mean(r["scores"]["strict"] for r in results),
        judge=100 * mean(judged) if judged else None,
        judged=len(judged),
        failed=sum(r["error"] is not None for r in results),
        empty=sum(r["error"] is None and not (r["answer"] or "").strip() for r in results),
        truncated=100 * mean(bool(r["truncated"]) for r in results),
        stages=mean(stages) if stages else None,
        grounding=100 * mean(grounded) if grounded else None,
        grounded=len(grounded),
        latency=(median(seconds), seconds[_p95(len(seconds))]) if seconds else None,
        calls=per_item("calls"),
        failed_calls=per_item("failures"),
        tokens=per_item("prompt", "output"),
        dollars=sum(r["dollars"] for r in results),
    )


def against(run: Run, baseline: Run, group: str) -> tuple[float, float, float, int] | None:
    """Difference in percent points, its paired interval, and over how many common questions."""
    theirs = {(r["id"], r["question"]): r["scores"]["official"] for r in baseline.of(group)}
    ours = {(r["id"], r["question"]): r["scores"]["official"] for r in run.of(group)}
    both = [(score, theirs[key]) for key, score in ours.items() if key in theirs]
    if run is baseline or not both:
        return None
    gap, low, high = paired([100 * a for a, _ in both], [100 * b for _, b in both])
    return gap, low, high, len(both)


def _p95(n: int) -> int:
    return min(n - 1, -(-95 * n // 100) - 1)  # the nearest-rank 95th percentile
