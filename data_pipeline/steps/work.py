"""The per-sample functions of the steps: the same ones here, in a pool of processes, under Ray."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from data_pipeline.evidence import holds
from data_pipeline.expansion.expand import Policy, Short, expand
from data_pipeline.expansion.hosts import Hosts, hosts_of
from data_pipeline.expansion.linker import Linker
from data_pipeline.expansion.mentions import Mentions, link_hosts
from data_pipeline.expansion.plan import Plan, check_plan
from data_pipeline.expansion.render import Body, cut_shards, fit_to_length, render
from data_pipeline.filters import Case, Status, Verdict, judge
from data_pipeline.llm import Llm
from data_pipeline.musique import DATA_SOURCE
from data_pipeline.musique_records import Record
from data_pipeline.tokens import TokenStarts, token_starts
from data_pipeline.wiki.store import PageStore
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import Shard, cut, shards_of_span


@dataclass(frozen=True, slots=True)
class Shared:
    """What every function needs; opened once in each process."""

    pages: Path
    tokenizer: str
    distractors: bool
    min_shared: int
    stop_titles: tuple[str, ...]

    def store(self) -> PageStore:
        return _store(self.pages, self.tokenizer)

    def linker(self) -> Linker:
        return _linker(self)

    def starts(self) -> TokenStarts:
        return _starts(self.tokenizer)

    def hosts(self, record: Record) -> Hosts:
        return hosts_of(record, self.distractors)

    def body(self, page: int) -> Body:
        about = self.store().page(page)
        return Body(self.store().text(page), about.ends, about.counts)


@lru_cache
def _store(pages: Path, tokenizer: str) -> PageStore:
    return PageStore(pages, tokenizer=tokenizer)


@lru_cache
def _starts(tokenizer: str) -> TokenStarts:
    return token_starts(tokenizer)


@lru_cache
def _linker(shared: Shared) -> Linker:
    from data_pipeline.expansion.linker import STOP_TITLES

    return Linker(shared.store(), (*STOP_TITLES, *shared.stop_titles), shared.min_shared)


@dataclass(frozen=True)
class FindMentions:
    shared: Shared
    llm: Llm | None = None

    def __call__(self, record: Record) -> Mentions:
        hosts = self.shared.hosts(record).hosts
        return link_hosts(record.id, hosts, self.shared.linker(), self.llm)


@dataclass(frozen=True, slots=True)
class Planned:
    """A question's plan, or why it has none."""

    id: str
    plan: Plan | None
    short: Short | None


@dataclass(frozen=True)
class MakePlan:
    shared: Shared
    policy: Policy

    def __call__(self, item: tuple[Record, Mentions]) -> Planned:
        record, mentions = item
        hosts = self.shared.hosts(record)
        starts = self.shared.starts()
        tokens = [len(one) for one in starts([host.text for host in hosts.hosts])]
        one, two, both = (len(found) for found in starts(["a.", "b", "a.\n\nb"]))
        plan = expand(
            record.id,
            hosts,
            mentions.hosts,
            tokens,
            self.shared.store(),
            self.shared.linker(),
            self.policy,
            both - one - two,
        )
        if isinstance(plan, Short):
            return Planned(record.id, None, plan)
        plan = fit_to_length(plan, hosts, self.shared.body, starts)
        check_plan(plan, hosts)
        return Planned(record.id, plan, None)


@dataclass(frozen=True, slots=True)
class Judged:
    id: str
    verdicts: tuple[Verdict, ...]

    @property
    def kept(self) -> bool:
        return all(v.status in (Status.PASSED, Status.NOT_RUN) for v in self.verdicts)


@dataclass(frozen=True)
class JudgePlan:
    """`contaminated`: record ids by what they were met in; None where nothing was compared."""

    shared: Shared
    names: tuple[str, ...]
    contaminated: dict[str, str] | None
    min_share: float
    votes: int
    candidates: int
    llm: Llm | None = None

    def __call__(self, item: tuple[Record, Planned]) -> Judged:
        record, planned = item
        if planned.plan is None:
            short = planned.short
            reached = f"{short.reached:,} of {short.target:,} tokens" if short else "nothing"
            reason = f"its mentions reach {reached}"
            return Judged(record.id, (Verdict("reach", Status.DROPPED, reason),))
        first = (Verdict("reach", Status.PASSED), self._decontamination(record.id))
        if first[-1].status is Status.DROPPED:
            return Judged(record.id, first)
        case = Case(
            record,
            self.shared.hosts(record),
            planned.plan,
            self.shared.store(),
            self.llm,
            self.min_share,
            self.votes,
            self.candidates,
        )
        return Judged(record.id, (*first, *judge(case, self.names)))

    def _decontamination(self, id: str) -> Verdict:
        name = "decontamination"
        if self.contaminated is None:
            return Verdict(name, Status.NOT_RUN, "no evaluation sets: set filters.evaluation")
        if id in self.contaminated:
            return Verdict(name, Status.DROPPED, f"stands in {self.contaminated[id]}")
        return Verdict(name, Status.PASSED)


@dataclass(frozen=True, slots=True)
class Built:
    """A sample with its context, or what it lacked: then `dropped` is set and `text` is empty.

    `positions`: where each hop's evidence begins, as a share of the text.
    """

    id: str
    sample: Sample
    text: str
    shards: tuple[Shard, ...]
    target: int
    depth: int
    n_pages: int
    positions: tuple[float, ...]
    dropped: Verdict | None


@dataclass(frozen=True)
class BuildContext:
    """Renders a plan and checks the final text."""

    shared: Shared
    shard_size: int
    tolerance: float
    min_shards: int

    def __call__(self, item: tuple[Record, Plan]) -> Built:
        record, plan = item
        hosts, starts = self.shared.hosts(record), self.shared.starts()
        done = render(plan, hosts, self.shared.body, starts)
        shards = cut_shards(done.text, done.ends, done.counts, starts, self.shard_size)
        if shards is None:  # a sentence longer than a shard
            count: Callable = lambda texts: [len(one) for one in starts(texts)]  # noqa: E731
            shards = cut(done.text, count, self.shard_size)
        hops = []
        for k, (step, span) in enumerate(zip(record.steps, done.hops, strict=True)):
            last = k == len(record.steps) - 1
            aliases = tuple(a for a in record.answers if a != step.answer) if last else ()
            ids = tuple(shards_of_span(shards, *span))
            hops.append(Hop(step.question, step.answer, aliases, ids, span))
        n_tokens = sum(shard.n_tokens for shard in shards)
        sample = Sample(
            0,
            record.question,
            record.answers,
            f"wiki-{record.id}",
            len(shards),
            n_tokens,
            tuple(hops),
            f"{DATA_SOURCE}-wiki",
        )
        dropped = self._check(plan, hosts, sample, done.text)
        return Built(
            record.id,
            sample,
            "" if dropped else done.text,
            () if dropped else tuple(shards),
            plan.target,
            plan.depth,
            len(plan.insertions),
            tuple(round(span[0] / len(done.text), 4) for span in done.hops),
            dropped,
        )

    def _check(self, plan: Plan, hosts: Hosts, sample: Sample, text: str) -> Verdict | None:
        for k, ((host, span), hop) in enumerate(zip(hosts.hops, sample.hops, strict=True)):
            evidence = text[slice(*hop.span)]
            if evidence != hosts.hosts[host].text[slice(*span)]:
                return Verdict("evidence", Status.DROPPED, f"hop {k}: its evidence was changed")
            if not holds(evidence, hop):
                return Verdict("evidence", Status.DROPPED, f"hop {k}: {hop.answer!r} isn't in it")
        if abs(sample.n_tokens - plan.target) > self.tolerance * plan.target:
            reason = f"{sample.n_tokens:,} tokens, {plan.target:,} were aimed at"
            return Verdict("length", Status.DROPPED, reason)
        spread = {id for hop in sample.hops for id in hop.shard_ids}
        if len(spread) < self.min_shards:
            return Verdict("position", Status.DROPPED, f"all evidence in shard {min(spread)}")
        return None
