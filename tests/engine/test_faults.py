"""Faults on purpose: their share, that they repeat, and what they leave of an output."""

import asyncio
import dataclasses

import pytest

from disco_rl.core.plan import NarrowAction
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.faults import Faults
from disco_rl.engine.pool import WorkerPool
from tests.engine.scripted import CONTEXT
from tests.fakes import SubstringWorker


def outputs(faults: Faults, names: list[str], usage: WorkerUsage | None = None) -> list:
    pool = WorkerPool(SubstringWorker(), faults=faults)
    action = NarrowAction("n1", "Find Ada.")

    async def main() -> list:
        return [await pool.run(action, CONTEXT, usage or WorkerUsage(), name) for name in names]

    return asyncio.run(main())


def test_dropout_discards_whole_outputs_in_its_share_and_repeats() -> None:
    names = [f"0/{i}/0/0" for i in range(500)]
    got = outputs(Faults(fact_dropout=0.3), names)
    dropped = [output.dropped for output in got]
    assert 0.24 < sum(dropped) / 500 < 0.36
    for output in got:
        assert (output.findings == ()) == output.dropped and output.n_shards == 4
    assert [o.dropped for o in outputs(Faults(fact_dropout=0.3), names)] == dropped
    assert [o.dropped for o in outputs(Faults(fact_dropout=0.3, seed=1), names)] != dropped
    assert not any(o.dropped for o in outputs(Faults(), names[:20]))


def test_a_larger_share_drops_what_a_smaller_one_does_and_more() -> None:
    names = [f"0/{i}/0/0" for i in range(200)]
    few = [output.dropped for output in outputs(Faults(fact_dropout=0.1), names)]
    many = [output.dropped for output in outputs(Faults(fact_dropout=0.4), names)]
    assert all(m for f, m in zip(few, many, strict=True) if f) and sum(many) > sum(few)


def test_a_failure_on_purpose_is_a_gap_and_the_trajectory_is_still_scored() -> None:
    usage = WorkerUsage()
    got = outputs(Faults(fail=0.25), [str(i) for i in range(50)], usage)
    assert usage.failures == sum(len(output.failures) for output in got)
    assert 20 < usage.failures < 80 and usage.lost == 0
    assert "on purpose" in next(o.failures[0].reason for o in got if o.failures)


def test_stragglers_take_longer() -> None:
    usage = WorkerUsage()
    outputs(Faults(straggle=0.5, straggle_s=0.02), ["a", "b", "c"], usage)
    assert 0.02 < usage.seconds < 12 * 0.02 + 1


@pytest.mark.parametrize("field", ["fact_dropout", "fail", "straggle"])
def test_a_chance_is_a_share(field: str) -> None:
    with pytest.raises(ValueError, match=f"faults.{field}"):
        Faults(**{field: 1.5})


def test_every_fault_is_in_the_config() -> None:
    from disco_rl.config import compose

    faults = compose().faults
    assert set(faults) == {field.name for field in dataclasses.fields(Faults)}
    assert Faults(**faults) == Faults()
