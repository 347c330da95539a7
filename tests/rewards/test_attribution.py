import pytest

from disco_rl.core.evidence import EvidencePool, Finding, NarrowOutput, WorkerFailure
from disco_rl.core.plan import NarrowAction, Plan, WideAction
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import Shard
from disco_rl.core.trajectory import Stage, Trajectory
from disco_rl.rewards import Fate, HopFate, evidence_report

SHARDS = [Shard(i, 100 * i, 100 * i + 100, 25) for i in range(4)]
HOPS = (
    Hop("Who taught Forso?", "Mardor", (), (1,), (110, 140)),
    Hop("When was #1 born?", "24 May 1932", (), (3,), (310, 330)),
)
SAMPLE = Sample(0, "When was Forso's teacher born?", ("24 May 1932",), "c", 4, 100, HOPS, "test")
FIRST, SECOND = "Find who taught Forso.", "Find the birth date of Mardor."


def stage(
    index: int,
    instruction: str,
    *findings: tuple[int, int, int],
    shards: tuple[int, ...] | None = None,
    failed: tuple[int, ...] = (),
    answer: str | None = "x",
    ran: bool = True,
    dropped: bool = False,
) -> Stage:
    """A stage with one lookup. A stage that never answered uses nothing."""
    plan = Plan((NarrowAction("n1", instruction, shards), WideAction("w1", "Answer.", ("n1",))))
    output = NarrowOutput(
        "n1",
        tuple(Finding("n1", shard, "q", (a, b)) for shard, a, b in findings),
        tuple(WorkerFailure("n1", shard, "down") for shard in failed),
        4,
        dropped=dropped,
    )
    return Stage(index, plan, EvidencePool({"n1": output} if ran else {}), answer)


def fates(*stages: Stage, spans: bool = True) -> list[tuple[Fate, int | None]]:
    report = evidence_report(Trajectory("q", "c", list(stages)), SAMPLE, SHARDS if spans else None)
    assert report is not None
    return [(hop.fate, hop.stage) for hop in report.hops]


def test_both_hops_found_and_used_in_turn() -> None:
    both = (stage(0, FIRST, (1, 10, 40)), stage(1, SECOND, (3, 10, 30)))
    assert fates(*both) == [(Fate.USED, 0), (Fate.USED, 1)]
    assert fates(*both, spans=False) == [(Fate.USED, 0), (Fate.USED, 1)]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (stage(0, FIRST, (1, 10, 40), answer=None), (Fate.UNUSED, 0)),
        (stage(0, FIRST, (1, 50, 90)), (Fate.MISSED, 0)),  # it quoted another sentence
        (stage(0, FIRST), (Fate.MISSED, 0)),
        (stage(0, FIRST, failed=(1,)), (Fate.FAILED, 0)),
        (stage(0, FIRST, failed=(2,)), (Fate.MISSED, 0)),  # another shard failed
        (stage(0, FIRST, dropped=True), (Fate.FAILED, 0)),  # fact_dropout: no Worker's miss
        (stage(0, FIRST, shards=(0, 2)), (Fate.NEVER_ASKED, None)),  # sent elsewhere
        (stage(0, "Find the capital of Mudu."), (Fate.NEVER_ASKED, None)),
        (stage(0, FIRST, ran=False), (Fate.NEVER_ASKED, None)),  # planned, not run
        (stage(0, "Find Forso's age.", (1, 10, 40)), (Fate.USED, 0)),  # found by luck counts
    ],
)
def test_what_became_of_the_first_hop(made: Stage, expected: tuple[Fate, int | None]) -> None:
    assert fates(made)[0] == expected


def test_without_places_any_verbatim_find_in_the_shard_counts() -> None:
    assert fates(stage(0, FIRST, (1, 50, 90)), spans=False)[0] == (Fate.USED, 0)


def test_a_step_of_musique_stands_for_the_earlier_answer() -> None:
    """`#1` is Mardor, so asking about Forso alone doesn't ask for the second hop."""
    assert fates(stage(0, FIRST), stage(1, SECOND))[1] == (Fate.MISSED, 1)
    assert fates(stage(0, FIRST))[1] == (Fate.NEVER_ASKED, None)


def test_every_hop_has_one_fate_and_no_hops_no_report() -> None:
    report = evidence_report(Trajectory("q", "c"), SAMPLE)
    assert report is not None and report.by_span is None
    assert report.hops == (HopFate(Fate.NEVER_ASKED, None),) * 2
    assert report.to_record()["hops"][0] == {"fate": "never_asked", "stage": None}
    bare = Sample(0, "?", ("a",), "c", 4, 100, (), "test")
    assert evidence_report(Trajectory("q", "c"), bare) is None
