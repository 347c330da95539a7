"""The agent loop: exact ids, masks, failures as masked rows, records, concurrency."""

import asyncio
import json
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap

from disco_rl.rewards import JudgeError, MatchJudge, Verdict
from disco_rl.trainer.facts import TrajectoryFacts
from tests.trainer.rollout_fakes import (
    GOOD,
    PLAN,
    REJECT,
    FakeServer,
    byte_tokenizer,
    make_loop,
    row_kwargs,
)

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}


def facts_of(outputs: list[AgentLoopOutput]) -> TrajectoryFacts:
    return TrajectoryFacts.from_dict(outputs[-1].extra_fields["reward_extra_info"]["disco"])


def assert_masked(outputs: list[AgentLoopOutput], reason: str) -> None:
    assert len(outputs) == 1
    (output,) = outputs
    assert output.response_mask == [0] and len(output.response_ids) == 1
    assert len(output.prompt_ids) == 1 and output.reward_score == 0.0
    facts = facts_of(outputs)
    assert facts.masked and reason in facts.masked
    assert facts.reward is None and facts.accuracy is None
    assert isinstance(output.extra_fields["min_global_steps"], int)


async def test_outputs_are_what_was_sampled() -> None:
    server = FakeServer(byte_tokenizer(), GOOD)
    outputs = await make_loop(server).run(SAMPLING, **row_kwargs())
    assert len(outputs) == len(server.calls) == 3
    for output, call in zip(outputs, server.calls, strict=True):
        assert output.prompt_ids == call["prompt_ids"]
        assert output.response_ids == call["output_ids"]
        assert output.response_logprobs == call["logprobs"]
        assert output.response_mask == [1] * len(call["output_ids"])
        assert output.extra_fields["max_global_steps"] == 6
    assert [output.reward_score for output in outputs[:-1]] == [None, None]
    facts = facts_of(outputs)
    assert outputs[-1].reward_score == facts.reward == pytest.approx(2.0)
    assert (facts.accuracy, facts.format, facts.evidence) == (1.0, 1.0, 1.0)
    assert facts.stop == "accepted" and facts.calls == 3 and facts.masked is None


async def test_the_sampled_spelling_is_not_the_tokenizers() -> None:
    """Guards the test above: decoding and encoding again would change the ids."""
    tokenizer = byte_tokenizer()
    server = FakeServer(tokenizer, GOOD)
    outputs = await make_loop(server).run(SAMPLING, **row_kwargs())
    for output in outputs:
        text = tokenizer.decode(output.response_ids)
        assert tokenizer.encode(text, add_special_tokens=False) != output.response_ids


async def test_repairs_and_stages_are_rows_too() -> None:
    replies = ["no plan", PLAN, "Oum", REJECT, PLAN, "Tessa", REJECT]
    outputs = await make_loop(FakeServer(byte_tokenizer(), replies)).run(SAMPLING, **row_kwargs())
    facts = facts_of(outputs)
    assert len(outputs) == facts.calls == 7
    assert facts.stages == 2 and facts.stop == "stage_limit"
    assert facts.errors == {"no_json": 1}
    assert (facts.plan_valid, facts.plan_calls) == (2, 3)
    assert facts.accuracy == 1.0 and facts.format == pytest.approx(6 / 7)


async def test_call_is_capped_to_its_window() -> None:
    server = FakeServer(byte_tokenizer(), ["x" * 5000])
    loop = make_loop(server, window=180, max_call_tokens=120)
    outputs = await loop.run(SAMPLING, **row_kwargs())
    assert server.calls
    for call in server.calls:
        room = 180 - len(call["prompt_ids"]) - 1
        assert call["sampling_params"]["max_tokens"] == min(120, room)
        assert len(call["prompt_ids"]) + len(call["output_ids"]) < 180
    assert facts_of(outputs).masked is None  # the Driver's doing, not a failure


async def test_server_failure_masks_the_trajectory() -> None:
    server = FakeServer(byte_tokenizer(), [PLAN, RuntimeError("out of memory")])
    outputs = await make_loop(server).run(SAMPLING, **row_kwargs())
    assert_masked(outputs, "out of memory")
    assert facts_of(outputs).calls == 1  # what it cost is still counted


class BrokenJudge(MatchJudge):
    async def verdict(self, *_: object) -> Verdict:
        raise JudgeError("no route to host")


class BuggyJudge(MatchJudge):
    async def verdict(self, *_: object) -> Verdict:
        raise ZeroDivisionError("oops")


class UndecidedJudge(MatchJudge):
    async def verdict(self, *_: object) -> Verdict:
        return Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("judge", "reason"),
    [
        (BrokenJudge(), "no route to host"),
        (BuggyJudge(), "ZeroDivisionError"),
        (UndecidedJudge(), "could not decide"),
    ],
)
async def test_judge_failure_masks_and_is_never_zero(judge: MatchJudge, reason: str) -> None:
    server = FakeServer(byte_tokenizer(), GOOD)
    assert_masked(await make_loop(server, judge=judge).run(SAMPLING, **row_kwargs()), reason)


async def test_missing_context_is_a_lost_trajectory() -> None:
    row = row_kwargs()
    row["extra_info"]["context_id"] = "c9"
    outputs = await make_loop(FakeServer(byte_tokenizer(), GOOD)).run(SAMPLING, **row)
    assert_masked(outputs, "no context 'c9'")


async def test_deadline_before_the_first_call_needs_a_masked_row() -> None:
    server = FakeServer(byte_tokenizer(), GOOD)
    outputs = await make_loop(server, deadline_s=1e-4).run(SAMPLING, **row_kwargs())
    assert_masked(outputs, "never called")


async def test_missing_logprobs_are_a_failure() -> None:
    server = FakeServer(byte_tokenizer(), GOOD)
    generate = server.generate

    async def without(**kwargs: object) -> object:
        output = await generate(**kwargs)  # type: ignore[arg-type]
        output.log_probs = output.log_probs[:-1]
        return output

    server.generate = without  # type: ignore[method-assign]
    outputs = await make_loop(server).run(SAMPLING, **row_kwargs())
    assert_masked(outputs, "calculate_log_probs")


async def test_trajectories_of_a_step_run_at_once() -> None:
    server = FakeServer(byte_tokenizer(), GOOD)
    loop = make_loop(server)
    sessions = await asyncio.gather(
        *(loop.run(SAMPLING, **row_kwargs(session=i)) for i in range(32))
    )
    assert server.most_in_flight == 32
    assert all(facts_of(outputs).accuracy == 1.0 for outputs in sessions)


async def test_records_of_training_and_validation(tmp_path: Path) -> None:
    loop = make_loop(FakeServer(byte_tokenizer(), GOOD), folder=tmp_path)
    await loop.run(SAMPLING, **row_kwargs(session=0, split="train"))
    await loop.run(SAMPLING, **row_kwargs(session=1, split="train"))
    await loop.run(SAMPLING, **row_kwargs(session=0))
    lines = (tmp_path / "train" / "000007.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["id"] for record in records] == ["u0_0", "u0_1"]
    assert records[0]["reward"]["total"] == pytest.approx(2.0)
    assert records[0]["reward"]["accuracy"] == {"value": 1.0}
    report = records[0]["reward"]["evidence_report"]
    assert report["hops"] == [{"fate": "used", "stage": 0}]
    assert report["by_shard"]["recall"] == report["by_span"]["recall"] == 1.0
    assert records[0]["gold"]["answers"] == ["Tessa"] and records[0]["split"] == "train"
    assert len((tmp_path / "val" / "000007.jsonl").read_text().splitlines()) == 1


async def test_made_by_verl_from_our_yaml() -> None:
    """As verl's worker does it, with the shipped YAML and verl's own post-processing of a row."""
    path = Path(__file__).resolve().parents[2] / "configs" / "agent_loop.yaml"
    (entry,) = OmegaConf.load(path)
    assert entry.name == "disco"
    made = make_loop(FakeServer(byte_tokenizer(), GOOD))
    loop = hydra.utils.instantiate(
        config=entry,
        trainer_config=DictConfigWrap(made.config),
        server_manager=made.server_manager,
        tokenizer=made.tokenizer,
        processor=None,
        hf_model_type="qwen3",
        dataset_cls=None,
        data_config=DictConfigWrap(made.config.data),
        tools=None,
    )
    outputs = await loop.run(SAMPLING, **row_kwargs())
    row = outputs[-1].as_dict()
    assert row["rm_scores"].sum().item() == pytest.approx(2.0)
    assert row["rollout_log_probs"].shape == row["responses"].shape == row["response_mask"].shape
