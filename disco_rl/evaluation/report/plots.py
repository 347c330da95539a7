"""The report's plots as SVG text. Each is left out where the runs don't vary what it shows."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from disco_rl.evaluation.report.runs import Figures, Run, figures, length


@dataclass(frozen=True)
class Plot:
    title: str
    svg: str


def plots(runs: Sequence[Run]) -> list[Plot]:
    """Raises `ModuleNotFoundError` with the command to run where matplotlib is missing."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plots need matplotlib; pip install 'disco-rl[recipes]', or pass --no-plots"
        ) from error
    matplotlib.use("Agg")
    makers = (_length, _cost, _dropout, _worker)
    found = []
    for scorer in dict.fromkeys(run.benchmark for run in runs):
        ours = [run for run in runs if run.benchmark == scorer]
        found += [Plot(f"{scorer}: {p.title}", p.svg) for make in makers if (p := make(ours))]
    return found


def _length(runs: Sequence[Run]) -> Plot | None:
    lines = {
        run.name: {n: figures(run.of(g)) for g in run.groups() if (n := length(g)) is not None}
        for run in runs
    }
    if not any(len(points) > 1 for points in lines.values()):
        return None
    figure, axes = _axes("context length (tokens)", "official score (%)")
    for name, points in lines.items():
        if points:
            axes.errorbar(
                list(points), [f.official for f in points.values()],
                yerr=_whiskers(list(points.values())), marker="o", capsize=3, label=name,
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_ylim(-2, 102)
    axes.legend()
    return Plot("accuracy against length", _svg(figure))


def _cost(runs: Sequence[Run]) -> Plot | None:
    points = [(run, figures(run.results)) for run in runs]
    if len(points) < 2 or not any(f.dollars for _, f in points):
        return None
    figure, axes = _axes("dollars a question", "official score (%)")
    for run, f in points:
        axes.errorbar([f.dollars / f.n], [f.official], yerr=_whiskers([f]), marker="o", capsize=3)
        axes.annotate(run.name, (f.dollars / f.n, f.official), xytext=(6, 4), **_POINTS)
    return Plot("cost against accuracy", _svg(figure))


def _dropout(runs: Sequence[Run]) -> Plot | None:
    points = sorted(
        (float(run.config["method"]["dropout"]), f.stages, f.official)
        for run in runs
        if run.config["method"]["kind"] == "disco"
        and (f := figures(run.results)).stages is not None
    )
    if len({point[0] for point in points}) < 2:
        return None
    figure, axes = _axes("share of narrow outputs dropped", "stages")
    axes.plot([p[0] for p in points], [p[1] for p in points], marker="o", label="stages")
    other = axes.twinx()
    other.plot([p[0] for p in points], [p[2] for p in points], "s--", color="C1", label="score")
    other.set_ylabel("official score (%)")
    other.set_ylim(0, 100)
    figure.legend(loc="upper left", bbox_to_anchor=(0.12, 0.95))
    return Plot("stages against fact dropout", _svg(figure))


def _worker(runs: Sequence[Run]) -> Plot | None:
    by_worker: dict[str, list[Figures]] = {}
    for run in runs:
        if run.config["method"]["kind"] == "disco":
            worker = run.config["worker"]
            name = str(worker.get("model") or worker.get("ranker"))
            by_worker.setdefault(name, []).append(figures(run.results))
    if len(by_worker) < 2:
        return None
    figure, axes = _axes("Worker", "official score (%)")
    names = list(by_worker)
    axes.bar(names, [mean(f.official for f in fs) for fs in by_worker.values()], alpha=0.6)
    other = axes.twinx()
    medians = [mean(f.latency[0] for f in fs if f.latency) if any(f.latency for f in fs) else 0.0
               for fs in by_worker.values()]  # fmt: skip
    other.plot(names, medians, "o", color="C1")
    other.set_ylabel("median seconds a question")
    return Plot("Worker against accuracy and latency", _svg(figure))


_POINTS: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}


def _axes(x: str, y: str) -> tuple[Any, Any]:
    # Without pyplot there is no global state to close.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    return figure, axes


def _whiskers(points: Sequence[Figures]) -> list[list[float]]:
    return [
        [max(f.official - f.interval[0], 0.0) for f in points],
        [max(f.interval[1] - f.official, 0.0) for f in points],
    ]


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]
