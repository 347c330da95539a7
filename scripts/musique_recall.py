"""What the retriever Worker can find of MuSiQue: the gold hops, asked as the gold decomposition.

Earlier gold answers are filled into each sub-question. `any`: the answer's sentence of the gold
paragraph is among the quotes; `found`: the same with the ranker's thresholds; `all_hops`: records
whose every hop is found, the most a Driver that plans perfectly can reach. By ranker and shard
size; a record's context is its own 20 paragraphs. Writes the section `musique_recall` of
recipes/retriever/results.json.

    python scripts/musique_recall.py ../shared/data/musique/hipporag_musique_train.json
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _retrieval import (
    TOP_K,
    Cut,
    KeptEncoder,
    Scored,
    figures,
    musique,
    ranked,
    rounded,
    said,
    scan_all,
    write_section,
)

from disco_rl.engine.workers.retriever import THRESHOLDS

OPEN = Cut(-1.0, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("musique", type=Path, help="JSON list of official MuSiQue records")
    parser.add_argument("--rankers", nargs="+", default=list(THRESHOLDS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[256, 512, 1024, 4096])
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="folder for vectors that a rerun may use")
    args = parser.parse_args()

    records = json.loads(args.musique.read_text(encoding="utf-8"))[: args.records]
    encoder, rows = KeptEncoder(args.keep), []
    with tempfile.TemporaryDirectory() as cache:
        for ranker in args.rankers:
            for size in args.sizes:
                row = _measure(records, ranker, size, cache, encoder)
                rows.append(row)
                print(row, flush=True)
                section = {"top_k": TOP_K, "rows": rows}
                write_section("musique_recall", section)
    encoder.save()


def _measure(
    records: Sequence[Mapping[str, Any]],
    ranker: str,
    size: int,
    cache: str,
    encoder: KeptEncoder,
) -> dict[str, Any]:
    lookups = musique(records, size)
    worker = ranked(ranker, True, cache, encoder)
    scans = [list(scan_all(worker, lookup, -1.0)) for lookup in lookups.present]
    whole = [list(scan_all(worker, lookup)) for lookup in lookups.whole]
    cut = Cut(*THRESHOLDS[ranker])
    values = figures({"present": scans, "absent": [], "whole": whole}, cut)
    by_record: dict[str, list[bool]] = {}
    for lookup, shards in zip(lookups.present, scans, strict=True):
        by_record.setdefault(lookup.context.id, []).append(_found(shards, cut))
    n_shards = [len(lookup.context.shards) for lookup in lookups.whole]
    return {
        "ranker": ranker,
        "shard_size": size,
        "records": len(records),
        "shards": round(sum(n_shards) / len(n_shards), 2),
        "hops": len(scans),
        **rounded(
            {
                "any": sum(_found(shards, OPEN) for shards in scans) / len(scans),
                "found": values["recall"],
                "precision": values["precision"],
                "quotes": values["quotes"],
                "all_hops": sum(map(all, by_record.values())) / len(by_record),
            }
        ),
    }


def _found(shards: list[Scored], cut: Cut) -> bool:
    return any(any(said(passages, shards, cut)) for passages in shards)


if __name__ == "__main__":
    main()
