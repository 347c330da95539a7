"""RULER's QA tasks (Hsieh et al. 2024) at any length, from SQuAD (qa_1) or HotpotQA (qa_2): their
official JSON files, or rows as on the Hub (`rajpurkar/squad_v2`; `hotpotqa/hotpot_qa`, config
`distractor`).

Deviations from its script, and why: a context has exactly the length asked for (theirs is under
it, by up to ten documents, and their search for the size can loop for ever); where the file is too
small for the length, only documents that aren't the question's own are repeated, so that its
evidence stands once; texts are made anew when they are read, from the seed, and stored nowhere.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from disco_rl.evaluation.benchmarks.item import SHORT_STYLE, Item, digest, rows
from disco_rl.evaluation.methods.protocol import Document, Task
from disco_rl.evaluation.scores import Gold
from disco_rl.evaluation.tokens import Tokenizer, count

REPLY_TOKENS = 32
_TRIES = 64  # bounds every search below


@dataclass(frozen=True)
class _Question:
    text: str
    answers: tuple[str, ...]
    own: tuple[int, ...]  # its documents
    near: tuple[int, ...]  # of the same article, taken first as distractors


def ruler_qa(
    tokenizer: Tokenizer,
    source: str,
    lengths: Sequence[int] = (256_000, 512_000, 1_000_000),
    n: int = 100,
    seed: int = 42,
    split: str | None = None,
    config: str | None = None,
) -> Iterator[Item]:
    """`n` questions a length, the same ones at each. The format is read from the rows.

    Raises `ValueError` where a question's own documents don't fit a length.
    """
    task, documents, questions = _read(source, split, config)
    questions = list(dict.fromkeys(questions))
    chosen = random.Random(seed).sample(questions, min(n, len(questions)))
    sizes = [count(tokenizer, f"Document 1000:\n{d}\n\n") for d in documents]
    for length in lengths:
        for question in chosen:
            own = (documents[i] for i in question.own)
            name = digest(question.text, *question.answers, *own)
            id = f"ruler-{task}-{length}-{seed}-{name}"
            make = partial(
                build, tokenizer, documents, sizes, question, length, random.Random(id).random()
            )
            yield Item(
                id,
                f"{task} {length}",
                "ruler_qa",
                Task(question.text, style=SHORT_STYLE, max_tokens=REPLY_TOKENS),
                Gold(question.answers),
                Document(id, make),
            )


def build(
    tokenizer: Tokenizer,
    documents: Sequence[str],
    sizes: Sequence[int],
    question: _Question,
    length: int,
    seed: float,
) -> str:
    """A context such that it, the question and 32 tokens of reply make exactly `length` tokens.

    With a tokenizer that merges across the cut the length may be missed by a token or so; it is
    never over.
    """
    rng = random.Random(seed)
    room = length - REPLY_TOKENS - count(tokenizer, f"\n\n{question.text}")
    own = sum(sizes[i] for i in question.own)
    if own >= room:
        raise ValueError(
            f"RULER length {length}: the question's own documents take {own} tokens of {room}; "
            "ask for a greater length"
        )
    others = _distractors(rng, len(documents), question)
    order, tail = list(question.own), [next(others)]
    total = own + sizes[tail[0]]
    for _ in range(_TRIES):
        while total <= room:
            order.append(tail[0])
            tail = [next(others)]
            total += sizes[tail[0]]
        # The last document is a distractor, which is cut to length; the rest stand in any order.
        random.Random(seed).shuffle(order)
        text = "\n\n".join(
            f"Document {i}:\n{documents[d]}" for i, d in enumerate([*order, *tail], start=1)
        )
        total = count(tokenizer, text)
        if total >= room:
            return _exact(tokenizer, text, room)
    raise ValueError(f"RULER length {length}: not reached in {_TRIES} tries")


def _distractors(rng: random.Random, n: int, question: _Question) -> Iterator[int]:
    """Those of the same article, then the rest, then, for ever, all that aren't its own."""
    own, near = set(question.own), list(question.near)
    far = [i for i in range(n) if i not in own and i not in set(near)]
    if not near and not far:
        raise ValueError("RULER: the file has no other documents; use a larger one")
    rng.shuffle(near)
    rng.shuffle(far)
    yield from near
    yield from far
    while True:
        again = near + far
        rng.shuffle(again)
        yield from again


def _exact(tokenizer: Tokenizer, text: str, room: int) -> str:
    """`text` cut to `room` tokens."""
    spans = tokenizer.spans(text)
    best = ""
    for take in range(min(room, len(spans)), max(room - _TRIES, 0), -1):
        cut = text[: spans[take - 1][1]]
        tokens = count(tokenizer, cut)
        if tokens == room:
            return cut
        if tokens < room and not best:
            best = cut
    return best


def _read(
    source: str, split: str | None, config: str | None
) -> tuple[str, list[str], list[_Question]]:
    table = list(rows(source, split=split, config=config))
    if not table:
        raise ValueError(f"{source}: holds no rows")
    names = table[0].keys()
    if "paragraphs" in names:
        return ("qa_1", *_squad(table))
    if {"title", "context", "question", "answers"} <= names:
        return ("qa_1", *_squad(_articles(table)))
    if {"question", "answer", "context"} <= names:
        return ("qa_2", *_hotpot(table))
    raise ValueError(f"{source}: neither SQuAD nor HotpotQA; a row has {sorted(names)}")


def _articles(table: Sequence[dict]) -> list[dict]:
    """SQuAD as its file has it, from rows of one question each."""
    articles: dict[str, dict[str, list[dict]]] = {}
    for row in table:
        answers = [{"text": text} for text in row["answers"]["text"]]
        qa = {"question": row["question"], "answers": answers, "is_impossible": not answers}
        articles.setdefault(row["title"], {}).setdefault(row["context"], []).append(qa)
    return [
        {"paragraphs": [{"context": text, "qas": qas} for text, qas in paragraphs.items()]}
        for paragraphs in articles.values()
    ]


def _squad(articles: Sequence[dict]) -> tuple[list[str], list[_Question]]:
    texts = sorted({p["context"] for a in articles for p in a["paragraphs"]})
    place = {text: i for i, text in enumerate(texts)}
    questions = []
    for article in articles:
        article_places = {place[p["context"]] for p in article["paragraphs"]}
        for paragraph in article["paragraphs"]:
            own = place[paragraph["context"]]
            near = tuple(sorted(article_places - {own}))
            for qa in paragraph["qas"]:
                if not qa.get("is_impossible", False):
                    answers = tuple(dict.fromkeys(a["text"] for a in qa["answers"]))
                    questions.append(_Question(qa["question"], answers, (own,), near))
    return texts, questions


def _hotpot(table: Sequence[dict]) -> tuple[list[str], list[_Question]]:
    def documents(row: dict) -> list[str]:
        found = row["context"]
        if isinstance(found, dict):  # on the Hub: {"title": [...], "sentences": [[...], ...]}
            found = zip(found["title"], found["sentences"], strict=True)
        return [f"{title}\n{''.join(sentences)}" for title, sentences in found]

    own = [documents(row) for row in table]
    texts = sorted({text for found in own for text in found})
    place = {text: i for i, text in enumerate(texts)}
    return texts, [
        _Question(
            row["question"],
            (row["answer"],),
            tuple(dict.fromkeys(place[text] for text in found)),
            (),
        )
        for row, found in zip(table, own, strict=True)
    ]
