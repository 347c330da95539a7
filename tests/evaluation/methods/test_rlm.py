"""RLM: the context never in a prompt, code run in the session, and an end in every case."""

import pytest

from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.methods.repl import ReplLimits
from disco_rl.evaluation.methods.rlm import Rlm
from disco_rl.evaluation.methods.sandbox import supported
from tests.evaluation.methods.served import bench, document

pytestmark = pytest.mark.skipif(not supported(), reason="needs Linux on x86_64 or aarch64")
TASK = Task("Who rang the bell?")
CONTEXT = "Nothing happened. " * 500 + "Ada rang the bell. " + "Nothing happened. " * 500


def block(code: str) -> str:
    return f"Let me see.\n```python\n{code}\n```"


async def test_it_searches_asks_sub_models_and_ends_when_ready() -> None:
    turns = iter(
        [
            block("i = context.find('bell'); print(len(context), i)"),
            block("parts = [context[i-20:i+5], 'x']\nprint(llm_query_batched(parts))"),
            block("answer['content'] = 'Ada'; answer['ready'] = True"),
        ]
    )

    def say(prompt: str) -> str:
        return (
            "sub: " + prompt[:3]
            if "Question" not in prompt and "Turn" not in prompt
            else next(turns)
        )

    async with bench(say) as b:
        attempt = await Rlm().run(TASK, document(CONTEXT), b.calls)
    assert (attempt.answer, attempt.stop) == ("Ada", "answered")
    assert (b.spent("driver").calls, b.spent("worker").calls) == (3, 2)
    assert attempt.record["sub_calls"] == 2
    assert attempt.record["turns"][0]["output"] == f"{len(CONTEXT)} {CONTEXT.find('bell')}\n"
    sent = [m["content"] for body in b.server.bodies for m in body["messages"]]
    assert not any("Nothing happened. " * 3 in text for text in sent)
    b.check_tokens()


async def test_after_the_last_turn_one_answer_is_forced() -> None:
    def say(prompt: str) -> str:
        return "Ada" if "no turns left" in prompt else block("print(context[:10])")

    async with bench(say) as b:
        attempt = await Rlm(turns=3).run(TASK, document(CONTEXT), b.calls)
    assert (attempt.answer, attempt.stop) == ("Ada", "forced")
    assert b.spent("driver").calls == 4
    assert b.server.bodies[-1]["max_tokens"] == TASK.max_tokens


async def test_a_reply_without_code_is_told_so() -> None:
    def say(prompt: str) -> str:
        return "Ada" if "no turns left" in prompt else "I think it was Ada."

    async with bench(say) as b:
        attempt = await Rlm(turns=1).run(TASK, document(CONTEXT), b.calls)
    assert "no ```python block" in b.server.bodies[-1]["messages"][-2]["content"]
    assert attempt.answer == "Ada"


async def test_a_block_over_its_time_costs_the_session_not_the_question() -> None:
    turns = iter([block("x = 1\nwhile True: pass"), block("print('x' in globals())")])

    def say(prompt: str) -> str:
        return "Ada" if "no turns left" in prompt else next(turns)

    async with bench(say) as b:
        method = Rlm(turns=2, limits=ReplLimits(block_s=3))
        attempt = await method.run(TASK, document(CONTEXT), b.calls)
    assert "new session" in attempt.record["turns"][0]["output"]
    assert attempt.record["turns"][1]["output"] == "False\n" and attempt.record["sessions"] == 2


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (block("print('x' * 500)"), "[401 more characters were cut]"),
        (
            block("print('x' * 90)") + block("print('y' * 300)"),
            "[the rest was cut: at most 100 characters a turn]",
        ),
    ],
)
async def test_the_root_model_is_told_what_was_cut(code: str, told: str) -> None:
    def say(prompt: str) -> str:
        return "Ada" if "no turns left" in prompt else code

    async with bench(say) as b:
        method = Rlm(turns=1, limits=ReplLimits(output_chars=100))
        attempt = await method.run(TASK, document(CONTEXT), b.calls)
    output = attempt.record["turns"][0]["output"]
    assert output.endswith(f"\n{told}") and len(output) < 200
    assert output in b.server.bodies[-1]["messages"][-2]["content"]


async def test_sub_calls_are_bounded() -> None:
    def say(prompt: str) -> str:
        if "no turns left" in prompt:
            return "Ada"
        return block("print(llm_query_batched(['x'] * 11))") if "Question" in prompt else "sub"

    async with bench(say) as b:
        attempt = await Rlm(turns=1, max_sub_calls=10).run(TASK, document(CONTEXT), b.calls)
    assert "over 10 sub-model calls" in attempt.record["turns"][0]["output"]
    assert b.spent("worker").calls == 0


async def test_old_outputs_are_dropped_before_the_prompt_overflows() -> None:
    def say(prompt: str) -> str:
        return "Ada" if "no turns left" in prompt else block("print(context[:4000])")

    async with bench(say) as b:
        attempt = await Rlm(turns=4, history_chars=8000).run(TASK, document(CONTEXT), b.calls)
    assert attempt.record["dropped_outputs"] == 3
    last = [m["content"] for m in b.server.bodies[-1]["messages"]]
    assert last.count("(dropped)") == 3 and "Who rang" in last[1]
