"""Filters that ask an LLM. Each raises `NoReply` where the model gave no verdict."""

from collections.abc import Sequence

from data_pipeline.filters.case import Case
from data_pipeline.llm import Llm, NoReply
from data_pipeline.musique_records import Paragraph
from disco_rl.core.text import normalise_answer, sentence_spans
from disco_rl.engine.workers.lexical import LexicalIndex


def closed_book(case: Case) -> str | None:
    """The model knows the answer without any text, in one of its votes."""
    for vote in range(case.votes):
        answer = _answer(_llm(case), case.record.question, (), vote)
        if _right(answer, case.record.answers):
            return f"answered without any text: {answer!r}"
    return None


def leave_one_hop_out(case: Case) -> str | None:
    """The evidence of all hops but one suffices."""
    steps = case.record.steps
    for left_out in dict.fromkeys(step.paragraph for step in steps):
        rest = [p for p in dict.fromkeys(s.paragraph for s in steps) if p != left_out]
        if not rest:
            continue
        answer = _answer(_llm(case), case.record.question, rest, 0)
        if _right(answer, case.record.answers):
            return f"answered without the paragraph {left_out.title!r}: {answer!r}"
    return None


def stability(case: Case) -> str | None:
    """From the evidence of all hops the model gives the gold answer each time."""
    paragraphs = list(dict.fromkeys(step.paragraph for step in case.record.steps))
    for vote in range(case.votes):
        answer = _answer(_llm(case), case.record.question, paragraphs, vote)
        if not _right(answer, case.record.answers):
            return f"from all the evidence the model answers {answer!r}"
    return None


def contradiction(case: Case) -> str | None:
    """A passage of an inserted page contradicts a hop, by all votes.

    Candidates are the passages that BM25 ranks first for the hop's question and answer.
    """
    passages = [
        (title, text[start:end])
        for title, text in case.pages()
        for start, end in sentence_spans(text)
        if end - start > 20
    ]
    index = LexicalIndex.build([f"{title} {text}" for title, text in passages])
    for step in case.record.steps:
        rank = index.match(f"{step.question} {step.answer}").rank
        best = sorted(range(len(passages)), key=lambda k: (-rank[k], k))[: case.candidates]
        for title, text in (passages[k] for k in best if rank[k] > 0):
            about = {
                "question": step.question,
                "answer": step.answer,
                "passage": f"{title}\n{text.strip()}",
            }
            if all(_contradicts(_llm(case), vote, about) for vote in range(case.votes)):
                return f"{title!r} contradicts {step.answer!r}: {text.strip()[:200]!r}"
    return None


def _contradicts(llm: Llm, vote: int, about: dict[str, str]) -> bool:
    verdict = llm.ask("contradiction", vote=vote, **about).get("contradicts")
    if not isinstance(verdict, bool):
        raise NoReply(f"'contradicts' must be true or false, not {verdict!r}")
    return verdict


def _answer(llm: Llm, question: str, passages: Sequence[Paragraph], vote: int) -> str | None:
    shown = "\n\n".join(f'<passage title="{p.title}">\n{p.text}\n</passage>' for p in passages)
    given = " from the passages alone" if passages else " from what you know"
    reply = llm.ask("answer", vote=vote, question=question, passages=shown, given=given)
    if "answer" not in reply:
        raise NoReply(f"the reply has no 'answer': {reply!r}")
    return None if reply["answer"] is None else str(reply["answer"])


def _right(answer: str | None, gold: Sequence[str]) -> bool:
    return answer is not None and any(
        normalise_answer(answer) == normalise_answer(one) for one in gold
    )


def _llm(case: Case) -> Llm:
    assert case.llm is not None  # `judge` runs these only where there is one
    return case.llm
