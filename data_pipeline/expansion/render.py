"""Renders a plan, once: the text, its pieces with their token counts, and where the hops stand.

A sentence's token count comes from the page store wherever its neighbours are those it was counted
with. Where texts meet, the sentences on both sides are counted anew, between their new neighbours.
Tokenizers split text into words before anything else, so this is exact for those that look no
further than a sentence; `tests/data_pipeline/test_expand.py` compares with counting the whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_pipeline.expansion.hosts import Hosts, Span
from data_pipeline.expansion.plan import Insertion, Plan
from data_pipeline.tokens import TokenStarts
from disco_rl.core.shards import Shard
from disco_rl.core.text import sentence_spans

_BREAK = "\n\n"
_UNKNOWN = -1
_MAX_FITS = 3
_LEAVES = 16
_AROUND = 48  # characters of a neighbour: more than a word and the blanks beside it


@dataclass(frozen=True, slots=True)
class Part:
    """Characters `start:end` of a rendered context are of host `host`, or of a page (its title)."""

    start: int
    end: int
    host: int
    title: str
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """`ends` and `counts`: the pieces of the text and their tokens, int64. `hops`: the evidence
    span of each hop in the text."""

    text: str
    ends: np.ndarray
    counts: np.ndarray
    hops: tuple[Span, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A text with the ends and token counts of its sentences; counts may be unknown (None)."""

    text: str
    ends: np.ndarray
    counts: np.ndarray | None


def host_body(text: str) -> Body:
    return Body(text, np.array([end for _, end in sentence_spans(text)], np.int64), None)


def render(
    plan: Plan, hosts: Hosts, page_body: Callable[[int], Body], starts: TokenStarts
) -> Rendered:
    """Raises `ValueError` where a hop's evidence was entered, which no plan of `expand` does."""
    writer = _Writer(plan, page_body)
    hop_spans: dict[int, Span] = {}
    for host in plan.order:
        first = len(writer.parts)
        writer.host(host, hosts.hosts[host].text)
        for k, (place, span) in enumerate(hosts.hops):
            if place == host:
                hop_spans[k] = _moved(span, writer.own[first:], writer.parts[first:])
    text = "".join(writer.texts)
    ends = np.concatenate(writer.ends)
    counts = recount(text, ends, np.concatenate(writer.counts), starts)
    spans = tuple(hop_spans[k] for k in range(len(hosts.hops)))
    return Rendered(text, ends, counts, spans, tuple(writer.parts))


def fit_to_length(
    plan: Plan, hosts: Hosts, page_body: Callable[[int], Body], starts: TokenStarts
) -> Plan:
    """Renders, and where the exact count is off the target by over half a percent, moves the end
    of a page and renders again: the plan adds up without seeing how texts meet.

    Before the filters, so that they judge the text that is written.
    """
    for _ in range(_MAX_FITS):
        missing = plan.target - int(render(plan, hosts, page_body, starts).counts.sum())
        if abs(missing) <= plan.target / 200:
            break
        fitted = _fit(plan, missing, page_body)
        if fitted == plan:
            break
        plan = fitted
    return plan


def _fit(plan: Plan, missing: int, page_body: Callable[[int], Body]) -> Plan:
    """The plan with `missing` tokens more (or fewer, if negative) of the page, among the last ones
    that nothing stands in, whose new length comes closest."""
    parents = {one.parent for one in plan.insertions}
    leaves = [k for k in range(len(plan.insertions)) if k not in parents][-_LEAVES:]
    best, fitted = abs(missing), plan
    for k in leaves:
        one = plan.insertions[k]
        body = page_body(one.page)
        assert body.counts is not None
        so_far = np.cumsum(body.counts)
        kept = int(so_far[np.searchsorted(body.ends, one.cut)])
        n = int(np.argmin(np.abs(so_far[1:] - kept - missing))) + 1 if len(so_far) > 1 else 0
        off = abs(int(so_far[n]) - kept - missing)
        if off < best:
            best = off
            insertions = list(plan.insertions)
            insertions[k] = replace(one, cut=int(body.ends[n]))
            n_tokens = plan.n_tokens + int(so_far[n]) - kept
            fitted = replace(plan, insertions=tuple(insertions), n_tokens=n_tokens)
    return fitted


def _moved(span: Span, own: Sequence[int], parts: Sequence[Part]) -> Span:
    for at, part in zip(own, parts, strict=True):
        if part.depth == 0 and at <= span[0] and span[1] <= at + part.end - part.start:
            return span[0] - at + part.start, span[1] - at + part.start
    raise ValueError(f"the evidence at {span} of its paragraph isn't whole in the context")


class _Writer:
    def __init__(self, plan: Plan, page_body: Callable[[int], Body]):
        self.page_body = page_body
        self.children: dict[tuple[int, int | None], list[tuple[int, Insertion]]] = {}
        for number, one in enumerate(plan.insertions):
            key = (one.host if one.parent is None else -1, one.parent)
            self.children.setdefault(key, []).append((number, one))
        for children in self.children.values():
            children.sort(key=lambda child: (child[1].start, child[1].end, child[0]))
        self.texts: list[str] = []
        self.ends: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []
        self.parts: list[Part] = []
        self.own: list[int] = []  # where each part begins in its own source
        self.size = 0

    def host(self, host: int, text: str) -> None:
        self._body(host_body(text), len(text), host, "", 0, self.children.get((host, None), []))

    def _page(self, number: int, one: Insertion) -> None:
        self._add(_BREAK, np.array([len(_BREAK)]), np.array([_UNKNOWN]))
        body = self.page_body(one.page)
        children = self.children.get((-1, number), [])
        self._body(body, one.cut, one.host, one.title, one.depth, children)
        if one.cut < len(body.text):
            self._add(_BREAK, np.array([len(_BREAK)]), np.array([_UNKNOWN]))

    def _body(
        self,
        body: Body,
        stop: int,
        host: int,
        title: str,
        depth: int,
        children: Sequence[tuple[int, Insertion]],
    ) -> None:
        at = 0
        for number, child in children:
            self._slice(body, at, child.start, host, title, depth)
            self._page(number, child)
            at = child.end
        self._slice(body, at, stop, host, title, depth)

    def _slice(self, body: Body, start: int, end: int, host: int, title: str, depth: int) -> None:
        if start >= end:
            return
        first = int(np.searchsorted(body.ends, start, side="right"))
        last = int(np.searchsorted(body.ends, end))
        ends = np.append(body.ends[first:last], end)
        counts = np.full(len(ends), _UNKNOWN, np.int64)
        if body.counts is not None:
            # The first and the last piece meet other texts, or are only a part of a sentence.
            counts[1:-1] = body.counts[first + 1 : last]
        self.parts.append(Part(self.size, self.size + end - start, host, title, depth))
        self.own.append(start)
        self._add(body.text[start:end], ends - start, counts)

    def _add(self, text: str, ends: np.ndarray, counts: np.ndarray) -> None:
        self.texts.append(text)
        self.ends.append(ends + self.size)
        self.counts.append(counts)
        self.size += len(text)


def recount(text: str, ends: np.ndarray, counts: np.ndarray, starts: TokenStarts) -> np.ndarray:
    """`counts` with the unknown ones (negative) filled in, each counted between its neighbours."""
    unknown = np.flatnonzero(counts < 0)
    if not len(unknown):
        return counts
    breaks = np.flatnonzero(np.diff(unknown) > 1)
    runs = [
        (int(unknown[a]), int(unknown[b]) + 1)
        for a, b in zip([0, *(breaks + 1)], [*breaks, len(unknown) - 1], strict=True)
    ]
    begins = [int(ends[first - 1]) if first else 0 for first, _ in runs]
    windows = [
        (max(begin - _AROUND, 0), min(int(ends[last - 1]) + _AROUND, len(text)))
        for begin, (_, last) in zip(begins, runs, strict=True)
    ]
    counts = counts.copy()
    found = starts([text[a:b] for a, b in windows])
    for (first, last), begin, (a, b), tokens in zip(runs, begins, windows, found, strict=True):
        bounds = np.searchsorted(tokens, np.array([begin, *ends[first:last]]) - a)
        if b == ends[last - 1]:  # nothing follows, and a token may be placed at the very end
            bounds[-1] = len(tokens)
        counts[first:last] = np.diff(bounds)
    return counts


def cut_shards(
    text: str, ends: np.ndarray, counts: np.ndarray, starts: TokenStarts, shard_size: int
) -> list[Shard] | None:
    """Shards of at most `shard_size` tokens on the pieces' ends, each counted as it stands alone.

    None where a piece is over `shard_size`: then the text must be cut inside a sentence.
    """
    so_far = np.concatenate([[0], np.cumsum(counts)])
    shards: list[Shard] = []
    first = 0
    while first < len(ends):
        last = int(np.searchsorted(so_far, so_far[first] + shard_size, side="right")) - 1
        last = min(max(last, first + 1), len(ends))
        while True:
            n_tokens = _alone(text, ends, counts, starts, first, last)
            if n_tokens <= shard_size:
                break
            if last - first == 1:
                return None
            last -= 1
        begin = int(ends[first - 1]) if first else 0
        shards.append(Shard(len(shards), begin, int(ends[last - 1]), n_tokens))
        first = last
    return shards


def _alone(
    text: str, ends: np.ndarray, counts: np.ndarray, starts: TokenStarts, first: int, last: int
) -> int:
    """Tokens of the pieces `first:last` without their neighbours."""
    begin = int(ends[first - 1]) if first else 0
    counts = counts[first:last].copy()
    counts[[0, -1]] = _UNKNOWN
    own = recount(text[begin : ends[last - 1]], ends[first:last] - begin, counts, starts)
    return int(own.sum())
