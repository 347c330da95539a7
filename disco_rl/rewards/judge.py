"""Judges: is the reply one of the gold answers, and does the evidence support it."""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from disco_rl.core.replies import strip_thinking
from disco_rl.core.text import normalise_answer

_NOT_WORD = re.compile(r"[\W_]+")


class Verdict(str, Enum):
    """What a judge says. `UNDECIDED` is an abstention; a judge that broke raises `JudgeError`."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"


class JudgeError(RuntimeError):
    """The judge gave no verdict: unreachable, timed out, or unparsable. Never a wrong answer."""


class Judge(Protocol):
    """Two questions about a reply. Both raise `JudgeError` where there is no verdict."""

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        """Whether `reply` means one of the gold `answers` (the answer and its aliases)."""
        ...

    async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
        """Whether the quotes in `evidence` support `reply`."""
        ...


class MatchJudge:
    """Compares words, no model: the embedded default.

    A reply is right when its SQuAD normal form equals an answer's; containment in either direction
    isn't enough, so "the" and a list of every name are wrong. A reply that normalises to nothing
    is wrong even where a gold answer does too. An answer that must be derived (a sum, a yes or no)
    never stands in its evidence word for word: such data needs a model as judge.
    """

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        given = normalise_answer(said(reply))
        right = bool(given) and any(given == normalise_answer(answer) for answer in answers)
        return Verdict.YES if right else Verdict.NO

    async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
        """Whether the reply's normal form stands in one of the quotes, as whole words."""
        given = normalise_answer(said(reply))
        if not given:
            return Verdict.NO
        for quote in evidence:
            # Without punctuation "1901-1950" is one word; with blanks for it, "U.S." is two.
            for form in (normalise_answer(quote), normalise_answer(_NOT_WORD.sub(" ", quote))):
                if f" {given} " in f" {form} ":
                    return Verdict.YES
        return Verdict.NO


def said(reply: str) -> str:
    """What the reply says after its thinking; empty where the thinking never ended."""
    return (strip_thinking(reply) or "").strip()
