"""Step `musique`: each question's own paragraphs as its context, with the evidence of each hop."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from data_pipeline.musique_records import Dropped, Paragraph, Record, Step, read_records
from data_pipeline.output import complete
from data_pipeline.tokens import counter
from data_pipeline.writer import (
    StoreItem,
    new_folder,
    sha256,
    write_json,
    write_jsonl,
    write_rows,
    write_store,
)
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import CountTokens, TextContext, shards_of_span
from disco_rl.core.text import normalise_answer, sentence_spans
from disco_rl.data.store import MANIFEST_FILE, ContextStore, StoreInfo

DATA_SOURCE = "disco/musique"
VERSION = 1
_WORD = re.compile(r"\w+")


def convert(
    record: Record, count: CountTokens, shard_size: int, index: int
) -> tuple[Sample, TextContext]:
    """The sample and context of a record: its paragraphs, a repeated one once, title before text.

    A hop's span is the sentence of its gold paragraph that holds the answer, or the whole
    paragraph where none does. Raises `ValueError` when a gold paragraph got lost.
    """
    text, places = _join(record.paragraphs)
    context = TextContext.cut(f"musique-{record.id}", text, count, shard_size)
    hops = []
    for at, step in enumerate(record.steps):
        place = places.get(_key(step.paragraph))
        if place is None or text[place : place + len(step.paragraph.text)] != step.paragraph.text:
            raise ValueError(f"{record.id}: the gold paragraph of step {at} isn't in the context")
        last = at == len(record.steps) - 1
        aliases = tuple(a for a in record.answers if a != step.answer) if last else ()
        start, end = evidence_span(step, aliases)
        span = (place + start, place + end)
        shard_ids = tuple(shards_of_span(context.shards, *span))
        hops.append(Hop(step.question, step.answer, aliases, shard_ids, span))
    sample = Sample(
        index=index,
        question=record.question,
        answers=record.answers,
        context_id=context.id,
        n_shards=len(context.shards),
        n_tokens=sum(shard.n_tokens for shard in context.shards),
        hops=tuple(hops),
        data_source=DATA_SOURCE,
    )
    return sample, context


def evidence_span(step: Step, aliases: Sequence[str]) -> tuple[int, int]:
    """Characters of the gold paragraph's text that hold the answer: whole sentences.

    Among several such places, the one that shares most words with the question.
    """
    text = step.paragraph.text
    sentences = sentence_spans(text)
    asked = set(_WORD.findall(step.question.lower()))
    patterns = [rf"(?<!\w){re.escape(answer)}(?!\w)" for answer in (step.answer, *aliases)]
    patterns.insert(1, re.escape(step.answer))  # also inside a word: America, of an American film
    for pattern in patterns:
        # An alias such as "NO" for Norway isn't the word "no".
        flags = 0 if pattern in patterns[2:] else re.IGNORECASE
        spans = []
        for match in re.finditer(pattern, text, flags):
            # An initial looks like a sentence's end, so an answer may lie across two.
            touched = [(a, b) for a, b in sentences if a < match.end() and match.start() < b]
            start, end = touched[0][0], touched[-1][1]
            spans.append((start, start + len(text[start:end].rstrip())))
        if spans:
            return max(spans, key=lambda s: len(asked & _words(text[s[0] : s[1]])))
    return 0, len(text)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _key(paragraph: Paragraph) -> tuple[str, str]:
    return paragraph.title, hashlib.sha256(paragraph.text.encode()).hexdigest()


def _join(paragraphs: Sequence[Paragraph]) -> tuple[str, dict[tuple[str, str], int]]:
    """The context's text, and where in it each paragraph's text begins."""
    parts: list[str] = []
    places: dict[tuple[str, str], int] = {}
    at = 0
    for paragraph in paragraphs:
        if _key(paragraph) in places:
            continue
        places[_key(paragraph)] = at + len(paragraph.title) + 1
        parts.append(f"{paragraph.title}\n{paragraph.text}\n\n")
        at += len(parts[-1])
    return "".join(parts), places


@dataclass(frozen=True)
class Check:
    """How many hops have their answer, or an alias of it, in the text of their span, and in one
    of their shards; `missing` names those whose span lacks it, as (context id, hop number)."""

    hops: int
    in_span: int
    in_shard: int
    missing: tuple[tuple[str, int], ...]


def check_evidence(samples: Sequence[Sample], store: ContextStore) -> Check:
    """Reads every hop's evidence back from the store, shard by shard, and looks for its answer."""
    n_hops = in_span = in_shard = 0
    missing: list[tuple[str, int]] = []
    for sample in samples:
        context = store.get(sample.context_id)
        for number, hop in enumerate(sample.hops):
            n_hops += 1
            shards = [context.shards[i] for i in hop.shard_ids]
            texts = [context.read(i) for i in hop.shard_ids]
            offset = shards[0].start if shards else 0
            evidence = "".join(texts)[hop.span[0] - offset : hop.span[1] - offset]
            found = holds(evidence, hop)
            in_span += found
            in_shard += any(holds(text, hop) for text in texts)
            if not found:
                missing.append((sample.context_id, number))
    return Check(n_hops, in_span, in_shard, tuple(missing))


def holds(text: str, hop: Hop) -> bool:
    """Whether the hop's answer or an alias of it stands in the text."""
    if hop.answer.casefold() in text.casefold():
        return True
    words = f" {normalise_answer(text)} "
    return any(f" {normalise_answer(answer)} " in words for answer in (hop.answer, *hop.aliases))


@dataclass
class _Converted:
    count: CountTokens
    shard_size: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def items(
        self, split: str, path: Path, records: Iterator[Record | Dropped]
    ) -> Iterator[StoreItem]:
        samples = self.samples.setdefault(split, [])
        for record in records:
            if isinstance(record, Dropped):
                self.dropped.append(record)
                continue
            if record.id in self.seen:
                reason = "a record with this id came before"
                self.dropped.append(Dropped(path.name, record.line, record.id, reason))
                continue
            self.seen.add(record.id)
            sample, context = convert(record, self.count, self.shard_size, len(samples))
            samples.append(sample)
            yield context.id, context.text, context.shards


def build_musique(
    source: Path,
    out: Path,
    *,
    validation: Path | None = None,
    n_validation: int = 0,
    tokenizer: str = "words",
    shard_size: int = 512,
    limit: int | None = None,
    progress: Callable[[int], object] = lambda n_done: None,
) -> tuple[dict[str, Any], bool]:
    """Writes `train.parquet`, `validation.parquet` where there is one, `contexts/`,
    `dropped.jsonl` and the manifest to `out`.

    Validation is the file `validation`, or the first `n_validation` records of `source`, which
    train then lacks. Returns the manifest and whether it was built now. Raises `ValueError` for
    bad settings or files, and when no record can be used.
    """
    if validation is not None and n_validation:
        raise ValueError("give validation_in or n_validation, not both")
    for path in (source, validation):
        if path is not None and not path.is_file():
            raise ValueError(f"{path}: no such file; give an official MuSiQue JSON or JSONL file")
    settings: dict[str, Any] = {
        "step": "musique",
        "version": VERSION,
        "in": source.name,
        "in_sha256": sha256(source),
        "validation_in": validation.name if validation else None,
        "validation_sha256": sha256(validation) if validation else None,
        "n_validation": n_validation,
        "tokenizer": tokenizer,
        "shard_size": shard_size,
        "limit": limit,
    }
    manifest = complete(out, settings)
    if manifest is not None:
        return manifest, False
    work = _Converted(counter(tokenizer), shard_size)

    def items() -> Iterator[StoreItem]:
        records = read_records(source)
        parts = [("validation", source, islice(records, n_validation)), ("train", source, records)]
        if validation is not None:
            parts[0] = ("validation", validation, read_records(validation))
        n_done = 0
        for split, path, part in parts:
            for item in work.items(split, path, islice(part, limit)):
                n_done += 1
                progress(n_done)
                yield item

    with new_folder(out) as folder:
        write_store(folder / "contexts", items(), StoreInfo(tokenizer, shard_size))
        if not work.samples.get("train"):
            why = work.dropped[0] if work.dropped else "validation took them all"
            raise ValueError(f"{source}: no record is left for training ({why})")
        store = ContextStore(folder / "contexts")
        counts: dict[str, dict[str, int]] = {}
        for split, samples in sorted(work.samples.items()):
            if samples:
                write_rows(folder / f"{split}.parquet", samples)
                check = check_evidence(samples, store)
                counts[split] = {
                    "questions": len(samples),
                    "hops": check.hops,
                    "hops with the answer in their span": check.in_span,
                    "in one shard": check.in_shard,
                    "tokens": sum(sample.n_tokens for sample in samples),
                }
        counts["set aside"] = {"records": len(work.dropped)}
        write_jsonl(folder / "dropped.jsonl", (asdict(one) for one in work.dropped))
        manifest = {"settings": settings, "counts": counts}
        write_json(folder / MANIFEST_FILE, manifest)
    return manifest, True
