"""A context and its shards: spans of the text, cut once, on sentence ends, by token count."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from disco_rl.core.text import sentence_spans

CountTokens = Callable[[Sequence[str]], list[int]]
"""Token counts of a batch of texts, without special tokens."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Characters `start:end` of a context, holding `n_tokens` tokens of the Worker's tokenizer."""

    index: int
    start: int
    end: int
    n_tokens: int


class Context(Protocol):
    """A document by id, read shard by shard; the text is never needed as a whole."""

    @property
    def id(self) -> str: ...

    @property
    def shards(self) -> Sequence[Shard]: ...

    def read(self, index: int) -> str:
        """The text of shard `index`. Raises `IndexError` when there is no such shard."""
        ...


@dataclass(frozen=True)
class TextContext:
    """A context held in memory."""

    id: str
    text: str
    shards: tuple[Shard, ...]

    @classmethod
    def cut(cls, id: str, text: str, count: CountTokens, shard_size: int) -> "TextContext":
        return cls(id, text, tuple(cut(text, count, shard_size)))

    def read(self, index: int) -> str:
        if not 0 <= index < len(self.shards):
            raise IndexError(f"context {self.id!r} has {len(self.shards)} shards, no shard {index}")
        shard = self.shards[index]
        return self.text[shard.start : shard.end]


def cut(text: str, count: CountTokens, shard_size: int) -> list[Shard]:
    """Cuts `text` into shards of at most `shard_size` tokens, on sentence ends.

    A sentence over the limit is cut between words, and a word over it between characters, so the
    limit holds for any text. The pieces rebuild the text exactly. Raises `ValueError` when
    `shard_size` is not positive, or a single character is over it.
    """
    if shard_size < 1:
        raise ValueError(f"shard_size must be at least 1 token, not {shard_size}")
    pieces = _pieces(text, count, shard_size)
    shards: list[Shard] = []
    first = 0
    while first < len(pieces):
        last, total = first, 0
        while last < len(pieces) and total + pieces[last][2] <= shard_size:
            total += pieces[last][2]
            last += 1
        # Tokens may merge or split where sentences meet, so the joined text is counted again.
        while True:
            start, end = pieces[first][0], pieces[last - 1][1]
            tokens = count([text[start:end]])[0]
            if tokens <= shard_size or last - first == 1:
                break
            last -= 1
        shards.append(Shard(len(shards), start, end, tokens))
        first = last
    return shards


def shards_of_span(shards: Sequence[Shard], start: int, end: int) -> list[int]:
    """Indices of the shards that the character span `start:end` of the context touches."""
    starts = [shard.start for shard in shards]
    first = max(bisect_right(starts, start) - 1, 0)
    return [s.index for s in shards[first:] if s.start < max(end, start + 1) and s.end > start]


def _pieces(text: str, count: CountTokens, limit: int) -> list[tuple[int, int, int]]:
    spans = sentence_spans(text)
    pieces = []
    for (start, end), tokens in zip(spans, count([text[a:b] for a, b in spans]), strict=True):
        if tokens <= limit:
            pieces.append((start, end, tokens))
        else:
            pieces.extend(_split_long(text, start, end, count, limit))
    return pieces


def _split_long(
    text: str, start: int, end: int, count: CountTokens, limit: int
) -> list[tuple[int, int, int]]:
    pieces = []
    while start < end:
        # The longest prefix within the limit: doubled until it is over, then bisected, so that the
        # work is linear in the text, whatever its length.
        size = limit
        while start + size < end and count([text[start : start + size]])[0] <= limit:
            size *= 2
        low, high = start + 1, min(start + size, end)
        while low < high:
            middle = (low + high + 1) // 2
            if count([text[start:middle]])[0] <= limit:
                low = middle
            else:
                high = middle - 1
        stop = low
        if stop < end:
            blank = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop))
            if blank > start:
                stop = blank + 1
        tokens = count([text[start:stop]])[0]
        if tokens > limit and stop - start > 1:  # counts needn't grow steadily with the text
            stop, tokens = start + 1, count([text[start : start + 1]])[0]
        if tokens > limit:
            raise ValueError(
                f"character {text[start:stop]!r} takes {tokens} tokens, over shard_size {limit}"
            )
        pieces.append((start, stop, tokens))
        start = stop
    return pieces
