"""Expands a question's paragraphs, page by page, until the context has its length.

Evidence spans cut the context into gaps: before the first, between two, behind the last. The
tokens to add are split among the gaps that have mentions, at random by the sample's id, so that
over many samples the evidence stands everywhere alike. Each gap is filled on its own, breadth or
depth first; what a gap can't take goes to the others. Only the last page is cut, on a sentence.
In the end the paragraphs are ordered anew by what they have grown to.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from data_pipeline.expansion.hosts import Hosts
from data_pipeline.expansion.linker import Linker
from data_pipeline.expansion.order import Grown, balanced_order
from data_pipeline.expansion.plan import Insertion, Mode, Plan, enters, gap_of
from data_pipeline.wiki.page import Link, title_key
from data_pipeline.wiki.store import Page, PageStore
from disco_rl.core.text import sentence_spans

TOLERANCE = 0.005
"""Of the target: half of what the writer allows, since it counts where texts meet."""
_ORDERS = 8
_MISFITS = 64  # pages too long for a gap, one after another, before it is left


@dataclass(frozen=True, slots=True)
class Policy:
    """How to expand. `breadth`: pages taken from one page's links. `lengths`: target and weight.

    `max_share`: no page is longer than this share of the target. With `lower_target`, a question
    whose reachable pages don't fill its target gets the longest one they fill.
    """

    mode: Mode = "replace"
    order: Literal["breadth", "depth"] = "breadth"
    breadth: int = 8
    max_depth: int = 8
    max_share: float = 0.5
    lengths: Mapping[int, float] = field(default_factory=lambda: {16384: 1.0})
    lower_target: bool = True
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Short:
    """A question whose mentions reach only `reached` tokens of the lowest target tried."""

    id: str
    target: int
    reached: int


@dataclass(slots=True)
class _Site:
    """A link that may become a page: where it stands, and what it leads to.

    `cost`: tokens that come with the page, an empty line, less those that it replaces.
    """

    host: int
    parent: int | None
    link: Link
    depth: int
    cost: int


def expand(
    id: str,
    hosts: Hosts,
    mentions: Sequence[Sequence[Link]],
    host_tokens: Sequence[int],
    store: PageStore,
    linker: Linker,
    policy: Policy,
    joint_tokens: int = 1,
) -> Plan | Short:
    """The plan for one question; `mentions` and `host_tokens` go with its hosts.

    `joint_tokens`: what an empty line between two texts counts. Depends on the arguments only.
    Pages with a title of the hosts are never inserted, since they would repeat the evidence.
    """
    rng = random.Random(f"{policy.seed}:{id}")
    lengths = sorted(policy.lengths)
    target = rng.choices(lengths, [policy.lengths[n] for n in lengths])[0]
    tries = [n for n in reversed(lengths) if n <= target] if policy.lower_target else [target]
    state = rng.getstate()
    best = 0
    for length in tries:
        rng.setstate(state)
        work = _Expansion(hosts, store, linker, policy, length, joint_tokens, rng)
        work.run(mentions, host_tokens)
        best = work.n_tokens
        if abs(work.n_tokens - length) <= TOLERANCE * length:
            insertions = tuple(work.insertions)
            return Plan(id, length, policy.mode, work.order, insertions, work.n_tokens)
    return Short(id, tries[-1], best)


class _Expansion:
    def __init__(
        self,
        hosts: Hosts,
        store: PageStore,
        linker: Linker,
        policy: Policy,
        target: int,
        joint: int,
        rng: random.Random,
    ):
        self.hosts, self.store, self.linker = hosts.hosts, store, linker
        self.policy, self.target, self.joint, self.rng = policy, target, joint, rng
        self.order: tuple[int, ...] = ()
        self.insertions: list[Insertion] = []
        self.tokens: list[int] = []  # what each insertion adds
        self.n_tokens = 0
        # The hosts' own pages are used from the start.
        found = (store.find(host.title) for host in self.hosts)
        self.used = {page for page in found if page is not None}

    def run(self, mentions: Sequence[Sequence[Link]], host_tokens: Sequence[int]) -> None:
        self.n_tokens = sum(host_tokens)
        sites = [
            _Site(host, None, link, 1, self._cost(link, host_tokens[host], len(one.text)))
            for host, (one, links) in enumerate(zip(self.hosts, mentions, strict=True))
            for link in self._allowed(one.text, links, one.evidence)
        ]
        gaps = self._gaps(sites)
        wanted = self.target - self.n_tokens
        if not gaps or wanted <= 0:
            return
        cuts = sorted(self.rng.random() for _ in gaps[1:])
        shares = np.diff([0.0, *cuts, 1.0])
        for gap, share in zip(gaps, shares, strict=True):
            self._fill(gap, min(self.n_tokens + int(share * wanted), self.target))
        rest = deque(self._in_turn(gaps))
        self._fill(rest, self.target)
        self._cut_last(rest)
        self.order = balanced_order(self.hosts, host_tokens, self._grown(), self.order, self.rng)

    def _grown(self) -> list[Grown]:
        """What each insertion in a host came to, with those below it."""
        tokens = list(self.tokens)
        for number in range(len(tokens) - 1, -1, -1):  # children stand behind their parents
            parent = self.insertions[number].parent
            if parent is not None:
                tokens[parent] += tokens[number]
        return [
            Grown(one.host, one.start, n)
            for one, n in zip(self.insertions, tokens, strict=True)
            if one.parent is None
        ]

    def _gaps(self, sites: Sequence[_Site]) -> list[deque[_Site]]:
        """The sites by the gap they stand in, in random order; gaps without any are left out.

        Chooses the order of the hosts: of some drawn at random, the one with the most such gaps.
        """
        best: dict[int, list[_Site]] = {}
        for _ in range(_ORDERS):
            order = list(range(len(self.hosts)))
            self.rng.shuffle(order)
            gaps: dict[int, list[_Site]] = {}
            for site in sites:
                gap = gap_of(self.hosts, order, site.host, site.link.start)
                gaps.setdefault(gap, []).append(site)
            if not self.order or len(gaps) > len(best):
                self.order, best = tuple(order), gaps
        for found in best.values():
            self.rng.shuffle(found)
        return [deque(best[gap]) for gap in sorted(best)]

    def _allowed(
        self, text: str, links: Sequence[Link], evidence: Sequence[tuple[int, int]]
    ) -> Iterator[Link]:
        """Where each link's page may stand: in its place, or behind its sentence."""
        if self.policy.mode == "keep_anchor":
            ends = np.array([end for _, end in sentence_spans(text)])
            links = [_behind(link, ends) for link in links]
        yield from (link for link in links if not enters(link.start, link.end, evidence))

    def _fill(self, sites: deque[_Site], until: int) -> None:
        """Inserts whole pages that fit; sites whose page is too long for the rest stay."""
        kept: list[_Site] = []
        misfits = 0
        while sites and self.n_tokens < until and misfits < _MISFITS:
            site = sites.popleft() if self.policy.order == "breadth" else sites.pop()
            page = self._page(site)
            if page is None:
                continue
            if self.n_tokens + page.n_tokens + site.cost > until:
                kept.append(site)
                misfits += 1
                continue
            misfits = 0
            self._insert(site, page, int(page.ends[-1]), page.n_tokens)
            sites.extend(self._children(len(self.insertions) - 1, page, site))
        sites.extend(kept)

    def _cut_last(self, sites: deque[_Site]) -> None:
        """Fills what is left with the beginning of one page, or of a few."""
        while sites and self.target - self.n_tokens > TOLERANCE * self.target / 2:
            site = sites.popleft()
            page = self._page(site)
            if page is None:
                continue
            room = self.target - self.n_tokens - site.cost
            so_far = np.cumsum(page.counts)
            n = int(np.searchsorted(so_far, room, side="right"))
            if n > 1:  # the title's line alone says nothing
                self._insert(site, page, int(page.ends[n - 1]), int(so_far[n - 1]))

    def _page(self, site: _Site) -> Page | None:
        id = self.store.find(site.link.title)
        if id is None or id in self.used:
            return None
        page = self.store.page(id)
        too_long = page.n_tokens > self.policy.max_share * self.target
        return None if page.disambiguation or too_long else page

    def _insert(self, site: _Site, page: Page, cut: int, n_tokens: int) -> None:
        self.used.add(page.id)
        self.n_tokens += n_tokens + site.cost
        self.tokens.append(n_tokens + site.cost)
        self.insertions.append(
            Insertion(
                page.id,
                page.title,
                site.host,
                site.parent,
                site.link.start,
                site.link.end,
                site.depth,
                cut,
            )
        )

    def _children(self, parent: int, page: Page, site: _Site) -> list[_Site]:
        """Up to `breadth` links of a page that lead to pages not used yet, in random order."""
        if site.depth >= self.policy.max_depth:
            return []
        links = list(page.links or self.linker.page_links(page.id))
        self.rng.shuffle(links)
        children: list[_Site] = []
        seen: set[int] = set()
        for link in links:
            id = self.store.find(link.title)
            if id is None or id in self.used or id in seen or self._stopped(link.title):
                continue
            seen.add(id)
            if self.policy.mode == "keep_anchor":
                link = _behind(link, page.ends)
            cost = self._cost(link, page.n_tokens, int(page.ends[-1]))
            children.append(_Site(site.host, parent, link, site.depth + 1, cost))
            if len(children) == self.policy.breadth:
                break
        return children

    def _cost(self, link: Link, n_tokens: int, n_chars: int) -> int:
        return self.joint - round((link.end - link.start) * n_tokens / n_chars)

    def _stopped(self, title: str) -> bool:
        return self.linker.stops(title_key(title))

    @staticmethod
    def _in_turn(gaps: Sequence[deque[_Site]]) -> Iterator[_Site]:
        """One site of each gap after the other."""
        left = [deque(sites) for sites in gaps]
        while any(left):
            for sites in left:
                if sites:
                    yield sites.popleft()


def _behind(link: Link, ends: np.ndarray) -> Link:
    """The empty span behind the sentence that the link ends in."""
    place = int(ends[np.searchsorted(ends, link.end)])
    return replace(link, start=place, end=place)
