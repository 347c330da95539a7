"""Measures the data pipeline on a generated encyclopedia.

    python scripts/bench_data.py lookup --titles 1000000     look-ups in a page store, memory
    python scripts/bench_data.py samples --pages 100000      contexts of 512K tokens, end to end

`samples` plans, renders and shards with one process, counts the same text with the tokenizer's own
batch encoding in the same run, and checks every count. The tokenizer is a byte-level BPE with
Qwen's pattern, trained on the text. Prints JSON.
"""

import argparse
import json
import math
import os
import random
import resource
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from data_pipeline.expansion.expand import Policy
from data_pipeline.lines import to_line
from data_pipeline.musique_records import Paragraph, Record, Step
from data_pipeline.steps.work import BuildContext, FindMentions, MakePlan, Shared
from data_pipeline.tokens import counter
from data_pipeline.wiki.build import build_pages
from data_pipeline.wiki.page import Item, Link, SourcePage
from data_pipeline.wiki.store import FORMAT_VERSION, SCHEMA, PageStore

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
# Qwen's pre-tokenizer.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def name(k: int) -> str:
    """A two-word name; no two numbers below 24 million share one."""
    n = len(_SYLLABLES)
    words = (k % n, k // n % n, k // n**2 % n, k // n**3)
    first, second = ("".join(_SYLLABLES[i] for i in pair) for pair in (words[:2], words[2:]))
    return f"{first.title()} {second.title()}"


@dataclass(frozen=True)
class Encyclopedia:
    """The first pages are long and most links lead to them; most pages are short."""

    n_pages: int
    path: Path = Path("generated")

    def raw(self) -> Iterator[int]:
        return iter(range(self.n_pages))

    def convert(self, raw: int) -> Item:
        rng = random.Random(raw)
        parts, links, size = [], [], 0
        for _ in range(3 + int(rng.expovariate(1 / 90) * math.exp(-20 * raw / self.n_pages))):
            before, after = rng.choice(sentences())
            other = name(int(self.n_pages * rng.random() ** 4))
            links.append(Link(size + len(before), size + len(before) + len(other), other))
            parts += before, other, after
            size += len(before) + len(other) + len(after)
        return SourcePage(name(raw), "".join(parts), tuple(links))


def sentences(made: list[tuple[str, str]] = []) -> list[tuple[str, str]]:  # noqa: B006
    """Two thousand sentences with a gap for a name."""
    if not made:
        rng = random.Random(0)
        vocabulary = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(5000)]
        for _ in range(2000):
            words = rng.choices(vocabulary, range(5000, 0, -1), k=rng.randint(8, 24))
            at = rng.randint(1, len(words) - 1)
            after = " " + " ".join(words[at:]) + rng.choice([". ", ". ", ".\n"])
            made.append((" ".join(words[:at]).capitalize() + " ", after))
    return made


def record(k: int, n_pages: int) -> Record:
    """Two hops in two of four paragraphs, each of which names six pages."""
    rng = random.Random(f"record {k}")
    paragraphs = []
    for h in range(4):
        told = [
            before + name(rng.randrange(n_pages)) + after
            for before, after in rng.choices(sentences(), k=6)
        ]
        told.insert(rng.randint(1, 5), f"The answer of part {h} is Gold {k} {h}. ")
        paragraphs.append(Paragraph(f"Part {h} of {k}", "".join(told).replace("\n", " ").strip()))
    steps = tuple(
        Step(f"What is the answer of part {h}?", f"Gold {k} {h}", paragraphs[h]) for h in (0, 1)
    )
    return Record(f"2hop__{k}", "What is it?", (steps[1].answer,), tuple(paragraphs), steps)


class Clock:
    """Processor seconds by name: one thread does all the work, and the machine may be shared."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, what: str, work: Callable[[Any], Any], item: Any) -> Any:
        start = time.process_time()
        result = work(item)
        self.seconds[what] = self.seconds.get(what, 0.0) + time.process_time() - start
        return result


def tokenizer(folder: Path) -> str:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PATTERN), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
    pages = (Encyclopedia(10**5).convert(k) for k in range(2000))
    made.train_from_iterator((p.text for p in pages if isinstance(p, SourcePage)), trainer)
    made.save(str(folder / "tokenizer.json"))
    return str(folder)


def samples(args: argparse.Namespace) -> dict[str, Any]:
    args.folder.mkdir(parents=True, exist_ok=True)
    tokenizer_name = str(args.folder)
    if not (args.folder / "tokenizer.json").is_file():
        tokenizer(args.folder)
    began = time.process_time()
    path = args.folder / "pages.sqlite"
    counts = build_pages(
        path, [Encyclopedia(args.pages)], tokenizer=tokenizer_name, max_chars=10**6
    )
    built_s = time.process_time() - began
    before_mb = _peak_mb()
    shared = Shared(path, tokenizer_name, True, 0, ())
    policy = Policy(lengths={args.length: 1.0}, max_depth=12)
    find, plan = FindMentions(shared), MakePlan(shared, policy)
    build = BuildContext(shared, args.shard_size, 0.01, 2)
    figures: dict[str, Any] = {"pages": counts["pages"], "store tokens": counts["tokens"]}
    clock, count = Clock(), counter(tokenizer_name)
    off, positions, tokens, n_built = [], [], 0, 0
    for k in range(args.samples):
        one = record(k, args.pages)
        mentions = clock.run("mentions", find, one)
        planned = clock.run("plan", plan, (one, mentions))
        if planned.plan is None:
            raise SystemExit(f"sample {k}: {planned.short}")
        context = clock.run("build", build, (one, planned.plan))
        clock.run("build", to_line, context)
        if context.dropped is not None:
            print(f"sample {k}: {context.dropped.reason}", file=sys.stderr)
            continue
        texts = [context.text[s.start : s.end] for s in context.shards]
        counted = clock.run("encode", count, texts)
        if counted != [s.n_tokens for s in context.shards]:
            raise SystemExit(f"sample {k}: shards are counted wrong")
        whole = count([context.text])[0]
        off.append(abs(whole - args.length) / args.length)
        positions += context.positions
        tokens += sum(counted)
        n_built += 1
    seconds = clock.seconds
    pipeline = seconds["mentions"] + seconds["plan"] + seconds["build"]
    figures |= {
        "store built in s": round(built_s, 1),
        "samples": n_built,
        "tokens": tokens,
        "length off by at most": round(max(off), 5),
        "seconds": {k: round(v, 2) for k, v in seconds.items()},
        "samples a minute": round(60 * n_built / pipeline, 1),
        "pipeline tokens a second": round(tokens / pipeline),
        "encode_batch tokens a second": round(tokens / seconds["encode"]),
        "pipeline against encode_batch": round(seconds["encode"] / pipeline, 2),
        "evidence by fifths of the context": np.histogram(positions, 5, (0, 1))[0].tolist(),
        "peak memory MB, store built": before_mb,
        "peak memory MB": _peak_mb(),
    }
    return figures


def lookup(args: argparse.Namespace) -> dict[str, Any]:
    """Half of the titles are redirects."""
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / f"titles-{args.titles}.sqlite"
    began = time.process_time()
    if not path.is_file():
        _titles(path, args.titles)
    built_s = time.process_time() - began
    store, rng = PageStore(path), random.Random(1)
    times = []
    for k in range(args.lookups + 1000):
        title = name(rng.randrange(args.titles))
        start = time.perf_counter()
        found = store._find(title)  # without the cache of titles
        if k >= 1000:
            times.append(time.perf_counter() - start)
        if found is None:
            raise SystemExit(f"{title!r} isn't found")
    p50, p99, p999 = (1e6 * float(np.percentile(times, p)) for p in (50, 99, 99.9))
    return {
        "titles": args.titles,
        "file MB": round(path.stat().st_size / 2**20),
        "built in s": round(built_s, 1),
        "look-ups": len(times),
        "median µs": round(p50, 1),
        "p99 µs": round(p99, 1),
        "p99.9 µs": round(p999, 1),
        "peak memory MB": _peak_mb(),
    }


def _titles(path: Path, n: int) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA synchronous=OFF")
    with db:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        sentence = np.array([[7], [2]], np.uint32).tobytes()
        blobs = [zlib.compress(blob) for blob in (b"[]", sentence, b"A\nB.\n\n\n")]
        db.execute("INSERT INTO pages VALUES (1, 'A', 2, 0, 0, '', ?, ?, ?)", blobs)
        rows = ((name(k), 1 if k % 2 else None, None if k % 2 else name(k + 1)) for k in range(n))
        db.executemany("INSERT INTO titles VALUES (?, ?, ?)", sorted(rows))
        meta = {"version": FORMAT_VERSION, "settings": {"tokenizer": "words"}, "complete": True}
        db.executemany(
            "INSERT INTO meta VALUES (?, ?)", [(k, json.dumps(v)) for k, v in meta.items()]
        )
    db.close()


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("lookup", "samples"))
    parser.add_argument("--folder", type=Path, default=Path("data/bench"))
    parser.add_argument("--titles", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=20_000)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--length", type=int, default=524_288)
    parser.add_argument("--shard-size", type=int, default=4096)
    args = parser.parse_args()
    print(json.dumps((lookup if args.what == "lookup" else samples)(args), indent=2))


if __name__ == "__main__":
    main()
