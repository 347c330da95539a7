"""Runs a method over a benchmark, killed and resumed at any moment without paying twice.

It also runs under `inspect_ai` (inspect_tasks.py). Why it isn't built on it: docs/inspect.md.

RUN/config.yaml        what was run; a run goes on only with the same
RUN/items.jsonl        one result an item, appended when it is done; contexts by id only
RUN/in_flight/*.jsonl  replies of items under way
RUN/embeddings/*.npy   vectors of contexts
RUN/judge              verdicts of a model judge
RUN/summary.json       written last: its existence means complete
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disco_rl.engine.protocols import ModelError
from disco_rl.engine.tasks import gather
from disco_rl.evaluation.benchmarks.item import Item
from disco_rl.evaluation.calls import Calls, ChatModel
from disco_rl.evaluation.gate import FairGate
from disco_rl.evaluation.journal import Journal, drop_cut_line
from disco_rl.evaluation.ledger import Price
from disco_rl.evaluation.methods.protocol import Attempt, Method
from disco_rl.evaluation.scores import score
from disco_rl.evaluation.tokens import Tokenizer, head
from disco_rl.rewards import Judge, JudgeError, Verdict
from disco_rl.rewards import score as reward

VERSION = 1
ITEMS, CONFIG, SUMMARY = "items.jsonl", "config.yaml", "summary.json"


@dataclass(frozen=True)
class Setup:
    """What a run needs beside its items. `max_items` questions are under way at once, and
    `max_calls` model calls of all of them together."""

    method: Method
    models: Mapping[str, ChatModel]
    prices: Mapping[str, Price]
    tokenizer: Tokenizer
    judge: Judge
    max_items: int = 8
    max_calls: int = 64
    deadline_s: float = 3600.0


async def run(
    folder: Path,
    items: Sequence[Item],
    setup: Setup,
    on_done: Callable[[Mapping[str, Any]], object] = lambda result: None,
) -> list[dict[str, Any]]:
    """Results in the order of `items`; those already in the folder are not run again,
    but for failures."""
    folder.mkdir(parents=True, exist_ok=True)
    done = finished(folder)
    gate = FairGate(setup.max_calls)
    slots = asyncio.Semaphore(setup.max_items)

    async def one(item: Item) -> dict[str, Any]:
        if item.id in done:
            return done[item.id]
        async with slots:
            result = await run_item(folder, item, setup, gate)
        on_done(result)
        return result

    return await gather([one(item) for item in items])


def finished(folder: Path) -> dict[str, dict[str, Any]]:
    """Results by item id that aren't run again: all but failures. Repairs what a kill cut off."""
    if (folder / ITEMS).is_file():
        drop_cut_line(folder / ITEMS)
    return {r["id"]: r for r in read_results(folder) if r["stop"] != "error"}


async def run_item(folder: Path, item: Item, setup: Setup, gate: FairGate) -> dict[str, Any]:
    """One item's result, appended to the folder; its replies so far are taken from there."""
    name = hashlib.sha256(item.id.encode()).hexdigest()[:24]
    journal = Journal(folder / "in_flight" / f"{name}.jsonl")
    result = await answer(item, setup, Calls(item.id, setup.models, gate, journal))
    with (folder / ITEMS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    if result["stop"] != "error":  # else it is run again on resume, from these replies
        journal.drop()
    return result


async def answer(item: Item, setup: Setup, calls: Calls) -> dict[str, Any]:
    """One item's result as plain JSON. A method that failed is kept, as a wrong answer."""
    began = time.perf_counter()
    error = None
    try:
        work = setup.method.run(item.task, item.document, calls)
        attempt = await asyncio.wait_for(work, setup.deadline_s)
    except asyncio.TimeoutError:
        attempt, error = Attempt(None, "deadline"), f"deadline_s={setup.deadline_s:g} passed"
    except ModelError as failure:
        attempt, error = Attempt(None, "error"), str(failure)
    except Exception as failure:  # one question's, whatever it is: the others go on
        attempt, error = Attempt(None, "error"), f"{type(failure).__name__}: {failure}"
    seconds = time.perf_counter() - began
    given = attempt.answer
    if given is not None:
        # A lone surrogate, which code of a model can make, is no text that a tokenizer takes.
        given = given.encode("utf-8", "replace").decode()
        # Verbose replies game containment: every method is held to the same length.
        given = head(setup.tokenizer, given, item.task.max_tokens)
    scores: dict[str, float | None] = dict(score(item.scorer, given, item.gold))
    scores["judge"] = await _judged(item, given, setup.judge)
    parts = None
    if item.sample is not None and attempt.trajectory is not None:
        parts = await reward(attempt.trajectory, item.sample, setup.judge)
    return {
        "version": VERSION,
        "id": item.id,
        "group": item.group,
        "scorer": item.scorer,
        "question": item.task.question,
        "gold": list(item.gold.answers),
        "context": item.document.id,
        "answer": given,
        "stop": attempt.stop,
        "error": error,
        "scores": scores,
        "cut_answer": given != attempt.answer,
        "truncated": attempt.truncated,
        "grounding": parts.values()["evidence"] if parts else None,
        "reward": parts.to_record() if parts else None,
        "seconds": seconds,
        "replayed": calls.journal.replayed,
        "ledger": calls.ledger.to_json(),
        "dollars": calls.ledger.dollars(setup.prices),
        "record": attempt.record,
    }


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Results so far, without a line that is half written. Changes nothing: the run may be live."""
    path = folder / ITEMS
    if not path.is_file():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    results = [json.loads(line) for line in whole.splitlines()]
    return list({result["id"]: result for result in results}.values())  # the last try of each


def begin(folder: Path, config_yaml: str) -> None:
    """Makes the folder of a run, or goes on with it.

    Raises `ValueError` where it holds another config: its figures would be mixed.
    """
    path = folder / CONFIG
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(config_yaml, encoding="utf-8")
        return
    before, now = path.read_text(encoding="utf-8").splitlines(), config_yaml.splitlines()
    if before != now:
        changed = [line.strip() for line in now if line not in before]
        changed = changed or [line.strip() for line in before if line not in now]
        raise ValueError(
            f"{folder} holds a run with another config (now {'; '.join(changed[:3])!r}); "
            "set out=ANOTHER_FOLDER, or delete it"
        )


def finish(folder: Path, results: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
    """Writes the summary in one move."""
    right = [result["scores"]["official"] for result in results]
    summary = {
        "n": len(results),
        "official": 100 * sum(right) / len(right),
        "failed": sum(result["error"] is not None for result in results),
        **facts,
    }
    part = folder / f"{SUMMARY}.part"
    part.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    part.replace(folder / SUMMARY)


async def _judged(item: Item, given: str | None, judge: Judge) -> float | None:
    """1 or 0; None where the judge abstains or fails: never a wrong answer. None too for multiple
    choice, where the gold answer is a letter and its own scorers know how one is said."""
    if item.gold.options:
        return None
    if not (given or "").strip():
        return 0.0
    try:
        verdict = await judge.verdict(item.task.asked, item.gold.answers, str(given))
    except JudgeError:
        return None
    return None if verdict is Verdict.UNDECIDED else float(verdict is Verdict.YES)
