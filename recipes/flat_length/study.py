"""Does accuracy hold as the context grows? The same questions in 16K to 1M tokens of text.

A question's own context stands as one block somewhere among other text, of which there is more at
each length. Runs through the harness, so it resumes, and `disco-rl report` draws it too.

    python recipes/flat_length/study.py world driver_folder=exports/driver out=runs/flat/world
    python recipes/flat_length/study.py musique source=musique.json out=runs/flat/musique \
        filler=pages.jsonl.gz
    python recipes/flat_length/figures.py runs/flat

`world`: the embedded Driver and the retriever Worker, among regions of another split (no name in
common). `musique`: gold decompositions in place of a Driver, so that only grounding is measured:
every hop is looked up with the earlier gold answers filled in, and the answer counts where it was
found; among the other records' paragraphs, then those of the `filler` pages. Filler that runs out
is repeated, which is counted. Tokens are words and marks. `n=`, `lengths=16384,65536` make it less;
what has a dot goes to the config of `disco-rl eval`, such as `worker.max_findings=4`.
"""

import asyncio
import gzip
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

USAGE = "usage.jsonl"
LENGTHS = tuple(16_384 * 4**i for i in range(4))  # 16K, 64K, 256K, 1M


def padded(
    own: TextContext, filler: Iterator[str], length: int, seed: str, shard_size: int
) -> tuple[TextContext, int]:
    """`own` as one block among pieces of filler, up to `length` words and marks in all, and where
    it begins. The last piece is cut, on its blank lines.

    Raises `ValueError` where the block alone is over the length.
    """
    room = length - sum(shard.n_tokens for shard in own.shards)
    if room < 0:
        raise ValueError(f"context {own.id} is over {length} tokens; ask for greater lengths")
    pieces: list[str] = []
    while room >= 0:
        blocks = []
        for block in next(filler).strip().split("\n\n"):
            room -= count_words([block])[0]
            if room < 0:
                break
            blocks.append(block)
        if blocks:
            pieces.append("\n\n".join(blocks))
    at = random.Random(seed).randint(0, len(pieces))
    before = "".join(f"{piece}\n\n" for piece in pieces[:at])
    text = before + own.text + "".join(f"\n\n{piece}" for piece in pieces[at:])
    return TextContext.cut(f"{own.id}-{length}", text, count_words, shard_size), len(before)


def moved(sample: Sample, context: TextContext, by: int) -> Sample:
    """`sample` in a context where its own begins `by` characters in."""
    hops = []
    for hop in sample.hops:
        start, end = hop.span[0] + by, hop.span[1] + by
        shards = tuple(shards_of_span(context.shards, start, end))
        hops.append(replace(hop, span=(start, end), shard_ids=shards))
    n_tokens = sum(shard.n_tokens for shard in context.shards)
    return replace(
        sample, context_id=context.id, n_shards=len(context.shards), n_tokens=n_tokens,
        hops=tuple(hops),
    )  # fmt: skip


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


def world_questions(
    n: int, length: int, seed: int = 1
) -> tuple[list[tuple[Sample, TextContext]], list[str]]:
    """Questions with their contexts, and filler for `length` tokens."""
    config = WorldConfig(lengths={8192: 1.0})
    asked = make_world(seed, "test", n, config)
    filler = make_world(seed, "train", -(-length // 8192) * config.questions_per_context, config)
    pairs = [(s, asked.region(s.context_id).context) for s in asked.samples]
    return pairs, [region.context.text for region in filler.regions]


def musique_questions(
    source: str, n: int, pages: str | None = None
) -> tuple[list[tuple[Sample, TextContext]], list[str]]:
    records = [r for r in read_records(Path(source)) if isinstance(r, Record)]
    pairs = [convert(record, count_words, 4096, i) for i, record in enumerate(records[:n])]
    texts = [f"{p.title}\n{p.text}" for record in records for p in record.paragraphs]
    if pages:
        with gzip.open(pages, "rt", encoding="utf-8") as file:
            for page in map(json.loads, file):
                blocks = (block.strip() for block in page["text"].split("\n\n"))
                texts += [f"{page['title']}\n{block}" for block in blocks if block]
    return pairs, list(dict.fromkeys(texts))


def contexts(
    pairs: Sequence[tuple[Sample, TextContext]], filler: Sequence[str], length: int, shard_size: int
) -> Iterator[list[Item]]:
    """The questions among `length` tokens, a list for each context; a shorter one's filler is the
    beginning of a longer one's."""
    for own_id, group in itertools.groupby(pairs, key=lambda pair: pair[1].id):
        samples = list(group)
        own = samples[0][1]
        order = random.Random(own_id).sample(filler, len(filler))
        pieces = (piece for piece in itertools.cycle(order) if piece.strip() not in own.text)
        context, by = padded(own, pieces, length, f"{own_id}/{length}", shard_size)
        document = StoredDocument(context.id, lambda text=context.text: text, context)
        yield [
            Item(
                f"{sample.data_source}-{sample.index}-{length}",
                str(length),
                "exact",
                Task(sample.question, style=""),
                Gold(sample.answers),
                document,
                moved(sample, context, by),
            )
            for sample, _ in samples
        ]


def repeated(filler: Sequence[str], length: int) -> float:
    """Share of `length` tokens for which filler has to be repeated."""
    return max(0.0, 1 - sum(count_words(filler)) / length)


def main(argv: Sequence[str]) -> None:
    if not argv or argv[0] not in ("world", "musique"):
        raise SystemExit(__doc__)
    kind, given = argv[0], dict(word.split("=", 1) for word in argv[1:])
    lengths = [int(word) for word in given.get("lengths", "").split(",") if word] or LENGTHS
    n = int(given.get("n", 32))
    if kind == "world":
        pairs, filler = world_questions(n, max(lengths))
    else:
        pairs, filler = musique_questions(given["source"], n, given.get("filler"))
    config = study_config(kind, given)
    folder = Path(given["out"])
    runner.begin(folder, json.dumps(config, indent=2) + "\n")  # JSON is YAML too
    asyncio.run(measure(kind, config, folder, pairs, filler, lengths))


def study_config(kind: str, given: Mapping[str, str]) -> dict[str, Any]:
    # The indexes of about two of the longest contexts are kept in memory.
    overrides = ["benchmark.source=none", "limits.max_items=4", "worker.max_passages=150000"]
    if kind == "world":
        overrides += [
            f"method.driver_folder={given['driver_folder']}",
            *("method.prompts=brief", "method.window=1024", "method.max_call_tokens=128"),
            *(
                "method.max_stages=6",
                "method.shard_size=4096",
                "models.driver.thinking=false",
                "worker.max_findings=4",
            ),
            "models.driver.sampling={temperature: 0.0}",
        ]
    overrides += [f"{key}={value}" for key, value in given.items() if "." in key]
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
    """Runs length after length, context by context, and writes what each length took.

    `usage.jsonl`, a line a length: seconds of making the contexts and of the questions, and the
    most memory (MB) that the process had used by then, beside what it used before the first length.
    """
    known = {sample.question: sample for sample, _ in pairs}
    async with AsyncExitStack() as stack:
        driver = None if kind == "world" else GoldDriver(known)
        setup = await build_setup(config, folder, stack, driver)
        results: list[dict[str, Any]] = []
        before = _peak_mb()
        for length in lengths:
            done = {r["id"] for r in runner.read_results(folder)}
            built = asked = 0.0
            made = contexts(pairs, filler, length, config["method"]["shard_size"])
            new, n_contexts = 0, 0
            while True:
                began = time.perf_counter()
                items = next(made, None)
                built += time.perf_counter() - began
                if items is None:
                    break
                began = time.perf_counter()
                results += await runner.run(folder, items, setup)
                asked += time.perf_counter() - began
                new += sum(item.id not in done for item in items)
                n_contexts += 1
            took = {
                "length": length, "contexts": n_contexts, "questions": new,
                "contexts_s": round(built, 1), "questions_s": round(asked, 1),
                "peak_mb": round(_peak_mb()), "before_mb": round(before),
                "repeated": round(repeated(filler, length), 3),
            }  # fmt: skip
            if new:  # nothing is known of a length that was run before
                with (folder / USAGE).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(took) + "\n")
            print(json.dumps(took), flush=True)
    runner.finish(folder, results, {})


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
