"""What can't be used: set aside with its place and reason, so that the rest goes on unharmed."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record that was set aside. `line` is where it begins in `file`, from 1, and None where the
    file has no lines of its own; `id` is its id or title, None where it has none."""

    file: str
    line: int | None
    id: str | None
    reason: str


SURROGATES = "holds half of a surrogate pair"


def has_surrogates(*texts: str) -> bool:
    """JSON's escapes can give half a pair, which neither a file, SQLite nor a tokenizer takes."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return True
    return False


def printable(text: str) -> str:
    """`text` with a question mark for half a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def parse_json(line: bytes) -> Any:
    """The value on a line of JSON. Raises `ValueError` saying what is wrong with the line."""
    try:
        return json.loads(line.decode("utf-8").rstrip("\r\n"))  # so that it's named as cut off
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start} of the line") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
