"""A generated encyclopedia of any size and questions about it, from nothing but their numbers."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_pipeline.wiki.page import Item, Link, Redirect, SourcePage

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
TITLES_PER_PAGE = 20


def name(k: int) -> str:
    """A two-word name; no two numbers below 24 million share one."""
    n = len(_SYLLABLES)
    words = (k % n, k // n % n, k // n**2 % n, k // n**3)
    first, second = ("".join(_SYLLABLES[i] for i in pair) for pair in (words[:2], words[2:]))
    return f"{first.title()} {second.title()}"


def page(number: int, n_pages: int) -> SourcePage:
    """The first pages are long and most links lead to them; most pages are short."""
    rng = random.Random(number)
    parts, links, size = [], [], 0
    for _ in range(3 + int(rng.expovariate(1 / 90) * math.exp(-20 * number / n_pages))):
        before, after = rng.choice(_sentences())
        other = name(int(n_pages * rng.random() ** 4))
        links.append(Link(size + len(before), size + len(before) + len(other), other))
        parts += before, other, after
        size += len(before) + len(other) + len(after)
    return SourcePage(name(number), "".join(parts), tuple(links))


@lru_cache
def _sentences() -> list[tuple[str, str]]:
    """Two thousand sentences with a gap for a name."""
    rng, made = random.Random(0), []
    vocabulary = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(5000)]
    for _ in range(2000):
        words = rng.choices(vocabulary, range(5000, 0, -1), k=rng.randint(8, 24))
        at = rng.randint(1, len(words) - 1)
        after = " " + " ".join(words[at:]) + rng.choice([". ", ". ", ".\n"])
        made.append((" ".join(words[:at]).capitalize() + " ", after))
    return made


def record(k: int, n_pages: int) -> dict[str, Any]:
    """A MuSiQue record: two hops in two of four paragraphs, each of which names six pages."""
    rng = random.Random(f"record {k}")
    paragraphs = []
    for h in range(4):
        told = [
            before + name(rng.randrange(n_pages)) + after
            for before, after in rng.choices(_sentences(), k=6)
        ]
        told.insert(rng.randint(1, 5), f"The answer of part {h} is Gold {k} {h}. ")
        text = "".join(told).replace("\n", " ").strip()
        paragraphs.append(
            {"idx": h, "title": f"Part {h} of {k}", "paragraph_text": text, "is_supporting": h < 2}
        )
    steps = [
        {
            "id": h,
            "question": f"What is the answer of part {h} of {k}?",
            "answer": f"Gold {k} {h}",
            "paragraph_support_idx": h,
        }
        for h in (0, 1)
    ]
    return {
        "id": f"2hop__{k}",
        "question": f"What is the answer of the second part of {k}?",
        "answer": f"Gold {k} 1",
        "answer_aliases": [],
        "answerable": True,
        "paragraphs": paragraphs,
        "question_decomposition": steps,
    }


def write_pages(path: Path, n_pages: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(n_pages):
            made = page(number, n_pages)
            links = [[link.start, link.end, link.title] for link in made.links]
            line = {"title": made.title, "text": made.text, "links": links}
            file.write(json.dumps(line) + "\n")


def write_records(path: Path, n_records: int, n_pages: int) -> None:
    lines = (json.dumps(record(k, n_pages)) + "\n" for k in range(n_records))
    path.write_text("".join(lines), encoding="utf-8")


@dataclass(frozen=True)
class Titles:
    """A source of `n` titles: a page of two sentences, then redirects that lead to it."""

    n: int
    path: Path = Path("generated titles")

    def raw(self) -> Iterator[int]:
        return iter(range(self.n))

    def convert(self, raw: int) -> Item:
        of_page = raw % TITLES_PER_PAGE
        if of_page:
            return Redirect(name(raw), name(raw - of_page))
        return SourcePage(name(raw), f"{name(raw)} is a place. It is number {raw}.")
