"""What the parts of the reward are for: the paper's Table 2 in small, on the embedded world.

    python recipes/ablations/ablations.py               # after `make data driver`
    python recipes/ablations/ablations.py seeds=[1,2] steps=8 out=runs/try report=runs/try
    python recipes/ablations/ablations.py data=DIR driver=DIR nice=15

Trains the embedded Driver with the full reward, without format and without evidence, each with the
same seeds, steps and data, and evaluates every result on the held-out test world under the full
reward. Settings and run folders are those of recipes/embedded/study.py; the full reward's runs have
its names, so that `out=runs/study` takes over those that it made. Writes results.json and
ablations.png beside itself (or into `report`), and the table into README.md, after each run:
started again, it goes on where it was stopped, and runs nothing that is finished.
"""

import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "embedded"))

import study  # noqa: E402

ARMS = {"paper": "full reward", "no_format": "without format", "no_evidence": "without evidence"}
FIGURES = (
    "accuracy", "reward", "evidence", "format", "plan_valid", "retries", "stages", "calls",
)  # fmt: skip
SETTINGS = {key: value for key, value in study.SETTINGS.items() if key != "controls"} | {
    "out": "runs/ablations",
    "report": str(HERE),
}
Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]  # by arm and seed


def main() -> int:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    settings = study.begun(SETTINGS, sys.argv[1:])
    began = time.monotonic()
    made_with = study.made_with(settings)
    before = study.evaluated(settings, "before", settings.driver)
    runs: dict[str, dict[int, Mapping[str, Any]]] = {arm: {} for arm in ARMS}
    failed: dict[str, str] = {}

    def write() -> None:
        results = made_with | summary(before, runs, list(settings.seeds), failed)
        results["seconds"] = round(time.monotonic() - began)  # of this start
        publish(results, Path(settings.report))

    with ThreadPoolExecutor(settings.jobs) as pool:
        # Seed by seed, so that what is there after an hour compares all arms.
        futures: dict[Future[dict[str, Any]], tuple[str, int]] = {
            pool.submit(study.trained, settings, name(arm, seed), seed, *override(arm)): (
                arm,
                seed,
            )
            for seed in settings.seeds
            for arm in ARMS
        }
        for future in as_completed(futures):
            arm, seed = futures[future]
            if (error := future.exception()) is None:
                runs[arm][seed] = future.result()
            else:  # the others' hours aren't to be lost with it
                failed[name(arm, seed)] = type(error).__name__
                print(f"{name(arm, seed)} failed: {error}", file=sys.stderr)
            write()
    return 1 if failed else 0


def name(arm: str, seed: int) -> str:
    """A run's folder in `out`; the full reward's is that of recipes/embedded/study.py."""
    return f"grpo_{seed}" if arm == "paper" else f"{arm}_{seed}"


def override(arm: str) -> list[str]:
    """The full reward is the default, so that its runs are made as those of the other recipe."""
    return [] if arm == "paper" else [f"reward={arm}"]


def summary(
    before: Mapping[str, Any], runs: Runs, seeds: list[int], failed: Mapping[str, str]
) -> dict[str, Any]:
    """Everything that the table and the picture show, of the runs that there are so far."""
    done = [name(arm, seed) for arm in ARMS for seed in runs[arm]]
    return {
        "complete": len(done) == len(ARMS) * len(seeds),
        "missing": [n for seed in seeds for arm in ARMS if (n := name(arm, seed)) not in done],
        "failed": dict(failed),
        "before": {figure: round(_mean(before["sampled"][figure]), 4) for figure in FIGURES},
        "arms": {arm: over_arm(of) for arm, of in runs.items() if of},
        "less_than_full": differences(runs),
        "runs": {
            name(arm, seed): {
                "arm": arm,
                "seed": seed,
                "commits": run["commits"],
                "train_seconds": round(run["train_seconds"]),
                "test": {figure: round(_mean(run["sampled"][figure]), 4) for figure in FIGURES},
                "greedy_accuracy": round(_mean(run["greedy"]["accuracy"]), 4),
                "curve": run["curve"],
            }
            for arm, of in runs.items()
            for seed, run in sorted(of.items())
        },
    }


def over_arm(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Each figure's mean and 95% t interval over the seeds, sampled at temperature 1."""
    return {
        figure: _interval([_mean(run["sampled"][figure]) for run in runs.values()])
        for figure in FIGURES
    }


def differences(runs: Runs) -> dict[str, dict[str, list[float | None]]]:
    """Each ablation less the full reward, paired by seed, since a seed fixes the questions."""
    pairs = {
        arm: [(run, runs["paper"][seed]) for seed, run in of.items() if seed in runs["paper"]]
        for arm, of in runs.items()
        if arm != "paper"
    }
    return {
        arm: {
            figure: _interval(
                [_mean(a["sampled"][figure]) - _mean(b["sampled"][figure]) for a, b in both]
            )
            for figure in FIGURES
        }
        for arm, both in pairs.items()
        if both
    }


def table(results: Mapping[str, Any]) -> str:
    """Markdown: how far the study is, the warm start, each arm, each less the full reward."""
    n, left = len(results["runs"]), len(results["missing"])
    if left:
        state = f"Partial: {n} of {n + left} runs, without {', '.join(results['missing'])}."
    else:
        state = f"All {n} runs."
    commits = sorted({commit[:7] for run in results["runs"].values() for commit in run["commits"]})
    lines = [f"{state} Code: {', '.join(commits) or 'not recorded'}.", ""]
    rows = [["run", *FIGURES], ["---"] * (len(FIGURES) + 1)]
    rows.append(["warm start", *(f"{results['before'][figure]:.3f}" for figure in FIGURES)])
    for arm, figures in results["arms"].items():
        rows.append([ARMS[arm], *(_cell(figures[figure]) for figure in FIGURES)])
    for arm, less in results["less_than_full"].items():
        rows.append([f"**{ARMS[arm]}, less full**", *(_cell(less[figure]) for figure in FIGURES)])
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def publish(results: Mapping[str, Any], report: Path) -> None:
    """results.json, the picture, and the table in README.md where there is one."""
    report.mkdir(parents=True, exist_ok=True)
    (report / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    readme = report / "README.md"
    if readme.is_file():
        text = study.between_marks(readme.read_text(encoding="utf-8"), table(results))
        readme.write_text(text, encoding="utf-8")
    print(table(results), flush=True)
    if results["arms"]:
        plot(results, report / "ablations.png")


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Bars with their intervals for what Table 2 shows, and accuracy as it was trained."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = ("accuracy", "plan_valid", "retries", "stages")
    figure, axes = pyplot.subplots(1, len(shown) + 1, figsize=(17, 3.6), constrained_layout=True)
    arms = [arm for arm in ARMS if arm in results["arms"]]
    for axis, title in zip(axes, shown, strict=False):
        for at, arm in enumerate(arms):
            mean, low, high = results["arms"][arm][title]
            error = None if low is None else [[mean - low], [high - mean]]
            axis.bar(at, mean, yerr=error, capsize=4)
        axis.axhline(results["before"][title], color="grey", linestyle="--", label="warm start")
        axis.set_xticks(range(len(arms)), [ARMS[arm] for arm in arms], rotation=15, fontsize=8)
        axis.set_title(f"{title} (test)", fontsize=9)
    axes[0].legend(fontsize=8)
    named: set[str] = set()
    for run in results["runs"].values():
        steps, values = zip(*run["curve"]["accuracy"], strict=True)
        arm = run["arm"]
        label = None if arm in named else ARMS[arm]
        named.add(arm)
        axes[-1].plot(steps, values, color=f"C{arms.index(arm)}", label=label)
    axes[-1].set_title("accuracy (training), a line a seed", fontsize=9)
    axes[-1].set_xlabel("GRPO step")
    axes[-1].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _interval(values: list[float]) -> list[float | None]:
    """Mean, low, high; one seed has no interval."""
    from disco_rl.evaluation.intervals import over_seeds

    if len(values) < 2:
        return [round(values[0], 4), None, None]
    return [round(x, 4) for x in over_seeds(values)]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _cell(figure: list[float | None]) -> str:
    mean, low, high = figure
    return f"{mean:.3f}" if low is None else f"{mean:.3f} ({low:.3f}, {high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
