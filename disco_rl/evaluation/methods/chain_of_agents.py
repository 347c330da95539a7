"""Chain-of-Agents (Zhang et al. 2024): readers pass notes along, a manager answers."""

from dataclasses import dataclass

from disco_rl.core.shards import cut
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.tokens import Tokenizer, count


@dataclass(frozen=True)
class ChainOfAgents:
    """Reader i sees chunk i (whole sentences, up to `chunk` tokens), the last notes, the question.

    Strictly one after the other: chunks + 1 calls. The paper's DISCO comparison reproduced it too,
    since no code was published; the prompts are ours.
    """

    tokenizer: Tokenizer
    chunk: int = 4096
    notes_tokens: int = 512

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        text = document.load()
        shards = cut(text, lambda texts: [count(self.tokenizer, t) for t in texts], self.chunk)
        notes, lengths = "", []
        for shard in shards:
            prompt = render(
                "chain_worker",
                chunk=text[shard.start : shard.end],
                notes=notes or "(none yet)",
                question=task.asked,
            )
            # A reader that falls silent must not erase what the others found.
            notes = await calls.ask("worker", prompt, max_tokens=self.notes_tokens) or notes
            lengths.append(len(notes))
        prompt = render("chain_manager", notes=notes, question=task.asked, style=task.style)
        answer = await calls.ask("driver", prompt, max_tokens=task.max_tokens)
        return Attempt(answer, record={"notes": notes, "notes_chars": lengths})
