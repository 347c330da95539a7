"""A small encyclopedia and MuSiQue records about it, drawn from a seed."""

import json
import random
from pathlib import Path
from typing import Any

from data_pipeline.wiki.build import build_pages
from data_pipeline.wiki.json_lines import JsonPages
from data_pipeline.wiki.page import Link, SourcePage
from data_pipeline.wiki.store import PageStore

_SYLLABLES = ["ka", "ro", "ve", "lin", "mor", "ta", "sel", "du", "bra", "ni"]
_WORDS = ["river", "stone", "market", "singer", "harbour", "winter", "council", "bridge", "valley"]


def titles(n: int) -> list[str]:
    """Distinct two-word names."""
    made = []
    for k in range(n):
        a, b, c, d = (k // 10**i % 10 for i in range(4))
        made.append(
            f"{(_SYLLABLES[a] + _SYLLABLES[b]).title()} {(_SYLLABLES[c] + _SYLLABLES[d]).title()}"
        )
    return made


def pages(n: int, seed: int, sentences: tuple[int, int] = (5, 40)) -> list[SourcePage]:
    """`n` pages that link to each other, to themselves and to pages that don't exist."""
    rng = random.Random(seed)
    names = titles(n)
    made = []
    for name in names:
        text, links = "", []
        for _ in range(rng.randint(*sentences)):
            words = rng.choices(_WORDS, k=rng.randint(4, 14))
            at = rng.randrange(len(words))
            text += " ".join(words[:at]).capitalize() + " "
            if rng.random() < 0.5:
                other = rng.choice([*names, "Nowhere"])
                links.append(Link(len(text), len(text) + len(other), other))
                text += other
            else:
                text += "é🙂"
            text += " " + " ".join(words[at:]) + rng.choice([". ", ".\n", "! "])
        made.append(SourcePage(name, text, tuple(links)))
    return made


def records(n: int, names: list[str], seed: int) -> list[dict[str, Any]]:
    """Official-schema records of two hops; their paragraphs mention pages."""
    rng = random.Random(seed)
    made = []
    for k in range(n):
        paragraphs = []
        for idx in range(5):
            title, answer = f"Subject {k} {idx}", f"Answer {k} {idx}"
            sentences = [f"{title} is a {rng.choice(_WORDS)} of {answer}."]
            for _ in range(3):
                word, other = rng.choice(_WORDS), rng.choice(_WORDS)
                sentences.append(f"The {word} of {rng.choice(names)} has a {other}.")
            rng.shuffle(sentences)
            paragraphs.append(
                {
                    "idx": idx,
                    "title": title,
                    "paragraph_text": " ".join(sentences),
                    "is_supporting": idx < 2,
                }
            )
        steps = [
            {"question": f"Whose is Subject {k} 0?", "answer": f"Answer {k} 0"},
            {"question": "Whose is Subject of #1 ?", "answer": f"Answer {k} 1"},
        ]
        made.append(
            {
                "id": f"2hop__{k}_{seed}",
                "question": f"Whose is the subject that Subject {k} 0 names?",
                "answer": f"Answer {k} 1",
                "answer_aliases": [],
                "answerable": True,
                "paragraphs": paragraphs,
                "question_decomposition": [
                    {"id": i, "paragraph_support_idx": i, **step} for i, step in enumerate(steps)
                ],
            }
        )
    return made


def write_pages(path: Path, made: list[SourcePage]) -> Path:
    lines = [
        {"title": p.title, "text": p.text, "links": [[k.start, k.end, k.title] for k in p.links]}
        for p in made
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def write_records(path: Path, made: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in made), encoding="utf-8")
    return path


def store(folder: Path, made: list[SourcePage], tokenizer: str = "words") -> PageStore:
    source = JsonPages(write_pages(folder / "pages.jsonl", made))
    path = folder / "pages.sqlite"
    path.unlink(missing_ok=True)
    build_pages(path, [source], tokenizer=tokenizer, max_chars=10**6)
    return PageStore(path)
