"""The tokenizer of a GGUF file as a `tokenizer.json`, so that limits are counted in its tokens.

Byte-level BPE whose digits stand alone, as SmolLM2's (`tokenizer.ggml.pre` = smollm); others are
refused. `real_server.py` checks it against the server's own `/tokenize`.
"""

import struct
from pathlib import Path
from typing import Any, BinaryIO

_SCALARS = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def metadata(path: Path) -> dict[str, Any]:
    """The key-value part of a GGUF file, version 2 or 3. Raises `ValueError` for another file."""
    with path.open("rb") as file:
        magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"{path}: not a GGUF file of version 2 or 3")
        return {_text(file): _value(file, _number(file, "I")) for _ in range(count)}


def write_tokenizer(gguf: Path, target: Path) -> None:
    """Writes `target`, a `tokenizer.json`. Raises `ValueError` for a tokenizer of another kind."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    found = metadata(gguf)
    kind = found.get("tokenizer.ggml.model"), found.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"{gguf}: its tokenizer is {kind}, not byte-level BPE like SmolLM2's")
    tokens = found["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in found["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    types = found["tokenizer.ggml.token_type"]  # 3: a control token
    special = [token for token, type_ in zip(tokens, types, strict=True) if type_ == 3]
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    target.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(target))


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, count = _number(file, "I"), _number(file, "Q")
        return [_value(file, inner) for _ in range(count)]
    return _number(file, _SCALARS[kind])
