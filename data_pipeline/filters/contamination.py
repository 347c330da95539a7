"""Decontamination: questions and evidence that also stand in an evaluation set."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_pipeline.musique_records import Record

N_WORDS = 13
"""Words in a row that two texts don't share by chance; the n-gram length of GPT-3's check."""

_WORD = re.compile(r"\w+")


def contaminated(records: Iterable[Record], evaluation: Sequence[Path]) -> dict[str, str]:
    """Record id to the file it was met in: its question whole, or `N_WORDS` words of the question
    or of a gold paragraph.

    Holds what our own questions have in memory and streams the evaluation files, JSON or JSONL,
    whose texts may stand under any name. Raises `ValueError` for one that can't be read.
    """
    whole: dict[tuple[str, ...], list[str]] = {}
    grams: dict[int, list[str]] = {}
    for record in records:
        whole.setdefault(tuple(_words(record.question)), []).append(record.id)
        texts = [record.question, *{step.paragraph.text for step in record.steps}]
        for gram in {gram for text in texts for gram in _grams(_words(text))}:
            grams.setdefault(gram, []).append(record.id)
    found: dict[str, str] = {}
    for path in evaluation:
        for text in _texts(path):
            words = _words(text)
            met = list(whole.get(tuple(words), ()))
            met += [id for gram in _grams(words) for id in grams.get(gram, ())]
            for id in met:
                found.setdefault(id, path.name)
    return found


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _grams(words: Sequence[str]) -> Iterator[int]:
    for k in range(len(words) - N_WORDS + 1):
        yield hash(tuple(words[k : k + N_WORDS]))


def _texts(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise ValueError(f"filters.evaluation: {path}: no such file")
    try:
        if path.suffix == ".jsonl":
            with path.open(encoding="utf-8") as file:
                for line in file:
                    yield from _strings(json.loads(line))
        else:
            yield from _strings(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"filters.evaluation: {path}: not JSON ({error})") from error


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)
