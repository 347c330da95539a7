"""Generates a world: regions of a fictional encyclopedia and questions about them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from data_pipeline.tokens import count_words
from data_pipeline.world.filler import reserved_words
from data_pipeline.world.names import SPLITS, NameMaker
from data_pipeline.world.questions import WorldQuestion, ask_region
from data_pipeline.world.region import MIN_TOKENS, Region, make_region
from disco_rl.core.sample import Sample
from disco_rl.core.shards import CountTokens

VERSION = 1
"""Raised whenever the same seed gives other bytes."""


@dataclass(frozen=True)
class WorldConfig:
    """`lengths` (tokens a context) and `hops` (hops a question) map a value to its weight."""

    shard_size: int = 512
    questions_per_context: int = 8
    lengths: Mapping[int, float] = field(default_factory=lambda: {2048: 0.5, 4096: 0.3, 8192: 0.2})
    hops: Mapping[int, float] = field(default_factory=lambda: {2: 0.5, 3: 0.35, 4: 0.15})

    def __post_init__(self) -> None:
        if self.shard_size < 32:
            raise ValueError(f"shard_size={self.shard_size} is under 32 tokens, a long sentence")
        if self.questions_per_context < 1:
            raise ValueError("questions_per_context must be at least 1")
        for name, shares in (("lengths", self.lengths), ("hops", self.hops)):
            if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
                raise ValueError(f"{name} must map values to weights with a positive sum")
        if min(self.hops) < 1 or max(self.hops) > 4:
            raise ValueError(f"hops must lie in 1 to 4, not {sorted(self.hops)}")
        if min(self.lengths) < MIN_TOKENS:
            raise ValueError(f"lengths must be at least {MIN_TOKENS} tokens")


@dataclass(frozen=True)
class World:
    """One split of a world: its regions (one a context) and its questions, in index order."""

    split: str
    seed: int
    regions: tuple[Region, ...]
    questions: tuple[WorldQuestion, ...]

    @property
    def samples(self) -> list[Sample]:
        return [question.sample for question in self.questions]

    def region(self, context_id: str) -> Region:
        """Raises `KeyError` when the world has no such context."""
        return self._by_id[context_id]

    @cached_property
    def _by_id(self) -> dict[str, Region]:
        return {region.context.id: region for region in self.regions}


def make_world(
    seed: int,
    split: str,
    n_questions: int,
    config: WorldConfig | None = None,
    *,
    count: CountTokens = count_words,
    progress: Callable[[int], object] = lambda n_done: None,
) -> World:
    """A world that depends on nothing but the arguments.

    Worlds of different splits share no name, whatever their seeds. Raises `ValueError` for an
    unknown split or a config that asks for more than a context can hold.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    config = config or WorldConfig()
    taken: set[str] = set()
    reserved = reserved_words()
    regions: list[Region] = []
    questions: list[WorldQuestion] = []
    n_contexts = -(-n_questions // config.questions_per_context)
    for i, length in enumerate(_lengths(seed, split, config.lengths, n_contexts)):
        rng = random.Random(f"world {seed} {split} {i}")
        names = NameMaker(rng, split, taken, reserved)
        region = make_region(rng, names, f"{split}-{i:05d}", length, count, config.shard_size)
        n = min(config.questions_per_context, n_questions - len(questions))
        questions += ask_region(rng, region, n, config.hops, first_index=len(questions))
        regions.append(region)
        progress(len(questions))
    return World(split, seed, tuple(regions), tuple(questions))


def _lengths(seed: int, split: str, shares: Mapping[int, float], n: int) -> list[int]:
    """`n` lengths in the given shares, as exactly as whole numbers allow, in random order."""
    total = sum(shares.values())
    exact = {length: n * share / total for length, share in sorted(shares.items())}
    counts = {length: int(amount) for length, amount in exact.items()}
    by_rest = sorted(exact, key=lambda length: counts[length] - exact[length])
    for length in by_rest[: n - sum(counts.values())]:
        counts[length] += 1
    lengths = [length for length, times in counts.items() for _ in range(times)]
    random.Random(f"lengths {seed} {split}").shuffle(lengths)
    return lengths
