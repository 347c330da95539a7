"""The benchmarks. One more is one more small file, and a line here."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from disco_rl.evaluation.benchmarks.infinitebench import infinitebench
from disco_rl.evaluation.benchmarks.item import Item
from disco_rl.evaluation.benchmarks.longbench_v2 import longbench_v2
from disco_rl.evaluation.benchmarks.musique import musique
from disco_rl.evaluation.benchmarks.ruler_qa import ruler_qa
from disco_rl.evaluation.benchmarks.samples import samples
from disco_rl.evaluation.tokens import Tokenizer

BENCHMARKS: Mapping[str, Callable[..., Iterator[Item]]] = {
    "longbench_v2": longbench_v2,
    "infinitebench": infinitebench,
    "musique": musique,
    "samples": samples,
}


def load_benchmark(config: Mapping[str, Any], tokenizer: Tokenizer) -> list[Item]:
    """The items of a config group: its `kind`, the loader's arguments, and `limit` (None: all).
    `prompt_limit` is for the method (configs/method/full_context.yaml).

    Raises `ValueError` for an unknown kind or argument, a bad source, no items, or an id twice.
    """
    own = ("kind", "limit", "prompt_limit")
    given = {key: value for key, value in config.items() if key not in own}
    kind = str(config.get("kind"))
    try:
        if kind == "ruler_qa":
            found = ruler_qa(tokenizer, **given)
        elif kind in BENCHMARKS:
            found = BENCHMARKS[kind](**given)
        else:
            known = sorted([*BENCHMARKS, "ruler_qa"])
            raise ValueError(f"benchmark.kind is {kind!r}; choose from {known}")
    except TypeError as error:  # an argument too many or too few
        raise ValueError(f"benchmark ({kind}): {error}") from error
    items: list[Item] = []
    for item in found:
        if config.get("limit") is not None and len(items) >= config["limit"]:
            break
        items.append(item)
    if not items:
        raise ValueError(f"benchmark ({kind}): no items in {config.get('source')!r}")
    if len({item.id for item in items}) != len(items):
        raise ValueError(f"benchmark ({kind}): an id stands twice in {config.get('source')!r}")
    return items
