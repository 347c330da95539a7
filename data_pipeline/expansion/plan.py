"""A plan: which page stands at which span of which text, and how deep. No text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from data_pipeline.expansion.hosts import Host, Hosts

Mode = Literal["replace", "keep_anchor"]


@dataclass(frozen=True, slots=True)
class Insertion:
    """Page `page` of the store stands in place of characters `start:end` of its parent's text.

    The parent is the page of insertion `parent`, or host `host` where that is None. An empty span
    replaces nothing. `depth` is 1 in a host. The page's text is kept up to character `cut`.
    """

    page: int
    title: str
    host: int
    parent: int | None
    start: int
    end: int
    depth: int
    cut: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How one question's context is put together.

    `order` lists the hosts as they follow each other. `n_tokens` is what the plan adds up to by
    the store's counts; the writer counts exactly. `target` was aimed at.
    """

    id: str
    target: int
    mode: Mode
    order: tuple[int, ...]
    insertions: tuple[Insertion, ...]
    n_tokens: int

    @property
    def depth(self) -> int:
        return max((one.depth for one in self.insertions), default=0)


def check_plan(plan: Plan, hosts: Hosts) -> None:
    """Raises `ValueError` where the plan uses a page twice, or enters a hop's evidence, or its
    parts overlap."""
    pages = [one.page for one in plan.insertions]
    if len(set(pages)) < len(pages):
        raise ValueError(f"{plan.id}: a page stands in the plan twice")
    taken: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
    for number, one in enumerate(plan.insertions):
        parent = plan.insertions[one.parent] if one.parent is not None else None
        if one.parent is not None and one.parent >= number:
            raise ValueError(f"{plan.id}: insertion {number} comes before its parent")
        if one.depth != (parent.depth + 1 if parent else 1):
            raise ValueError(f"{plan.id}: insertion {number} has depth {one.depth}")
        if parent is not None and one.end > parent.cut:
            raise ValueError(f"{plan.id}: insertion {number} stands in what its parent lost")
        if parent is None and enters(one.start, one.end, hosts.hosts[one.host].evidence):
            raise ValueError(f"{plan.id}: insertion {number} enters the evidence of a hop")
        taken.setdefault((one.host if parent is None else -1, one.parent), []).append(
            (one.start, one.end)
        )
    for spans in taken.values():
        spans.sort()
        if any(b[0] < a[1] for a, b in pairwise(spans)):
            raise ValueError(f"{plan.id}: two insertions overlap")


def enters(start: int, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether replacing `start:end` changes one of `spans`; an insertion at its edge doesn't."""
    return any((start < b and a < end) or a < start == end < b for a, b in spans)


def gap_of(hosts: Sequence[Host], order: Sequence[int], host: int, at: int) -> int:
    """How many evidence spans stand before character `at` of `host` in the context."""
    before = order[: order.index(host)]
    return sum(len(hosts[h].evidence) for h in before) + sum(
        end <= at for _, end in hosts[host].evidence
    )
