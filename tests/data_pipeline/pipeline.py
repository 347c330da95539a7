"""What tests of the steps share: settings of a small run, and what it left."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_pipeline.steps.settings import Settings, parse_settings
from disco_rl.config import compose

ROOT = Path(__file__).resolve().parents[2]


def overrides(inputs: Path, out: Path, *more: str) -> list[str]:
    return [
        f"questions.in={inputs / 'musique.jsonl'}",
        f"pages.sources=[{{kind: pages, path: {inputs / 'pages.jsonl'}}}]",
        f"out={out}",
        "expansion.lengths=[[2048, 1], [4096, 1]]",
        "mentions.min_shared=0",
        "shard_size=128",
        "dataset.n_validation=2",
        *more,
    ]


def typed(words: Sequence[str]) -> Settings:
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(compose(words, name="data"), resolve=True)
    return parse_settings(plain)


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".sqlite"
    }


def quiet(name: str, n_done: int) -> None:
    pass
