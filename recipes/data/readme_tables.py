"""README's tables, from results.json."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Rows = list[tuple[str, str]]


def with_tables(text: str, results: Mapping[str, Any]) -> str:
    """`text` with what stands between `<!-- PART -->` and `<!-- /PART -->` made anew, each part."""
    for part, rows in TABLES.items():
        found = rows(results[part]) if part in results else [(part, "not run")]
        table = "\n".join(f"| {what} | {figure} |" for what, figure in found)
        marks = rf"(<!-- {part} -->\n).*?(<!-- /{part} -->)"
        body = f"\\g<1>| | |\n|---|---|\n{table}\n\\g<2>"
        text = re.sub(marks, body, text, flags=re.S)
    return text


def real(r: Mapping[str, Any]) -> Rows:
    pages, kept, check = r["pages"], r["kept"], r["check"]
    return [
        ("questions", f"{r['questions']:,}"),
        (
            "pages / of them excerpts / redirects / rejected",
            " / ".join(f"{pages[k]:,}" for k in ("pages", "excerpts", "redirects", "rejected")),
        ),
        ("tokens in the store", f"{pages['tokens']:,}"),
        ("store built in", f"{r['store']['processor seconds']} s"),
        ("mentions that the offline linker found", f"{r['mentions']:,}"),
        ("questions whose mentions reach a target", f"{r['planned']:,}"),
        ("dropped", _dropped(r["filters"])),
        ("kept", f"{kept['samples']:,} samples, {kept['tokens']:,} tokens"),
        ("kept by length", _pairs(check["rows by length"])),
        ("kept by hops", _pairs(r["kept by hops"])),
        ("kept by depth of expansion", _pairs(r["depth"])),
        ("hops by tenths of the context", _row(r["evidence by tenths of the context"])),
        (
            "checked by other means",
            f"{check['hops whose evidence stands in the final text']:,} hops, "
            f"{check['shards whose tokens were counted anew']:,} shards, all right",
        ),
        ("length off its target, at most", f"{check['length off its target, at most']:.2%}"),
        ("two runs have the same bytes", _yes(r["same bytes in two runs"])),
        *_speed(r),
    ]


def killed(r: Mapping[str, Any]) -> Rows:
    met: dict[str, int] = {}
    for kill in r["kills"]:
        met[kill["in"]] = met.get(kill["in"], 0) + 1
    return [
        ("kills", f"{len(r['kills'])}, over {r['folders']} runs"),
        ("what they met", _pairs(met)),
        ("same bytes as the unbroken run", _yes(r["same bytes after all"])),
    ]


def train(r: Mapping[str, Any]) -> Rows:
    steps = [
        (
            f"step {step}",
            ", ".join(f"{k} {v:.3f}" for k, v in values.items() if v is not None),
        )
        for step, values in r["steps"].items()
    ]
    return [
        ("contexts of 16K words", f"{r['samples']:,}"),
        ("trajectories / with a reward / with an error",
         f"{r['trajectories']} / {r['trajectories with a reward']} / {r['errors']}"),
        ("how they stopped", _pairs(r["stops"])),
        *steps,
        ("wall time", f"{r['seconds']} s"),
    ]  # fmt: skip


def contexts(r: Mapping[str, Any]) -> Rows:
    quarters = r["peak memory MB by quarters of the samples"]
    return [
        ("pages / tokens in the store", f"{r['pages']:,} / {r['store']['tokens']:,}"),
        (
            "store built in / peak memory",
            f"{r['store']['processor seconds']} s / {r['store']['peak memory MB']:,} MB",
        ),
        ("samples / tokens", f"{r['samples']} of {r['length']:,} / {r['tokens']:,}"),
        ("length off its target, at most", f"{r['length off by at most']:.3%}"),
        ("samples a minute", f"{r['samples a minute']}"),
        ("peak memory after each quarter of the samples", f"{_row(quarters)} MB"),
        ("hops by fifths of the context", _row(r["evidence by fifths of the context"])),
        *_speed(r),
    ]


def titles(r: Mapping[str, Any]) -> Rows:
    return [
        ("titles / of them pages", f"{r['titles']:,} / {r['pages']:,}"),
        ("file", f"{r['file MB']:,} MB"),
        ("built in", f"{r['built in s']} s, {r['built in s of processor']} s of processor"),
        ("peak memory of the build", f"{r['peak memory MB']:,} MB"),
    ]


def lookup(r: Mapping[str, Any]) -> Rows:
    def times(kind: str) -> str:
        return " / ".join(f"{r[kind][f'p{p} µs']}" for p in (50, 99, 99.9)) + " µs"

    empty, full = (r[f"peak memory MB, cache of titles {how}"] for how in ("empty", "full"))
    return [
        ("look-ups", f"{r['look-ups']:,}"),
        ("median / p99 / p99.9, nothing of the file in memory", times("cold")),
        ("warm", times("warm")),
        ("through our cache of titles", times("through the cache of titles")),
        ("peak memory, cache of titles empty / full", f"{empty:,} / {full:,} MB"),
    ]


def estimate(r: Mapping[str, Any]) -> Rows:
    hours, size, calls = r["hours of one core"], r["gigabytes"], r["LLM calls, at most"]
    return [
        ("tokens of a sample / of the data set",
         f"{r['tokens of a sample, on average']:,} / {r['tokens of the data set']:,}"),
        ("left by the filters of words", f"{r['left by the filters of words']:,}"),
        ("share of these that the model's filters may drop",
         f"{r['share that the filters of a model may drop']:.0%}"),
        ("hours of one core", _pairs(hours)),
        ("gigabytes", _pairs(size)),
        ("LLM calls, at most", _pairs(calls)),
        ("LLM tokens, input / output",
         f"{r['LLM input tokens']:,} / {r['LLM output tokens']:,}"),
        ("hours of the LLM", f"{r['LLM hours']}"),
        ("assumed, not measured", _pairs(r["assumed"])),
    ]  # fmt: skip


TABLES: Mapping[str, Callable[[Mapping[str, Any]], Rows]] = {
    "real": real,
    "killed": killed,
    "train": train,
    "contexts": contexts,
    "titles": titles,
    "lookup": lookup,
    "estimate": estimate,
}


def _speed(r: Mapping[str, Any]) -> Rows:
    return [
        ("processor seconds by step", _pairs(r["seconds"])),
        ("tokens a second, end to end on the store", f"{r['tokens a second, end to end']:,}"),
        (
            "tokens a second of `encode_batch` on the same text",
            f"{r['encode_batch tokens a second']:,}",
        ),
        ("**end to end against `encode_batch`**", f"**{r['end to end against encode_batch']}**"),
    ]


def _dropped(filters: Mapping[str, int]) -> str:
    names = [k.removesuffix(" dropped") for k in filters if k.endswith(" dropped")]
    ran = ", ".join(f"{filters[f'{name} dropped']} {name}" for name in names) or "none"
    idle = [k.removesuffix(" not run") for k in filters if k.endswith(" not run")]
    never = [n for n in idle if not any(filters.get(f"{n} {s}") for s in ("passed", "dropped"))]
    return f"{ran}; not run: {', '.join(never) or 'none'}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}: {v:,}" for k, v in values.items())


def _row(values: list[int]) -> str:
    return " ".join(f"{v:,}" for v in values)


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"
