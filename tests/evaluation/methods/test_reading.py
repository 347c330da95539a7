"""Full context, RAG and Chain-of-Agents: the calls and tokens that their definitions predict."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from disco_rl.clients.http import Endpoint, EndpointError, JsonClient
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.embedders import EndpointEmbedder, LocalEmbedder
from disco_rl.evaluation.journal import Journal
from disco_rl.evaluation.methods.chain_of_agents import ChainOfAgents
from disco_rl.evaluation.methods.full_context import FullContext
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.methods.rag import Rag
from tests.clients.scripted import serve, status
from tests.evaluation.methods.served import WORDS, bench, document, words

TASK = Task("Who rang the bell?")
TEXT = " ".join(f"word{i}" for i in range(1000))


async def test_full_context_is_one_call_with_the_whole_text() -> None:
    async with bench(lambda prompt: "Ada") as b:
        attempt = await FullContext(WORDS).run(TASK, document(TEXT), b.calls)
    assert (attempt.answer, attempt.truncated) == ("Ada", 0)
    assert TEXT in b.prompts()[0] and len(b.server.bodies) == 1
    assert b.server.bodies[0]["max_tokens"] == 32
    b.check_tokens()


async def test_over_the_limit_the_middle_goes_and_the_question_stays() -> None:
    async with bench(lambda prompt: "Ada") as b:
        attempt = await FullContext(WORDS, limit=200).run(TASK, document(TEXT), b.calls)
    [prompt] = b.prompts()
    whole = words(render("read", text=TEXT, question=TASK.asked, style=TASK.style))
    assert words(prompt) == 200 and attempt.truncated == whole - 200
    assert "word0" in prompt and "word999" in prompt and "word500" not in prompt
    assert "Who rang the bell?" in prompt


async def test_reasoning_takes_a_second_short_call() -> None:
    say = lambda prompt: "It was Ada, since..." if "step by step" in prompt else "Ada"  # noqa: E731
    async with bench(say) as b:
        method = FullContext(WORDS, reasoning_tokens=1024)
        attempt = await method.run(TASK, document(TEXT), b.calls)
    assert attempt.answer == "Ada"
    assert [body["max_tokens"] for body in b.server.bodies] == [1024, 32]
    assert [m["role"] for m in b.server.bodies[1]["messages"]] == ["user", "assistant", "user"]


async def test_thinking_is_no_part_of_an_answer() -> None:
    async with bench(lambda prompt: "<think>Bob? No.</think>\nAda") as b:
        assert (await FullContext(WORDS).run(TASK, document(""), b.calls)).answer == "Ada"
    async with bench(lambda prompt: "<think>Bob? No, wait") as b:
        assert (await FullContext(WORDS).run(TASK, document(""), b.calls)).answer == ""


class LetterEncoder:
    """Counts of letters as vectors."""

    name = "letters"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = [[text.lower().count(chr(97 + i)) + 1e-6 for i in range(26)] for text in texts]
        vectors = np.array(rows, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("order", ["document", "score"])
async def test_rag_shows_the_nearest_chunks_in_the_order_asked_for(order: str) -> None:
    parts = ["zzz " * 4, "bell ", "xxx " * 4, "bell rang who ", "qqq " * 4]
    text = "".join(part + "yyy " * (8 - words(part)) for part in parts)
    async with bench(lambda prompt: "Ada") as b:
        method = Rag(WORDS, LocalEmbedder(LetterEncoder()), chunk=8, top=2, order=order)
        attempt = await method.run(TASK, document(text), b.calls)
    assert attempt.record["chunks"] == 5 and attempt.record["tokens_shown"] == 16
    assert attempt.record["shown"] == ([1, 3] if order == "document" else [3, 1])
    assert "zzz" not in b.prompts()[0] and len(b.server.bodies) == 1


async def test_rag_over_a_short_text_shows_all_of_it() -> None:
    async with bench(lambda prompt: "Ada") as b:
        method = Rag(WORDS, LocalEmbedder(LetterEncoder()))
        attempt = await method.run(TASK, document("Ada rang the bell."), b.calls)
    assert attempt.record["shown"] == [0]


async def test_the_options_are_shown_but_not_searched_for() -> None:
    seen: list[str] = []

    class Spy(LetterEncoder):
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            seen.extend(texts)
            return super().encode(texts)

    task = Task("Who?", ("Ada", "Bob"))
    async with bench(lambda prompt: "A") as b:
        await Rag(WORDS, LocalEmbedder(Spy()), instruction="Query: ").run(
            task, document("x"), b.calls
        )
    assert seen == ["x", "Query: Who?"]
    assert "Who?\n(A) Ada\n(B) Bob" in b.prompts()[0]


async def test_embeddings_are_normalised_in_order_and_paid_for_once(tmp_path) -> None:
    rows = [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3, 4]}]
    reply = status(200, {"data": rows, "usage": {"prompt_tokens": 7}})
    journal = tmp_path / "item.jsonl"
    async with serve(reply) as server, JsonClient(Endpoint(server.url, "e")) as client:
        embedder = EndpointEmbedder(client, cache=tmp_path)
        # The item that pays, the same one resumed, and another one on the same context.
        for path, paid in ((journal, (1, 7)), (journal, (1, 7)), (None, (0, 0))):
            calls = Calls("item", {}, journal=Journal(path))
            vectors = await embedder.embed(["a", "b"], calls)
            assert vectors == pytest.approx(np.array([[0.6, 0.8], [0, 1]]))
            spent = calls.ledger.of("embedder")
            assert (spent.calls, spent.prompt) == paid
        assert len(server.bodies) == 1 and server.bodies[0]["input"] == ["a", "b"]
        with pytest.raises(EndpointError, match="3 texts but 2 vectors"):
            await embedder.embed(["a", "b", "c"], calls)


async def test_questions_that_come_together_pay_for_their_context_once(tmp_path) -> None:
    rows = [{"index": 0, "embedding": [1, 0]}]
    reply = status(200, {"data": rows, "usage": {"prompt_tokens": 7}})
    async with serve(reply) as server, JsonClient(Endpoint(server.url, "e")) as client:
        embedder = EndpointEmbedder(client, cache=tmp_path)
        items = [Calls(f"item {i}", {}) for i in range(5)]
        await asyncio.gather(*[embedder.embed(["the context"], calls) for calls in items])
        assert len(server.bodies) == 1
    assert sum(calls.ledger.of("embedder").prompt for calls in items) == 7


async def test_rag_killed_and_resumed_embeds_nothing_twice(tmp_path) -> None:
    """The journal holds the bill and the cache the vectors: the second try shows the first's."""
    rows = [{"index": 0, "embedding": [1, 0]}]
    reply = status(200, {"data": rows, "usage": {"prompt_tokens": 7}})

    class Killed(BaseException):
        pass

    class Dies(Calls):
        async def ask(self, role, prompt, *, max_tokens):
            raise Killed

    async with serve(reply) as server, JsonClient(Endpoint(server.url, "e")) as client:
        method = Rag(WORDS, EndpointEmbedder(client, cache=tmp_path / "vectors"))
        path = tmp_path / "item.jsonl"
        with pytest.raises(Killed):
            await method.run(TASK, document("Ada."), Dies("i", {}, journal=Journal(path)))
        assert len(server.bodies) == 2  # the chunk, and the question
        async with bench(lambda prompt: "Ada", Journal(path)) as b:
            attempt = await method.run(TASK, document("Ada."), b.calls)
        assert attempt.answer == "Ada" and len(server.bodies) == 2
        assert (b.spent("embedder").calls, b.spent("embedder").prompt) == (2, 14)


async def test_a_local_model_encodes_a_context_once(tmp_path) -> None:
    seen: list[str] = []

    class Spy(LetterEncoder):
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            seen.extend(texts)
            return super().encode(texts)

    first = LocalEmbedder(Spy(), cache=tmp_path)
    again = LocalEmbedder(Spy(), cache=tmp_path)  # a run that was killed, and goes on
    vectors = await first.embed(["a", "b"], Calls("item", {}))
    assert (await again.embed(["a", "b"], Calls("item", {})) == vectors).all()
    await again.embed(["ab"], Calls("item", {}))
    assert seen == ["a", "b", "ab"]


async def test_chain_of_agents_passes_notes_along_strictly_in_order() -> None:
    text = " ".join(f"Sentence {i} ends here." for i in range(50))  # 5 tokens each

    def say(prompt: str) -> str:
        if "last reader" in prompt:
            return "Ada"
        return f"notes {prompt.count('Sentence')}"

    async with bench(say) as b:
        method = ChainOfAgents(WORDS, chunk=40)
        attempt = await method.run(TASK, document(text), b.calls)
    # 8 sentences of 5 tokens a chunk: 50 sentences are 7 chunks, then the manager.
    assert (b.spent("worker").calls, b.spent("driver").calls) == (7, 1)
    prompts = b.prompts()
    assert "(none yet)" in prompts[0] and "Sentence 7 " in prompts[0]
    assert "notes 8" in prompts[1] and "Sentence 8 " in prompts[1]
    assert "notes 2" in prompts[-1] and "Sentence" not in prompts[-1]
    assert all("Who rang the bell?" in prompt for prompt in prompts)
    assert attempt.answer == "Ada" and attempt.record["notes"] == "notes 2"
    b.check_tokens()


async def test_a_silent_reader_does_not_erase_the_notes() -> None:
    text = "Ada rang it. Nothing here."

    def say(prompt: str) -> str:
        return "" if "Nothing here" in prompt else "Ada rang it"

    async with bench(say) as b:
        method = ChainOfAgents(WORDS, chunk=5)
        await method.run(TASK, document(text), b.calls)
    assert "Ada rang it" in b.prompts()[-1]
