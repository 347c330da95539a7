"""Sentences of a text, and normalisation of answers."""

import re
import string

# A sentence ends after its closing punctuation and the blanks behind it, or after line breaks.
# Chinese and Japanese put no blank there.
_SENTENCE_END = re.compile(r"[。！？][\"'”’)\]」』）]*\s*|[.!?][\"'”’)\]]*\s+|\n+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Half-open character spans of the sentences; joined in order they rebuild `text` exactly."""
    spans, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        spans.append((start, match.end()))
        start = match.end()
    if start < len(text):
        spans.append((start, len(text)))
    return spans


def normalise_answer(text: str) -> str:
    """SQuAD v1.1 normalisation: lower case, no punctuation, no articles, single blanks."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())
