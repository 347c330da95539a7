"""A text file as a context, cut into shards."""

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from disco_rl.core.shards import CountTokens, Shard, TextContext

_WORD = re.compile(r"\w+|[^\w\s]")


def read_document(path: str) -> str:
    """The text of a UTF-8 file, or of standard input for `-`.

    Raises `ValueError` where there is no such file, it holds no text, or it isn't UTF-8.
    """
    if path == "-":
        raw = sys.stdin.buffer.read()
    else:
        if not Path(path).is_file():
            raise ValueError(f"{path}: no such file")
        raw = Path(path).read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as plain UTF-8 text first"
        ) from error
    if "\0" in text:
        raise ValueError(f"{path}: holds NUL bytes, so it isn't text; convert it to text first")
    if not text.strip():
        raise ValueError(f"{path}: holds no text")
    return text


def cut_document(text: str, *, shard_size: int, tokenizer: str) -> TextContext:
    """The document as a context, named by its content so that the retriever's index is reused."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return TextContext.cut(f"document-{digest}", text, token_counter(tokenizer), shard_size)


def token_counter(name: str) -> CountTokens:
    """`words` (words and marks), or a tokenizer by file, folder or hub name.

    Raises `ValueError` where the tokenizer can't be loaded.
    """
    if name == "words":
        return lambda texts: [len(_WORD.findall(text)) for text in texts]
    loaded = _tokenizer(name)
    loaded.no_truncation()
    loaded.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        encoded = loaded.encode_batch(list(texts), add_special_tokens=False)
        return [len(one.ids) for one in encoded]

    return count


def place(text: str, shard: Shard, span: tuple[int, int]) -> tuple[int, int, int]:
    """Start, end and line (from 1) in the document of a span of a shard."""
    start, end = shard.start + span[0], shard.start + span[1]
    return start, end, text.count("\n", 0, start) + 1


def _tokenizer(name: str) -> Any:
    from tokenizers import Tokenizer

    path = Path(name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(name)
    except Exception as error:  # the library raises bare Exception for every failure
        raise ValueError(
            f"document.tokenizer {name!r} can't be loaded ({error}); "
            "give 'words', a folder with tokenizer.json, or a hub name that can be reached"
        ) from error
