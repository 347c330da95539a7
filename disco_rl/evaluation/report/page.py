"""One self-contained HTML page: no script, no file beside it, nothing fetched."""

from collections.abc import Sequence
from html import escape

from disco_rl.evaluation.report.plots import Plot
from disco_rl.evaluation.report.runs import Run
from disco_rl.evaluation.report.tables import Table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; margin: 0.5rem 0 }
th, td { border-bottom: 1px solid #ccc; padding: 4px 8px; text-align: left; vertical-align: top }
.wide { overflow-x: auto }
.published { background: #f6f2e6; padding: 0.5rem 1rem }
figure { display: inline-block; margin: 0 1rem 1rem 0 }
figure svg { max-width: 100%; height: auto }
figcaption, .note { color: #555; font-size: 13px }
"""


def page(runs: Sequence[Run], tables: Sequence[Table], plots: Sequence[Plot]) -> str:
    body = ["<h1>Evaluation</h1>"]
    for table in tables:
        kind = "published" if table.title.endswith(": published") else "wide"
        body.append(f'<section class="{kind}"><h2>{escape(table.title)}</h2>{_table(table)}')
        body.append(f'<p class="note">{escape(table.note)}</p></section>')
    body += [
        f"<figure>{plot.svg}<figcaption>{escape(plot.title)}</figcaption></figure>"
        for plot in plots
    ]
    body.append("<h2>Failures</h2>" + (_failures(runs) or "<p>None.</p>"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Evaluation</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _failures(runs: Sequence[Run], most: int = 50) -> str:
    failed = [(run.name, r) for run in runs for r in run.results if r["error"] is not None]
    lines = "".join(
        f"<li>{escape(name)}, {escape(r['id'])}: {escape(r['error'])}</li>"
        for name, r in failed[:most]
    )
    more = f"<p>and {len(failed) - most} more</p>" if len(failed) > most else ""
    return f"<ul>{lines}</ul>{more}" if failed else ""
