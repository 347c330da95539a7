"""The dense ranker with a served embedding model: the paper's retrieval baseline."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from disco_rl.clients.embeddings import EndpointEncoder
from disco_rl.clients.http import Endpoint, EndpointError
from disco_rl.config import compose
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.workers import build_pool
from tests.clients.llama import start
from tests.clients.scripted import Reply, serve, status
from tests.fakes import count_words

WORDS = ("oslo", "lamp", "river")


def embeds() -> Reply:
    """How often each of three words stands in a text, in reverse order of the input."""

    async def reply(request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        data = [
            {"index": i, "embedding": [text.lower().count(word) + 0.01 for word in WORDS]}
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": sum(len(text.split()) for text in texts)}
        return web.json_response({"data": data[::-1], "usage": usage})

    return reply


async def test_the_nearest_chunks_of_the_whole_context(tmp_path: Path) -> None:
    text = "Far away is Oslo. " * 20 + "The lamp is silent. " * 20 + "A river runs. " * 20
    context = TextContext.cut("doc", text, count_words, 100)
    async with serve(status(503), embeds()) as server:
        changes = {
            "embeddings_url": server.url,
            "passage_words": 20,
            "max_findings": 3,
            "cache_dir": tmp_path,
        }
        words = [f"worker.{key}={value}" for key, value in changes.items()]
        config = compose(["worker=embedding", *words], name="ask").worker
        pool = build_pool(dict(config))
        usage = WorkerUsage()
        output = await pool.run(NarrowAction("n", "Find the river."), context, usage)
    assert len(output.findings) == 3 and not output.failures
    assert all("river" in finding.quote for finding in output.findings)
    assert server.bodies[-1]["model"] == "Qwen/Qwen3-Embedding-4B"
    queries = [t for body in server.bodies for t in body["input"] if t.startswith("Instruct:")]
    assert set(queries) == {config.query_prefix + "Find the river."}
    # Every passage and query once, as the server bills them (the first request was refused).
    billed = sum(len(text.split()) for body in server.bodies[1:] for text in body["input"])
    assert usage.prompt_tokens == billed > 220


async def test_a_refusal_is_a_gap_with_the_servers_reason(tmp_path: Path) -> None:
    context = TextContext.cut("doc", "A river runs.", count_words, 100)
    refusal = status(404, {"error": {"message": "no such model"}})
    async with serve(refusal) as server:
        config = {"kind": "retriever", "ranker": "dense", "embeddings_url": server.url}
        pool = build_pool(config | {"embeddings_model": "m", "cache_dir": str(tmp_path)})
        usage = WorkerUsage()
        output = await pool.run(NarrowAction("n", "Find the river."), context, usage)
    assert "no such model" in output.failures[0].reason and usage.lost == 1
    assert len(server.bodies) == 1


def test_a_reply_that_breaks_off_is_the_endpoints_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object, **__: object) -> None:
        raise http.client.IncompleteRead(b"half")

    monkeypatch.setattr("urllib.request.urlopen", cut)
    point = Endpoint("http://127.0.0.1:9/v1", "m", max_attempts=2, backoff_s=0.01)
    with pytest.raises(EndpointError, match="IncompleteRead"):
        EndpointEncoder(point).encode(["x"])


def test_nobody_listens() -> None:
    point = Endpoint("http://127.0.0.1:9/v1", "m", max_attempts=2, backoff_s=0.01)
    with pytest.raises(EndpointError, match="serves embeddings"):
        EndpointEncoder(point).encode(["x"])


@pytest.fixture(scope="module")
def llama() -> Iterator[Any]:
    server = start(512, embeddings=True)
    yield server
    del server


def test_vectors_of_a_real_server(llama: Any) -> None:
    encoder = EndpointEncoder(Endpoint(llama.listening_address + "/v1", "m"))
    texts = ["Varo Kelin was born in Oslo.", "Varo Kelin was born in Rome.", "7 + 8 = 15"]
    vectors = encoder.encode(texts)
    assert vectors.shape[0] == 3 and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
