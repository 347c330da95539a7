"""LongBench v2 (Bai et al. 2024): multiple choice; the paper evaluates `medium` and `long`.

Rows: `_id`, `length`, `question`, `choice_A` to `choice_D`, `answer`, `context`.
"""

from collections.abc import Iterator, Sequence

from disco_rl.evaluation.benchmarks.item import LETTER_STYLE, Item, field, held, rows
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.scores import Gold


def longbench_v2(
    source: str = "THUDM/LongBench-v2",
    split: str = "train",
    lengths: Sequence[str] = ("medium", "long"),
) -> Iterator[Item]:
    for row in rows(source, split=split):
        if field(row, "length", source) not in lengths:
            continue
        options = tuple(str(field(row, f"choice_{x}", source)) for x in "ABCD")
        id = str(field(row, "_id", source))
        yield Item(
            id,
            row["length"],
            "longbench_v2",
            Task(field(row, "question", source).strip(), options, LETTER_STYLE, max_tokens=128),
            Gold((field(row, "answer", source),), options),
            held(id, field(row, "context", source)),
        )
