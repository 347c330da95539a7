"""The quality report: one HTML page, plots as inline SVG, nothing fetched."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from data_pipeline.steps.work import Built

_AROUND = 400  # characters shown on each side of the evidence
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}
td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}
td.n{text-align:right}mark{background:#fd6}svg text{font:12px system-ui,sans-serif}
blockquote{white-space:pre-wrap;border-left:4px solid #ccc;margin:.5rem 0;padding-left:1rem}
"""


@dataclass(frozen=True, slots=True)
class SampleView:
    """A sample as the report shows it: each hop with its evidence and the text around it."""

    id: str
    question: str
    answers: tuple[str, ...]
    n_tokens: int
    hops: tuple[tuple[str, str, float, str, str, str], ...]

    @classmethod
    def of(cls, built: Built) -> "SampleView":
        text, hops = built.text, []
        for hop, position in zip(built.sample.hops, built.positions, strict=True):
            start, end = hop.span
            before = text[max(start - _AROUND, 0) : start]
            after = text[end : end + _AROUND]
            hops.append((hop.question, hop.answer, position, before, text[start:end], after))
        sample = built.sample
        return cls(built.id, sample.question, sample.answers, sample.n_tokens, tuple(hops))


@dataclass(frozen=True, slots=True)
class Figures:
    """What card and report are made from. `filters`: (filter, status) to samples."""

    settings: Mapping[str, Any]
    counts: Mapping[str, Mapping[str, int]]
    steps: Mapping[str, Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    filters: Mapping[tuple[str, str], int]
    views: Sequence[SampleView]


def report(figures: Figures) -> str:
    samples = figures.samples
    positions = [place for sample in samples for place in sample["positions"]]
    first = [min(sample["positions"]) for sample in samples]
    last = [max(sample["positions"]) for sample in samples]
    charts = [
        bars("Samples by target length (tokens)", _tally(s["target"] for s in samples)),
        bars("Samples by hops", _tally(s["hops"] for s in samples)),
        bars("Samples by depth of expansion", _tally(s["depth"] for s in samples)),
        bars("Pages inserted in a sample", _binned([s["pages"] for s in samples])),
        bars("Shards that hold a sample's evidence", _tally(s["shards"] for s in samples)),
        bars("Where evidence stands in its context", deciles(positions)),
        bars("Where the first evidence stands", deciles(first)),
        bars("Where the last evidence stands", deciles(last)),
    ]
    off = [abs(s["n_tokens"] - s["target"]) / s["target"] for s in samples]
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            f"<title>Quality report</title><style>{_STYLE}</style>",
            f"<h1>Quality report</h1><p>{len(samples):,} samples, "
            f"{sum(s['n_tokens'] for s in samples):,} tokens. Length off its target by "
            f"{100 * sum(off) / len(off):.2f}% on average, {100 * max(off):.2f}% at most.</p>",
            "<h2>Filters</h2>",
            _filters(figures.filters),
            "<h2>Steps</h2>",
            _steps(figures.steps),
            "<h2>Distributions</h2>",
            *charts,
            f"<h2>{len(figures.views)} samples to read</h2>",
            *map(_view, figures.views),
            "</html>\n",
        ]
    )


def bars(title: str, counts: Mapping[str, int]) -> str:
    """A chart of horizontal bars."""
    top, height = max(counts.values(), default=1) or 1, 22
    rows = []
    for k, (label, count) in enumerate(counts.items()):
        y, width = k * height, 360 * count / top
        rows.append(
            f'<text x="118" y="{y + 15}" text-anchor="end">{escape(str(label))}</text>'
            f'<rect x="126" y="{y + 3}" width="{width:.1f}" height="{height - 6}" fill="#48c"/>'
            f'<text x="{132 + width:.1f}" y="{y + 15}">{count:,}</text>'
        )
    size = f'width="560" height="{height * len(counts)}"'
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f"<svg {size} role=img>{''.join(rows)}</svg></figure>"
    )


def deciles(shares: Sequence[float]) -> dict[str, int]:
    counts = Counter(min(int(share * 10), 9) for share in shares)
    return {f"{10 * k}-{10 * k + 10}%": counts[k] for k in range(10)}


def _binned(values: Sequence[int]) -> dict[str, int]:
    """Powers of two."""
    counts = Counter(value.bit_length() for value in values)
    return {f"{2 ** max(k - 1, 0)}-{2**k - 1}": counts[k] for k in sorted(counts)}


def _tally(values: Any) -> dict[str, int]:
    return {f"{value:,}": count for value, count in sorted(Counter(values).items())}


def _filters(filters: Mapping[tuple[str, str], int]) -> str:
    names = list(dict.fromkeys(name for name, _ in filters))
    statuses = ("passed", "dropped", "failed", "not run")
    head = "".join(f"<th>{s}</th>" for s in ("filter", *statuses, "share dropped"))
    rows = []
    for name in names:
        counts = [filters.get((name, status), 0) for status in statuses]
        run = sum(counts[:3])
        share = f"{100 * counts[1] / run:.1f}%" if run else "not run"
        cells = "".join(f"<td class=n>{count:,}</td>" for count in counts)
        rows.append(f"<tr><td>{escape(name)}</td>{cells}<td class=n>{share}</td></tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _steps(steps: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        f"<tr><td>{escape(step)}</td><td>{escape(str(what))}</td><td class=n>{count:,}</td></tr>"
        for step, manifest in steps.items()
        for what, count in manifest["counts"].items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _view(view: SampleView) -> str:
    hops = "".join(
        f"<p>{k}. {escape(question)} <b>{escape(answer)}</b>, at {100 * position:.0f}%</p>"
        f"<blockquote>{escape(before)}<mark>{escape(evidence)}</mark>{escape(after)}</blockquote>"
        for k, (question, answer, position, before, evidence, after) in enumerate(view.hops, 1)
    )
    return (
        f"<details><summary>{escape(view.question)} <b>{escape(view.answers[0])}</b></summary>"
        f"<p>{escape(view.id)}, {view.n_tokens:,} tokens</p>{hops}</details>"
    )
