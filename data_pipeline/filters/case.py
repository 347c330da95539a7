"""What a filter sees of a sample, and what it says."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from data_pipeline.expansion.hosts import Hosts
from data_pipeline.expansion.plan import Plan
from data_pipeline.llm import Llm
from data_pipeline.musique_records import Record
from data_pipeline.wiki.store import PageStore


class Status(str, Enum):
    PASSED = "passed"
    DROPPED = "dropped"
    NOT_RUN = "not run"
    FAILED = "failed"  # a model gave no verdict: set aside like a dropped one, counted apart


@dataclass(frozen=True, slots=True)
class Verdict:
    filter: str
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """`min_share`: of a question's words, from which on a passage counts as speaking of it."""

    record: Record
    hosts: Hosts
    plan: Plan
    store: PageStore
    llm: Llm | None = None
    min_share: float = 0.6
    votes: int = 2
    candidates: int = 3

    def pages(self) -> Iterator[tuple[str, str]]:
        """Title and text, as far as it is kept, of each inserted page."""
        for one in self.plan.insertions:
            yield one.title, self.store.text(one.page)[: one.cut]

    def passages(self) -> Iterator[tuple[str, str]]:
        """What is beside the evidence: the inserted pages, the other paragraphs, and what the gold
        ones say before, between and after their evidence."""
        yield from self.pages()
        for host in self.hosts.hosts:
            at = 0
            for start, end in (*host.evidence, (len(host.text),) * 2):
                yield host.title, host.text[at:start]
                at = end
