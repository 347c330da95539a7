"""Scores of a reply against the gold answers, each in [0, 1]: the benchmark's own, and strict.

`official` reproduces the benchmark's script, leniencies included, so that a figure may stand beside
a published one. `strict` asks for the answer and nothing else. An empty reply scores 0 in both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from disco_rl.evaluation.scores.choice import infinitebench_choice, longbench_choice, strict_choice
from disco_rl.evaluation.scores.text import contains, exact, token_f1


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold answers; for multiple choice `answers[0]` is the letter of one of `options`."""

    answers: tuple[str, ...]
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.answers:
            raise ValueError("a question needs at least one gold answer")
        if self.options and self.answers[0] not in "ABCD"[: len(self.options)]:
            raise ValueError(f"answers[0] must be the letter of an option, not {self.answers[0]!r}")


Score = Callable[[str, Gold], float]


def _over_answers(one: Callable[[str, Sequence[str]], float]) -> Score:
    return lambda reply, gold: one(reply, gold.answers)


OFFICIAL: Mapping[str, Score] = {
    "longbench_v2": lambda reply, gold: float(longbench_choice(reply) == gold.answers[0]),
    "ruler_qa": _over_answers(contains),
    "infinitebench_qa": _over_answers(token_f1),
    "infinitebench_mc": lambda reply, gold: infinitebench_choice(
        reply, gold.answers[0], gold.options["ABCD".index(gold.answers[0])]
    ),
    "musique": _over_answers(token_f1),
    "exact": _over_answers(exact),
}
"""By name; `exact` is for our own data, which has no other official score."""


def score(name: str, reply: str | None, gold: Gold) -> dict[str, float]:
    """`official` and `strict` of a reply (None: it failed). Raises `ValueError` for a new name."""
    if name not in OFFICIAL:
        raise ValueError(f"scorer {name!r} is unknown; choose from {sorted(OFFICIAL)}")
    if not (reply or "").strip():
        return {"official": 0.0, "strict": 0.0}
    text = str(reply)
    if gold.options:
        strict = float(strict_choice(text, gold.options) == gold.answers[0])
    else:
        strict = exact(text, gold.answers)
    return {"official": OFFICIAL[name](text, gold), "strict": strict}
