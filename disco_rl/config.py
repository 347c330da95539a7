"""Composes a config from `configs/` with Hydra, and says what a mistyped override should be."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SECRET = re.compile(r"(^|_)(api_?key|key|token|secret|password|passwd|credentials?)$", re.I)
_CREDENTIALS_IN_URL = re.compile(r"(?<=://)[^/\s@]+@")
HIDDEN = "********"


class ConfigError(ValueError):
    """An override or a value that can't be used; the message gives the nearest valid one."""


def configs_dir() -> Path:
    """Where the configs are: inside the installed package, or beside it in a checkout.

    Raises `ConfigError` where neither exists.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"no configs/train.yaml in {package} or beside it; reinstall disco-rl")


def compose(
    overrides: Sequence[str] = (), *, name: str = "train", directory: Path | None = None
) -> DictConfig:
    """The primary config `name` with Hydra overrides, in order.

    A group is chosen by its plain name, `reward=paper`, wherever the defaults mount it. Raises
    `ConfigError` for an override of a key, group or option that doesn't exist, with the nearest
    one that does; `+key=value` adds a key on purpose.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folder = directory or configs_dir()
    given = [_mount(override, _mounts(folder, name)) for override in overrides]
    try:
        return _located(_compose(name, folder, given), folder)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, given, folder, name)) from error


def flat_keys(config: Any, prefix: str = "") -> list[str]:
    """All dotted keys of `config`, inner ones too."""
    from omegaconf import DictConfig, OmegaConf

    keys: list[str] = []
    if isinstance(config, DictConfig) and not config._is_none() and not config._is_missing():
        for key in map(str, config):
            path = f"{prefix}{key}"
            keys.append(path)
            if OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key):
                continue
            keys.extend(flat_keys(config._get_node(key), f"{path}."))
    return keys


def nearest(word: str, words: Sequence[str]) -> str | None:
    """The known word that `word` is likely meant to be, or None."""
    tail = [known for known in words if known.endswith(f".{word}")]
    if tail:
        # The critic isn't trained by GRPO, so a bare `lr` means the actor's.
        return min(tail, key=lambda known: (known.startswith("critic."), len(known)))
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return close[0]
    last = word.rpartition(".")[2]
    leaves: dict[str, str] = {}
    for known in words:
        leaves.setdefault(known.rpartition(".")[2], known)
    close = difflib.get_close_matches(last, list(leaves), n=1, cutoff=0.75)
    return leaves[close[0]] if close else None


def hide_secrets(value: Any, key: str = "") -> Any:
    """A copy of plain containers in which secrets read `********`.

    Secret is any text under a key that ends in key, token, secret, password or credentials, and
    what stands before the @ of an address.
    """
    if isinstance(value, Mapping):
        return {k: hide_secrets(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [hide_secrets(item, key) for item in value]
    if isinstance(value, str):
        if value and _SECRET.search(key):
            return HIDDEN
        return _CREDENTIALS_IN_URL.sub(f"{HIDDEN}@", value)
    return value


def refuse_secrets(config: DictConfig) -> None:
    """Raises `ConfigError` where our part of the config holds a key or password itself.

    Loggers and checkpoints record the config as it is, so it names an environment variable.
    """
    from omegaconf import OmegaConf

    for path, value in _leaves(OmegaConf.to_container(config, resolve=False)):
        last = path.rpartition(".")[2]
        if not (isinstance(value, str) and value):
            continue
        if re.search(r"(api_?key|password|passwd|secret|(access|auth)_token)$", last, re.I):
            raise ConfigError(
                f"{path} holds a secret, which loggers would record; "
                "put it into an environment variable and name that one"
            )
        if _CREDENTIALS_IN_URL.search(value):
            raise ConfigError(f"{path} holds credentials in an address; take them out")


def to_yaml(config: DictConfig) -> str:
    """The config as YAML, secrets hidden."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config, resolve=False)
    return OmegaConf.to_yaml(OmegaConf.create(hide_secrets(plain)))


def missing_keys(config: DictConfig) -> list[str]:
    """Dotted keys that still need a value."""
    from omegaconf import OmegaConf

    return sorted(OmegaConf.missing_keys(config))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield path, value


def _compose(name: str, folder: Path, overrides: Sequence[str]) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    search: list[str] = []
    if any("ppo_trainer" in entry for entry in _defaults(folder, name)):
        # Hydra's pkg:// would import verl and Ray, ten seconds; the files are all it needs.
        spec = importlib.util.find_spec("verl")
        if spec is None or spec.origin is None:
            raise ConfigError("verl isn't installed: pip install 'disco-rl[train]'")
        verl_configs = Path(spec.origin).parent / "trainer" / "config"
        search = [f"hydra.searchpath=[file://{verl_configs}]"]
    with initialize_config_dir(config_dir=str(folder), version_base="1.3"):
        return hydra_compose(name, overrides=[*search, *overrides])


def _located(config: DictConfig, folder: Path) -> DictConfig:
    """verl reads the agent loop's file by itself: `configs/...` is where our configs are."""
    from omegaconf import OmegaConf, open_dict

    key = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
    path = OmegaConf.select(config, key)
    if path and str(path).startswith("configs/"):
        with open_dict(config):
            OmegaConf.update(config, key, str(folder / str(path).removeprefix("configs/")))
    return config


def _defaults(folder: Path, name: str) -> list[str]:
    """The keys of the primary config's defaults list, `group@package` included."""
    import yaml

    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        raise ConfigError(f"no config {name!r} in {folder}; known: {known}")
    entries = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("defaults", [])
    return [next(iter(e)) if isinstance(e, dict) else str(e) for e in entries]


def _mounts(folder: Path, name: str) -> dict[str, str]:
    """Our groups that are mounted elsewhere, by plain name: `reward` -> `reward@disco.reward`."""
    keys = [key.removeprefix("override ").strip("/ ") for key in _defaults(folder, name)]
    return {
        key.partition("@")[0]: key
        for key in keys
        if "@" in key and (folder / key.partition("@")[0]).is_dir()
    }


def _mount(override: str, mounts: Mapping[str, str]) -> str:
    key, equals, value = override.partition("=")
    return f"{mounts[key]}{equals}{value}" if equals and key in mounts else override


def _explain(error: Exception, overrides: Sequence[str], folder: Path, name: str) -> str:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    parsed: list[Override] = []
    for text in overrides:
        try:
            parsed.append(parser.parse_override(text))
        except HydraException:
            return f"override {text!r} isn't of the form key=value"
    base = _compose(name, folder, [])
    keys = flat_keys(base)
    groups = _groups(folder)
    for override in parsed:
        key, shown = override.key_or_group, override.input_line
        if (key in groups and override.package in (None, key)) or override.package is not None:
            options = groups.get(key, [])
            value = str(override.value())
            if options and value not in options:
                near = nearest(value, options)
                hint = f"; did you mean {key}={near}" if near else ""
                return f"override {shown!r}: {key} has no option {value!r}; known: {options}{hint}"
        elif not override.is_add() and key not in keys:
            near = nearest(key, [*keys, *groups])
            hint = f"did you mean {near!r}? " if near else ""
            return f"override {shown!r}: there is no key {key!r}; {hint}+{key}=... adds a new one"
    return f"{type(error).__name__}: {error}"


def _groups(folder: Path) -> dict[str, list[str]]:
    """Our config groups and their options."""
    groups: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.yaml")):
        if path.parent != folder:
            groups.setdefault(path.parent.relative_to(folder).as_posix(), []).append(path.stem)
    return groups
