"""Figures of finished flat-length runs: results.json, a table, and curves.png.

    python recipes/flat_length/figures.py runs/flat [OUT]

"Flat" means that the paired difference to the shortest length has a 95% interval (bootstrap over
questions) that holds 0.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from disco_rl.evaluation.intervals import bootstrap, paired
from disco_rl.evaluation.runner import read_results

SCORES = ("accuracy", "grounding")


def scores(result: Mapping[str, Any]) -> dict[str, float]:
    """In percent; a question without an answer is wrong and ungrounded."""
    return {
        "accuracy": 100 * result["scores"]["official"],
        "grounding": 100 * (result["grounding"] or 0.0),
    }


def figures(results: Sequence[Mapping[str, Any]], usage: Sequence[Mapping[str, Any]]) -> list[dict]:
    """A row a length, shortest first."""
    by_length: dict[int, list[Mapping[str, Any]]] = {}
    for result in results:
        by_length.setdefault(int(result["group"]), []).append(result)
    lengths = sorted(by_length)
    first = {_question(r): scores(r) for r in by_length[lengths[0]]}
    rows = []
    for length in lengths:
        found = by_length[length]
        row: dict[str, Any] = {"length": length, "n": len(found)}
        for name in SCORES:
            values = [scores(r)[name] for r in found]
            row[name] = [round(v, 1) for v in (sum(values) / len(values), *bootstrap(values))]
            if length > lengths[0]:
                before = [first[_question(r)][name] for r in found]
                gap = paired(values, before)
                row[f"{name}_change"] = [round(v, 1) for v in gap]
                row[f"{name}_flat"] = gap[1] <= 0 <= gap[2]
        seconds = sorted(r["seconds"] for r in found if not r["replayed"])
        worker = [r["ledger"].get("worker", {}).get("calls", 0) for r in found]
        row |= {
            "seconds": [round(median(seconds), 2), round(seconds[-1], 2)] if seconds else None,
            "worker_calls": round(sum(worker) / len(worker), 1),
            "stages": round(sum(len(r["record"].get("stages", ())) for r in found) / len(found), 2),
            "failed": sum(r["error"] is not None for r in found),
        }
        kept = next((u for u in usage if u["length"] == length), None)
        rows.append(row | {"usage": kept})
    return rows


def _question(result: Mapping[str, Any]) -> str:
    return str(result["id"]).rpartition("-")[0]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("tokens", "n", "accuracy", "change", "grounding", "change", "lookups", "stages",
            "s a question", "s a context", "peak MB")  # fmt: skip
    lines = [head, ("---",) * len(head)]
    for row in rows:
        cells = [f"{row['length']:,}", str(row["n"])]
        for name in SCORES:
            mean, low, high = row[name]
            cells.append(f"{mean:.1f} ({low:.1f} to {high:.1f})")
            gap = row.get(f"{name}_change")
            cells.append(f"{gap[0]:+.1f} ({gap[1]:+.1f} to {gap[2]:+.1f})" if gap else "")
        used = row["usage"]
        cells += [f"{row['worker_calls']:,.0f}", f"{row['stages']:.1f}"]
        cells.append(f"{row['seconds'][0]:.1f}" if row["seconds"] else "")
        cells.append(f"{used['contexts_s'] / used['contexts']:.1f}" if used else "")
        cells.append(f"{used['peak_mb']:,}" if used else "")
        lines.append(tuple(cells))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(found: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(found), 3.6), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (name, rows) in zip(panels, found.items(), strict=True):
        x = [row["length"] for row in rows]
        for score in SCORES:
            mean, low, high = zip(*(row[score] for row in rows), strict=True)
            axes.plot(x, mean, marker="o", label=score)
            axes.fill_between(x, low, high, alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 102)
        axes.set_title(name)
        axes.set_xlabel("context (words and marks)")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("percent, with 95% intervals")
    panels[0].legend(loc="lower left")
    figure.savefig(path, dpi=110)


def made_with() -> dict[str, Any]:
    """The checkout's commit, which should be that of the runs, and the versions that count."""
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, cwd=Path(__file__).parent, capture_output=True, text=True)
    packages = ("bm25s", "torch", "transformers")
    return {
        "commit": commit.stdout.strip(),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
    }


def main(argv: Sequence[str]) -> None:
    if not argv:
        raise SystemExit(__doc__)
    folder = Path(argv[0])
    out = Path(argv[1]) if len(argv) > 1 else folder
    found = {}
    for run in sorted(folder.iterdir()):
        if results := read_results(run):
            lines = (run / "usage.jsonl").read_text().splitlines()
            found[run.name] = figures(results, [json.loads(line) for line in lines])
    if not found:
        raise SystemExit(f"{folder}: no runs; make some with recipes/flat_length/study.py")
    for name, rows in found.items():
        print(f"## {name}\n\n{table(rows)}\n")
    results = made_with() | found
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    plot(found, out / "curves.png")


if __name__ == "__main__":
    main(sys.argv[1:])
