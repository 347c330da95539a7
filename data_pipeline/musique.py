"""Step `musique`: each question's own paragraphs as its context, with the evidence of each hop."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from data_pipeline.evidence import evidence_span
from data_pipeline.musique_records import Paragraph, Record, read_records
from data_pipeline.output import DataFolder, complete
from data_pipeline.set_aside import SetAside
from data_pipeline.tokens import counter
from data_pipeline.writer import StoreItem, new_folder, sha256
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import CountTokens, TextContext, shards_of_span
from disco_rl.data.store import StoreInfo

DATA_SOURCE = "disco/musique"
VERSION = 1


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


@dataclass
class _Converted:
    count: CountTokens
    shard_size: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    dropped: list[SetAside] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def items(
        self, split: str, path: Path, records: Iterator[Record | SetAside]
    ) -> Iterator[StoreItem]:
        samples = self.samples.setdefault(split, [])
        for record in records:
            if isinstance(record, SetAside):
                self.dropped.append(record)
                continue
            if record.id in self.seen:
                reason = "a record with this id came before"
                self.dropped.append(SetAside(path.name, record.line, record.id, reason))
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
        data = DataFolder(folder)
        data.write_contexts(items(), StoreInfo(tokenizer, shard_size))
        if not work.samples.get("train"):
            why = work.dropped[0] if work.dropped else "validation took them all"
            raise ValueError(f"{source}: no record is left for training ({why})")
        counts: dict[str, dict[str, int]] = {}
        for split, check in data.write_splits(dict(sorted(work.samples.items()))).items():
            samples = work.samples[split]
            counts[split] = {
                "questions": len(samples),
                "hops": check.hops,
                "hops with the answer in their span": check.in_span,
                "in one shard": check.in_shard,
                "tokens": sum(sample.n_tokens for sample in samples),
            }
        counts["set aside"] = {"records": len(work.dropped)}
        data.write_dropped(asdict(one) for one in work.dropped)
        return data.finish(settings, counts), True
