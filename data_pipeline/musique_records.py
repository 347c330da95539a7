"""Reads official MuSiQue records; what can't be used is set aside with its place and reason."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipeline.set_aside import SURROGATES, SetAside, has_surrogates, parse_json
from disco_rl.core.text import normalise_answer

_REFERENCE = re.compile(r"#(\d+)")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a record; `(title, text)` tells it from the others, a title alone doesn't."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A hop: the question, each `#k` replaced by the answer of step k, and the gold paragraph."""

    question: str
    answer: str
    paragraph: Paragraph


@dataclass(frozen=True, slots=True)
class Record:
    """An answerable MuSiQue question; `line` is where it begins in its file, from 1.

    `support_agrees`: `is_supporting` marks exactly the paragraphs of the steps.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    paragraphs: tuple[Paragraph, ...]
    steps: tuple[Step, ...]
    line: int = 1
    support_agrees: bool = True


def read_records(path: Path) -> Iterator[Record | SetAside]:
    """The records of a JSON list or a JSONL file, in order.

    Raises `ValueError` when the file is missing, empty, or a list that isn't UTF-8.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give in= an official MuSiQue JSON or JSONL file")
    with path.open("rb") as file:
        start = file.read(4096).lstrip()
    if not start:
        raise ValueError(f"{path} is empty; give an official MuSiQue JSON or JSONL file")
    for line, value in _list(path) if start[:1] == b"[" else _lines(path):
        if isinstance(value, _Bad):
            yield SetAside(path.name, line, None, value.reason)
            continue
        try:
            yield parse_record(value, line)
        except ValueError as error:
            id = str(value["id"]) if isinstance(value, dict) and value.get("id") else None
            yield SetAside(path.name, line, id, str(error))


def parse_record(value: Any, line: int = 1) -> Record:
    """A record from its JSON. Raises `ValueError` naming the field that is missing or wrong."""
    if not isinstance(value, dict):
        raise ValueError(f"not an object but {type(value).__name__}")
    id, question, answer = (_text(value, name) for name in ("id", "question", "answer"))
    if value.get("answerable") is False:
        raise ValueError("answerable is false: the question has no gold evidence")
    paragraphs: dict[int, Paragraph] = {}
    marked: set[int] = set()
    for at, item in enumerate(_list_of(value, "paragraphs")):
        where = f"paragraphs[{at}]."
        paragraph = Paragraph(_text(item, "title", where), _text(item, "paragraph_text", where))
        idx = _number(item, "idx", where)
        if idx in paragraphs:
            raise ValueError(f"{where}idx {idx} came before: two paragraphs have it")
        paragraphs[idx] = paragraph
        if item.get("is_supporting"):
            marked.add(idx)
    steps: list[Step] = []
    supports: set[int] = set()
    for at, item in enumerate(_list_of(value, "question_decomposition")):
        where = f"question_decomposition[{at}]."
        support = _number(item, "paragraph_support_idx", where)
        if support not in paragraphs:
            raise ValueError(f"{where}paragraph_support_idx {support} is no idx of paragraphs")
        supports.add(support)
        asked = _resolve(_text(item, "question", where), steps, where)
        steps.append(Step(asked, _text(item, "answer", where), paragraphs[support]))
    aliases = value.get("answer_aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError("answer_aliases must be a list of texts")
    if has_surrogates(*aliases):
        raise ValueError(f"answer_aliases {SURROGATES}")
    answers = tuple(dict.fromkeys([answer, *(alias for alias in aliases if alias.strip())]))
    if normalise_answer(steps[-1].answer) not in {normalise_answer(one) for one in answers}:
        raise ValueError(
            f"the last step's answer {steps[-1].answer!r} isn't the record's answer {answer!r}"
        )
    return Record(
        id,
        question,
        answers,
        tuple(paragraphs.values()),
        tuple(steps),
        line,
        marked == supports,
    )


def _resolve(question: str, steps: list[Step], where: str) -> str:
    def answer(match: re.Match[str]) -> str:
        k = int(match[1])
        if not 1 <= k <= len(steps):
            raise ValueError(f"{where}question refers to #{k}, which is no earlier step")
        return steps[k - 1].answer

    return _REFERENCE.sub(answer, question)


def _text(value: Any, name: str, where: str = "") -> str:
    text = value.get(name) if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{where}{name} must be a text that isn't empty, not {text!r}")
    if has_surrogates(text):
        raise ValueError(f"{where}{name} {SURROGATES}")
    return text


def _number(value: Any, name: str, where: str) -> int:
    number = value.get(name) if isinstance(value, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{where}{name} must be a whole number, not {number!r}")
    return number


def _list_of(value: dict[str, Any], name: str) -> list[Any]:
    items = value.get(name)
    if not isinstance(items, list) or not items:
        raise ValueError(f"{name} must be a list that isn't empty")
    return items


@dataclass(frozen=True, slots=True)
class _Bad:
    reason: str


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield number, parse_json(line)
            except ValueError as error:
                yield number, _Bad(str(error))


def _list(path: Path) -> Iterator[tuple[int, Any]]:
    """One element after another, so that a list cut short still gives what came before."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line}: not UTF-8 at byte {error.start}; save the file as UTF-8"
        ) from error
    decoder, blank = json.JSONDecoder(), re.compile(r"\s*")
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        at = _after(blank, text, at)
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            yield line, _Bad(f"not JSON, and the rest of the list is lost: {error}")
            return
        yield line, value
        at = _after(blank, text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            yield line + text.count("\n", counted, at), _Bad("the list is cut off after a record")
            return


def _after(blank: re.Pattern[str], text: str, at: int) -> int:
    match = blank.match(text, at)
    return match.end() if match else at
