"""Scores of free text: containment (RULER), token F1 and exact match (SQuAD, MuSiQue)."""

import re
from collections import Counter
from collections.abc import Sequence

from disco_rl.core.text import normalise_answer

_CONTROL = re.compile(r"[\x00-\x1f]")


def contains(reply: str, answers: Sequence[str]) -> float:
    """RULER's `string_match_part`: 1 where a reference stands in the reply, case ignored.

    Control characters become line breaks first, as in RULER's own post-processing.
    """
    given = _CONTROL.sub("\n", reply.strip()).strip().lower()
    return float(any(answer.lower() in given for answer in answers))


def token_f1(reply: str, answers: Sequence[str]) -> float:
    """Best F1 of normalised words over the references (InfiniteBench En.QA, MuSiQue).

    Where both normalise to nothing MuSiQue scores 1 and InfiniteBench 0; here it is 0, since a
    reply such as "the" is no answer.
    """
    return max(_f1(normalise_answer(reply).split(), normalise_answer(a).split()) for a in answers)


def exact(reply: str, answers: Sequence[str]) -> float:
    """1 where the SQuAD normal forms are equal, and not empty."""
    given = normalise_answer(reply)
    return float(bool(given) and any(given == normalise_answer(answer) for answer in answers))


def _f1(given: list[str], gold: list[str]) -> float:
    same = sum((Counter(given) & Counter(gold)).values())
    if not same:
        return 0.0
    precision, recall = same / len(given), same / len(gold)
    return 2 * precision * recall / (precision + recall)
