"""The output folder of a step; its manifest, written last, holds the settings it was built with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from disco_rl.data.store import MANIFEST_FILE


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
