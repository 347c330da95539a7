"""A context's passages and their lexical index: built once, kept on disk."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from disco_rl.core.shards import Context
from disco_rl.engine.workers.index_store import IndexStore, digest
from disco_rl.engine.workers.lexical import LexicalIndex
from disco_rl.engine.workers.passages import PassageRule, split

_VERSION = "lexical-2"  # change it with anything that changes what is indexed


@dataclass(frozen=True)
class ContextIndex:
    """Passages of all shards in order; shard `i` owns rows `offsets[i]:offsets[i + 1]`.

    `key` is the digest of all that is indexed, `digests` those of the shards' texts, `headings`
    the heading in force where each shard starts. `spans` is an int64 array [passages, 2] of
    characters in the passage's own shard.
    """

    key: str
    digests: tuple[str, ...]
    offsets: tuple[int, ...]
    headings: tuple[str, ...]
    spans: np.ndarray
    lexical: LexicalIndex


def open_index(context: Context, rule: PassageRule, store: IndexStore) -> ContextIndex:
    """The index of `context`, from disk where it is there, else built and kept."""
    texts = [context.read(i) for i in range(len(context.shards))]
    digests = tuple(digest(text) for text in texts)
    key = digest(_VERSION, repr(rule), *digests)
    folder = store.path(key)
    if folder is not None:
        try:
            return _load(folder, key, digests)
        except (OSError, ValueError, KeyError):
            store.drop(key)
    index = _build(texts, key, digests, rule)
    store.write(key, lambda folder: _save(index, folder))
    return index


def _build(texts: list[str], key: str, digests: tuple[str, ...], rule: PassageRule) -> ContextIndex:
    offsets, headings = [0], []
    spans: list[tuple[int, int]] = []
    indexed: list[str] = []
    heading = ""
    for text in texts:
        headings.append(heading)
        passages, heading = split(text, rule, heading)
        spans.extend((p.start, p.end) for p in passages)
        indexed.extend(f"{p.heading} {text[p.start : p.end]}" for p in passages)
        offsets.append(len(spans))
    return ContextIndex(
        key,
        digests,
        tuple(offsets),
        tuple(headings),
        np.array(spans, np.int64).reshape(-1, 2),
        LexicalIndex.build(indexed),
    )


def _save(index: ContextIndex, folder: Path) -> None:
    index.lexical.save(folder)
    np.save(folder / "spans.npy", index.spans)
    meta = {"offsets": index.offsets, "headings": index.headings}
    (folder / "passages.json").write_text(json.dumps(meta), encoding="utf-8")


def _load(folder: Path, key: str, digests: tuple[str, ...]) -> ContextIndex:
    meta = json.loads((folder / "passages.json").read_text(encoding="utf-8"))
    spans = np.load(folder / "spans.npy")
    return ContextIndex(
        key,
        digests,
        tuple(meta["offsets"]),
        tuple(meta["headings"]),
        spans,
        LexicalIndex.load(folder, len(spans)),
    )
