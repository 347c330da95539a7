"""Where a hop's evidence stands in its paragraph, and whether it can be read back from a store."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.musique_records import Step
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.text import normalise_answer, sentence_spans
from disco_rl.data.store import ContextStore

_WORD = re.compile(r"\w+")


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
