"""The dataset card: what the data is, how it was made, what it may be used for."""

import json

from data_pipeline.steps.report import Figures

_CARD = """---
license: cc-by-sa-4.0
language: [en]
task_categories: [question-answering]
tags: [long-context, multi-hop, reinforcement-learning]
configs:
- config_name: default
  data_files:
{files}
---
# Multi-hop questions in long contexts

{n_samples:,} questions of [MuSiQue](https://github.com/StonyBrookNLP/musique), each with a context
of {shortest:,} to {longest:,} tokens: mentions in the question's paragraphs were expanded,
recursively, by the Wikipedia pages they link to (Recursive Context Augmentation). Each row says in
which shards and at which characters the evidence of every hop stands.

| split | samples | hops | tokens | shards |
|---|---|---|---|---|
{splits}

## Files
`datasets.load_dataset` reads the rows; the contexts are a store of their own beside them.

- `SPLIT.parquet`: question, answers, `extra_info` with `context_id` and `hops` (question, answer,
  aliases, `shard_ids`, `span` in characters of the context).
- `contexts/`: the contexts, `datasets.load_from_disk` opens them: `context_id`, `text`, `shards`.
- `samples.jsonl`: target length, pages, depth and evidence positions of each sample.
- `dropped.jsonl`: what was dropped, by which filter, why. `report.html`: the quality report.

## Filters
A filter that did not run says nothing about the samples.

| filter | passed | dropped | no verdict | not run |
|---|---|---|---|---|
{filters}

## How it was made
```json
{settings}
```

## Licences
Questions and paragraphs: MuSiQue, CC BY 4.0. Pages: Wikipedia, CC BY-SA; their titles stand in the
contexts as headings.
"""


def card(figures: Figures) -> str:
    lengths = [sample["n_tokens"] for sample in figures.samples]
    splits = [
        f"| {name} | {c['samples']:,} | {c['hops']:,} | {c['tokens']:,} | {c['shards']:,} |"
        for name, c in figures.counts.items()
        if name != "filters"
    ]
    files = [
        f"  - split: {name}\n    path: {name}.parquet"
        for name in figures.counts
        if name != "filters"
    ]
    filters = []
    for name in dict.fromkeys(name for name, _ in figures.filters):
        counts = [
            f"{figures.filters.get((name, status), 0):,}"
            for status in ("passed", "dropped", "failed", "not run")
        ]
        filters.append(f"| {name} | {' | '.join(counts)} |")
    return _CARD.format(
        n_samples=len(lengths),
        shortest=min(lengths),
        longest=max(lengths),
        files="\n".join(files),
        splits="\n".join(splits),
        filters="\n".join(filters),
        settings=json.dumps(figures.settings, indent=2),
    )
