"""Small hand-written fakes of the two model protocols."""

from collections.abc import Callable, Sequence

from disco_rl.core.shards import Context
from disco_rl.core.trajectory import Generation
from disco_rl.engine.protocols import Message, ModelError, Quote, Scan


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


class ScriptedModel:
    """Replies in order; an exception in the script is raised. Keeps the prompts it saw.

    Token ids are made up but consistent: one id a word, so that lengths can be checked.
    """

    def __init__(self, replies: Sequence[str | Exception]):
        self.replies = list(replies)
        self.prompts: list[list[Message]] = []

    def count(self, messages: Sequence[Message]) -> int:
        return sum(len(message["content"].split()) + 1 for message in messages)

    async def generate(self, messages, *, max_tokens, schema=None) -> Generation:
        self.prompts.append(list(messages))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        words = reply.split()
        finish = "length" if len(words) > max_tokens else "stop"
        words = words[:max_tokens]
        ids = tuple(range(1, len(words) + 1))
        text = reply if finish == "stop" else " ".join(words)
        return Generation(text, tuple(range(self.count(messages))), ids, (-0.5,) * len(ids), finish)


class SubstringWorker:
    """Finds sentences that hold the last word of the instruction; `fail` says which shards fail."""

    def __init__(self, fail: Callable[[int], bool] = lambda shard: False):
        self.fail = fail
        self.asked: list[tuple[str, int]] = []

    async def scan(self, instruction: str, context: Context, shard: int) -> Scan:
        self.asked.append((instruction, shard))
        if self.fail(shard):
            raise ModelError(f"shard {shard}: scripted failure")
        word, text, quotes, start = instruction.split()[-1].strip("."), context.read(shard), [], 0
        for sentence in text.split(". "):
            if word in sentence:
                quotes.append(Quote(sentence, (start, start + len(sentence)), 1.0))
            start += len(sentence) + 2
        return Scan(tuple(quotes))
