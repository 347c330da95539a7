"""Does GRPO teach the embedded Driver? Three seeds, two controls, one table and one picture.

    python recipes/embedded/study.py                    # after `make data driver`
    python recipes/embedded/study.py seeds=[1] steps=4 questions=16 out=runs/try report=runs/try

What it does: evaluates the warm-started Driver on the held-out test world; trains it with GRPO,
once a seed; evaluates each result; as controls trains once with rewards shuffled within the batch,
and once on further demonstrations for the wall time of a GRPO run. Writes results.json and
curves.png beside itself (or into `report`). Finished parts are kept in `out` and not run again.
"""

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from omegaconf import DictConfig, OmegaConf  # noqa: E402

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "out": "runs/study",
    "report": str(HERE),
    "data": "data/embedded",
    "driver": "data/embedded/driver",
    "seeds": [1, 2, 3],
    "controls": True,  # False: only GRPO
    "steps": None,  # None: as configs/train.yaml says
    "questions": 256,  # of the test world, one trajectory each
    "train": [],  # further overrides of every training run
    "jobs": 2,  # runs at a time, each on one thread: two share two cores better than one uses them
    "nice": 0,  # 15: leave the machine to others
}


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    if sys.argv[1:2] == ["evaluate"]:  # how `evaluated` calls itself
        evaluate_into(*sys.argv[2:])
        return
    settings = begun(SETTINGS, sys.argv[1:])
    began = time.monotonic()
    runs: dict[str, dict[str, Any]] = {"before": evaluated(settings, "before", settings.driver)}
    with ThreadPoolExecutor(settings.jobs) as pool:
        seeds = {f"grpo_{seed}": pool.submit(grpo, settings, seed) for seed in settings.seeds}
        control = settings.controls and pool.submit(shuffled, settings)
        runs |= {name: future.result() for name, future in seeds.items()}
        if control:
            seconds = max(run["train_seconds"] for run in runs.values() if "train_seconds" in run)
            more = pool.submit(more_demonstrations, settings, seconds)
            runs |= {"shuffled": control.result(), "demonstrations": more.result()}
    report = Path(settings.report)
    report.mkdir(parents=True, exist_ok=True)
    results = summary(settings, runs) | {"study_seconds": round(time.monotonic() - began)}
    (report / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    plot(runs, report / "curves.png")
    readme = report / "README.md"
    if readme.is_file():
        readme.write_text(with_table(readme.read_text(encoding="utf-8"), results), encoding="utf-8")
    print(json.dumps(results["table"], indent=2))


def begun(defaults: Mapping[str, Any], overrides: Sequence[str]) -> DictConfig:
    """The settings; the folder `out` is made, and this process's children know how to run.

    Raises `ValueError` where the data or the driver isn't there.
    """
    settings = OmegaConf.create(dict(defaults))
    OmegaConf.set_struct(settings, True)
    settings.merge_with_dotlist(list(overrides))
    for key, name in (("data", "train.parquet"), ("driver", "config.json")):
        if not (ROOT / settings[key] / name).is_file():  # an absolute path stays as it is
            raise ValueError(f"no {name} in {key}={settings[key]}; give its folder, or make {key}")
    Path(settings.out).mkdir(parents=True, exist_ok=True)
    os.nice(settings.nice)
    os.environ["OMP_NUM_THREADS"] = "1"
    # The command line and Ray's processes are to run this checkout, whichever is installed.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return settings


def world(settings: DictConfig) -> list[str]:
    """The overrides that name the data."""
    data = settings.data
    return [
        f"data.train_files={data}/train.parquet", f"data.val_files={data}/validation.parquet",
        f"disco.context_store={data}/contexts",
    ]  # fmt: skip


def grpo(settings: DictConfig, seed: int) -> dict[str, Any]:
    return trained(settings, f"grpo_{seed}", seed)


def shuffled(settings: DictConfig) -> dict[str, Any]:
    """The control whose rewards say nothing: shuffled over the batch's trajectories."""
    return trained(settings, "shuffled", settings.seeds[0], "disco.shuffle_rewards=true")


def trained(settings: DictConfig, name: str, seed: int, *overrides: str) -> dict[str, Any]:
    """One training run through the real command line, exported and evaluated.

    What is finished isn't run again. Raises `ValueError` where `out` holds a run of this name that
    was made with other settings.
    """
    from disco_rl.run_folder import read_metrics

    # Absolute: the command line runs in the checkout's root.
    run, model = (Path(settings.out).resolve() / n for n in (name, f"{name}_model"))
    steps = [] if settings.steps is None else [f"trainer.total_training_steps={settings.steps}"]
    chosen = [
        f"data.seed={seed}", f"disco.seed={seed}", "trainer.test_freq=-1", *world(settings),
        f"actor_rollout_ref.model.path={settings.driver}", *steps, *settings.train, *overrides,
    ]  # fmt: skip
    commits = noted(run.with_name(f"{name}_run.json"), chosen, done=model.is_dir())
    if not model.is_dir():
        disco_rl("train", f"trainer.default_local_dir={run}", *chosen)  # goes on where it stopped
        disco_rl("export", str(run), str(model))
    result = evaluated(settings, name, str(model))
    result["commits"] = commits
    metrics = read_metrics(run)
    result["train_seconds"] = sum(data.get("timing_s/step", 0.0) for data in metrics.values())
    result["curve"] = {
        key: [[step, data[f"disco/train/{key}"]] for step, data in metrics.items()
              if f"disco/train/{key}" in data]
        for key in ("reward", "accuracy", "format", "evidence", "plan_valid", "stages")
    }  # fmt: skip
    diffs = [
        data["disco/logprob_diff_max"]
        for data in metrics.values()
        if "disco/logprob_diff_max" in data
    ]
    result["logprob_diff_max"] = max(diffs)
    result["optimizer_steps"] = [
        data["disco/optimizer_steps"]
        for data in metrics.values()
        if "disco/optimizer_steps" in data
    ]
    return result


def noted(note: Path, chosen: list[str], *, done: bool) -> list[str]:
    """Keeps the overrides of a run and the commits that worked on it; the commits."""
    known = json.loads(note.read_text()) if note.is_file() else None
    if known is not None and known["overrides"] != chosen:
        raise ValueError(
            f"{note} was made with {known['overrides']}, not {chosen}; set another out"
        )
    commits: list[str] = known["commits"] if known else []
    if not done and commit() not in commits:
        commits.append(commit())
        note.write_text(json.dumps({"overrides": chosen, "commits": commits}))
    return commits


def more_demonstrations(settings: DictConfig, seconds: float) -> dict[str, Any]:
    """The warm start continued on fresh demonstrations of the same kind, for the same time."""
    sys.path.insert(0, str(ROOT / "scripts"))
    model = Path(settings.out) / "demonstrations_model"
    if not (model / "manifest.json").is_file():
        from build_driver import continue_training

        config = OmegaConf.load(ROOT / "configs" / "build_driver.yaml")
        config.threads = 1  # as the training runs beside it
        continue_training(config, settings.driver, model, seconds)
    result = evaluated(settings, "demonstrations", str(model))
    return result | {"train_seconds": seconds}


def evaluated(settings: DictConfig, name: str, model: str) -> dict[str, Any]:
    """Reward parts a test question, sampled at temperature 1 and greedily; kept in `out`."""
    path = Path(settings.out).resolve() / f"{name}_test.json"
    if path.is_file():
        result = json.loads(path.read_text())
        if len(result["sampled"]["accuracy"]) == settings.questions:
            return result
    # Apart: torch and asyncio, a run each.
    command = [sys.executable, __file__, "evaluate", model, str(settings.questions), str(path)]
    subprocess.run([*command, *world(settings)], cwd=ROOT, check=True)
    return json.loads(path.read_text())


def evaluate_into(model: str, questions: str, path: str, *overrides: str) -> None:
    ways = {"sampled": 1.0, "greedy": 0.0}
    result = {way: test(model, int(questions), ways[way], overrides) for way in ways}
    half = Path(f"{path}.half")
    half.write_text(json.dumps(result))
    half.replace(path)


def test(
    model: str, n_questions: int, temperature: float, overrides: Sequence[str]
) -> dict[str, list[float]]:
    """Each figure's values, one a test question. Raises `RuntimeError` where an episode failed."""
    from disco_rl.config import compose
    from disco_rl.data import ContextStore, load_rows
    from disco_rl.engine.config import EpisodeConfig
    from disco_rl.engine.workers import build_pool
    from disco_rl.evaluation.episodes import evaluate
    from disco_rl.prompts import load_prompts
    from disco_rl.rewards import build_judge, weights_from
    from disco_rl.trainer.cpu.driver import LocalDriver

    config = compose(overrides)
    plain = OmegaConf.to_container(config, resolve=True)
    limits = dict(plain["driver"])
    episode = EpisodeConfig(load_prompts(limits.pop("prompts")), **limits, **plain["episode"])
    samples = load_rows(str(Path(config.data.train_files).parent / "test.parquet"))[:n_questions]
    weights = weights_from(plain["disco"]["reward"])

    async def run():
        driver = LocalDriver.load(
            model,
            window=limits["window"],
            template=plain["data"]["apply_chat_template_kwargs"],
            sampling={"temperature": temperature},
        )
        try:
            return await evaluate(
                samples,
                ContextStore(plain["disco"]["context_store"]).get,
                driver,
                build_pool(plain["worker"]),
                episode,
                build_judge(plain["judge"]),
            )
        finally:
            await driver.close()

    scored = asyncio.run(run())
    figures: dict[str, list[float]] = {}
    for item in scored:
        reward = weights.total(item.parts)
        if reward is None:
            raise RuntimeError(f"test question {item.sample.index}: {item.parts.failure}")
        plans = [call for call in item.trajectory.calls if call.kind.value == "plan"]
        row = item.parts.values() | {
            "reward": reward,
            "plan_valid": sum(call.error is None for call in plans) / max(len(plans), 1),
            "stages": len(item.trajectory.stages),
            "calls": len(item.trajectory.calls),
            "retries": sum(call.repair for call in item.trajectory.calls),
            "accepted": float(item.trajectory.stop.value == "accepted"),
        }
        for key, value in row.items():
            figures.setdefault(key, []).append(value)
    return figures


def summary(settings: DictConfig, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means with 95% intervals: over questions a run, over seeds for GRPO."""
    from disco_rl.evaluation.intervals import bootstrap, over_seeds

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    table: dict[str, Any] = {}
    for name, run in runs.items():
        table[name] = {
            way: {
                key: {
                    "mean": round(mean(values), 4),
                    "ci95": [round(x, 4) for x in bootstrap(values)],
                }
                for key, values in run[way].items()
            }
            for way in ("sampled", "greedy")
        }
    grpos = [run for name, run in runs.items() if name.startswith("grpo_")]
    if len(grpos) > 1:
        table["grpo"] = {
            way: {
                key: dict(zip(("mean", "low", "high"), (round(x, 4) for x in over_seeds(
                    [mean(run[way][key]) for run in grpos])), strict=True))
                for key in grpos[0][way]
            }
            for way in ("sampled", "greedy")
        }  # fmt: skip
        table["gain"] = {
            way: {
                key: dict(zip(("mean", "low", "high"), (round(x, 4) for x in over_seeds(
                    [mean(run[way][key]) - mean(runs["before"][way][key]) for run in grpos])),
                    strict=True))
                for key in ("accuracy", "reward")
            }
            for way in ("sampled", "greedy")
        }  # fmt: skip
    return made_with(settings) | {
        "train_seconds": {
            n: round(r["train_seconds"]) for n, r in runs.items() if "train_seconds" in r
        },
        "logprob_diff_max": max(run["logprob_diff_max"] for run in grpos),
        "optimizer_steps_a_step": sorted({s for run in grpos for s in run["optimizer_steps"]}),
        "table": table,
        "curves": {name: run["curve"] for name, run in runs.items() if "curve" in run},
    }


def made_with(settings: DictConfig) -> dict[str, Any]:
    """Commit, versions and settings, without this machine's folders."""
    packages = ("verl", "torch", "transformers", "ray")
    folders = dict.fromkeys(("out", "report", "data", "driver"), "")
    return {
        "commit": commit(),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "settings": OmegaConf.to_container(settings) | folders,
    }


def commit() -> str:
    """The checkout's commit, with a + where code or configs have been changed since."""

    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return run.stdout.strip()

    changed = git("status", "--porcelain", "--", "disco_rl", "configs", "data_pipeline")
    return git("rev-parse", "HEAD") + ("+" if changed else "")


MARKS = "<!-- table -->", "<!-- /table -->"


def with_table(text: str, results: dict[str, Any]) -> str:
    """`text` with the table between its marks made anew from `results`."""
    columns = ("accuracy", "reward", "format", "evidence", "plan_valid", "stages", "calls")
    rows = [("run", *columns, "greedy accuracy"), ("---",) * (len(columns) + 2)]
    names = {
        "before": "warm start",
        **{name: f"GRPO, seed {name[5:]}" for name in results["table"] if name.startswith("grpo_")},
        "grpo": "**GRPO, all seeds**",
        "gain": "**gain**",
        "shuffled": "control: rewards shuffled",
        "demonstrations": "control: more demonstrations",
    }
    for name, title in names.items():
        if name not in results["table"]:
            continue
        row = results["table"][name]
        cells = [_cell(row["sampled"].get(key)) for key in columns]
        rows.append((title, *cells, _cell(row["greedy"].get("accuracy"))))
    return between_marks(text, "\n".join("| " + " | ".join(row) + " |" for row in rows))


def between_marks(text: str, table: str) -> str:
    """`text` with `table` between its marks."""
    start, end = (text.index(mark) for mark in MARKS)
    return f"{text[: start + len(MARKS[0])]}\n{table}\n{text[end:]}"


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    low, high = figure["ci95"] if "ci95" in figure else (figure["low"], figure["high"])
    return f"{figure['mean']:.3f} ({low:.3f}, {high:.3f})"


def plot(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Training curves of each part, a line a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    keys = ("reward", "accuracy", "evidence", "plan_valid")
    figure, axes = pyplot.subplots(1, len(keys), figsize=(15, 3.6), constrained_layout=True)
    for axis, key in zip(axes, keys, strict=True):
        for name, run in runs.items():
            if "curve" in run:
                steps, values = zip(*run["curve"][key], strict=True)
                style = "--" if name == "shuffled" else "-"
                axis.plot(steps, values, style, label=name, color="grey" if style == "--" else None)
        axis.set_title(f"{key} (training, mean over trajectories)", fontsize=9)
        axis.set_xlabel("GRPO step")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=110)


def disco_rl(*command: str) -> None:
    """Runs the command line; its output is shown. Raises `CalledProcessError` where it failed."""
    subprocess.run([sys.executable, "-m", "disco_rl.cli", *command], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
