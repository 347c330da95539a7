"""Checks a data set by other means than those that built it: Parquet, Arrow and the records' JSON.

None of the pipeline's own code is used, and tokens are counted on the final texts.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Count = Callable[[Sequence[str]], list[int]]


class Wrong(AssertionError):
    """A row that isn't what it says; names the row."""


def check(dataset: Path, records: Path, count: Count, lengths: Sequence[int]) -> dict[str, Any]:
    """Figures of what was checked. `count`: tokens of each text, by the data set's tokenizer.

    Raises `Wrong` for the first row that isn't right.
    """
    import pyarrow.parquet as pq

    gold = {f"wiki-{record['id']}": record for record in json.loads(records.read_text())}
    rows = {
        row["extra_info"]["context_id"]: row
        for file in sorted(dataset.glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    }
    off, n_hops, n_shards = [0.0], 0, 0
    by_length = dict.fromkeys(lengths, 0)
    left = set(rows)
    for context in contexts(dataset / "contexts" / "data-00000-of-00001.arrow"):
        id, text = context["context_id"], context["text"]
        row = rows[id]
        left.remove(id)
        require(row["prompt"] == [{"role": "user", "content": gold[id]["question"]}], id, "prompt")
        target = min(lengths, key=lambda n: abs(n - row["extra_info"]["n_tokens"]))
        off.append(abs(count([text])[0] - target) / target)
        require(off[-1] <= 0.01, id, f"length is off its target by {off[-1]:.2%}")
        by_length[target] += 1
        n_shards += shards(id, context, row["extra_info"], count)
        n_hops += hops(id, context, row["extra_info"], gold[id])
    require(not left, str(sorted(left)[:1]), "a row has no context")
    return {
        "rows": len(rows),
        "rows by length": {f"{n:,}": k for n, k in by_length.items()},
        "hops whose evidence stands in the final text": n_hops,
        "shards whose tokens were counted anew": n_shards,
        "length off its target, at most": round(max(off), 5),
    }


def shards(id: str, context: dict[str, Any], extra: dict[str, Any], count: Count) -> int:
    """They cover the text without gap or overlap, and hold as many tokens as they say."""
    found, at = context["shards"], 0
    texts = []
    for shard in found:
        require(shard["start"] == at, id, "shards leave a gap")
        at = shard["end"]
        texts.append(context["text"][shard["start"] : at])
    require(at == len(context["text"]), id, "shards end before the text")
    counted = count(texts)
    require(counted == [shard["n_tokens"] for shard in found], id, "tokens of a shard")
    require(sum(counted) == extra["n_tokens"], id, "n_tokens")
    require(len(found) == extra["n_shards"], id, "n_shards")
    return len(found)


def hops(id: str, context: dict[str, Any], extra: dict[str, Any], record: dict[str, Any]) -> int:
    """Each hop's span is a part of its gold paragraph that holds the answer, in the shards named;
    together they take at least two shards."""
    met: set[int] = set()
    steps = record["question_decomposition"]
    require(len(steps) == len(extra["hops"]), id, "number of hops")
    for hop, step in zip(extra["hops"], steps, strict=True):
        start, end = hop["span"]
        evidence = context["text"][start:end]
        paragraph = record["paragraphs"][step["paragraph_support_idx"]]
        require(evidence in paragraph["paragraph_text"], id, f"not of its paragraph: {evidence!r}")
        require(bool(evidence.strip()), id, "empty evidence")
        known = [step["answer"], *record["answer_aliases"]]
        require(
            any(answer.casefold() in evidence.casefold() for answer in known),
            id,
            f"no {step['answer']!r} in {evidence!r}",
        )
        holders = [
            number
            for number, shard in enumerate(context["shards"])
            if shard["start"] < end and start < shard["end"]
        ]
        require(hop["shard_ids"] == holders, id, f"shards of hop {step['id']}")
        met.update(holders)
    require(len(met) >= 2, id, "all evidence in one shard")
    return len(steps)


def contexts(file: Path) -> Iterator[dict[str, Any]]:
    """One after another, so that a few are in memory at a time."""
    import pyarrow as pa

    for batch in pa.ipc.open_stream(pa.memory_map(str(file))):
        for row in range(batch.num_rows):
            yield batch.slice(row, 1).to_pylist()[0]


def counter(tokenizer: Path) -> Count:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    return lambda texts: [
        len(one.ids) for one in loaded.encode_batch(list(texts), add_special_tokens=False)
    ]


def require(right: bool, id: str, what: str) -> None:
    if not right:
        raise Wrong(f"{id}: {what}")
