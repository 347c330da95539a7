import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from disco_rl.clients.drivers import EndpointDriver, TokenDriver
from disco_rl.clients.http import Endpoint, EndpointError
from tests.clients.llama import ServerTokenizer, start
from tests.clients.scripted import says, serve, status

ASK = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def llama() -> Iterator[Any]:
    server = start()
    yield server
    del server


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
        return list("".join(f"<{m['role']}>{m['content']}" for m in conversation).encode())

    def decode(self, token_ids: Any, **kwargs: Any) -> str:
        return bytes(token_ids).decode()


async def test_chat_driver_counts_by_the_servers_own_usage() -> None:
    reply = says("hi", prompt_tokens=100, completion_tokens=1)
    async with serve(reply) as server:
        driver = EndpointDriver(Endpoint(server.url, "tiny"))
        before = driver.count(ASK)
        got = await driver.generate(ASK, max_tokens=3, schema={"type": "object"})
        assert driver.count(ASK) == 100 > before
        await driver.close()
    assert (got.text, got.finish, got.n_prompt, got.n_output) == ("hi", "stop", 100, 1)
    assert got.output_ids == ()


async def test_a_chat_driver_with_a_length_counts_the_same_after_a_reply() -> None:
    async with serve(says("hi", prompt_tokens=100, completion_tokens=1)) as server:
        driver = EndpointDriver(Endpoint(server.url, "tiny"), length=len)
        before = driver.count(ASK)
        await driver.generate(ASK, max_tokens=3)
        assert driver.count(ASK) == before
        await driver.close()


def test_chat_driver_counts_by_a_tokenizer() -> None:
    driver = EndpointDriver(Endpoint("http://127.0.0.1:9/v1", "tiny"), tokenizer=Bytes())
    assert driver.count(ASK) == len("<user>Say hello.")


async def test_sglang_sends_and_receives_ids() -> None:
    reply = {
        "text": "hi",
        "meta_info": {
            "finish_reason": {"type": "length", "length": 2},
            "output_token_logprobs": [[-0.5, 104, None], [-0.25, 105, None]],
        },
    }
    async with serve(status(200, reply)) as server:
        driver = TokenDriver(
            Endpoint(server.url), Bytes(), server="sglang", sampling={"temperature": 1.0}
        )
        got = await driver.generate(ASK, max_tokens=2, schema={"type": "object"})
        await driver.close()
    prompt = list(b"<user>Say hello.")
    params = {"temperature": 1.0, "max_new_tokens": 2, "json_schema": '{"type": "object"}'}
    assert server.bodies == [
        {"input_ids": prompt, "sampling_params": params, "return_logprob": True}
    ]
    assert got.prompt_ids == tuple(prompt) and got.output_ids == (104, 105)
    assert got.logprobs == (-0.5, -0.25) and got.text == "hi" and got.finish == "length"


async def test_a_server_that_reports_no_ids_is_refused() -> None:
    async with serve(status(200, {"text": "hi"})) as server:
        driver = TokenDriver(Endpoint(server.url), Bytes(), server="sglang")
        with pytest.raises(EndpointError, match="check `server`"):
            await driver.generate(ASK, max_tokens=2)
        await driver.close()


def generated(server: str, ended: str) -> dict[str, Any]:
    """A whole reply of two tokens that ended so."""
    if server == "sglang":
        pairs = [[-0.5, 104, None], [-0.25, 105, None]]
        return {"meta_info": {"finish_reason": {"type": ended}, "output_token_logprobs": pairs}}
    steps = [{"id": 104, "logprob": -0.5}, {"id": 105, "logprob": -0.25}]
    return {"tokens": [104, 105], "completion_probabilities": steps, "stop_type": ended}


@pytest.mark.parametrize(
    ("server", "broken", "whole", "finish"),
    [
        ("sglang", "abort", "stop", "stop"),
        ("sglang", "abort", "length", "length"),
        ("llamacpp", "none", "eos", "stop"),
        ("llamacpp", "none", "limit", "length"),
    ],
)
async def test_a_reply_that_was_broken_off_is_asked_for_again(
    server: str, broken: str, whole: str, finish: str
) -> None:
    script = [status(200, generated(server, ended)) for ended in (broken, whole)]
    async with serve(*script) as made:
        driver = TokenDriver(Endpoint(made.url, backoff_s=0.01), Bytes(), server=server)
        got = await driver.generate(ASK, max_tokens=2)
        await driver.close()
    assert len(made.bodies) == 2 and got.finish == finish and got.output_ids == (104, 105)


@pytest.mark.parametrize(("server", "broken"), [("sglang", "abort"), ("llamacpp", "none")])
async def test_a_server_that_only_breaks_off_is_an_error_and_no_reply(
    server: str, broken: str
) -> None:
    async with serve(status(200, generated(server, broken))) as made:
        driver = TokenDriver(Endpoint(made.url, max_attempts=1), Bytes(), server=server)
        with pytest.raises(EndpointError, match=f"ended by '{broken}'") as caught:
            await driver.generate(ASK, max_tokens=2)
        await driver.close()
    assert caught.value.retryable


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(ValueError, match="choose from"):
        TokenDriver(Endpoint("http://127.0.0.1:9"), Bytes(), server="ollama")


async def test_llama_cpp_ids_are_the_text_and_their_probabilities_repeat(llama: Any) -> None:
    tokenizer = ServerTokenizer(llama.listening_address)
    for seed in range(10):
        point = Endpoint(llama.listening_address + "/v1")
        driver = TokenDriver(point, tokenizer, server="llamacpp", sampling={"seed": seed})
        try:
            got = await driver.generate(ASK, max_tokens=12)
            break
        except EndpointError as error:
            # The server reports one probability for the several tokens of an emoji: refused.
            assert "log-probs" in str(error)
            await driver.close()
    else:
        pytest.fail("ten replies in a row held a character of several tokens")
    assert len(got.output_ids) == len(got.logprobs) == got.n_output > 0
    assert got.n_prompt == len(got.prompt_ids) == driver.count(ASK)
    assert got.text and got.text == tokenizer.decode(got.output_ids, skip_special_tokens=True)
    # The server's own probability of each sampled id, asked for again from the ids alone.
    body = {"prompt": [*got.prompt_ids], "n_predict": 1, "n_probs": 5000, "temperature": 1.0}
    again = await driver._client.post(llama.listening_address + "/completion", body)
    first = {
        entry["id"]: entry["logprob"]
        for entry in again["completion_probabilities"][0]["top_logprobs"]
    }
    assert math.isclose(first[got.output_ids[0]], got.logprobs[0], abs_tol=0.05)
    await driver.close()


async def test_llama_cpp_keeps_to_a_schema(llama: Any) -> None:
    point = Endpoint(llama.listening_address + "/v1", "smollm2")
    driver = EndpointDriver(point, sampling={"temperature": 0.0})
    schema = {
        "type": "object",
        "properties": {"sure": {"type": "boolean"}},
        "required": ["sure"],
        "additionalProperties": False,
    }
    got = await driver.generate(ASK, max_tokens=40, schema=schema)
    assert isinstance(json.loads(got.text)["sure"], bool)
    assert got.n_prompt == len(
        ServerTokenizer(llama.listening_address).apply_chat_template(
            ASK, tokenize=True, add_generation_prompt=True
        )
    )
    await driver.close()
