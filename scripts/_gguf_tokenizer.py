"""The tokenizer of a GGUF model file, as Hugging Face's tokenizer.json."""

import struct
from pathlib import Path
from typing import Any, BinaryIO

_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_CONTROL = 3  # the token type of what a tokenizer never makes of plain text


def write_tokenizer(gguf: Path, folder: Path) -> Path:
    """Writes `tokenizer.json` to `folder` and returns that folder.

    For byte-level BPE that splits digits, which SmolLM2 has. Raises `ValueError` for another file.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    about = metadata(gguf)
    kind = about.get("tokenizer.ggml.pre")
    if about.get("tokenizer.ggml.model") != "gpt2" or kind != "smollm":
        raise ValueError(f"{gguf}: its tokenizer is {kind!r}; only SmolLM2's is known here")
    words: list[str] = about["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: k for k, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = about["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens([w for w, t in zip(words, types, strict=True) if t == _CONTROL])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def metadata(gguf: Path) -> dict[str, Any]:
    """The file's keys and values. Raises `ValueError` where it is no GGUF of version 2 or 3."""
    with gguf.open("rb") as file:
        if file.read(4) != b"GGUF" or _number(file, "I") not in (2, 3):
            raise ValueError(f"{gguf}: not a GGUF file of version 2 or 3")
        _number(file, "Q")
        return {_text(file): _value(file, _number(file, "I")) for _ in range(_number(file, "Q"))}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner = _number(file, "I")
        return [_value(file, inner) for _ in range(_number(file, "Q"))]
    return _number(file, _NUMBERS[kind])


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode("utf-8", "replace")


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]
