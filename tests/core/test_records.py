"""The trajectory record and the sample row are plain, versioned JSON that reads back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.evidence import EvidencePool, Finding, NarrowOutput, WideOutput, WorkerFailure
from disco_rl.core.plan import NarrowAction, Plan, WideAction
from disco_rl.core.records import VERSION, to_record
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.trajectory import (
    CallKind,
    DriverCall,
    Generation,
    Review,
    Stage,
    StopReason,
    Trajectory,
)

SAMPLE = Sample(
    index=7,
    question="When was Ada born?",
    answers=("1815", "in 1815"),
    context_id="c1",
    n_shards=3,
    n_tokens=900,
    hops=(Hop("Ada's birth", "1815", ("in 1815",), (0, 2), (10, 20)),),
    data_source="embedded",
)


def trajectory() -> Trajectory:
    plan = Plan((NarrowAction("n1", "Find Ada.", (0, 2)), WideAction("w1", "When?", ("n1",))))
    outputs = {
        "n1": NarrowOutput(
            "n1",
            (Finding("n1", 0, "Ada, 1815", (0, 9), 0.5), Finding("n1", 0, "ada", None)),
            (WorkerFailure("n1", 2, "timeout"),),
            n_shards=2,
            n_cut=1,
        ),
        "w1": WideOutput("w1", "1815", 3),
    }
    stage = Stage(0, plan, EvidencePool(outputs), "1815", Review(True), 2, 4)
    sampled = Generation("{}", (1, 2, 3), (4, 5), (-0.1, -0.2), extra={"server": object()})
    reported = Generation("1815", n_prompt=30, n_output=4, finish="length")
    calls = [
        DriverCall(CallKind.PLAN, 0, None, sampled, "schema", "nodes: missing", repair=True),
        DriverCall(CallKind.SYNTHESIZE, 0, "w1", reported),
    ]
    return Trajectory(
        "When was Ada born?", "c1", [stage, Stage(1)], calls, "1815", StopReason.ACCEPTED
    )


def test_a_record_is_versioned_json_with_everything_in_it():
    record = to_record(trajectory(), SAMPLE, {"accuracy": 1.0}, step=3)
    record = json.loads(json.dumps(record, allow_nan=False))
    assert record["version"] == VERSION == 1
    assert (record["question"], record["context_id"], record["answer"]) == (
        "When was Ada born?",
        "c1",
        "1815",
    )
    assert (record["stop"], record["step"], record["reward"]) == ("accepted", 3, {"accuracy": 1.0})
    assert record["gold"]["answers"] == ["1815", "in 1815"]
    assert record["gold"]["hops"][0]["shard_ids"] == [0, 2]
    first, second = record["stages"]
    assert [node["op"] for node in first["plan"]] == ["narrow", "wide"]
    narrow, wide = first["outputs"]
    assert narrow["findings"][0] == {
        "node": "n1",
        "shard": 0,
        "quote": "Ada, 1815",
        "span": [0, 9],
        "score": 0.5,
    }
    assert narrow["failures"] == [{"node": "n1", "shard": 2, "reason": "timeout"}]
    assert (first["n_history_cut"], first["n_review_cut"]) == (2, 4)
    assert (narrow["n_cut"], wide["n_cut"], wide["op"]) == (1, 3, "wide")
    assert second["plan"] is second["answer"] is second["review"] is None
    plan_call, answer_call = record["calls"]
    assert (plan_call["prompt_tokens"], plan_call["output_tokens"]) == (3, 2)
    assert (answer_call["prompt_tokens"], answer_call["output_tokens"]) == (30, 4)
    assert (plan_call["error"], plan_call["repair"]) == ("schema", True)
    assert answer_call["finish"] == "length"
    assert record["workers"]["calls"] == 0


def test_a_record_without_gold_or_reward_says_so():
    record = to_record(Trajectory("q", "c"))
    assert record["gold"] is record["reward"] is record["answer"] is None
    assert record["stop"] == "error"


def test_extra_fields_may_not_hide_the_records_own():
    with pytest.raises(ValueError, match=r"\['stop'\]"):
        to_record(trajectory(), stop="accepted")


@given(
    st.builds(
        Sample,
        index=st.integers(0, 10**9),
        question=st.text(),
        answers=st.lists(st.text(), max_size=3).map(tuple),
        context_id=st.text(),
        n_shards=st.integers(0, 300),
        n_tokens=st.integers(0, 10**6),
        hops=st.lists(
            st.builds(
                Hop,
                st.text(),
                st.text(),
                st.lists(st.text(), max_size=2).map(tuple),
                st.lists(st.integers(0, 300), max_size=3).map(tuple),
                st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
            ),
            max_size=4,
        ).map(tuple),
        data_source=st.text(),
    )
)
def test_a_sample_survives_its_row(sample):
    assert Sample.from_row(json.loads(json.dumps(sample.to_row()))) == sample


def test_the_row_holds_the_question_and_not_the_context():
    row = SAMPLE.to_row()
    assert row["prompt"] == [{"role": "user", "content": "When was Ada born?"}]
    assert set(row) == {
        "data_source",
        "prompt",
        "ability",
        "reward_model",
        "agent_name",
        "extra_info",
    }
    assert row["agent_name"] == "disco"


@pytest.mark.parametrize(
    "field", ["index", "question", "context_id", "n_shards", "n_tokens", "hops"]
)
def test_a_row_without_a_field_is_refused_by_name(field):
    row = SAMPLE.to_row()
    del row["extra_info"][field]
    with pytest.raises(
        ValueError, match=f"row {'[?]' if field == 'index' else 7}: field '{field}'"
    ):
        Sample.from_row(row)


@pytest.mark.parametrize("truth", [None, "1815"])
def test_gold_answers_must_be_a_list(truth):
    row = SAMPLE.to_row()
    row["reward_model"]["ground_truth"] = truth
    with pytest.raises(ValueError, match="row 7"):
        Sample.from_row(row)


def test_a_malformed_number_names_its_row():
    row = SAMPLE.to_row()
    row["extra_info"]["n_shards"] = "many"
    with pytest.raises(ValueError, match=r"row 7.*many"):
        Sample.from_row(row)


def test_the_answer_that_stands_is_the_last_one_given():
    answered = Trajectory("q", "c", [Stage(0, answer="a"), Stage(1, answer="b"), Stage(2)])
    assert answered.accepted is answered.stages[1]
    assert Trajectory("q", "c", [Stage(0)]).accepted is None
