"""The order of a context's paragraphs once they are expanded: where the evidence comes to stand."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_pipeline.expansion.hosts import Host

_DRAWN = 64
_APART = 0.125  # of the context, between the first and the last evidence: more than a shard


@dataclass(frozen=True, slots=True)
class Grown:
    """What was inserted at character `place` of a host, with all that was inserted in it."""

    host: int
    place: int
    n_tokens: int


def balanced_order(
    hosts: Sequence[Host],
    host_tokens: Sequence[int],
    grown: Sequence[Grown],
    first: Sequence[int],
    rng: random.Random,
) -> tuple[int, ...]:
    """Of `first` and orders drawn at random, the one whose evidence stands nearest to places drawn
    evenly over the context: nothing but the order decides that where few mentions lead on.

    One whose evidence lies in one place is taken only where there is no other.
    """
    sizes = np.array(host_tokens, float)
    for one in grown:
        sizes[one.host] += one.n_tokens
    spans = [(h, start) for h, host in enumerate(hosts) for start, _ in host.evidence]
    owners = np.array([h for h, _ in spans], int)
    inside = np.array([_before(hosts, host_tokens, grown, *span) for span in spans])
    wanted = np.sort([rng.random() for _ in spans]) * sizes.sum()
    best, nearest = tuple(first), (True, float("inf"))
    order = list(first)
    for _ in range(_DRAWN):
        begins = np.empty(len(hosts))
        begins[order] = np.cumsum(sizes[order]) - sizes[order]
        places = np.sort(begins[owners] + inside)
        close = len(places) > 1 and places[-1] - places[0] < _APART * sizes.sum()
        off = (bool(close), float(np.abs(places - wanted).sum()))
        if off < nearest:
            best, nearest = tuple(order), off
        rng.shuffle(order)
    return best


def _before(
    hosts: Sequence[Host],
    host_tokens: Sequence[int],
    grown: Sequence[Grown],
    host: int,
    place: int,
) -> float:
    """Tokens of a host, with what grew in it, before character `place` of its text."""
    own = host_tokens[host] * place / len(hosts[host].text)
    return own + sum(g.n_tokens for g in grown if g.host == host and g.place <= place)
