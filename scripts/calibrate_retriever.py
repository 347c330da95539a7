"""Chooses the retriever's ranker, its two thresholds and its heading rule on held-out data.

Measured on the embedded world's validation split and on one half of the MuSiQue records: the
thresholds of each ranker are those with the best mean F2 over the two (F2 is the evidence
reward's own measure; a shard that speaks of an absent fact counts against precision). The test
split and the other half then say what they are worth. Writes the section `calibration` of
recipes/retriever/results.json.

    python scripts/calibrate_retriever.py ../shared/data/musique/hipporag_musique_train.json
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from _retrieval import (
    TOP_K,
    Cut,
    KeptEncoder,
    Lookups,
    figures,
    musique,
    ranked,
    rounded,
    scan_all,
    world,
    write_section,
)

from disco_rl.engine.workers.retriever import Retriever, RetrieverConfig

THRESHOLDS = [round(0.24 + 0.02 * step, 2) for step in range(31)]
RELATIVES = [0.0, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
CURVE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SHARD_SIZE = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("musique", type=Path, help="JSON list of official MuSiQue records")
    parser.add_argument("--questions", type=int, default=80, help="of each world split")
    parser.add_argument("--records", type=int, default=100, help="of MuSiQue, half each")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--rankers", nargs="+", default=["bm25", "dense", "fusion"])
    parser.add_argument("--keep", type=Path, help="folder for vectors that a rerun may use")
    args = parser.parse_args()

    records = json.loads(args.musique.read_text(encoding="utf-8"))[: args.records]
    choose = {
        "world": world("validation", args.seed, args.questions),
        "musique": musique(records[0::2], SHARD_SIZE),
    }
    check = {
        "world": world("test", args.seed, args.questions),
        "musique": musique(records[1::2], SHARD_SIZE),
    }
    section = {"shard_size": SHARD_SIZE, "top_k": TOP_K}
    size = {
        "seed": args.seed,
        "questions": args.questions,
        "records": len(records),
        "lookups": {
            f"{name}_{source}": {kind: len(found) for kind, found in vars(lookups).items()}
            for name, part in (("validation", choose), ("held_out", check))
            for source, lookups in part.items()
        },
    }
    encoder, rows = KeptEncoder(args.keep), []
    # Headings are decided by BM25, where they cost nothing: each rule needs its own vectors.
    pairs = [(r, h) for r in args.rankers for h in ((False, True) if r == "bm25" else (True,))]
    with tempfile.TemporaryDirectory() as cache:
        for ranker, headings in pairs:
            start = time.monotonic()
            row = size | _calibrate(choose, check, ranker, headings, cache, encoder)
            rows.append(row)
            encoder.save()
            print(f"{ranker} headings={headings} {time.monotonic() - start:.0f} s")
            for source, values in row["held_out"].items():
                print(f"  {row['threshold']} and {row['relative']}, {source}: {values}", flush=True)
            write_section("calibration", {**section, "rows": rows})
    write_section("speed", _speed(choose["world"]))


def _speed(lookups: Lookups) -> dict:
    """CPU time of the default Worker on one thread: what training makes thousands of a step."""
    scans = [(x.instruction, x.context, s.index) for x in lookups.present for s in x.context.shards]
    contexts = {x.context.id: x.context for x in lookups.present}
    with tempfile.TemporaryDirectory() as cache:
        worker = Retriever(RetrieverConfig(cache_dir=cache))

        def timed(asked: list) -> float:
            start = time.process_time()
            for one in asked:
                worker.search(*one)
            return time.process_time() - start

        worker.search("Find", *next((c, 0) for c in contexts.values()))  # imports
        build = timed([("Find", context, 0) for context in list(contexts.values())[1:]])
        first, again = timed(scans), timed(scans)
        worker = Retriever(RetrieverConfig(cache_dir=cache))
        load = timed([("Find", context, 0) for context in contexts.values()])
    tokens = sum(shard.n_tokens for context in contexts.values() for shard in context.shards)
    return {
        "contexts": len(contexts),
        "tokens_a_context": round(tokens / len(contexts)),
        "scans": len(scans),
        "cpu_us_a_scan_new_instruction": round(1e6 * first / len(scans), 1),
        "cpu_us_a_scan_repeated": round(1e6 * again / len(scans), 1),
        "cpu_ms_to_index_a_context": round(1e3 * build / (len(contexts) - 1), 2),
        "cpu_ms_to_load_an_index": round(1e3 * load / len(contexts), 2),
    }


def _calibrate(
    choose: Mapping[str, Lookups],
    check: Mapping[str, Lookups],
    ranker: str,
    headings: bool,
    cache: str,
    encoder: KeptEncoder,
) -> dict:
    worker = ranked(ranker, headings, cache, encoder)
    scans = {
        part: {
            source: {
                kind: [list(scan_all(worker, lookup)) for lookup in found]
                for kind, found in vars(lookups).items()
            }
            for source, lookups in sources.items()
        }
        for part, sources in (("choose", choose), ("check", check))
    }

    def mean_f2(cut: Cut) -> float:
        return sum(figures(scans["choose"][s], cut)["f2"] for s in choose) / len(choose)

    cuts = [Cut(threshold, relative) for threshold in THRESHOLDS for relative in RELATIVES]
    best = max(cuts, key=lambda cut: (round(mean_f2(cut), 3), cut.threshold, cut.relative))
    return {
        "ranker": ranker,
        "headings": headings,
        "threshold": best.threshold,
        "relative": best.relative,
        "validation": {s: rounded(figures(scans["choose"][s], best)) for s in choose},
        "held_out": {s: rounded(figures(scans["check"][s], best)) for s in check},
        "curve": [
            {
                "threshold": cut.threshold,
                "relative": cut.relative,
                **{s: rounded(figures(scans["choose"][s], cut)) for s in choose},
            }
            for cut in cuts
            if cut.threshold in CURVE and cut.relative in (0.0, best.relative)
        ],
    }


if __name__ == "__main__":
    main()
