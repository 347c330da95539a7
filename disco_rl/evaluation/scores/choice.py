"""The letter that a reply to a multiple-choice question gives, by each benchmark's own rule."""

import re
from collections.abc import Sequence

from disco_rl.core.text import normalise_answer

_BRACKETED = re.compile(r"The correct answer is \(([A-D])\)")
_BARE = re.compile(r"The correct answer is ([A-D])")
_MARKS = re.compile(r"[\n\"'.,?!{}]")
_PREFIXES = ("answer is:", "answer:", "answer is", "option is")
_LETTER = re.compile(
    r"(?:the )?(?:correct )?(?:answer|option)?(?: is)?[\s:]*\(?([A-D])\)?(?:[\s.:,)]+(.*))?",
    re.IGNORECASE | re.DOTALL,
)


def longbench_choice(reply: str) -> str | None:
    """LongBench v2: asterisks go; the sentence with brackets, then without; None is wrong."""
    text = reply.replace("*", "")
    match = _BRACKETED.search(text) or _BARE.search(text)
    return match[1] if match else None


def infinitebench_choice(reply: str, letter: str, option: str) -> float:
    """InfiniteBench En.MC: 1 where its script finds the gold letter or the gold option's text.

    In order, the first that applies decides: a first character in A-D; the whole reply being the
    gold text; what stands one character after a prefix such as "answer is"; the first word that is
    a piece of "ABCD" (so "BC" counts as an answer, and as a wrong one).
    """
    text = reply.strip()
    if not text:
        return 0.0
    gold = (option, letter)
    if text[0] in "ABCD":
        return float(text[0] in gold)
    if text in gold:
        return 1.0
    text = re.sub(" +", " ", _MARKS.sub(" ", text))
    for prefix in _PREFIXES:
        at = text.find(prefix)
        if at >= 0:
            return float(text[at + len(prefix) + 1 :].startswith(gold))
    for word in text.split():
        if word in "ABCD":
            return float(word in gold)
    return 0.0


def strict_choice(reply: str, options: Sequence[str]) -> str | None:
    """The letter, where the reply gives one option by letter, text or both, and nothing else."""
    text = reply.replace("*", "").strip()
    letters = "ABCD"[: len(options)]
    by_text = {normalise_answer(option): x for x, option in zip(letters, options, strict=True)}
    if (whole := normalise_answer(text)) in by_text and len(by_text) == len(options):
        return by_text[whole]
    match = _LETTER.fullmatch(text)
    if match is None or match[1] not in letters:  # lower case: "a" may be an article
        return None
    rest = normalise_answer(match[2] or "")
    return match[1] if not rest or by_text.get(rest) == match[1] else None
