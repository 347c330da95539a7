"""Kiwix ZIM archives, through `libzim`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from data_pipeline.set_aside import SetAside
from data_pipeline.wiki.page import (
    Item,
    Redirect,
    SourceError,
    SourcePage,
    is_disambiguation,
    too_long,
)

_VERSION = re.compile(rb"version of the \w+, (\w+ \d+, \d{4})")


@dataclass(frozen=True)
class Zim:
    """Pages and redirects of an archive, of the old and the new namespace scheme; `x.zim` also
    names one that is split into `x.zimaa`, `x.zimab`, …"""

    path: Path

    def raw(self) -> Iterator[tuple[str, str, str | bytes | None]]:
        """Path, title, and the redirect's target (text) or the page's HTML (bytes)."""
        from libzim.reader import Archive

        try:
            archive = Archive(self.path)
        except RuntimeError as error:
            raise SourceError(f"{self.path}: not a readable ZIM ({error})") from error
        for number in range(archive.all_entry_count):
            try:
                record = _read(archive._get_entry_by_id(number), archive.has_new_namespace_scheme)
            except (RuntimeError, KeyError) as error:
                yield f"entry {number}", "", None if not str(error) else str(error).encode()
                continue
            if record is not None:
                yield record

    def convert(self, raw: tuple[str, str, str | bytes | None]) -> Item:
        from data_pipeline.wiki.html import to_text

        path, title, body = raw
        if isinstance(body, str):
            return Redirect(title, body)
        if not title or body is None:
            why = f"unreadable: {(body or b'').decode('utf-8', 'replace')}"
            return SetAside(self.path.name, None, title or path, why)
        if reason := too_long(len(body)):
            return SetAside(self.path.name, None, title, reason)
        try:
            text, links = to_text(body.decode("utf-8"), title)
        except UnicodeDecodeError as error:
            return SetAside(self.path.name, None, title, f"not UTF-8 at byte {error.start}")
        return SourcePage(
            title, text, links, is_disambiguation(title, text), False, _revision(body)
        )


def _revision(html: bytes) -> str:
    """From the last words that Kiwix adds, where they say it."""
    found = _VERSION.search(html[-4000:])
    return f"{datetime.strptime(found[1].decode(), '%B %d, %Y'):%Y-%m-%d}" if found else ""


def _read(entry: Any, new_scheme: bool) -> tuple[str, str, str | bytes] | None:
    """None for what is no page: pictures, scripts, metadata."""
    path = str(entry.path)
    if not new_scheme and not path.startswith("A/"):
        return None
    if entry.is_redirect:
        return path, str(entry.title), str(entry.get_redirect_entry().title)
    item = entry.get_item()
    if not item.mimetype.startswith("text/html"):
        return None
    return path, str(entry.title), bytes(item.content)
