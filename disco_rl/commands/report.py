"""Tables and plots over evaluation runs: one HTML page and a Markdown table.

disco-rl report runs/eval                             every run in the folder
disco-rl report runs/eval --baseline full_context     with paired differences to that run, or, of
                                                      full_context-BENCHMARK, on each benchmark
"""

import argparse

HELP = "tables and plots over evaluation runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a run, or a folder of runs")
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="the run to compare the others with; RUN stands for RUN-BENCHMARK too",
    )
    parser.add_argument("--out", metavar="FOLDER", help="where to write (default: FOLDER)")
    parser.add_argument("--no-plots", action="store_true", help="tables only")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from disco_rl.evaluation.report.page import page
    from disco_rl.evaluation.report.plots import plots
    from disco_rl.evaluation.report.runs import find_runs
    from disco_rl.evaluation.report.tables import markdown, tables

    folder = Path(args.folder).expanduser()
    runs = find_runs(folder)
    found = tables(runs, args.baseline)
    drawn = [] if args.no_plots else plots(runs)
    out = Path(args.out).expanduser() if args.out else folder
    out.mkdir(parents=True, exist_ok=True)
    text = markdown(found)
    (out / "report.md").write_text(text, encoding="utf-8")
    (out / "report.html").write_text(page(runs, found, drawn), encoding="utf-8")
    print(text)
    print(f"{out / 'report.html'}: {len(runs)} runs, {len(drawn)} plots")
    return 0
