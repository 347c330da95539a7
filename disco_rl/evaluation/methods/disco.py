"""DISCO: the engine's own episode, its models counted, in turn, and never paid for twice."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from disco_rl.core.records import to_record
from disco_rl.core.shards import Context, TextContext, cut
from disco_rl.core.trajectory import Generation, StopReason
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import (
    BadReplyError,
    DriverModel,
    Message,
    ModelError,
    Quote,
    Scan,
    Worker,
)
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.habits import narrow_habits
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.tokens import Tokenizer, count


@dataclass(frozen=True)
class Disco:
    """Any Driver and any Worker. With the dense retriever as Worker it is the paper's Table 3.

    `dropout` discards that fraction of the narrow actions' outputs, shard by shard, by a seed
    of the question (the paper's fact dropout).
    """

    tokenizer: Tokenizer
    driver: DriverModel
    worker: Worker
    episode: EpisodeConfig
    shard_size: int = 4096
    max_findings: int = 16
    dropout: float = 0.0

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        context = self._context(document)
        # The calls' gate bounds the pool, together with every other item's calls.
        pool = WorkerPool(
            CountedWorker(self.worker, calls, self.dropout),
            max_concurrency=len(context.shards) * self.episode.max_plan_nodes,
            max_findings=self.max_findings,
        )
        driver = CountedDriver(self.driver, calls)
        question = f"{task.asked}\n{task.style}".strip()
        trajectory = await run_episode(question, context, driver, pool, self.episode)
        if trajectory.stop is StopReason.ERROR:
            raise ModelError(trajectory.error or "the episode failed without saying why")
        record = to_record(trajectory)
        record["narrow"] = narrow_habits(record)
        return Attempt(
            trajectory.answer, trajectory.stop.value, trajectory=trajectory, record=record
        )

    def _context(self, document: Document) -> Context:
        if isinstance(document, StoredDocument):
            return document.context
        text = document.load()
        shards = cut(text, lambda texts: [count(self.tokenizer, t) for t in texts], self.shard_size)
        return TextContext(document.id, text, tuple(shards))


@dataclass(frozen=True)
class StoredDocument(Document):
    """A document that was cut when its data was built, so it is not cut again."""

    context: Context


class CountedDriver:
    """A `DriverModel` whose generations go through the journal and the ledger."""

    def __init__(self, model: DriverModel, calls: Calls):
        self._model, self._calls = model, calls

    def count(self, messages: Sequence[Message]) -> int:
        return self._model.count(messages)

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        calls, spent = self._calls, self._calls.ledger.of("driver")
        key = calls.journal.key("driver", [dict(m) for m in messages], max_tokens)
        kept = calls.journal.get(key)
        if kept is not None:
            seconds = kept.pop("seconds")
            reply = Generation(**kept)
        else:
            async with calls.gate.turn(calls.owner):
                began = time.perf_counter()
                try:
                    reply = await self._model.generate(
                        messages, max_tokens=max_tokens, schema=schema
                    )
                except ModelError:
                    spent.failures += 1
                    raise
                seconds = time.perf_counter() - began
            # Token ids are for training; here their counts are enough.
            reply = replace(
                reply,
                prompt_ids=(),
                output_ids=(),
                logprobs=(),
                n_prompt=len(reply.prompt_ids) or reply.n_prompt,
                n_output=len(reply.output_ids) or reply.n_output,
            )
            calls.journal.keep(key, asdict(reply) | {"seconds": seconds})
        spent.calls += 1
        spent.prompt += reply.n_prompt
        spent.cached += int(reply.extra.get("cached_tokens", 0))
        spent.output += reply.n_output
        spent.cut += reply.finish == "length"
        spent.seconds += seconds
        return reply


class CountedWorker:
    """A `Worker` whose scans go through the journal and the ledger; it may drop what was found."""

    def __init__(self, worker: Worker, calls: Calls, dropout: float = 0.0):
        self._worker, self._calls, self._dropout = worker, calls, dropout
        self.dropped = 0

    async def scan(self, instruction: str, context: Context, shard: int) -> Scan:
        calls, spent = self._calls, self._calls.ledger.of("worker")
        key = calls.journal.key("worker", context.id, instruction, shard)
        entry = calls.journal.get(key)
        if entry is None:
            entry = await self._asked(instruction, context, shard)
            calls.journal.keep(key, entry)
        scan = Scan(
            **{f.name: entry[f.name] for f in fields(Scan) if f.name != "quotes"},
            quotes=tuple(
                Quote(q["text"], tuple(q["span"]) if q["span"] else None, q["score"])
                for q in entry["quotes"]
            ),
        )
        spent.calls += not scan.memo_hit
        spent.prompt += scan.prompt_tokens
        spent.cached += scan.cached_tokens
        spent.output += scan.output_tokens
        spent.seconds += entry["seconds"]
        if entry["bad"]:  # billed like any other, and as bad when it is read again
            spent.failures += 1
            error = BadReplyError(entry["bad"])
            error.spent = scan
            raise error
        # Seeded by what was asked: the same after a resume, whatever the order of the scans.
        lost = random.Random(f"{context.id}/{instruction}/{shard}").random() < self._dropout
        if lost and scan.quotes:
            self.dropped += 1
            return replace(scan, quotes=())
        return scan

    async def _asked(self, instruction: str, context: Context, shard: int) -> dict[str, Any]:
        """The Worker's reply as plain JSON, `bad` where it can't be used."""
        calls, bad = self._calls, None
        async with calls.gate.turn(calls.owner):
            began = time.perf_counter()
            try:
                scan = await self._worker.scan(instruction, context, shard)
            except ModelError as error:
                if error.spent is None:  # no reply came: asked again on resume
                    calls.ledger.of("worker").failures += 1
                    raise
                scan, bad = error.spent, str(error)
            seconds = time.perf_counter() - began
        return asdict(scan) | {"seconds": seconds, "bad": bad}
