"""Full context: the whole document in one prompt, cut in the middle over the limit."""

from dataclasses import dataclass

from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.tokens import Tokenizer, cut_middle


@dataclass(frozen=True)
class FullContext:
    """`limit` bounds the prompt, in tokens (LongBench v2: 120,000; InfiniteBench: 127,000).

    With `reasoning_tokens` the model reasons first, and a second short call asks for the answer
    (LongBench v2 with chain of thought: 1,024).
    """

    tokenizer: Tokenizer
    limit: int = 120_000
    reasoning_tokens: int = 0

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        fields = {"text": document.load(), "question": task.asked}
        if not self.reasoning_tokens:
            prompt, cut = cut_middle(
                self.tokenizer, render("read", **fields, style=task.style), self.limit
            )
            answer = await calls.ask("driver", prompt, max_tokens=task.max_tokens)
            return Attempt(answer, truncated=cut)
        prompt, cut = cut_middle(self.tokenizer, render("reason", **fields), self.limit)
        first = {"role": "user", "content": prompt}
        reasoning = await calls.ask("driver", [first], max_tokens=self.reasoning_tokens)
        messages = [
            first,
            {"role": "assistant", "content": reasoning},
            {"role": "user", "content": render("conclude", style=task.style)},
        ]
        answer = await calls.ask("driver", messages, max_tokens=task.max_tokens)
        return Attempt(answer, truncated=cut, record={"reasoning": reasoning})
