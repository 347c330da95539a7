"""Our own test sets: sample rows and their context store, as training reads them."""

import math
from collections.abc import Iterator

from disco_rl.data import ContextStore, load_rows
from disco_rl.evaluation.benchmarks.item import Item, digest
from disco_rl.evaluation.methods.disco import StoredDocument
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.scores import Gold


def samples(source: str, store: str, style: str = "") -> Iterator[Item]:
    """The group is the source and the context's length, rounded to a power of two of tokens.

    `style` is empty, since a Driver is asked the bare question when it is trained.
    """
    opened = ContextStore(store)
    for sample in load_rows(source):
        context = opened.get(sample.context_id)
        yield Item(
            f"{sample.data_source}-{sample.index}-{digest(sample.question, *sample.answers)}",
            f"{sample.data_source} {2 ** round(math.log2(max(sample.n_tokens, 1)))}",
            "exact",
            Task(sample.question, style=style),
            Gold(sample.answers),
            StoredDocument(sample.context_id, context.text, context),
            sample,
        )
