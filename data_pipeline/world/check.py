"""Checks a world from its text alone, without the generator's own records of what it wrote."""

import re
from collections import defaultdict

from data_pipeline.world.generate import World
from data_pipeline.world.relations import RELATIONS, Relation
from disco_rl.core.text import sentence_spans

_FACTS: tuple[tuple[str, re.Pattern[str], Relation], ...] = tuple(
    (
        max(re.split(r"\{[so]\}", fact), key=len),  # in every match: far quicker to look for
        re.compile(re.escape(fact).replace(r"\{s\}", "(?P<s>.+)").replace(r"\{o\}", "(?P<o>.+)")),
        relation,
    )
    for relation in RELATIONS
    for fact in relation.facts
)

Read = tuple[str, tuple[int, int]]
"""An object and the span of the sentence that states it."""


def read_facts(text: str) -> dict[tuple[str, str], list[Read]]:
    """Every fact that the sentences of `text` state, as (relation, subject) -> objects."""
    found: dict[tuple[str, str], list[Read]] = defaultdict(list)
    for start, end in sentence_spans(text):
        sentence = text[start:end].rstrip()
        for literal, pattern, relation in _FACTS:
            if literal in sentence and (match := pattern.fullmatch(sentence)):
                place = (start, start + len(sentence))
                found[relation.name, match["s"]].append((match["o"], place))
    return dict(found)


def check_world(world: World) -> None:
    """Raises `ValueError` unless each hop's question has exactly one answer in its context, at the
    span and shards that the sample says, and each answer is the next hop's subject."""
    facts = {r.context.id: read_facts(r.context.text) for r in world.regions}
    for question in world.questions:
        sample, where = question.sample, f"{world.split} question {question.sample.index}"
        region = world.region(sample.context_id)
        for at, (hop, fact) in enumerate(zip(sample.hops, question.chain, strict=True)):
            found = facts[sample.context_id].get((fact.relation.name, fact.subject), [])
            if found != [(hop.answer, hop.span)]:
                raise ValueError(
                    f"{where}, hop {at}: the text states {found}, not {hop.answer!r} at {hop.span}"
                )
            shards = [region.context.shards[i] for i in hop.shard_ids]
            if not shards or not (shards[0].start <= hop.span[0] and hop.span[1] <= shards[-1].end):
                raise ValueError(f"{where}, hop {at}: shards {hop.shard_ids} don't hold {hop.span}")
        objects = [fact.object for fact in question.chain]
        subjects = [fact.subject for fact in question.chain]
        if subjects[1:] != objects[:-1] or sample.answers != (objects[-1],):
            raise ValueError(f"{where}: the chain is broken: {subjects} to {objects}")
        if objects[-1] in sample.question:
            raise ValueError(f"{where}: the question holds its answer {objects[-1]!r}")
