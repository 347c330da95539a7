"""What the parts of the reward are for: the paper's Table 2 in small, on the embedded world.

    python recipes/ablations/ablations.py               # after `make data driver`
    python recipes/ablations/ablations.py seeds=[1,2] steps=4 out=runs/try report=runs/try

Trains the embedded Driver with the full reward, without format and without evidence, each with the
same seeds, steps and data, and evaluates every result on the held-out test world under the full
reward. Writes results.json and ablations.png beside itself (or into `report`), and the table into
README.md. Finished parts are kept in `out` and not run again.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "embedded"))

import study  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

ARMS = {"paper": "full reward", "no_format": "without format", "no_evidence": "without evidence"}
FIGURES = ("accuracy", "evidence", "format", "plan_valid", "retries", "stages", "calls")
SETTINGS = study.SETTINGS | {"out": "runs/ablations", "report": str(HERE), "controls": False}


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    settings = OmegaConf.create(SETTINGS)
    OmegaConf.set_struct(settings, True)
    settings.merge_with_dotlist(sys.argv[1:])
    if len(settings.seeds) < 2:
        raise ValueError("an interval over seeds takes at least 2: set seeds=[1,2,3]")
    Path(settings.out).mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    before = study.evaluated(settings, "before", settings.driver)
    arms = {
        arm: [
            study.grpo(settings, f"{arm}_{seed}", seed, f"reward={arm}") for seed in settings.seeds
        ]
        for arm in ARMS
    }
    report = Path(settings.report)
    report.mkdir(parents=True, exist_ok=True)
    results = {
        "settings": OmegaConf.to_container(settings) | {"out": "", "report": ""},
        "study_seconds": round(time.monotonic() - began),
        "before": {figure: _mean(before["sampled"][figure]) for figure in FIGURES},
        "arms": {arm: over_arms(runs) for arm, runs in arms.items()},
        "less_than_full": differences(arms),
        "curves": {arm: [run["curve"] for run in runs] for arm, runs in arms.items()},
    }
    (report / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    plot(results, report / "ablations.png")
    readme = report / "README.md"
    if readme.is_file():
        text = study.between_marks(readme.read_text(encoding="utf-8"), table(results))
        readme.write_text(text, encoding="utf-8")
    print(table(results))


def over_arms(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Each figure's mean and 95% t interval over the seeds, sampled at temperature 1."""
    from disco_rl.evaluation.intervals import over_seeds

    return {
        figure: [round(x, 4) for x in over_seeds([_mean(run["sampled"][figure]) for run in runs])]
        for figure in FIGURES
    }


def differences(arms: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, list[float]]]:
    """Each ablation less the full reward, paired by seed, since a seed fixes the questions."""
    from disco_rl.evaluation.intervals import over_seeds

    return {
        arm: {
            figure: [
                round(x, 4)
                for x in over_seeds(
                    [
                        _mean(run["sampled"][figure]) - _mean(full["sampled"][figure])
                        for run, full in zip(runs, arms["paper"], strict=True)
                    ]
                )
            ]
            for figure in FIGURES
        }
        for arm, runs in arms.items()
        if arm != "paper"
    }


def table(results: dict[str, Any]) -> str:
    """Markdown: the warm start, each arm, and each ablation less the full reward."""
    rows = [["run", *FIGURES], ["---"] * (len(FIGURES) + 1)]
    rows.append(["warm start", *(f"{results['before'][figure]:.3f}" for figure in FIGURES)])
    for arm, title in ARMS.items():
        rows.append([title, *(_cell(results["arms"][arm][figure]) for figure in FIGURES)])
    for arm, less in results["less_than_full"].items():
        rows.append([f"**{ARMS[arm]}, less full**", *(_cell(less[figure]) for figure in FIGURES)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars with their intervals for what Table 2 shows, and accuracy as it was trained."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = ("accuracy", "plan_valid", "retries", "stages")
    figure, axes = pyplot.subplots(1, len(shown) + 1, figsize=(17, 3.6), constrained_layout=True)
    for axis, name in zip(axes, shown, strict=False):
        for at, arm in enumerate(ARMS):
            mean, low, high = results["arms"][arm][name]
            axis.bar(at, mean, yerr=[[mean - low], [high - mean]], capsize=4)
        axis.axhline(results["before"][name], color="grey", linestyle="--", label="warm start")
        axis.set_xticks(range(len(ARMS)), ARMS.values(), rotation=15, fontsize=8)
        axis.set_title(f"{name} (test)", fontsize=9)
    axes[0].legend(fontsize=8)
    for at, arm in enumerate(ARMS):
        for seed, curve in enumerate(results["curves"][arm]):
            steps, values = zip(*curve["accuracy"], strict=True)
            axes[-1].plot(steps, values, color=f"C{at}", label=ARMS[arm] if not seed else None)
    axes[-1].set_title("accuracy (training), a line a seed", fontsize=9)
    axes[-1].set_xlabel("GRPO step")
    axes[-1].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _cell(figure: list[float]) -> str:
    mean, low, high = figure
    return f"{mean:.3f} ({low:.3f}, {high:.3f})"


if __name__ == "__main__":
    main()
