"""The output folder of a step; its manifest, written last, holds the settings it was built with."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipeline.evidence import Check, check_evidence
from data_pipeline.writer import (
    StoreItem,
    sha256,
    write_json,
    write_jsonl,
    write_rows,
    write_store,
)
from disco_rl.core.sample import Sample
from disco_rl.data.store import MANIFEST_FILE, ContextStore, StoreInfo

CONTEXTS = "contexts"


def complete(out: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The manifest of `out` where the same settings built it; None where `out` is yet to build.

    Raises `ValueError` when something else stands there: other settings, or no manifest.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    file = out / MANIFEST_FILE
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        built = manifest["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{out} exists, but {MANIFEST_FILE} can't be read ({error!r}), so it is no complete "
            "build; remove it, or choose another out="
        ) from error
    if built != settings:
        names = sorted({*built, *settings})
        changed = [
            f"{n}: {built.get(n)!r} there, {settings.get(n)!r} asked for"
            for n in names
            if built.get(n) != settings.get(n)
        ]
        raise ValueError(
            f"{out} was built with other settings ({'; '.join(changed)}); "
            "remove it, or choose another out="
        )
    return manifest


@dataclass(frozen=True)
class DataFolder:
    """A data set as it is written: `contexts/`, a file of rows a split, what was dropped, the
    manifest. `path` is the folder of `new_folder`, so it takes its name once all of it stands."""

    path: Path

    def write_contexts(self, items: Iterable[StoreItem], info: StoreInfo) -> None:
        write_store(self.path / CONTEXTS, items, info)

    def write_splits(self, splits: Mapping[str, Sequence[Sample]]) -> dict[str, Check]:
        """Writes each split that has samples, and reads all their evidence back from the store."""
        store = ContextStore(self.path / CONTEXTS)
        checks: dict[str, Check] = {}
        for split, samples in splits.items():
            if samples:
                write_rows(self.path / f"{split}.parquet", samples)
                checks[split] = check_evidence(samples, store)
        return checks

    def write_dropped(self, dropped: Iterable[Mapping[str, Any]]) -> None:
        write_jsonl(self.path / "dropped.jsonl", dropped)

    def finish(self, settings: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the manifest, with the hash of every file, and returns it."""
        manifest: dict[str, Any] = {
            "settings": settings,
            "counts": counts,
            "sha256": {
                str(file.relative_to(self.path)): sha256(file)
                for file in sorted(self.path.rglob("*"))
                if file.is_file()
            },
        }
        write_json(self.path / MANIFEST_FILE, manifest)
        return manifest
