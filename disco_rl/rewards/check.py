"""Before training: can the reward tell right from wrong, and does a known trick pass."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from disco_rl.core.sample import Sample
from disco_rl.engine.tasks import gather
from disco_rl.rewards.judge import Judge, JudgeError, MatchJudge, Verdict
from disco_rl.rewards.parts import PRESETS, RewardParts, RewardWeights, Value
from disco_rl.rewards.probes import (
    RIGHT,
    TRICKS,
    Kind,
    Probe,
    answer_probes,
    evidence_probes,
)

# Bounds on the share of a kind that is judged right. They leave room for a model's noise; all
# ours. Paraphrases are required of a model only: the match judge knows none, and is exact.
LEAST = {Kind.GOLD: 0.9, Kind.PARAPHRASE: 0.7, Kind.GOLD_QUOTES: 0.5}
MOST = {Kind.OTHER: 0.1, Kind.OTHER_QUOTES: 0.1} | dict.fromkeys(TRICKS, 0.05)
MOST_ERRORS = 0.1


class RewardCheckError(ValueError):
    """The reward can't tell right from wrong on this data, or a trick passes; says which."""


@dataclass
class Outcome:
    """Verdicts on the probes of one kind, and the rows where it wasn't the right one."""

    yes: int = 0
    no: int = 0
    undecided: int = 0
    errors: int = 0
    bad_rows: list[int] = field(default_factory=list)

    @property
    def n(self) -> int:
        return self.yes + self.no + self.undecided + self.errors

    @property
    def rate(self) -> float:
        """The share judged right, of all: an error or abstention is no yes."""
        return self.yes / self.n if self.n else 0.0


@dataclass(frozen=True)
class RewardCheck:
    """The confusion table by kind, and why training shouldn't start (nothing where it may)."""

    n_rows: int
    outcomes: dict[Kind, Outcome]
    problems: tuple[str, ...]

    def summary(self) -> str:
        tricks = [self.outcomes[kind] for kind in self.outcomes if kind in TRICKS]
        n = sum(outcome.n for outcome in tricks)
        passed = sum(outcome.yes for outcome in tricks)
        return (
            f"{self.n_rows} rows, gold answers right {self.outcomes[Kind.GOLD].rate:.2f}, "
            f"other questions' answers right {self.outcomes[Kind.OTHER].rate:.2f}, "
            f"tricks passed {passed} of {n}"
        )

    def lines(self) -> Iterator[str]:
        """The table: share judged right with its 95% interval (Wilson)."""
        head = ("", "should be", "n", "yes", "no", "undecided", "error", "judged right")
        rows: list[tuple[str, ...]] = [head]
        for kind, seen in self.outcomes.items():
            low, high = wilson(seen.yes, seen.n)
            counts = map(str, (seen.n, seen.yes, seen.no, seen.undecided, seen.errors))
            share = f"{seen.rate:.2f} [{low:.2f}, {high:.2f}]"
            rows.append((kind.value, "yes" if kind in RIGHT else "no", *counts, share))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        for row in rows:
            yield "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()

    def require(self) -> None:
        """Raises `RewardCheckError` where there is a problem."""
        if self.problems:
            raise RewardCheckError("; ".join(self.problems))


async def reward_check(
    samples: Sequence[Sample],
    judge: Judge,
    weights: RewardWeights = PRESETS["paper"],
    *,
    quotes: Callable[[Sample], Sequence[str]] | None = None,
    limit: int = 32,
    seed: int = 0,
) -> RewardCheck:
    """Judges known replies to at most `limit` rows drawn by `seed`.

    `quotes` gives the text at a row's gold spans; without it evidence isn't checked. Raises
    `RewardCheckError` where the rows allow no check: no gold answer, or no two different ones.
    """
    rows = list(samples)
    if len(rows) > limit:
        rows = random.Random(seed).sample(rows, limit)
    if bad := [row.index for row in rows if not row.answers]:
        raise RewardCheckError(f"rows {bad[:10]} have no gold answer; rebuild the data")
    probes = list(answer_probes(rows, seed))
    if not probes:
        raise RewardCheckError(
            f"{len(rows)} rows have no two different answers to shuffle; give more rows"
        )
    if quotes is not None:
        texts = {at: tuple(quotes(row)) for at, row in enumerate(rows) if row.hops}
        probes += evidence_probes(rows, texts, seed)
    outcomes: dict[Kind, Outcome] = {}
    reasons: list[str] = []
    for probe, said in zip(probes, await gather([_ask(judge, p) for p in probes]), strict=True):
        seen = outcomes.setdefault(probe.kind, Outcome())
        if isinstance(said, JudgeError):
            seen.errors += 1
            reasons.append(str(said))
        else:
            setattr(seen, said.value, getattr(seen, said.value) + 1)
        if said is not (Verdict.YES if probe.kind in RIGHT else Verdict.NO):
            seen.bad_rows.append(probe.sample.index)
    outcomes = {kind: outcomes[kind] for kind in Kind if kind in outcomes}
    least = dict(LEAST)
    if isinstance(judge, MatchJudge):
        del least[Kind.PARAPHRASE]
    problems = tuple(_problems(outcomes, reasons, weights, least))
    return RewardCheck(outcomes[Kind.GOLD].n, outcomes, problems)


async def _ask(judge: Judge, probe: Probe) -> Verdict | JudgeError:
    row = probe.sample
    try:
        if probe.quotes is not None:
            return await judge.supports(row.question, probe.reply, probe.quotes)
        return await judge.verdict(row.question, row.answers, probe.reply)
    except JudgeError as error:
        return error


def _problems(
    outcomes: dict[Kind, Outcome],
    reasons: Sequence[str],
    weights: RewardWeights,
    least: Mapping[Kind, float],
) -> Iterator[str]:
    total = sum(outcome.n for outcome in outcomes.values())
    if len(reasons) > MOST_ERRORS * total:
        common, times = Counter(reasons).most_common(1)[0]
        yield f"the judge failed on {len(reasons)} of {total} questions, {times} times: {common}"
        return
    for kind, seen in outcomes.items():
        rows = f"(rows {seen.bad_rows[:10]})"
        if seen.rate < least.get(kind, 0.0):
            yield f"only {seen.rate:.2f} of '{kind.value}' judged right {rows}; check judge, data"
        if seen.rate > MOST.get(kind, 1.0):
            yield f"{seen.rate:.2f} of '{kind.value}' judged right {rows}; take another judge"
    gold, wrong = _reward(weights, outcomes[Kind.GOLD]), _reward(weights, outcomes[Kind.OTHER])
    if gold <= wrong:
        yield (
            f"gold and other questions' answers earn {gold:.2f} and {wrong:.2f} in good form; give "
            "disco.reward.accuracy a weight above 0"
        )


def _reward(weights: RewardWeights, seen: Outcome) -> float:
    """The reward of a trajectory in good form without evidence, at this accuracy."""
    return weights.total(RewardParts(Value(seen.rate), Value(1.0), Value(0.0))) or 0.0


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95% score interval of a share (Wilson); all of 0 to 1 for none."""
    if not n:
        return 0.0, 1.0
    z, share = 1.959964, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
