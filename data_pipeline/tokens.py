"""Token counters: how long a shard is."""

import re
from collections.abc import Sequence
from pathlib import Path

from disco_rl.core.shards import CountTokens

WORDS = "words"
"""Name of the counter that needs no tokenizer: words and punctuation marks."""

_WORD = re.compile(r"\w+|[^\w\s]")


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

    def count(texts: Sequence[str]) -> list[int]:
        encoded = loaded.encode_batch(list(texts), add_special_tokens=False)
        return [len(one.ids) for one in encoded]

    return count
