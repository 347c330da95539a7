"""Step `questions`: MuSiQue records read, checked and numbered; bad ones set aside."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from data_pipeline.lines import Manifest, read_manifest, to_line, write_manifest
from data_pipeline.musique_records import Record, parse_record, read_records
from data_pipeline.set_aside import SetAside
from data_pipeline.writer import sha256, write_jsonl
from disco_rl.core.text import normalise_answer

HUB = "hub:"


def read_questions(
    source: str, limit: int | None, out: Path, progress: Callable[[int], object]
) -> Manifest:
    """Writes `questions.jsonl` and `set_aside.jsonl`; the manifest says how far the data is as we
    rely on it to be. Raises `ValueError` when nothing is usable or other settings made them."""
    name = "questions"
    file_name = source if source.startswith(HUB) else source.rpartition("/")[2]
    about: dict[str, Any] = {"in": file_name, "limit": limit}
    if not source.startswith(HUB):
        path = Path(source)
        if not path.is_file():
            raise ValueError(f"questions.in: {path}: no such file")
        about["in_sha256"] = sha256(path)
    if (out / f"{name}.json").is_file():
        manifest = read_manifest(out, name)
        if manifest["settings"] != about:
            raise ValueError(
                f"{out}: made from {manifest['settings']}, not {about}; choose another out="
            )
        return manifest
    out.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    dropped: list[SetAside] = []
    checks: Counter[str] = Counter()
    records = _hub(source) if source.startswith(HUB) else read_records(Path(source))
    partial = out / f".{name}.jsonl"
    with partial.open("wb") as file:
        for record in islice(records, limit):
            if isinstance(record, Record) and record.id in seen:
                record = SetAside(file_name, record.line, record.id, "its id came before")
            if isinstance(record, SetAside):
                dropped.append(record)
                continue
            seen.add(record.id)
            checks.update(check_record(record))
            file.write(to_line(record))
            progress(len(seen))
    if not seen:
        why = f": {dropped[0].reason}" if dropped else ""
        raise ValueError(f"questions.in: {source}: no usable record{why}")
    write_jsonl(out / "set_aside.jsonl", (asdict(one) for one in dropped))
    partial.replace(out / f"{name}.jsonl")
    manifest = {
        "settings": about,
        "complete": True,
        "lines": len(seen),
        "sha256": sha256(out / f"{name}.jsonl"),
        "counts": {"questions": len(seen), "set aside": len(dropped), **dict(checks)},
    }
    write_manifest(out, name, manifest)
    return manifest


def check_record(record: Record) -> Iterator[str]:
    """What is true of a record, of the things that we rely on or that change what can be done."""
    gold = {step.paragraph for step in record.steps}
    titles = [p.title for p in record.paragraphs]
    others = [p for p in record.paragraphs if p not in gold]
    yield f"{len(record.steps)} hops"
    if record.id[:1] == str(len(record.steps)):
        yield "id and decomposition agree on the hops"
    if all(_holds(step.paragraph.text, step.answer) for step in record.steps):
        yield "every answer stands in its own paragraph"
    if len(gold) == len(record.steps):
        yield "every hop has a paragraph of its own"
    if record.support_agrees:
        yield "is_supporting marks the paragraphs of the hops"
    if len(set(titles)) < len(titles):
        yield "titles repeat among the paragraphs"
    if {p.title for p in others} & {p.title for p in gold}:
        yield "another paragraph has the title of a gold one"
    if any(_holds(p.text, answer) for p in others for answer in record.answers[:1]):
        yield "the answer also stands in a paragraph that isn't gold"


def _holds(text: str, answer: str) -> bool:
    return answer.casefold() in text.casefold() or normalise_answer(answer) in normalise_answer(
        text
    )


def _hub(source: str) -> Iterator[Record | SetAside]:
    """`hub:NAME` or `hub:NAME:SPLIT`: a data set of the official fields, through `datasets`."""
    from datasets import load_dataset

    name, _, split = source.removeprefix(HUB).partition(":")
    try:
        rows = load_dataset(name, split=split or "train")
    except Exception as error:  # its own and the hub client's many errors
        raise ValueError(f"questions.in: {source} can't be loaded: {error}") from error
    for number, row in enumerate(rows, 1):
        try:
            yield parse_record(row, number)
        except ValueError as error:
            yield SetAside(source, number, str(row.get("id") or "") or None, str(error))
