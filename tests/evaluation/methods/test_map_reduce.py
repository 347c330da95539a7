"""LLM x MapReduce: parts, collapse and reduce as defined, bounded whatever the models say."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.evaluation.methods.map_reduce import (
    MapReduce,
    confidence,
    final_answer,
    informative,
    split,
)
from disco_rl.evaluation.methods.protocol import Task
from tests.evaluation.methods.served import WORDS, bench, document, words

TASK = Task("Who rang the bell?")
FOUND = "Extracted Information: {}\nRationale: stated\nAnswer: {}\nConfidence: {}"
WINDOW, REPLY = 600, 60


def stage(prompt: str) -> str:
    if "one part of" in prompt:
        return "map"
    return "reduce" if "Write two fields" in prompt else "collapse"


async def test_parts_are_read_in_parallel_and_only_findings_are_reduced() -> None:
    lines = [f"Line {i} says nothing." for i in range(400)]
    lines[200] = "Ada rang the bell."

    def say(prompt: str) -> str:
        if stage(prompt) == "reduce":
            return "Rationale: x\nAnswer: Ada"
        return FOUND.format("Ada rang", "Ada", 5) if "Ada" in prompt else "[NO INFORMATION]"

    async with bench(say) as b:
        method = MapReduce(WORDS, window=WINDOW, reply=REPLY)
        attempt = await method.run(TASK, document("\n".join(lines)), b.calls)
    stages = [stage(prompt) for prompt in b.prompts()]
    parts = attempt.record["parts"]
    assert stages == ["map"] * parts + ["reduce"] and parts > 2
    assert all(words(p) <= WINDOW - REPLY for p in b.prompts()[:parts])
    # No line is cut, and the parts are as few as their size allows.
    assert all(re.search(r"nothing\.|bell\.", p) for p in b.prompts()[:parts])
    assert attempt.answer == "Ada"
    assert attempt.record | {"reply": ""} == {
        "parts": parts, "informative": 1, "rounds": 0, "dropped": 0, "reply": ""
    }  # fmt: skip
    assert (b.spent("worker").calls, b.spent("driver").calls) == (parts, 1)
    b.check_tokens()


async def test_findings_over_the_budget_are_collapsed_in_rounds() -> None:
    text = "\n".join(f"Line {i} says a little." for i in range(900))
    long = "a little " * 60

    def say(prompt: str) -> str:
        if stage(prompt) == "reduce":
            return "Answer: Ada"
        return FOUND.format(long if stage(prompt) == "map" else "little", "Ada", 3)

    async with bench(say) as b:
        attempt = await MapReduce(WORDS, window=WINDOW, reply=REPLY).run(
            TASK, document(text), b.calls
        )
    stages = [stage(prompt) for prompt in b.prompts()]
    assert attempt.record["rounds"] >= 1 and "collapse" in stages
    assert stages[-1] == "reduce" and attempt.record["dropped"] == 0
    assert all(words(p) <= WINDOW for p in b.prompts())


async def test_rounds_are_bounded_and_the_least_sure_findings_go_first() -> None:
    """A model that never shortens can't loop it forever."""
    text = "\n".join(f"Line {i} says a little." for i in range(900))
    sure = iter(range(10_000))

    def say(prompt: str) -> str:
        return FOUND.format("a little " * 100, "Ada", 5 if next(sure) % 7 == 0 else 1)

    async with bench(say) as b:
        method = MapReduce(WORDS, window=WINDOW, reply=REPLY, max_rounds=1)
        attempt = await method.run(TASK, document(text), b.calls)
    assert attempt.record["rounds"] == 1 and attempt.record["dropped"] > 0
    assert words(b.prompts()[-1]) <= WINDOW
    if "Confidence: 5" in "".join(p for p in b.prompts() if stage(p) == "reduce"):
        assert b.prompts()[-1].count("Confidence: 5") >= b.prompts()[-1].count("Confidence: 1")


async def test_nothing_found_still_asks_for_an_answer() -> None:
    async with bench(lambda p: "unknown" if stage(p) == "reduce" else "[NO INFORMATION]") as b:
        attempt = await MapReduce(WORDS).run(TASK, document("x"), b.calls)
    assert "(none)" in b.prompts()[-1] and attempt.answer == "unknown"


async def test_a_window_without_room_is_refused() -> None:
    async with bench(lambda p: "x") as b:
        with pytest.raises(ValueError, match="no room"):
            await MapReduce(WORDS, window=100, reply=60).run(TASK, document("x"), b.calls)


@given(st.text(alphabet="ab \n.,", max_size=300), st.integers(1, 20))
def test_split_rebuilds_any_text_within_its_limit(text: str, room: int) -> None:
    parts = split(WORDS, text, room)
    assert "".join(parts) == text
    assert all(words(part) <= room for part in parts)


def test_split_prefers_lines_to_sentences_to_words() -> None:
    assert split(WORDS, "one two\nthree four\nfive", 4) == ["one two\nthree four\n", "five"]
    assert split(WORDS, "one two. three four. five six.", 4) == [
        "one two.", " three four.", " five six."
    ]  # fmt: skip
    assert split(WORDS, "one two three four five", 2) == ["one two ", "three four ", "five"]


def test_fields_are_read() -> None:
    assert confidence("Confidence Score: 3.5") == 3.5
    assert confidence("**Confidence:** 5") == 5
    assert confidence("sure") == 0
    assert informative(FOUND.format("no information on Bob", "Ada", 4))
    assert not informative("There is no information here.")
    assert not informative(" ")
    assert not informative("[NO INFORMATION]\nConfidence: 5")
    assert not informative(FOUND.format("no information", "none", 0))
    assert final_answer("Rationale: the answer: no\nAnswer: Ada\n") == "Ada"
    assert final_answer("**Answer:** Ada Lovelace") == "Ada Lovelace"
    assert final_answer("Ada") == "Ada"
