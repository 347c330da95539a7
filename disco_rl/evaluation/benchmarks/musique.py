"""MuSiQue-Ans dev (Trivedi et al. 2022): 2 to 4 hops over each question's own 20 paragraphs."""

from collections.abc import Iterator

from disco_rl.evaluation.benchmarks.item import SHORT_STYLE, Item, field, held, rows
from disco_rl.evaluation.methods.protocol import Task
from disco_rl.evaluation.scores import Gold


def musique(source: str = "dgslibisey/MuSiQue", split: str = "validation") -> Iterator[Item]:
    """Answerable records; the group is the number of hops."""
    for row in rows(source, split=split):
        if not row.get("answerable", True):
            continue
        id = str(field(row, "id", source))
        paragraphs = field(row, "paragraphs", source)
        text = "\n\n".join(f"{p['title']}\n{p['paragraph_text']}" for p in paragraphs)
        answers = (field(row, "answer", source), *row.get("answer_aliases", ()))
        yield Item(
            id,
            f"{len(field(row, 'question_decomposition', source))} hops",
            "musique",
            Task(field(row, "question", source), style=SHORT_STYLE),
            Gold(tuple(answers)),
            held(id, text),
        )
