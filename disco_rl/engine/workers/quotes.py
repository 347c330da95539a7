"""Where a model's quote stands in the text it was copied from."""

import re

_BLANKS = re.compile(r"\s+")


def locate(quote: str, text: str) -> tuple[int, int] | None:
    """The half-open span of the first place where `quote` stands verbatim, or None.

    Only runs of blanks may differ: a model writes one blank for a line break. The span then
    covers the real text, so the finding's quote is taken from there. Linear in the text.
    """
    quote = quote.strip()
    if not quote:
        return None
    start = text.find(quote)
    if start >= 0:
        return start, start + len(quote)
    words = quote.split()
    # An invented quote is refused quickly: by its longest word, then by all of them together.
    wanted = " ".join(words)
    if max(words, key=len) not in text or wanted not in " ".join(text.split()):
        return None
    squeezed: list[str] = []  # the text with single blanks,
    places: list[int] = []  # and where each of its characters stands
    end = 0
    for match in _BLANKS.finditer(text):
        squeezed.append(text[end : match.start()] + " ")
        places.extend(range(end, match.start() + 1))
        end = match.end()
    squeezed.append(text[end:])
    places.extend(range(end, len(text)))
    found = "".join(squeezed).index(wanted)
    return places[found], places[found + len(wanted) - 1] + 1
