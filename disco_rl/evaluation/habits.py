"""How a Driver asks, from trajectory records: the paper's section on behaviour after RL."""

from collections.abc import Iterable, Mapping
from typing import Any

NAMES = ("forwarded", "names", "reused")


def narrow_habits(record: Mapping[str, Any]) -> dict[str, float]:
    """Over all narrow actions of a trajectory (its record, as training and evaluation write it).

    actions: how many there are
    forwarded: share whose instruction shares over 0.8 of its words with the question
    names: mean number of distinct capitalised words and numbers in an instruction, but its first
    reused: share of (action, shard) pairs whose shard an earlier action of that stage named too
    """
    question = set(record["question"].lower().split())
    actions = forwarded = names = pairs = reused = 0
    for stage in record["stages"]:
        scanned = {o["node"]: o["n_shards"] for o in stage["outputs"] if o["op"] == "narrow"}
        seen: set[int] = set()
        for node in stage["plan"] or ():
            if node["op"] != "narrow":
                continue
            actions += 1
            words = node["instruction"].split()
            lower = {word.lower() for word in words}
            forwarded += len(lower & question) > 0.8 * max(len(lower), 1)
            names += len({word for word in words[1:] if word[0].isupper() or word[0].isdigit()})
            every = node["shards"] == "all"
            named = set(range(scanned.get(node["id"], 0)) if every else node["shards"])
            pairs += len(named)
            reused += len(seen & named)
            seen |= named
    return {
        "actions": actions,
        "forwarded": forwarded / actions if actions else 0.0,
        "names": names / actions if actions else 0.0,
        "reused": reused / pairs if pairs else 0.0,
    }


def pooled(habits: Iterable[Mapping[str, float]]) -> dict[str, float] | None:
    """Means over all narrow actions of many trajectories; None where there are no actions."""
    found = list(habits)
    total = sum(one["actions"] for one in found)
    if not total:
        return None
    means = {name: sum(one[name] * one["actions"] for one in found) / total for name in NAMES}
    return {"actions": total, **means}
