"""Can the reward tell right from wrong: known replies to real rows, put to the judge of a run.

Gold answers and paraphrases, other questions' answers, and every trick that is known to fool
judges; with the contexts at hand, evidence too. `disco-rl train` does the same, with fewer rows,
and doesn't start where it fails (unless disco.reward_check.enforce=false).
  disco-rl reward-check judge=llm judge.url=http://127.0.0.1:8000/v1 judge.model=NAME
"""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from disco_rl.core.sample import Sample
    from disco_rl.rewards import RewardCheck

HELP = "check that the reward tells right from wrong"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="key=value on configs/train.yaml")
    parser.add_argument("--rows", type=int, default=64, help="rows to draw (default: 64)")


def run(args: argparse.Namespace) -> int:
    """0 where the reward can be trusted so far, 1 where it can't."""
    from disco_rl.config import compose, missing_keys, refuse_secrets

    config = compose(args.overrides)
    refuse_secrets(config)
    missing = [key for key in missing_keys(config) if key.startswith("judge.")]
    if missing:
        raise ValueError(f"set {', '.join(missing)}")
    if args.rows < 2:
        raise ValueError("--rows must be at least 2")
    seen, notes = check(config, args.rows)
    for line in (*seen.lines(), *notes):
        print(line)
    for problem in seen.problems:
        print(f"refused: {problem}")
    return 1 if seen.problems else 0


def check(config: "DictConfig", rows: int) -> "tuple[RewardCheck, list[str]]":
    """The check on the training rows of `config`, and what a reader should know beside it.

    Raises `ValueError` for rows or a judge that can't be used.
    """
    import asyncio

    from disco_rl.data import load_rows
    from disco_rl.rewards import build_judge, reward_check, weights_from

    files = config.data.train_files
    samples = [
        row for path in ([files] if isinstance(files, str) else files) for row in load_rows(path)
    ]
    judge = build_judge(config.judge, fresh=True)  # as it judges now
    notes: list[str] = []
    quotes = None
    try:
        quotes = _GoldQuotes(config.disco.context_store)
    except ValueError as error:
        notes.append(f"evidence isn't checked: {error}")

    async def judged() -> "RewardCheck":
        try:
            return await reward_check(
                samples, judge, weights_from(config.disco.reward), quotes=quotes, limit=rows
            )
        finally:
            if close := getattr(judge, "close", None):
                await close()

    seen = asyncio.run(judged())
    if ledger := getattr(judge, "ledger", None):
        notes.append("judge: " + ", ".join(ledger.lines()))
    return seen, notes


class _GoldQuotes:
    """The text at a row's gold spans."""

    def __init__(self, store: Any):
        from disco_rl.data import ContextStore

        self._store = ContextStore(store)

    def __call__(self, sample: "Sample") -> list[str]:
        context = self._store.get(sample.context_id)
        quotes = []
        for hop in sample.hops:
            text = "".join(context.read(shard) for shard in hop.shard_ids)
            start = context.shards[hop.shard_ids[0]].start if hop.shard_ids else 0
            quotes.append(text[max(hop.span[0] - start, 0) : max(hop.span[1] - start, 0)])
        return quotes
