"""DISCO in the harness: the engine's episode, its calls and tokens as a ledger."""

import contextlib
import json

import pytest

from disco_rl.clients.drivers import EndpointDriver
from disco_rl.clients.http import Endpoint
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.protocols import BadReplyError, ModelError, Scan
from disco_rl.engine.workers.chat import ChatWorker, ChatWorkerConfig
from disco_rl.engine.workers.retriever import Retriever, RetrieverConfig
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.journal import Journal
from disco_rl.evaluation.methods.disco import Disco
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.prompts import load_prompts
from tests.clients.scripted import serve
from tests.evaluation.methods.served import WORDS, document, talks, words
from tests.evaluation.methods.test_reading import LetterEncoder
from tests.fakes import ScriptedModel, SubstringWorker

TASK = Task("Who rang the bell?")
TEXT = "Ada rang the bell. " + "Nothing happened then. " * 30
PLAN = json.dumps(
    {
        "nodes": [
            {"id": "n", "op": "narrow", "instruction": "Find the bell", "shards": "all"},
            {"id": "w", "op": "wide", "instruction": "Who rang it?", "inputs": ["n"]},
        ]
    }
)
ACCEPT = json.dumps({"accept": True, "gap": ""})
EPISODE = EpisodeConfig(load_prompts("full"), window=24_576, max_call_tokens=4096, repairs=0)


def disco(driver, worker, **settings) -> Disco:
    return Disco(WORDS, driver, worker, EPISODE, shard_size=20, **settings)


async def test_one_stage_is_three_driver_calls_and_a_scan_of_every_shard(tmp_path) -> None:
    calls = Calls("item", {})
    model = ScriptedModel([PLAN, "Ada", ACCEPT])
    worker = SubstringWorker()
    attempt = await disco(model, worker).run(TASK, document(TEXT), calls)
    shards = {shard for _, shard in worker.asked}
    assert (attempt.answer, attempt.stop) == ("Ada", "accepted")
    assert calls.ledger.of("driver").calls == 3
    assert calls.ledger.of("worker").calls == len(shards) == len(worker.asked) > 3
    assert calls.ledger.of("driver").prompt == sum(model.count(p) for p in model.prompts)
    assert attempt.record["narrow"] == {
        "actions": 1, "forwarded": 0.0, "names": 0.0, "reused": 0.0
    }  # fmt: skip
    assert TEXT not in json.dumps(attempt.record)


async def test_over_a_chat_server_calls_and_tokens_are_those_sent(tmp_path) -> None:
    def say(prompt: str) -> str:
        if "nodes" in prompt:
            return PLAN
        if "quotes" in prompt or "<shard" in prompt or "Nothing happened" in prompt:
            return json.dumps({"found": False, "quotes": []})
        return ACCEPT if "accept" in prompt else "Ada"

    async with serve(talks(say)) as server:
        driver = EndpointDriver(Endpoint(server.url, "d", max_attempts=1))
        worker = ChatWorker(ChatWorkerConfig(server.url, "w", max_attempts=1))
        calls = Calls("item", {})
        try:
            attempt = await disco(driver, worker).run(TASK, document(TEXT), calls)
        finally:
            await driver.close()
            await worker.close()
    sent = {name: [b for b in server.bodies if b["model"] == name] for name in ("d", "w")}
    assert attempt.answer is not None
    for role, name in (("driver", "d"), ("worker", "w")):
        spent = calls.ledger.of(role)
        assert spent.calls == len(sent[name])
        assert spent.prompt == sum(words(m["content"]) for b in sent[name] for m in b["messages"])


async def test_the_dense_retriever_returns_the_best_16_chunks_of_the_context(tmp_path) -> None:
    """The paper's Table 3: chunks, the best of the whole context, no threshold."""
    text = " ".join(f"bell {'rang ' * (i % 7)}{i}." for i in range(60))
    config = RetrieverConfig(
        ranker="dense", threshold=-1.0, relative=0.0, top_k=16, passage_words=4,
        cache_dir=str(tmp_path),
    )  # fmt: skip
    worker = Retriever(config, encoder=LetterEncoder())
    calls = Calls("item", {})
    attempt = await disco(ScriptedModel([PLAN, "Ada", ACCEPT]), worker).run(
        TASK, document(text), calls
    )
    [narrow] = [o for o in attempt.record["stages"][0]["outputs"] if o["op"] == "narrow"]
    scores = [finding["score"] for finding in narrow["findings"]]
    context = _context(text)
    everything = sorted(
        (
            quote.score
            for shard in range(len(context.shards))
            for quote in worker.search("Find the bell", context, shard).quotes
        ),
        reverse=True,
    )
    assert sorted(scores, reverse=True) == pytest.approx(everything[:16])
    assert narrow["n_cut"] == len(everything) - 16 > 16


def _context(text: str):
    return disco(None, None)._context(document(text))


async def test_a_failed_driver_is_an_error_of_the_item_not_an_answer() -> None:
    model = ScriptedModel([ModelError("no reply")])
    with pytest.raises(ModelError, match="no reply"):
        await disco(model, SubstringWorker()).run(TASK, document(TEXT), Calls("item", {}))


async def test_dropout_discards_that_share_of_what_was_found_the_same_each_time() -> None:
    text = " ".join(
        f"The bell {i} rang out over all of the old town square here." for i in range(200)
    )
    found = []
    for _ in range(2):
        model = ScriptedModel([PLAN, "Ada", ACCEPT])
        method = disco(model, SubstringWorker(), dropout=0.3, max_findings=1000)
        attempt = await method.run(TASK, document(text), Calls("item", {}))
        narrow = attempt.record["stages"][0]["outputs"][0]
        found.append([f["shard"] for f in narrow["findings"]])
    assert found[0] == found[1]
    shards = len(_context(text).shards)
    assert 0.55 < len(set(found[0])) / shards < 0.85


async def test_a_killed_episode_replays_what_it_paid_for(tmp_path) -> None:
    path = tmp_path / "item.jsonl"
    worker = SubstringWorker()
    model = ScriptedModel([PLAN, ModelError("killed here")])
    first = Calls("item", {}, journal=Journal(path))
    with pytest.raises(ModelError):
        await disco(model, worker).run(TASK, document(TEXT), first)
    scans = len(worker.asked)

    model = ScriptedModel(["Ada", ACCEPT])  # the plan is not asked for again
    again = Calls("item", {}, journal=Journal(path))
    attempt = await disco(model, worker).run(TASK, document(TEXT), again)
    assert attempt.answer == "Ada" and len(worker.asked) == scans
    assert again.journal.replayed == scans + 1
    # The ledger holds the whole item, replayed or not.
    assert (again.ledger.of("driver").calls, again.ledger.of("worker").calls) == (3, scans)
    narrow = attempt.record["stages"][0]["outputs"][0]
    assert [f["quote"] for f in narrow["findings"]] == ["Ada rang the bell"]


async def test_a_bad_reply_is_billed_and_not_asked_for_again_on_resume(tmp_path) -> None:
    class Mumbles(SubstringWorker):
        async def scan(self, instruction, context, shard):
            await super().scan(instruction, context, shard)
            error = BadReplyError("no JSON")
            error.spent = Scan((), prompt_tokens=10, output_tokens=2)
            raise error

    path, asked = tmp_path / "item.jsonl", []
    for replies in ([PLAN, ModelError("killed here")], ["nothing", ACCEPT]):
        worker, calls = Mumbles(), Calls("item", {}, journal=Journal(path))
        with contextlib.suppress(ModelError):
            attempt = await disco(ScriptedModel(replies), worker).run(TASK, document(TEXT), calls)
        asked.append(len(worker.asked))
    spent = calls.ledger.of("worker")
    assert asked[0] > 3 and asked[1] == 0
    assert (spent.calls, spent.failures, spent.prompt) == (asked[0], asked[0], 10 * asked[0])
    assert attempt.trajectory.workers.lost == 0  # the Worker's own doing, not a server's
    assert len(attempt.record["stages"][0]["outputs"][0]["failures"]) == asked[0]
