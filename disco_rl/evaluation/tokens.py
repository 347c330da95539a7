"""Token spans of a text, by which methods cut contexts and prompts."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

Span = tuple[int, int]
_WORD = re.compile(r"\w+|[^\w\s]")


class Tokenizer(Protocol):
    """Half-open character spans of the tokens of a text, in order, without special tokens."""

    def spans(self, text: str) -> Sequence[Span]: ...


class WordTokenizer:
    """Words and marks: no model's tokens, but the same on every machine."""

    def spans(self, text: str) -> list[Span]:
        return [match.span() for match in _WORD.finditer(text)]


class ModelTokenizer:
    """A model's own, through the `tokenizers` library."""

    def __init__(self, loaded: Any):
        loaded.no_truncation()
        loaded.no_padding()
        self._loaded = loaded

    def spans(self, text: str) -> list[Span]:
        return list(self._loaded.encode(text, add_special_tokens=False).offsets)


def load_tokenizer(name: str) -> Tokenizer:
    """`words`, or a tokenizer by file, folder or hub name. Raises `ValueError` where it can't."""
    if name == "words":
        return WordTokenizer()
    from tokenizers import Tokenizer as Loaded

    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        loaded = Loaded.from_file(str(file)) if file.is_file() else Loaded.from_pretrained(name)
    except Exception as error:  # the library raises bare Exception for every failure
        raise ValueError(
            f"tokenizer {name!r} can't be loaded ({error}); "
            "give 'words', a folder with tokenizer.json, or a hub name that can be reached"
        ) from error
    return ModelTokenizer(loaded)


def count(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.spans(text))


def head(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """The first `limit` tokens."""
    spans = tokenizer.spans(text)
    return text if len(spans) <= limit else text[: spans[limit - 1][1] if limit else 0]


def cut_middle(tokenizer: Tokenizer, text: str, limit: int) -> tuple[str, int]:
    """The first half and the last half of `limit` tokens, and how many tokens were cut.

    As LongBench v2 and InfiniteBench do over the model's window: the question, which stands at
    the end of the prompt, survives.
    """
    spans = tokenizer.spans(text)
    if len(spans) <= limit:
        return text, 0
    first, last = limit // 2, limit - limit // 2
    # From the end of the token before, so that blanks keep the halves' words apart.
    kept = (text[: spans[first - 1][1]] if first else "") + text[spans[-last - 1][1] :]
    return kept, len(spans) - limit


def chunks(tokenizer: Tokenizer, text: str, size: int) -> list[str]:
    """Chunks of `size` tokens (the last may be shorter); joined they rebuild `text`."""
    spans = tokenizer.spans(text)
    starts = [0, *(spans[i][0] for i in range(size, len(spans), size))]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
