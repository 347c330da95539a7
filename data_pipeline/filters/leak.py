"""Shortcuts that the words show: the question is answered without its hops."""

import re
from collections.abc import Iterator, Sequence

from data_pipeline.filters.case import Case
from disco_rl.core.text import sentence_spans
from disco_rl.engine.workers.lexical import terms


def answer_outside(case: Case) -> str | None:
    """A sentence outside the evidence has the answer and most words of the last hop or the
    question."""
    answers = case.record.answers
    wanted = [
        _content(question, answers)
        for question in (case.record.steps[-1].question, case.record.question)
    ]
    for title, text in case.passages():
        for sentence in _sentences_with(text, answers):
            words = set(terms(f"{title} {sentence}"))
            for question in wanted:
                if question and len(question & words) >= case.min_share * len(question):
                    return f"{title!r} answers it in one sentence: {sentence.strip()[:200]!r}"
    return None


def one_page(case: Case) -> str | None:
    """One inserted page has the answers of all hops and most words of the question."""
    steps = case.record.steps
    patterns = [_pattern([step.answer]) for step in steps]
    wanted = _content(case.record.question, [step.answer for step in steps])
    for title, text in case.pages():
        if not all(pattern.search(text) for pattern in patterns):
            continue
        if len(wanted & set(terms(text))) >= case.min_share * len(wanted):
            return f"page {title!r} has the answers of all hops"
    return None


def _content(question: str, answers: Sequence[str]) -> set[str]:
    return set(terms(question)) - {term for answer in answers for term in terms(answer)}


def _sentences_with(text: str, answers: Sequence[str]) -> Iterator[str]:
    matches = [match.start() for match in _pattern(answers).finditer(text)]
    if not matches:
        return
    for start, end in sentence_spans(text):
        if any(start <= at < end for at in matches):
            yield text[start:end]


def _pattern(answers: Sequence[str]) -> re.Pattern[str]:
    """Any of the answers as whole words; one of up to three letters in its own case."""
    forms = [re.escape(a) if len(a) < 4 else f"(?i:{re.escape(a)})" for a in answers]
    return re.compile(rf"(?<!\w)(?:{'|'.join(forms)})(?!\w)")
