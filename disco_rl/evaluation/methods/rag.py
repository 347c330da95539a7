"""RAG: the chunks nearest to the question by cosine, and one call (the paper's settings)."""

from dataclasses import dataclass

import numpy as np

from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.embedders import Embedder
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.tokens import Tokenizer, chunks, count


@dataclass(frozen=True)
class Rag:
    """`top` chunks of `chunk` tokens; `order` of the prompt is `document` or `score`.

    `instruction` stands before the question where the embedding model wants one, as Qwen3-Embedding
    does.
    """

    tokenizer: Tokenizer
    embedder: Embedder
    chunk: int = 256
    top: int = 16
    order: str = "document"
    instruction: str = ""

    def __post_init__(self) -> None:
        if self.order not in ("document", "score"):
            raise ValueError(f"method.order is {self.order!r}; choose document or score")

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        parts = chunks(self.tokenizer, document.load(), self.chunk)
        # The options are left out: three of four are about what the answer is not.
        query = self.instruction + task.question
        vectors = await self.embedder.embed(parts, calls)
        [asked] = await self.embedder.embed([query], calls)
        scores = vectors @ asked
        best = np.argsort(-scores, kind="stable")[: self.top].tolist()
        shown = sorted(best) if self.order == "document" else best
        text = "\n\n".join(f"[{rank}] {parts[i].strip()}" for rank, i in enumerate(shown, 1))
        prompt = render("passages", text=text, question=task.asked, style=task.style)
        answer = await calls.ask("driver", prompt, max_tokens=task.max_tokens)
        read = sum(count(self.tokenizer, parts[i]) for i in best)
        record = {
            "chunks": len(parts),
            "shown": shown,
            "scores": [round(float(scores[i]), 4) for i in shown],
            "tokens_shown": read,
        }
        return Attempt(answer, record=record)
