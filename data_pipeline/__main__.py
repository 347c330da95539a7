"""`python -m data_pipeline STEP name=value ...`: the steps that make training data."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from disco_rl.engine.protocols import ModelError

_STEPS = {
    "world": "a generated encyclopedia with multi-hop questions: rows and context store",
    "musique": "official MuSiQue records: rows and context store",
}
# These make one data set, and share the settings of configs/data.yaml.
_WIKI_STEPS = {
    "questions": "MuSiQue records, checked; bad ones set aside",
    "pages": "the page store: Wikipedia by title",
    "mentions": "names in the questions' paragraphs that have a page",
    "plans": "which pages stand where in each question's context",
    "filters": "leaks, contradictions, contamination: each sample's verdicts",
    "dataset": "rows, context store, dataset card and quality report",
    "all": "all six of them",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one step. Returns 0, or 2 after a message on stderr where input or settings are bad."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: python -m data_pipeline STEP [name=value ...]\n\nsteps:")
        for name, about in _STEPS.items():
            print(f"  {name:10}{about}")
        print("\nsteps from MuSiQue and Wikipedia to long contexts, each after those before it:")
        for name, about in _WIKI_STEPS.items():
            print(f"  {name:10}{about}")
        print("\n`python -m data_pipeline STEP --help` lists the settings of a step.")
        return 0
    step, overrides = argv[0], argv[1:]
    try:
        if step not in _STEPS and step not in _WIKI_STEPS:
            known = ", ".join([*_STEPS, *_WIKI_STEPS])
            raise ValueError(f"no step {step!r}; there are: {known}")
        if any(word in ("-h", "--help") for word in overrides):
            print(f"usage: python -m data_pipeline {step} [name=value ...]\n")
            print(_config(step).read_text(encoding="utf-8").strip())
            return 0
        settings = _compose(step, overrides)
        if step in _WIKI_STEPS:
            _wiki(settings, step)
        else:
            (_world if step == "world" else _musique)(settings)
    except (ValueError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _config(step: str) -> Path:
    from disco_rl.config import configs_dir

    if step in _WIKI_STEPS:
        return configs_dir() / "data.yaml"
    return configs_dir() / "data_pipeline" / f"{step}.yaml"


def _compose(step: str, overrides: list[str]) -> dict[str, Any]:
    """The step's settings. Raises `ConfigError` for unknown names, and for one without a value."""
    from omegaconf import OmegaConf

    from disco_rl.config import ConfigError, compose, missing_keys

    file = _config(step)
    config = compose(overrides, name=file.stem, directory=file.parent)
    if missing := missing_keys(config):
        raise ConfigError(f"give a value for: {', '.join(f'{name}=' for name in missing)}")
    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    return {str(name): value for name, value in settings.items()}


def _world(settings: dict[str, Any]) -> None:
    from data_pipeline.build_world import build_world
    from data_pipeline.world import WorldConfig

    out = Path(settings["out"])
    n_questions = {
        split: _whole(settings, f"n_{split}") for split in ("train", "validation", "test")
    }
    config = WorldConfig(
        shard_size=_whole(settings, "shard_size", least=1),
        questions_per_context=_whole(settings, "questions_per_context", least=1),
        lengths=_weights(settings, "lengths"),
        hops=_weights(settings, "hops"),
    )
    with _progress(n_questions) as progress:
        manifest, built = build_world(
            out,
            seed=_whole(settings, "seed"),
            n_questions=n_questions,
            config=config,
            tokenizer=str(settings["tokenizer"]),
            progress=progress,
        )
    _report(out, manifest, built)


def _musique(settings: dict[str, Any]) -> None:
    from data_pipeline.musique import build_musique

    out, validation, limit = Path(settings["out"]), settings["validation_in"], settings["limit"]
    with _progress({"records": 0}) as progress:
        manifest, built = build_musique(
            Path(settings["in"]),
            out,
            validation=None if validation is None else Path(validation),
            n_validation=_whole(settings, "n_validation"),
            tokenizer=str(settings["tokenizer"]),
            shard_size=_whole(settings, "shard_size", least=1),
            limit=None if limit is None else _whole(settings, "limit", least=1),
            progress=lambda n_done: progress("records", n_done),
        )
    _report(out, manifest, built)


def _wiki(settings: dict[str, Any], step: str) -> None:
    from data_pipeline.steps.run import STEPS, run
    from data_pipeline.steps.settings import parse_settings

    typed = parse_settings(settings)
    last = "dataset" if step == "all" else step
    with _progress(dict.fromkeys([*STEPS, "contexts"], 0)) as progress:
        manifests = run(typed, last, progress)
    print(typed.out)
    for name, manifest in manifests.items():
        print(f"  {name}: " + ", ".join(f"{n:,} {what}" for what, n in manifest["counts"].items()))


def _whole(settings: dict[str, Any], name: str, least: int = 0) -> int:
    value = settings[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def _weights(settings: dict[str, Any], name: str) -> dict[int, float]:
    try:
        return {int(value): float(weight) for value, weight in settings[name]}
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be pairs of a whole number and its weight, as {name}=[[2048,1]], "
            f"not {settings[name]!r}"
        ) from error


@contextmanager
def _progress(totals: dict[str, int]) -> Iterator[Callable[[str, int], object]]:
    """A bar for each name on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda name, n_done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        tasks = {name: bars.add_task(name, total=n or None) for name, n in totals.items()}
        yield lambda name, n_done: bars.update(tasks[name], completed=n_done)


def _report(out: Path, manifest: dict[str, Any], built: bool) -> None:
    print(f"{out}: {'built' if built else 'complete already, nothing to do'}")
    for name, counts in manifest["counts"].items():
        print(f"  {name}: " + ", ".join(f"{n:,} {what}" for what, n in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
