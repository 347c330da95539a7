"""Filters: each says of a sample whether it passes, or why not, or that it could not run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from data_pipeline.filters.case import Case, Status, Verdict
from data_pipeline.filters.leak import answer_outside, one_page
from data_pipeline.filters.model import closed_book, contradiction, leave_one_hop_out, stability
from data_pipeline.llm import NoReply

Check = Callable[[Case], str | None]
"""Why the sample is dropped, or None. Raises `NoReply` where a model gave no verdict."""


@dataclass(frozen=True, slots=True)
class Filter:
    check: Check
    needs_llm: bool = False


FILTERS: Mapping[str, Filter] = {
    "answer_outside": Filter(answer_outside),
    "one_page": Filter(one_page),
    "closed_book": Filter(closed_book, needs_llm=True),
    "leave_one_hop_out": Filter(leave_one_hop_out, needs_llm=True),
    "contradiction": Filter(contradiction, needs_llm=True),
    "stability": Filter(stability, needs_llm=True),
}
"""In the order they run. `decontamination` comes before them, `evidence`, `length` and `position`
with the final text, in the writer."""


def judge(case: Case, names: Sequence[str]) -> list[Verdict]:
    """The verdict of each filter; those behind the first that drops the sample are not run."""
    verdicts: list[Verdict] = []
    for name in names:
        if any(v.status in (Status.DROPPED, Status.FAILED) for v in verdicts):
            verdicts.append(Verdict(name, Status.NOT_RUN, "the sample is dropped already"))
            continue
        if FILTERS[name].needs_llm and case.llm is None:
            verdicts.append(Verdict(name, Status.NOT_RUN, "needs an LLM: set llm.url"))
            continue
        try:
            reason = FILTERS[name].check(case)
        except NoReply as error:
            verdicts.append(Verdict(name, Status.FAILED, str(error)))
            continue
        verdicts.append(Verdict(name, Status.DROPPED if reason else Status.PASSED, reason or ""))
    return verdicts


__all__ = ["FILTERS", "Case", "Filter", "Status", "Verdict", "judge"]
