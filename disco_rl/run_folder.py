"""What a training run leaves beside its checkpoints: its config, and its metrics by step.

RUN/config.yaml               as composed, secrets hidden
RUN/metrics/TIME.jsonl        one file a start, one line a step: {"step": n, "data": {...}}
RUN/global_step_N/actor/...   verl's checkpoints
"""

from __future__ import annotations

import json
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONFIG_FILE, METRICS_FOLDER = "config.yaml", "metrics"


def begin(config: DictConfig, env: MutableMapping[str, str]) -> Path:
    """Writes the run's config, and turns verl's file logger on, by `config` and `env`.

    A resumed run writes a new metrics file: verl's logger empties the one it opens.
    """
    from omegaconf import open_dict

    from disco_rl.config import to_yaml

    folder = Path(str(config.trainer.default_local_dir)).expanduser()
    metrics = folder / METRICS_FOLDER
    metrics.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(to_yaml(config), encoding="utf-8")
    loggers = config.trainer.logger
    names = [loggers] if isinstance(loggers, str) else list(loggers or [])
    if "file" not in names:
        with open_dict(config):
            config.trainer.logger = [*names, "file"]
    now = time.time()
    name = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}"
    env["VERL_FILE_LOGGER_PATH"] = str((metrics / f"{name}.jsonl").resolve())
    return folder


def read_config(folder: Path) -> dict[str, Any] | None:
    """The run's config as plain containers, resolved; None where there is none."""
    from omegaconf import OmegaConf

    path = folder / CONFIG_FILE
    if not path.is_file():
        return None
    plain = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    return plain if isinstance(plain, dict) else None  # type: ignore[return-value]


def read_metrics(folder: Path) -> dict[int, dict[str, Any]]:
    """Metrics by step, in order; of a step that ran again after a resume, the later run's.

    A line that was cut off when the run was killed is left out.
    """
    steps: dict[int, dict[str, Any]] = {}
    for file in sorted((folder / METRICS_FOLDER).glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            steps[int(entry["step"])] = steps.get(int(entry["step"]), {}) | entry["data"]
    return dict(sorted(steps.items()))
