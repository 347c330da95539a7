"""Check that this machine and its data are ready to train; each failure comes with its remedy.

Overrides choose what is checked, as for `disco-rl train`:
  disco-rl doctor
  disco-rl doctor data=musique actor_rollout_ref.model.path=DIR
  disco-rl doctor experiment=qwen3_8b worker.url=URL judge.url=URL
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disco_rl.commands.checks import Finding

HELP = "check the machine, the packages and the data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="key=value on configs/train.yaml")
    parser.add_argument(
        "--no-imports", action="store_true", help="skip importing torch and verl (10 s)"
    )


def run(args: argparse.Namespace) -> int:
    """1 where a check failed, else 0; a warning doesn't fail."""
    from rich.console import Console
    from rich.text import Text

    from disco_rl.commands.checks import Level

    console = Console(highlight=False, soft_wrap=True)
    style = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}
    failed = warned = 0
    for finding in findings(args.overrides, imports=not args.no_imports):
        failed += finding.level is Level.FAIL
        warned += finding.level is Level.WARN
        mark = Text(f"{finding.level.value:<5}", style=style[finding.level])
        console.print(mark + Text(f"{finding.name}: {finding.detail}"))
        if finding.remedy:
            console.print(Text(f"      -> {finding.remedy}"))
    console.print(f"{failed} failed, {warned} warnings")
    return 1 if failed else 0


def findings(overrides: list[str], *, imports: bool = True) -> "Iterator[Finding]":
    """All checks in order. One that breaks is a failed check, never a crash."""
    from disco_rl.commands import checks, cluster_checks
    from disco_rl.config import ConfigError, compose

    yield from _guarded("python", checks.python)
    yield from _guarded("packages", checks.packages)
    if imports:
        for module in ("torch", "transformers", "ray", "verl"):
            yield from _guarded(f"import {module}", partial(checks.imports, module))
    yield from _guarded("machine", checks.machine)
    try:
        config = compose(overrides)
    except ConfigError as error:
        yield checks.Finding(checks.Level.FAIL, "config", str(error), "correct the override")
        return
    yield from _guarded("model", lambda: checks.model(config))
    if imports:
        yield from _guarded("template", lambda: checks.template(config))
    yield from _guarded("endpoints", lambda: cluster_checks.endpoints(config))
    if config.trainer.device != "cpu":
        yield from _guarded("GPUs", lambda: cluster_checks.gpus(config))
        if imports:
            yield from _guarded("CUDA", lambda: cluster_checks.cuda(config))
        yield from _guarded("disk", lambda: cluster_checks.disk(config))
        yield from _guarded("ports", lambda: cluster_checks.ports(config))
    yield from _guarded("data", lambda: checks.data(config))
    yield from _guarded("reward", lambda: checks.reward(config))


# The next move where a check can't even be made.
_REMEDIES = {
    "template": "set actor_rollout_ref.model.path to a folder with its tokenizer, or a name that "
    "the hub has and this machine reaches",
    "GPUs": "nvidia-smi must work by itself first; look at the driver",
    "disk": "set what the message names; `disco-rl plan` with the same overrides says the same",
    "data": "build rows and store, with `make data` or python -m data_pipeline, or set "
    "data.train_files, data.val_files and disco.context_store",
    "reward": "`disco-rl reward-check` with the same overrides shows every question; correct the "
    "judge (judge.url, judge.model) or the data",
}


def _guarded(name: str, check: "Callable[[], Iterator[Finding]]") -> "Iterator[Finding]":
    from disco_rl.commands.checks import Finding, Level

    try:
        yield from check()
    except Exception as error:
        remedy = _REMEDIES.get(name, "run `make env` again; if it stays, report this message")
        yield Finding(Level.FAIL, name, f"{type(error).__name__}: {error}", remedy)
