"""What a judge is shown: one JSON record, in which nothing can pass for an instruction."""

import json
import re
from collections.abc import Mapping, Sequence

# Angle brackets open chat tokens (<|im_end|>) and tags, and [INST] is Mistral's: written as JSON
# escapes they can't become tokens of the judge's template, and mean the same.
_CONTROL = re.compile(r"[<>]|\[(?=/?[A-Z_]+\])")
_LEFT_OUT = " [... {n} characters left out ...] "


def record(fields: Mapping[str, str | Sequence[str]]) -> str:
    """The fields as one line of JSON.

    Quotes and line breaks within a value are escaped, so a value can't end its string, begin a
    line, or forge the record's end. `json.loads` gives the values back exactly.
    """
    # U+2028 and its like end a line for some readers; JSON leaves them as they are.
    text = json.dumps(fields, ensure_ascii=False)
    text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shorten(text: str, limit: int) -> str:
    """`text` of at most `limit` characters, the mark of what was left out aside.

    Its start and its end are kept, since an answer stands at either.
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return text[:head] + _LEFT_OUT.format(n=len(text) - limit) + text[len(text) - tail :]


def within(quotes: Sequence[str], limit: int) -> list[str]:
    """The distinct quotes, in order, as far as they fit into `limit` characters together."""
    kept, used = [], 0
    for quote in dict.fromkeys(quotes):
        if used + len(quote) <= limit:
            kept.append(quote)
            used += len(quote)
    return kept
