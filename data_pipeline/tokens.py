"""Token counters: how long a shard is."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from disco_rl.core.shards import CountTokens

WORDS = "words"
"""Name of the counter that needs no tokenizer: words and punctuation marks."""

_WORD = re.compile(r"\w+|[^\w\s]")

TokenStarts = Callable[[Sequence[str]], list[np.ndarray]]
"""Where each token of each text begins, in characters: int64 arrays."""


def count_words(texts: Sequence[str]) -> list[int]:
    """Words and punctuation marks of each text: close to a tokenizer's count, and the same
    everywhere."""
    return [len(_WORD.findall(text)) for text in texts]


def counter(tokenizer: str = WORDS) -> CountTokens:
    """The counter named `words`, or the one of a Hugging Face tokenizer (folder, file or hub name).

    Raises `ValueError` when the tokenizer can't be loaded.
    """
    if tokenizer == WORDS:
        return count_words
    loaded = _load(tokenizer)

    def count(texts: Sequence[str]) -> list[int]:
        encoded = loaded.encode_batch(list(texts), add_special_tokens=False)
        return [len(one.ids) for one in encoded]

    return count


def token_starts(tokenizer: str = WORDS) -> TokenStarts:
    """Like `counter`, but says where the tokens begin."""
    if tokenizer == WORDS:
        return _word_starts
    loaded = _load(tokenizer)

    def starts(texts: Sequence[str]) -> list[np.ndarray]:
        encoded = loaded.encode_batch(list(texts), add_special_tokens=False)
        return [np.array([start for start, _ in one.offsets], np.int64) for one in encoded]

    return starts


def pieces_of(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Tokens that begin in each piece of a text whose pieces end at `ends`, the last at its end."""
    bounds = np.searchsorted(starts, ends)
    bounds[-1:] = len(starts)  # a token may be placed at the text's very end
    return np.diff(bounds, prepend=0)


def _word_starts(texts: Sequence[str]) -> list[np.ndarray]:
    return [np.array([m.start() for m in _WORD.finditer(text)], np.int64) for text in texts]


def _load(tokenizer: str) -> Any:
    from tokenizers import Tokenizer

    path = Path(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        loaded = (
            Tokenizer.from_file(str(file))
            if file.is_file()
            else Tokenizer.from_pretrained(tokenizer)
        )
    except Exception as error:  # tokenizers raises bare Exception for every failure
        raise ValueError(
            f"tokenizer={tokenizer!r} can't be loaded ({error}); give '{WORDS}', a folder that "
            "holds tokenizer.json, or a hub name that can be reached"
        ) from error
    loaded.no_truncation()
    loaded.no_padding()
    return loaded
