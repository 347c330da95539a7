"""RLM (Zhang et al. 2025): the context is a variable in a Python session, never in the prompt."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from disco_rl.engine.tasks import gather
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.methods.repl import Repl, ReplError, ReplLimits

_CODE = re.compile(r"```(?:python|repl|py)[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_NO_CODE = "There was no ```python block, so nothing was run."


@dataclass(frozen=True)
class Rlm:
    """Depth 1: the sub-model answers plain prompts. `turns` of the root model (official: 30).

    `max_sub_calls` bounds a question's calls of the sub-model, `sub_chars` each prompt;
    `history_chars` bounds what the root model sees of its session, the oldest outputs dropped
    first and counted. These bounds are ours.
    """

    limits: ReplLimits = field(default_factory=ReplLimits)
    turns: int = 30
    turn_tokens: int = 4096
    sub_tokens: int = 2048
    sub_chars: int = 400_000
    max_sub_calls: int = 1000
    history_chars: int = 300_000

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        context = document.load()
        made = 0

        async def ask(prompts: Sequence[str]) -> list[str]:
            nonlocal made
            made += len(prompts)
            if made > self.max_sub_calls:
                raise ReplError(f"over {self.max_sub_calls} sub-model calls; none are left")
            if longest := max((len(p) for p in prompts if len(p) > self.sub_chars), default=0):
                raise ReplError(f"a prompt of {longest} characters; at most {self.sub_chars}")
            return await gather(
                [calls.ask("worker", prompt, max_tokens=self.sub_tokens) for prompt in prompts]
            )

        asked = render("rlm_question", question=task.asked, style=task.style)
        system = render(
            "rlm_system",
            length=len(context),
            limit=self.limits.output_chars,
            window=self.sub_chars,
            turns=self.turns,
        )
        messages: list[dict[str, str]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": asked},
        ]
        record: dict[str, Any] = {"turns": [], "dropped_outputs": 0, "sessions": 1}
        session = Repl(context, ask, self.limits)
        try:
            await session.__aenter__()
            for turn in range(1, self.turns + 1):
                reply = await calls.ask("driver", messages, max_tokens=self.turn_tokens)
                outputs, answer = [], None
                for code in _CODE.findall(reply):
                    try:
                        ran = await session.run(code)
                    except ReplError as error:
                        outputs.append(f"{error}. A new session was started.")
                        session = Repl(context, ask, self.limits)
                        await session.__aenter__()
                        record["sessions"] += 1
                        break
                    outputs.append(ran.output)
                    if (answer := ran.answer) is not None:
                        break
                output = self._cut("\n".join(outputs)) if outputs else _NO_CODE
                record["turns"].append({"reply": reply, "output": output})
                if answer is not None:
                    record["sub_calls"] = made
                    return Attempt(answer.strip(), record=record)
                shown = render("rlm_output", turn=turn, turns=self.turns, output=output or "(none)")
                messages += [
                    {"role": "assistant", "content": reply},
                    {"role": "user", "content": shown},
                ]
                record["dropped_outputs"] += self._shorten(messages)
        finally:
            await session.close()
        record["sub_calls"] = made
        final = render("rlm_final", question=task.asked, style=task.style)
        messages.append({"role": "user", "content": final})
        answer = await calls.ask("driver", messages, max_tokens=task.max_tokens)
        return Attempt(answer, "forced", record=record)

    def _cut(self, output: str) -> str:
        """A block's own cut stays told; of several blocks' outputs it is told here."""
        limit = self.limits.output_chars
        if len(output) <= limit + 100:  # what a session returns of one block, its notice included
            return output
        return f"{output[:limit]}\n[the rest was cut: at most {limit} characters a turn]"

    def _shorten(self, messages: list[dict[str, str]]) -> int:
        size, dropped = sum(len(m["content"]) for m in messages), 0
        for i in range(3, len(messages) - 1, 2):  # user turns after the question, not the newest
            if size <= self.history_chars:
                break
            size -= len(messages[i]["content"])
            if messages[i]["content"] != "(dropped)":
                dropped += 1
            messages[i] = {"role": "user", "content": "(dropped)"}
        return dropped
