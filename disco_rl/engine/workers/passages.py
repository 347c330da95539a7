"""The passages of a shard, which a retriever ranks and quotes."""

import re
from dataclasses import dataclass

from disco_rl.core.text import sentence_spans

_WORD = re.compile(r"\S+")
_HEADING = re.compile(r"[^\W\d_].{0,79}|[#=].{1,80}", re.DOTALL)
_ENDS = '.!?:;,。！？"”'


@dataclass(frozen=True, slots=True)
class Passage:
    """Characters `start:end` of a shard's text; `heading` is indexed with them, not quoted."""

    start: int
    end: int
    heading: str = ""


@dataclass(frozen=True, slots=True)
class PassageRule:
    """How a shard is split: into sentences (`words` = 0), or into chunks of `words` words.

    The paper's dense Worker ranks chunks of 256 tokens (Table 3). With `headings`, a short line
    without a full stop counts as the heading of the lines below it, up to the next heading.
    """

    words: int = 0
    headings: bool = True

    def __post_init__(self) -> None:
        if self.words < 0:
            raise ValueError(f"passage_words must be 0 (sentences) or positive, not {self.words}")


def split(text: str, rule: PassageRule, heading: str = "") -> tuple[list[Passage], str]:
    """Passages of a shard's text, and the heading in force at its end.

    `heading` is the one in force at its start, which stands in an earlier shard.
    """
    if rule.words:
        return _chunks(text, rule.words), ""
    passages: list[Passage] = []
    for start, end in sentence_spans(text):
        sentence = text[start:end]
        start += len(sentence) - len(sentence.lstrip())
        stripped = sentence.strip()
        if not any(map(str.isalnum, stripped)):
            continue
        if rule.headings and _is_heading(stripped, closed="\n" in sentence or end == len(text)):
            heading = stripped.strip("#= ")
        else:
            passages.append(Passage(start, start + len(stripped), heading))
    return passages, heading


def _is_heading(line: str, closed: bool) -> bool:
    return (
        closed
        and line[-1] not in _ENDS
        and len(line.split()) <= 10
        and _HEADING.fullmatch(line) is not None
        and (line[0] in "#=" or line[0].isupper())
    )


def _chunks(text: str, words: int) -> list[Passage]:
    spans = [match.span() for match in _WORD.finditer(text)]
    return [
        Passage(spans[i][0], spans[min(i + words, len(spans)) - 1][1])
        for i in range(0, len(spans), words)
    ]
