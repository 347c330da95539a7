"""Episodes from question to stop: stages, gaps, repairs, limits, the record."""

import json

import pytest

from disco_rl.core.evidence import NarrowOutput
from disco_rl.core.records import to_record
from disco_rl.core.trajectory import CallKind, Review, StopReason
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import ModelError
from tests.engine.scripted import (
    ACCEPT,
    CONTEXT,
    PLAN,
    config,
    narrow,
    plan,
    reject,
    run,
    user,
    wide,
)
from tests.fakes import ScriptedModel, SubstringWorker

QUESTION = "When was Ada born?"


def episode(replies, worker=None, **changes):
    model = ScriptedModel(replies)
    pool = WorkerPool(worker or SubstringWorker(), max_findings=changes.pop("max_findings", 16))
    question = changes.pop("question", QUESTION)
    trajectory = run(run_episode(question, CONTEXT, model, pool, config(**changes)))
    return trajectory, model


def test_two_stages_to_an_accepted_answer():
    second = plan(
        narrow("n1", "Find Bob.", [2, 3]),
        narrow("n2", "Find Ada."),
        wide("w1", "n2"),
        wide("w2", "n1", "w1", instruction=QUESTION),
    )
    replies = [PLAN, "1852", reject("Bob's birth."), second, "a synthesis", "1815", ACCEPT]
    trajectory, model = episode(replies)
    assert (trajectory.stop, trajectory.answer, trajectory.error) == (
        StopReason.ACCEPTED,
        "1815",
        None,
    )
    assert [call.kind for call in trajectory.calls] == [
        CallKind.PLAN, CallKind.SYNTHESIZE, CallKind.REVIEW,
        CallKind.PLAN, CallKind.SYNTHESIZE, CallKind.SYNTHESIZE, CallKind.REVIEW,
    ]  # fmt: skip
    assert [(c.stage, c.node) for c in trajectory.calls] == [
        (0, None), (0, "w1"), (0, None), (1, None), (1, "w1"), (1, "w2"), (1, None),
    ]  # fmt: skip
    assert not any(call.error or call.repair for call in trajectory.calls)
    one, two = trajectory.stages
    assert (one.answer, one.review) == ("1852", Review(False, "Bob's birth."))
    assert (two.answer, two.review) == ("1815", Review(True))
    assert trajectory.accepted is two
    assert list(two.pool.outputs) == ["n1", "n2", "w1", "w2"]  # the plan's order, not the finish
    assert [f.shard for f in two.pool.findings(frozenset({"n1"}))] == [2, 3]
    assert trajectory.workers.calls == 4 + 2 + 4
    assert trajectory.seconds > 0
    # Each act is shown what the ones before it produced.
    prompts = [user(p) for p in model.prompts]
    assert QUESTION in prompts[0] and "Number of shards: 4" in prompts[0]
    assert "n1 [0]: Ada was born in 1815" in prompts[1]
    assert "Proposed answer: 1852" in prompts[2] and "n1 [0]: Ada was born" in prompts[2]
    assert "stage 1 answer: 1852" in prompts[3] and "stage 1 gap: Bob's birth." in prompts[3]
    assert "w1: a synthesis" in prompts[5] and "n1 [2]: Bob was born" in prompts[5]
    assert "Proposed answer: 1815" in prompts[6] and "w1: a synthesis" in prompts[6]
    assert prompts[6].count("w2:") == 0  # the answer is not its own evidence


def test_each_call_keeps_what_was_sampled():
    trajectory, model = episode([PLAN, "1815", ACCEPT])
    for call, prompt in zip(trajectory.calls, model.prompts, strict=True):
        assert len(call.generation.prompt_ids) == model.count(prompt)
        assert len(call.generation.output_ids) == len(call.generation.logprobs) > 0


def test_a_failed_worker_is_a_gap_that_the_driver_is_told_of():
    worker = SubstringWorker(fail=lambda shard: shard == 0)
    trajectory, model = episode([PLAN, "unknown", reject("shard 0"), PLAN, "1815", ACCEPT], worker)
    assert trajectory.stop is StopReason.ACCEPTED
    output = trajectory.stages[0].pool.outputs["n1"]
    assert isinstance(output, NarrowOutput)
    assert [f.shard for f in output.findings] == [1, 3]
    assert [f.shard for f in output.failures] == [0]
    synthesis, review, second_plan = (user(p) for p in model.prompts[1:4])
    for prompt in (synthesis, review, second_plan):
        assert "n1: 1 of 4 shards failed" in prompt
        assert "scripted failure" not in prompt
    assert trajectory.workers.failures == 2


def test_all_workers_failed_still_runs_to_an_answer():
    trajectory, model = episode([PLAN, "unknown", ACCEPT], SubstringWorker(fail=lambda shard: True))
    assert (trajectory.stop, trajectory.answer) == (StopReason.ACCEPTED, "unknown")
    assert trajectory.stages[0].pool.findings() == []
    assert "n1: 4 of 4 shards failed" in user(model.prompts[1])


@pytest.mark.parametrize(
    ("position", "bad", "kind"),
    [
        (0, "no plan", "no_json"),
        (0, PLAN.replace('["n1"]', '["n7"]'), "unknown_parent"),
        (1, "<think>", "unfinished_thinking"),
        (1, "word " * 300, "truncated"),
        (2, "yes", "review_json"),
        (2, '{"accept": "yes"}', "review_schema"),
    ],
)
def test_an_unusable_reply_is_counted_and_repaired_once(position, bad, kind):
    replies = [PLAN, "1815", ACCEPT]
    replies.insert(position, bad)
    trajectory, model = episode(replies)
    assert (trajectory.stop, trajectory.answer) == (StopReason.ACCEPTED, "1815")
    refused, repaired = trajectory.calls[position], trajectory.calls[position + 1]
    assert (refused.error, refused.repair) == (kind, False)
    assert (repaired.error, repaired.repair) == (None, True)
    assert (refused.kind, refused.node) == (repaired.kind, repaired.node)
    first, second = model.prompts[position], model.prompts[position + 1]
    assert second[: len(first)] == first
    assistant, turn = second[len(first) :]
    assert assistant["role"] == "assistant" and assistant["content"].split()[0] == bad.split()[0]
    assert turn["role"] == "user" and refused.message in turn["content"]
    assert [c.error for c in trajectory.calls].count(None) == 3


@pytest.mark.parametrize("position", [0, 1, 2])
def test_twice_unusable_ends_the_episode_with_the_earlier_answer(position):
    stage = [PLAN, "1815", reject("more")]
    bad = ["nothing", "<think>", "nothing"][position]
    trajectory, _ = episode([*stage, *stage[:position], bad, bad])
    assert trajectory.stop is StopReason.INVALID_CALL
    assert trajectory.answer == "1815"
    assert len(trajectory.stages) == 2
    assert [call.error is None for call in trajectory.calls[-2:]] == [False, False]
    assert [call.repair for call in trajectory.calls[-2:]] == [False, True]
    assert trajectory.error.startswith(["plan", "synthesize", "review"][position])


def test_an_unusable_first_plan_leaves_no_answer():
    trajectory, _ = episode(["no", "no"])
    assert (trajectory.stop, trajectory.answer, len(trajectory.stages)) == (
        StopReason.INVALID_CALL, None, 1,
    )  # fmt: skip


def test_repairs_can_be_switched_off_and_raised():
    assert episode(["no"], repairs=0)[0].stop is StopReason.INVALID_CALL
    trajectory, model = episode(["no", "nay", PLAN, "1815", ACCEPT], repairs=2)
    assert trajectory.stop is StopReason.ACCEPTED
    assert [call.repair for call in trajectory.calls] == [False, True, True, False, False]
    third = [message["content"] for message in model.prompts[2]]
    assert "nay" in third and "no" not in third  # the latest reply only, so prompts don't pile up


def test_a_bad_reply_is_shown_without_its_thinking_and_cut():
    long = "<think>a long thought</think>" + "x" * 10_000
    _, model = episode([long, PLAN, "1815", ACCEPT])
    shown = model.prompts[1][-2]["content"]
    assert "thought" not in shown
    assert shown.startswith("xxx") and shown.endswith("x\n[6000 more characters]")


@pytest.mark.parametrize("limit", [1, 3])
def test_the_stage_limit(limit):
    trajectory, _ = episode([PLAN, "1815", reject("more")] * limit, max_stages=limit)
    assert (trajectory.stop, trajectory.answer) == (StopReason.STAGE_LIMIT, "1815")
    assert len(trajectory.stages) == limit


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_failed_driver_is_an_error_that_keeps_what_was_done(position):
    replies = [PLAN, "1815", reject("more"), PLAN][:position]
    replies.append(ModelError("server: 503"))
    trajectory, _ = episode(replies)
    assert (trajectory.stop, trajectory.error) == (StopReason.ERROR, "Driver: server: 503")
    assert len(trajectory.calls) == position
    assert trajectory.answer == ("1815" if position > 1 else None)


@pytest.mark.parametrize("bug", [ZeroDivisionError("bug"), TimeoutError("socket"), KeyError("x")])
def test_a_bug_is_an_error_with_its_message_and_never_a_gap(bug):
    class Broken:
        async def scan(self, instruction, context, shard):
            raise bug

    trajectory, _ = episode([PLAN], Broken())
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.error == f"{type(bug).__name__}: {bug}"
    assert trajectory.stages[0].plan is not None
    assert trajectory.stages[0].pool.outputs == {}

    trajectory, _ = episode([bug])
    assert (trajectory.stop, trajectory.error) == (StopReason.ERROR, f"{type(bug).__name__}: {bug}")


def test_what_other_nodes_produced_before_an_error_is_kept():
    nodes = plan(narrow("n1", "Find Ada."), wide("w1", "n1"), wide("w2", "w1"))
    trajectory, _ = episode([nodes, "a synthesis", ModelError("down")])
    assert list(trajectory.stages[0].pool.outputs) == ["n1", "w1"]
    assert trajectory.stages[0].answer is None


def test_the_record_of_every_stop_is_json():
    for replies in (
        [PLAN, "1815", ACCEPT],
        [PLAN, "1815", reject("more")],
        ["no", "no"],
        [ModelError("down")],
        [PLAN, "<think>", ModelError("down")],
    ):
        trajectory, _ = episode(
            replies, SubstringWorker(fail=lambda shard: shard == 1), max_stages=1
        )
        record = json.loads(json.dumps(to_record(trajectory), allow_nan=False))
        assert record["version"] == 1
        assert record["stop"] == trajectory.stop.value
        assert len(record["calls"]) == len(trajectory.calls)
        assert len(record["stages"]) == len(trajectory.stages)


def test_the_terminal_action_is_the_question_itself_however_the_plan_puts_it():
    text = plan(narrow("n1"), wide("w1", "n1", instruction="Guess."), wide("w2", "w1"))
    trajectory, model = episode([text, "a guess", "1815", ACCEPT])
    assert trajectory.stop is StopReason.ACCEPTED
    assert "Task: Guess.\n" in user(model.prompts[1])
    assert f"Task: {QUESTION}\n" in user(model.prompts[2])


def test_a_question_with_braces_reaches_the_prompts_unharmed():
    question = "What is {{history}} in {n_shards} and {{question}}?"
    _, model = episode([PLAN, "1815", ACCEPT], question=question)
    assert f"Question: {question}\n" in user(model.prompts[0])
    assert f"Question: {question}\n" in user(model.prompts[2])
