"""The report's tables as plain cells, and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from disco_rl.evaluation.habits import pooled
from disco_rl.evaluation.report.published import published
from disco_rl.evaluation.report.runs import Run, against, figures


@dataclass(frozen=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


_HEAD = (
    "run", "group", "n", "official", "95%", "against baseline", "strict", "judge", "failed",
    "empty", "truncated", "grounded", "stages", "latency s (median, p95)", "calls",
    "failed calls", "tokens", "$",
)  # fmt: skip


_HABITS = ("run", "narrow actions", "forwarded", "names an action", "shards reused")


def tables(runs: Sequence[Run], baseline: str | None = None) -> list[Table]:
    """One table a benchmark, and one of published figures beside it. `baseline` is a run's name,
    or that name's beginning: `full_context` is `full_context-ruler_qa` among the RULER-QA runs.

    Raises `ValueError` where no run is called so, or two on the same questions.
    """
    if baseline is not None and not any(_is(run, baseline) for run in runs):
        raise ValueError(f"no run {baseline!r}; there are {[run.name for run in runs]}")
    found = []
    for scorer in dict.fromkeys(run.benchmark for run in runs):
        ours = [run for run in runs if run.benchmark == scorer]
        rows = [
            _row(run, group, _base(ours, group, baseline)) for run in ours for group in run.groups()
        ]
        open_runs = [run.name for run in ours if not run.complete]
        note = "Failed and empty answers count as wrong. Calls, tokens: a question, by role."
        if open_runs:
            note += f" Not complete: {', '.join(open_runs)}."
        found.append(Table(scorer, _HEAD, tuple(rows), note))
        habits = [row for run in ours if (row := _habits(run))]
        if habits:
            note = "Of narrow actions: copies of the question, names each, shards asked again."
            found.append(Table(f"{scorer}: how the Driver asks", _HABITS, tuple(habits), note))
        theirs = tuple(
            (p.system, p.group or "all", f"{p.score:.1f}", p.source) for p in published(scorer)
        )
        if theirs:
            head = ("published system", "group", "official", "source")
            note = "Published, not measured here: other models, samples and hardware."
            found.append(Table(f"{scorer}: published", head, theirs, note))
    return found


def markdown(found: Sequence[Table]) -> str:
    parts = []
    for table in found:
        lines = [f"## {table.title}", ""]
        lines += [_line(table.head), _line(["---"] * len(table.head))]
        lines += [_line(row) for row in table.rows]
        parts.append("\n".join([*lines, "", table.note]).rstrip())
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _is(run: Run, name: str) -> bool:
    return run.name == name or run.name.startswith(f"{name}-")


def _base(runs: Sequence[Run], group: str, baseline: str | None) -> Run | None:
    found = [run for run in runs if baseline is not None and _is(run, baseline) and run.of(group)]
    found = [run for run in found if run.name == baseline] or found
    if len(found) > 1:
        names = [run.name for run in found]
        raise ValueError(f"baseline {baseline!r} is several runs on {group}: {names}; give one's")
    return found[0] if found else None


def _row(run: Run, group: str, baseline: Run | None) -> tuple[str, ...]:
    f = figures(run.of(group))
    gap = against(run, baseline, group) if baseline else None
    return (
        run.name,
        group,
        str(f.n),
        f"{f.official:.1f}",
        f"{f.interval[0]:.1f} to {f.interval[1]:.1f}",
        f"{gap[0]:+.1f} ({gap[1]:+.1f} to {gap[2]:+.1f}, n={gap[3]})" if gap else "",
        f"{f.strict:.1f}",
        _of(f.judge, f.judged),
        str(f.failed),
        str(f.empty),
        f"{f.truncated:.0f}%",
        _of(f.grounding, f.grounded),
        _maybe(f.stages, 2),
        f"{f.latency[0]:.1f}, {f.latency[1]:.1f}" if f.latency else "",
        _by_role(f.calls, 1),
        _by_role(f.failed_calls, 2),
        _by_role(f.tokens, 0),
        f"{f.dollars:.4g}",
    )


def _habits(run: Run) -> tuple[str, ...] | None:
    """Means over all narrow actions of a run, whichever question they are of."""
    found = pooled(habits for r in run.results if (habits := r["record"].get("narrow")))
    if found is None:
        return None
    return (
        run.name,
        f"{found['actions']:.0f}",
        f"{100 * found['forwarded']:.1f}%",
        f"{found['names']:.2f}",
        f"{100 * found['reused']:.1f}%",
    )


def _maybe(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _of(value: float | None, n: int) -> str:
    return "" if value is None else f"{value:.1f} (n={n})"


def _by_role(values: dict[str, float], digits: int) -> str:
    return ", ".join(f"{role} {value:,.{digits}f}" for role, value in values.items())
