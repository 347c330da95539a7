"""The model judge over real sockets: verdicts, failures, votes, cache, failover, deadline."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from disco_rl.rewards import JudgeError, JudgeLedger, LLMJudge, Verdict, build_judge, charged_to
from disco_rl.rewards.verdicts import SCHEMA
from tests.clients.scripted import half, hangs, says, serve, status
from tests.rewards.endpoint import (
    FAILURES,
    NO,
    SLOW,
    UNDECIDED,
    UNPARSED,
    WHO,
    YES,
    asked,
    drips,
    judge_at,
    judging,
    verdict,
)


@pytest.mark.parametrize("expected", list(Verdict))
async def test_a_verdict_and_what_was_asked(expected: Verdict) -> None:
    cost = {"prompt_tokens": 300, "completion_tokens": 6}
    async with judging(verdict(expected.value, **cost)) as (judge, server):
        assert await judge.verdict(*WHO) is expected
    (body,) = server.bodies
    assert asked(body) == {"question": WHO[0], "gold_answers": WHO[1], "reply": WHO[2]}
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert body["temperature"] == 0.0 and body["model"] == "judge"
    seen = judge.ledger
    assert (seen.questions, seen.asked, seen.requests, seen.errors) == (1, 1, 1, 0)
    assert (seen.prompt_tokens, seen.output_tokens) == (300, 6) and seen.seconds > 0
    assert seen.undecided == (expected is UNDECIDED)


async def test_support_shows_the_distinct_quotes() -> None:
    async with judging(verdict("yes")) as (judge, server):
        quotes = ["Ada Vey founded it.", "Ada Vey founded it.", "It is a guild."]
        assert await judge.supports("Who?", "<think>hm</think>Ada Vey", quotes) is YES
        assert await judge.supports("Who?", "Ada Vey", []) is NO
        assert await judge.supports("Who?", ":", quotes) is NO
    (body,) = server.bodies  # nothing to support, or nothing to support it with, isn't asked
    assert asked(body) == {"question": "Who?", "reply": "Ada Vey", "evidence": quotes[1:]}
    assert judge.ledger.shortcuts == 2


@pytest.mark.parametrize(("reply", "why"), FAILURES)
async def test_a_failed_endpoint_is_a_counted_error(reply: Any, why: str) -> None:
    async with judging(reply) as (judge, _):
        with pytest.raises(JudgeError, match=why):
            await judge.verdict(*WHO)
    seen = judge.ledger
    assert (seen.questions, seen.errors, seen.asked, seen.failed, seen.unparsed) == (1, 1, 0, 1, 0)


@pytest.mark.parametrize("reply", SLOW, ids=["no byte", "slow bytes"])
async def test_a_reply_that_is_too_slow_is_a_counted_error(reply: Any) -> None:
    async with judging(reply, attempt_s=0.4) as (judge, _):
        with pytest.raises(JudgeError, match="no reply within"):
            await judge.verdict(*WHO)
    assert (judge.ledger.errors, judge.ledger.failed) == (1, 1)


@pytest.mark.parametrize(("reply", "why"), UNPARSED)
async def test_a_reply_without_verdict_is_a_counted_error_and_was_paid(
    reply: Any, why: str
) -> None:
    async with judging(reply) as (judge, _):
        with pytest.raises(JudgeError, match=why):
            await judge.verdict(*WHO)
    seen = judge.ledger
    assert (seen.questions, seen.errors, seen.asked, seen.failed, seen.unparsed) == (1, 1, 0, 0, 1)
    assert seen.requests == 1 and seen.seconds > 0


async def test_a_failed_parse_is_billed() -> None:
    cost = {"prompt_tokens": 90, "completion_tokens": 2}
    prices = {"prompt": 1000.0, "output": 5000.0}
    async with judging(says("maybe", **cost), prices=prices) as (judge, _):
        with pytest.raises(JudgeError):
            await judge.verdict(*WHO)
    assert (judge.ledger.prompt_tokens, judge.ledger.output_tokens) == (90, 2)
    assert judge.ledger.dollars == pytest.approx(0.1)
    assert "dollars: 0.1000" in list(judge.ledger.lines())


async def test_a_passing_failure_is_tried_again() -> None:
    script = (status(429), hangs(), half(), verdict("no"))
    async with judging(*script, max_attempts=4, attempt_s=2.0) as (judge, server):
        assert await judge.verdict(*WHO) is NO
    assert len(server.bodies) == 4 and judge.ledger.errors == judge.ledger.failed == 0


@pytest.mark.parametrize(("attempts", "waits"), [(6, False), (100, True)])
async def test_an_outage_is_waited_out_where_that_is_asked_for(attempts: int, waits: bool) -> None:
    down = [status(503)] * 8
    async with judging(*down, verdict("yes"), max_attempts=attempts) as (judge, _):
        (client,) = judge._panel.clients
        client.endpoint = replace(client.endpoint, backoff_s=0.001)
        if waits:
            assert await judge.verdict(*WHO) is YES
        else:
            with pytest.raises(JudgeError, match="try 6, max_attempts reached"):
                await judge.verdict(*WHO)
    assert judge.ledger.errors == int(not waits)


async def test_slow_bytes_within_the_time_are_a_verdict() -> None:
    body = {"choices": [{"message": {"content": '{"verdict": "no"}'}, "finish_reason": "stop"}]}
    async with judging(drips(json.dumps(body), 0.001)) as (judge, _):
        assert await judge.verdict(*WHO) is NO


def test_processes_share_the_endpoints_concurrency() -> None:
    config = {"name": "llm", "url": "http://h/v1", "model": "m", "max_concurrency": 64}
    for processes, share in ((1, 64), (8, 8), (9, 8), (100, 1)):
        made = build_judge(config, processes=processes)
        assert isinstance(made, LLMJudge) and made.config.max_concurrency == share


async def test_the_second_endpoint_serves_where_the_first_fails() -> None:
    async with serve(status(503)) as broken, serve(verdict("yes")) as healthy:
        judge = judge_at(broken.url, fallback_url=healthy.url, fallback_model="other")
        assert await judge.verdict(*WHO) is YES
        # For a while the first isn't asked first.
        assert await judge.verdict(*WHO[:2], "Tom Roe") is YES
        await judge.close()
    assert len(broken.bodies) == 1 and [b["model"] for b in healthy.bodies] == ["other"] * 2
    assert judge.ledger.failovers == 1 and judge.ledger.errors == 0


async def test_a_second_endpoint_reads_what_the_first_could_not_say() -> None:
    async with serve(says("hm")) as babbling, serve(verdict("no")) as healthy:
        judge = judge_at(babbling.url, fallback_url=healthy.url)
        assert await judge.verdict(*WHO) is NO
        await judge.close()
    assert judge.ledger.unparsed == judge.ledger.failovers == 1


async def test_both_endpoints_down_say_both_reasons() -> None:
    async with serve(status(503, "first down")) as one, serve(status(503, "second down")) as two:
        judge = judge_at(one.url, fallback_url=two.url)
        with pytest.raises(JudgeError, match=r"first down.*second down"):
            await judge.verdict(*WHO)
        await judge.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["yes", "yes", "no"], YES),
        (["no", "undecided", "no"], NO),
        (["yes", "no", "undecided"], UNDECIDED),
        (["yes", "yes", None], YES),
        (["yes", "no", None], None),  # the lost vote would have decided
        ([None, None, "no"], None),
    ],
)
async def test_more_than_half_of_the_votes_decide(
    words: list[str | None], expected: Verdict | None
) -> None:
    script = [status(500) if word is None else verdict(word) for word in words]
    sampling = {"temperature": 0.7}
    async with judging(*script, votes=3, sampling=sampling) as (judge, server):
        if expected is None:
            with pytest.raises(JudgeError, match="status 500"):
                await judge.verdict(*WHO)
        else:
            assert await judge.verdict(*WHO) is expected
    assert sorted(body["seed"] for body in server.bodies) == [0, 1, 2]
    assert judge.ledger.requests == 3 and judge.ledger.questions == 1


async def test_requests_under_way_are_bounded() -> None:
    now, most = 0, 0

    async def reply(request: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return await verdict("no")(request)

    async with judging(reply, max_concurrency=3) as (judge, _):
        replies = [judge.verdict("Who?", ["x"], f"name {i}") for i in range(12)]
        assert set(await asyncio.gather(*replies)) == {NO}
    assert most == 3


async def test_one_deadline_holds_for_waiting_retries_and_both_endpoints() -> None:
    async with serve(hangs()) as one, serve(hangs()) as two:
        point = {"deadline_s": 1.5, "attempt_s": 0.25, "max_attempts": 50, "max_concurrency": 1}
        judge = judge_at(one.url, fallback_url=two.url, **point)
        began = time.monotonic()
        ended = await asyncio.gather(
            *(judge.verdict("Who?", ["x"], f"name {i}") for i in range(4)), return_exceptions=True
        )
        assert time.monotonic() - began < 5.0  # one after the other they would take six
        await judge.close()
    assert all(isinstance(error, JudgeError) for error in ended)
    assert judge.ledger.errors == 4


async def test_an_exact_match_may_skip_the_judge() -> None:
    async with judging(verdict("no"), exact_skips=True) as (judge, server):
        assert await judge.verdict("Who?", ["Ada Vey"], "the ada vey.") is YES
        assert await judge.verdict("Who?", ["Ada Vey"], "Ada Vey or Tom Roe") is NO
    assert len(server.bodies) == 1 and judge.ledger.shortcuts == 1
    async with judging(verdict("no")) as (judge, server):  # only where it is asked for
        assert await judge.verdict("Who?", ["Ada Vey"], "Ada Vey") is NO


async def test_a_long_reply_is_shown_by_its_start_and_end_and_counted() -> None:
    reply = "start " + "x" * 100_000 + " end"
    async with judging(verdict("no"), max_reply_chars=100, max_evidence_chars=10) as (judge, seen):
        await judge.verdict("Who?", ["Ada"], reply)
        await judge.supports("Who?", "Ada", ["12345678", "123", "90"])
    shown = asked(seen.bodies[0])["reply"]
    assert len(shown) < 200 and shown.startswith("start x") and shown.endswith("x end")
    assert "99910 characters left out" in shown
    assert asked(seen.bodies[1])["evidence"] == ["12345678", "90"]
    assert judge.ledger.cut == 2


async def test_each_trajectory_is_charged_its_own_share() -> None:
    async with judging(verdict("yes", prompt_tokens=10)) as (judge, _):

        async def one(reply: str) -> JudgeLedger:
            with charged_to(JudgeLedger()) as ledger:
                await judge.verdict("Who?", ["x"], reply)
                await judge.verdict("Who?", ["x"], reply)
            return ledger

        shares = await asyncio.gather(one("a1"), one("b1"), one("c1"))
    assert [(s.questions, s.asked, s.cached, s.prompt_tokens) for s in shares] == [
        (2, 1, 1, 10)
    ] * 3
    assert judge.ledger.prompt_tokens == 30
    assert "prompt_tokens: 30" in list(judge.ledger.lines())


async def test_an_unconstrained_judge_isnt_sent_a_schema() -> None:
    async with judging(says("Verdict: no"), constrain=False) as (judge, server):
        assert await judge.verdict(*WHO) is NO
    assert "response_format" not in server.bodies[0]


def test_one_judge_serves_several_event_loops() -> None:
    judge = judge_at("http://127.0.0.1:9/v1")

    async def once(reply: str) -> Verdict:
        async with serve(verdict("yes")) as server:
            for client in judge._panel.clients:
                client.endpoint = judge_at(server.url)._panel.clients[0].endpoint
            return await judge.verdict("Who?", ["x"], reply)

    assert [asyncio.run(once("a1")), asyncio.run(once("b1"))] == [YES, YES]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model": "m"}, "set judge.url"),
        ({"url": "http://h/v1", "model": "m", "vots": 3}, r"unknown keys \['vots'\]"),
        ({"url": "http://h/v1", "model": "m", "votes": 3}, "temperature 0 asks the same"),
        ({"url": "http://h/v1", "model": "m", "votes": 0}, "judge.votes must be at least 1"),
        ({"url": "h:1/v1", "model": "m"}, "must begin with http"),
        (
            {"url": "http://h/v1", "model": "m", "prices": {"input": 1.0}},
            r"judge.prices: unknown keys \['input'\]",
        ),
    ],
)
def test_a_bad_config_is_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_judge({"name": "llm", **config})
