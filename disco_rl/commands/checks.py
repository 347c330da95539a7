"""What `disco-rl doctor` checks: each function yields what it found, and the remedy."""

import importlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

_GB = 1e9
_INSTALL = "install with `make env`, or pip install -c constraints/cpu.txt 'disco-rl[train]'"


class Level(str, Enum):
    """How bad it is. Only `FAIL` makes doctor exit with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `remedy` is the next move, empty where all is well."""

    level: Level
    name: str
    detail: str
    remedy: str = ""


def python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    good = (3, 10) <= sys.version_info[:2] < (3, 13)
    remedy = "" if good else "use Python 3.10, 3.11 or 3.12: verl 0.9.1 installs on no other"
    yield Finding(Level.OK if good else Level.FAIL, "python", version, remedy)


def packages() -> Iterator[Finding]:
    """Installed versions against the ranges of our own metadata, the trainer's included."""
    from packaging.requirements import Requirement

    wrong, known = [], {}
    for text in importlib.metadata.requires("disco-rl") or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": e}) for e in ("", "train")):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing (wanted {requirement.specifier or 'any'})")
            continue
        known[requirement.name] = version
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version} is not {requirement.specifier}")
    for problem in wrong:
        yield Finding(Level.FAIL, "packages", problem, _INSTALL)
    if not wrong:
        main = ("verl", "torch", "transformers", "TransferQueue")
        shown = ", ".join(f"{name} {known[name]}" for name in main if name in known)
        yield Finding(Level.OK, "packages", f"{len(known)} in their ranges ({shown})")
    try:
        vision = importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        return
    if importlib.metadata.version("torch").endswith("+cpu"):
        yield Finding(
            Level.WARN,
            "packages",
            f"torchvision {vision} beside a CPU build of torch often fails to import",
            "pip uninstall torchvision: nothing here needs it",
        )


def imports(module: str) -> Iterator[Finding]:
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # a broken package raises anything
        detail = f"{type(error).__name__}: {error}"
        yield Finding(Level.FAIL, f"import {module}", detail, _INSTALL)
    else:
        yield Finding(Level.OK, f"import {module}", str(getattr(loaded, "__version__", "imported")))


def machine() -> Iterator[Finding]:
    """Cores, memory and disk against what the embedded training run needs."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    yield _least("cores", cores, 2, "", "training works on one, but slowly")
    yield _least("memory", memory_bytes() / _GB, 12, " GB", "close other programs, or add swap")
    places = {"here": Path.cwd(), "temporary files": Path(tempfile.gettempdir())}
    for name, folder in places.items():
        free = shutil.disk_usage(folder).free / _GB
        yield _least(f"disk, {name}", free, 5, " GB free", f"free some space in {folder}")


def memory_bytes() -> float:
    """Memory this process may use: the machine's, or its control group's where that is less."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, float(Path(file).read_text().strip()))
        except (OSError, ValueError):
            continue  # no such group, or its limit is "max"
    return total


def model(config: "DictConfig") -> Iterator[Finding]:
    """The model's folder holds all that training and `ask` read."""
    path = str(config.actor_rollout_ref.model.path)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        looks_local = path.startswith((".", "/", "~")) or path.count("/") != 1
        yield Finding(
            Level.FAIL if looks_local else Level.WARN,
            "model",
            f"{path} is no folder" + ("" if looks_local else ", so it is taken for a hub name"),
            "`make driver` builds the embedded Driver, or set actor_rollout_ref.model.path",
        )
        return
    missing = [
        name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()
    ]
    if not (any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))):
        missing.append("weights (*.safetensors)")
    template = folder / "chat_template.jinja"
    tokenizer = folder / "tokenizer_config.json"
    if not template.is_file() and not (
        tokenizer.is_file() and '"chat_template"' in tokenizer.read_text(encoding="utf-8")
    ):
        missing.append("a chat template")
    if missing:
        yield Finding(Level.FAIL, "model", f"{path} lacks {', '.join(missing)}", "build it again")
    else:
        yield Finding(Level.OK, "model", path)


def template(config: "DictConfig") -> Iterator[Finding]:
    """The Driver's chat template and tokenizer agree on the tokens of a prompt and of its end."""
    from disco_rl.trainer.parity import template_problems

    path = str(config.actor_rollout_ref.model.path)
    kwargs = dict(config.data.get("apply_chat_template_kwargs") or {})
    problems = template_problems(path, kwargs)
    remedy = "use the model's own tokenizer files, unedited, and a template that takes these keys"
    for problem in problems:
        yield Finding(Level.FAIL, "template", f"{path}: {problem}", remedy)
    if not problems:
        yield Finding(Level.OK, "template", f"{path} with {kwargs}: text and tokens agree")


def data(config: "DictConfig", *, limit: int = 200) -> Iterator[Finding]:
    """Rows and store belong together: each row's context is there, its shards, its evidence."""
    from disco_rl.commands.train import paths
    from disco_rl.data import ContextStore, load_rows

    store = ContextStore(config.disco.context_store)
    info = f"{len(store)} contexts, shards of {store.info.shard_size} {store.info.tokenizer} tokens"
    yield Finding(Level.OK, "context store", info)
    for path in [*paths(config.data.train_files), *paths(config.data.val_files)]:
        rows = load_rows(path)
        problems = []
        for row in rows[:limit]:
            n_shards = len(store.get(row.context_id).shards)
            if n_shards != row.n_shards:
                problems.append(f"row {row.index} says {row.n_shards} shards, the store {n_shards}")
            outside = [i for hop in row.hops for i in hop.shard_ids if not 0 <= i < n_shards]
            if outside:
                problems.append(f"row {row.index} has evidence in shards {outside} of {n_shards}")
        if problems or not rows:
            detail = f"{path}: {'; '.join(problems[:3]) or 'holds no rows'}"
            remedy = "build rows and store together, with python -m data_pipeline"
            yield Finding(Level.FAIL, "rows", detail, remedy)
        else:
            yield Finding(
                Level.OK, "rows", f"{path}: {len(rows)} rows, {min(limit, len(rows))} checked"
            )


def reward(config: "DictConfig") -> Iterator[Finding]:
    from disco_rl.commands.train import check_reward

    text = check_reward(config).removeprefix("reward check: ")
    if text.startswith("FAILED"):  # and disco.reward_check.enforce=false: a run starts all the same
        remedy = "correct judge.url, judge.model or the data; disco-rl reward-check shows all"
        yield Finding(Level.WARN, "reward", text, remedy)
    else:
        yield Finding(Level.OK, "reward", text)


def _least(name: str, value: float, least: float, unit: str, remedy: str) -> Finding:
    shown = f"{value:.0f}{unit}"
    if value >= least:
        return Finding(Level.OK, name, shown)
    return Finding(
        Level.WARN, name, f"{shown}, under the {least:g}{unit} this was tried with", remedy
    )
