import time
from typing import Any

import pytest

from disco_rl.clients.chat import ChatClient, Usage
from disco_rl.clients.http import Endpoint, EndpointError
from disco_rl.engine.protocols import ModelError
from tests.clients.scripted import half, hangs, says, serve, status

ASK = [{"role": "user", "content": "Where was Varo Kelin born?"}]


def endpoint(url: str, **changes: object) -> Endpoint:
    quick = {"backoff_s": 0.01, "deadline_s": 5.0, "attempt_s": 2.0, "max_attempts": 4}
    return Endpoint(url, "tiny", **{**quick, **changes})  # type: ignore[arg-type]


async def test_a_reply_with_what_it_cost() -> None:
    details = {"cached_tokens": 30}
    reply = says("Oslo", prompt_tokens=40, completion_tokens=2, prompt_tokens_details=details)
    async with serve(reply) as server, ChatClient(endpoint(server.url)) as client:
        got = await client.complete(
            ASK, max_tokens=7, sampling={"temperature": 0.0}, schema={"type": "object"}
        )
    assert (got.text, got.finish, got.usage) == ("Oslo", "stop", Usage(40, 30, 2))
    (body,) = server.bodies
    assert body["model"] == "tiny" and body["max_tokens"] == 7 and body["temperature"] == 0.0
    assert body["messages"] == ASK
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "Authorization" not in server.headers[0]


async def test_a_reply_cut_at_the_limit_says_so() -> None:
    async with serve(says("Os", "length")) as server, ChatClient(endpoint(server.url)) as client:
        assert (await client.complete(ASK, max_tokens=1)).finish == "length"


async def test_llama_cpp_reports_its_cache_in_timings() -> None:
    body = {
        "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
        "timings": {"cache_n": 8},
    }
    async with serve(status(200, body)) as server, ChatClient(endpoint(server.url)) as client:
        assert (await client.complete(ASK, max_tokens=1)).usage == Usage(9, 8, 1)


@pytest.mark.parametrize(
    "failure",
    [status(429), status(500), status(503, "down"), half(), status(200, "{not json"), hangs()],
    ids=["429", "500", "503", "half a reply", "not JSON", "too slow"],
)
async def test_a_passing_failure_is_tried_again(failure: object) -> None:
    replies = (failure, says("Oslo"))
    async with (
        serve(*replies) as server,  # type: ignore[arg-type]
        ChatClient(endpoint(server.url, attempt_s=0.3)) as client,
    ):
        assert (await client.complete(ASK, max_tokens=7)).text == "Oslo"
    assert len(server.bodies) == 2


@pytest.mark.parametrize("finish", ["abort", "content_filter", None])
async def test_a_reply_that_was_broken_off_is_tried_again(finish: Any) -> None:
    broken = says("Os", finish)
    async with serve(broken, says("Oslo")) as server, ChatClient(endpoint(server.url)) as client:
        assert (await client.complete(ASK, max_tokens=7)).text == "Oslo"
    async with serve(broken) as server, ChatClient(endpoint(server.url)) as client:
        with pytest.raises(EndpointError, match=f"finish_reason={finish!r}") as caught:
            await client.complete(ASK, max_tokens=7, seconds=2.0)
    assert caught.value.retryable and caught.value.busy and len(server.bodies) == 1


async def test_the_same_connection_serves_all_calls() -> None:
    async with serve(says("Oslo")) as server, ChatClient(endpoint(server.url)) as client:
        for _ in range(5):
            await client.complete(ASK, max_tokens=7)
    assert len(server.bodies) == 5 and len(server.connections) == 1


async def test_retry_after_is_heeded() -> None:
    busy = status(429, None, **{"Retry-After": "0.4"})
    async with serve(busy, says("Oslo")) as server, ChatClient(endpoint(server.url)) as client:
        start = time.monotonic()
        await client.complete(ASK, max_tokens=7)
    assert time.monotonic() - start >= 0.4


@pytest.mark.parametrize(
    ("code", "message", "move"),
    [
        (400, "unknown field", "check the model name"),
        (400, "request (5031 tokens) exceeds the available context size", "longer context"),
        (500, "maximum context length is 2048 tokens", "longer context"),
        (401, "bad key", "check the key"),
        (404, "no such model", "ends in /v1"),
    ],
)
async def test_a_refusal_is_final_and_says_what_to_do(code: int, message: str, move: str) -> None:
    refusal = status(code, {"error": {"message": message}})
    async with serve(refusal, says("never")) as server, ChatClient(endpoint(server.url)) as client:
        with pytest.raises(EndpointError, match=move) as caught:
            await client.complete(ASK, max_tokens=7)
    assert len(server.bodies) == 1
    error = caught.value
    assert isinstance(error, ModelError) and not error.retryable
    assert error.status == code and message in error.reason and error.endpoint == server.url


async def test_the_tries_are_bounded() -> None:
    async with serve(status(500, "broken")) as server, ChatClient(endpoint(server.url)) as client:
        with pytest.raises(
            EndpointError, match=r"broken \(try 4, max_attempts reached\)"
        ) as caught:
            await client.complete(ASK, max_tokens=7)
    assert len(server.bodies) == 4 and caught.value.retryable and caught.value.status == 500


async def test_one_deadline_bounds_all_tries() -> None:
    point = {"deadline_s": 0.6, "attempt_s": 0.25, "max_attempts": 100}
    async with serve(hangs()) as server, ChatClient(endpoint(server.url, **point)) as client:
        start = time.monotonic()
        with pytest.raises(EndpointError, match=r"deadline_s=0\.6 reached"):
            await client.complete(ASK, max_tokens=7)
        assert time.monotonic() - start < 15


async def test_nobody_listens() -> None:
    async with serve(says("x")) as server:
        gone = server.url
    async with ChatClient(endpoint(gone)) as client:
        with pytest.raises(EndpointError, match="check that the server is up") as caught:
            await client.complete(ASK, max_tokens=7)
    assert caught.value.status is None


async def test_a_reply_of_another_shape_is_an_error() -> None:
    async with (
        serve(status(200, {"choices": []})) as server,
        ChatClient(endpoint(server.url)) as client,
    ):
        with pytest.raises(EndpointError, match=r"choices\[0\]"):
            await client.complete(ASK, max_tokens=7)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("usage", ["x", {"prompt_tokens": "many"}, {"prompt_tokens_details": [1]}])
async def test_a_broken_usage_is_an_error_of_the_endpoint(usage: object) -> None:
    choice = {"message": {"content": "Oslo"}, "finish_reason": "stop"}
    reply = status(200, {"choices": [choice], "usage": usage})
    async with serve(reply) as server, ChatClient(endpoint(server.url)) as client:
        with pytest.raises(EndpointError, match="no usage of numbers"):
            await client.complete(ASK, max_tokens=7)


async def test_the_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", "sk-verysecret")
    refusal = status(401, {"error": {"message": "Incorrect API key provided: sk-verysecret"}})
    async with serve(refusal) as server:
        point = endpoint(server.url, api_key_env="TINY_KEY")
        async with ChatClient(point) as client:
            with pytest.raises(EndpointError) as caught:
                await client.complete(ASK, max_tokens=7)
    assert server.headers[0]["Authorization"] == "Bearer sk-verysecret"
    shown = repr(caught.value) + str(caught.value) + repr(point) + repr(client.__dict__)
    assert "verysecret" not in shown and "TINY_KEY" in str(caught.value)


async def test_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINY_KEY", raising=False)
    async with ChatClient(endpoint("http://127.0.0.1:9/v1", api_key_env="TINY_KEY")) as client:
        with pytest.raises(EndpointError, match="export TINY_KEY"):
            await client.complete(ASK, max_tokens=7)


def test_a_password_in_the_url_is_not_shown() -> None:
    point = endpoint("http://me:hunter2@host:1/v1")
    assert "hunter2" not in repr(point) + point.name


def test_a_url_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        endpoint("127.0.0.1:8000/v1")


def test_one_client_serves_several_event_loops() -> None:
    import asyncio

    client: ChatClient | None = None

    async def once() -> str:
        nonlocal client
        async with serve(says("Oslo")) as server:
            if client is None:
                client = ChatClient(endpoint(server.url))
            client.endpoint = endpoint(server.url)
            return (await client.complete(ASK, max_tokens=7)).text

    assert [asyncio.run(once()), asyncio.run(once())] == ["Oslo", "Oslo"]
