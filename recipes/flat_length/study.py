"""Does accuracy hold as the context grows? The same questions in 16K to 1M tokens of text.

A question's own context stands as one block somewhere among other text, of which there is more at
each length. Runs through the harness, so it resumes, and `disco-rl report` draws it.

    python recipes/flat_length/study.py world driver_folder=exports/driver out=runs/flat/world
    python recipes/flat_length/study.py musique source=musique.json out=runs/flat/musique

`world`: the embedded Driver and the retriever Worker, among regions of another split (no name in
common). `musique`: gold decompositions in place of a Driver, so that only grounding is measured:
every hop is looked up with the earlier gold answers filled in, and the answer counts where it was
found; among the other records' paragraphs. Both repeat their filler where it runs out.
"""

import asyncio
import itertools
import json
import random
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from data_pipeline.musique import convert
from data_pipeline.musique_records import Record, read_records
from data_pipeline.tokens import count_words
from data_pipeline.world import WorldConfig, make_world
from disco_rl.config import compose
from disco_rl.core.sample import Sample
from disco_rl.core.shards import TextContext, shards_of_span
from disco_rl.core.text import normalise_answer
from disco_rl.core.trajectory import Generation
from disco_rl.engine.protocols import Message
from disco_rl.evaluation import runner
from disco_rl.evaluation.benchmarks.item import Item
from disco_rl.evaluation.build import build_setup
from disco_rl.evaluation.methods.disco import StoredDocument
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.scores import Gold

LENGTHS = tuple(16_384 * 4**i for i in range(4))  # 16K, 64K, 256K, 1M


def padded(
    sample: Sample, own: TextContext, filler: Iterator[str], length: int, seed: str, shard_size: int
) -> tuple[Sample, TextContext]:
    """`own` as one block among whole pieces of filler, up to `length` words and marks in all.

    Spans and shards of the sample's hops are those in the new text. Raises `ValueError` where
    the block alone is over the length.
    """
    room = length - sum(shard.n_tokens for shard in own.shards)
    if room < 0:
        raise ValueError(f"context {own.id} is over {length} tokens; ask for greater lengths")
    pieces: list[str] = []
    for piece in filler:
        room -= count_words([piece])[0]
        if room < 0:
            break
        pieces.append(piece.strip())
    at = random.Random(seed).randint(0, len(pieces))
    before = "".join(f"{piece}\n\n" for piece in pieces[:at])
    text = before + own.text + "".join(f"\n\n{piece}" for piece in pieces[at:])
    context = TextContext.cut(f"{own.id}-{length}", text, count_words, shard_size)
    hops = []
    for hop in sample.hops:
        start, end = hop.span[0] + len(before), hop.span[1] + len(before)
        shards = tuple(shards_of_span(context.shards, start, end))
        hops.append(replace(hop, span=(start, end), shard_ids=shards))
    n_tokens = sum(shard.n_tokens for shard in context.shards)
    return replace(
        sample, context_id=context.id, n_shards=len(context.shards), n_tokens=n_tokens,
        hops=tuple(hops),
    ), context  # fmt: skip


class GoldDriver:
    """A `DriverModel` that knows each question's gold decomposition.

    It looks every hop up in every shard, and answers with a gold answer where one stands in the
    evidence as whole words: what a perfect reader could do with what the Worker found.
    """

    def __init__(self, samples: Mapping[str, Sample]):
        self._samples = samples

    def count(self, messages: Sequence[Message]) -> int:
        return sum(count_words([message["content"]])[0] for message in messages)

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        prompt = messages[-1]["content"]
        sample = next(s for question, s in self._samples.items() if question in prompt)
        if schema is None:
            evidence = f" {normalise_answer(prompt.replace(sample.question, ''))} "
            held = [a for a in sample.answers if f" {normalise_answer(a)} " in evidence]
            text = held[0] if held else "not found"
        elif "accept" in schema["properties"]:
            text = json.dumps({"accept": True, "gap": ""})
        else:
            text = json.dumps({"nodes": gold_plan(sample)})
        return Generation(text, n_prompt=self.count(messages), n_output=count_words([text])[0])

    async def close(self) -> None:
        """Nothing to close."""


def gold_plan(sample: Sample) -> list[dict[str, Any]]:
    narrow = [
        {"id": f"n{i}", "op": "narrow", "instruction": hop.question, "shards": "all"}
        for i, hop in enumerate(sample.hops)
    ]
    inputs = [node["id"] for node in narrow]
    return [*narrow, {"id": "w", "op": "wide", "instruction": sample.question, "inputs": inputs}]


def world_questions(n: int, seed: int = 1) -> tuple[list[tuple[Sample, TextContext]], list[str]]:
    config = WorldConfig(lengths={8192: 1.0})
    asked = make_world(seed, "test", n, config)
    # 1M tokens take 128 regions; they are repeated from 64 on, which lookups of other names skip.
    filler = make_world(seed, "train", 64 * config.questions_per_context, config)
    pairs = [(s, asked.region(s.context_id).context) for s in asked.samples]
    return pairs, [region.context.text for region in filler.regions]


def musique_questions(source: str, n: int) -> tuple[list[tuple[Sample, TextContext]], list[str]]:
    records = [r for r in read_records(Path(source)) if isinstance(r, Record)]
    pairs = [convert(record, count_words, 4096, i) for i, record in enumerate(records[:n])]
    texts = [f"{p.title}\n{p.text}" for record in records for p in record.paragraphs]
    return pairs, list(dict.fromkeys(texts))


def items(
    pairs: Sequence[tuple[Sample, TextContext]], filler: Sequence[str], length: int, shard_size: int
) -> Iterator[Item]:
    """The questions among `length` tokens; those of one context share its padded text."""
    for own_id, group in itertools.groupby(pairs, key=lambda pair: pair[1].id):
        name = f"{own_id}/{length}"
        order = random.Random(name).sample(filler, len(filler))
        for sample, own in group:
            pieces = (piece for piece in itertools.cycle(order) if piece.strip() not in own.text)
            moved, context = padded(sample, own, pieces, length, name, shard_size)
            document = StoredDocument(context.id, lambda text=context.text: text, context)
            id = f"{sample.data_source}-{sample.index}-{length}"
            task, gold = Task(sample.question, style=""), Gold(sample.answers)
            yield Item(id, str(length), "exact", task, gold, document, moved)


def main(argv: Sequence[str]) -> None:
    if not argv or argv[0] not in ("world", "musique"):
        raise SystemExit(__doc__)
    kind, given = argv[0], dict(word.split("=", 1) for word in argv[1:])
    lengths = [int(word) for word in given.get("lengths", "").split(",") if word] or LENGTHS
    n = int(given.get("n", 32))
    if kind == "world":
        pairs, filler = world_questions(n)
    else:
        pairs, filler = musique_questions(given["source"], n)
    config = study_config(kind, given)
    folder = Path(given["out"])
    runner.begin(folder, json.dumps(config, indent=2) + "\n")  # JSON is YAML too
    asyncio.run(measure(kind, config, folder, pairs, filler, lengths))


def study_config(kind: str, given: Mapping[str, str]) -> dict[str, Any]:
    overrides = ["benchmark.source=none", "limits.max_items=4"]
    if kind == "world":
        overrides += [
            f"method.driver_folder={given['driver_folder']}",
            *("method.prompts=brief", "method.window=1024", "method.max_call_tokens=128"),
            *(
                "method.max_stages=6",
                "method.shard_size=512",
                "models.driver.thinking=false",
                "worker.max_findings=4",
            ),
            "models.driver.sampling={temperature: 0.0}",
        ]
    composed = OmegaConf.to_container(compose(overrides, name="eval"), resolve=True)
    assert isinstance(composed, dict)
    return composed  # type: ignore[return-value]


async def measure(
    kind: str,
    config: Mapping[str, Any],
    folder: Path,
    pairs: Sequence[tuple[Sample, TextContext]],
    filler: Sequence[str],
    lengths: Sequence[int],
) -> None:
    """Runs length after length; of each, wall time and the most memory so far are printed."""
    async with AsyncExitStack() as stack:
        known = {sample.question: sample for sample, _ in pairs}
        shard_size = config["method"]["shard_size"]
        setup = await build_setup(
            config, folder, stack, None if kind == "world" else GoldDriver(known)
        )
        results = []
        for length in lengths:
            began = time.perf_counter()
            made = list(items(pairs, filler, length, shard_size))
            built = time.perf_counter() - began
            results += await runner.run(folder, made, setup)
            took = time.perf_counter() - began - built
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{length}: contexts {built:.1f} s, questions {took:.1f} s, {peak:.0f} MB at most"
            )
    runner.finish(folder, results, {})


if __name__ == "__main__":
    main(sys.argv[1:])
