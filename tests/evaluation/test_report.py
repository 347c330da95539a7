"""The report's figures, checked by hand, and its page."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from disco_rl import cli
from disco_rl.evaluation.habits import narrow_habits, pooled
from disco_rl.evaluation.intervals import paired
from disco_rl.evaluation.report.page import page
from disco_rl.evaluation.report.plots import plots
from disco_rl.evaluation.report.published import PUBLISHED, published
from disco_rl.evaluation.report.runs import Run, against, figures, find_runs
from disco_rl.evaluation.report.tables import markdown, tables


def result(i: int, score: float, group: str = "100", **more) -> dict:
    spent = {"calls": 2, "prompt": 100, "output": 10}
    return {
        "id": f"{group}/{i}", "question": f"{i}?", "group": group, "scorer": "ruler_qa",
        "answer": "x", "error": None,
        "scores": {"official": score, "strict": score / 2, "judge": None}, "truncated": 0,
        "seconds": float(i), "replayed": 0, "ledger": {"driver": spent}, "dollars": 0.5,
        "record": {}, **more,
    }  # fmt: skip


def run(name: str, results: list[dict], **config) -> Run:
    given = {"method": {"kind": "disco", "dropout": 0.0}, "worker": {"model": "small"}}
    return Run(name, given | config, results, True)


def test_figures_of_a_group() -> None:
    results = [result(i, float(i % 2)) for i in range(1, 20)]
    results.append(result(1000, 0.0, error="down", answer=None, replayed=3, truncated=5))
    f = figures(results)
    assert (f.n, f.official, f.failed, f.empty) == (20, 50.0, 1, 0)
    assert f.strict == 25.0 and f.truncated == 5.0 and f.judge is None and f.stages is None
    assert f.latency == (10.0, 19.0)  # of 1..19; the resumed question is left out
    assert f.calls == {"driver": 2.0} and f.tokens == {"driver": 110.0} and f.dollars == 10.0
    assert 25 <= f.interval[0] < 50 < f.interval[1] <= 75


def test_failures_are_shown_and_count_as_no_grounding() -> None:
    spent = {"calls": 1, "failures": 3, "prompt": 1, "output": 1}
    results = [
        result(1, 1.0, grounding=1.0),
        result(2, 0.0, grounding=None, error="down", ledger={"driver": spent}),
    ]
    f = figures(results)
    assert (f.grounding, f.grounded, f.judged) == (50.0, 2, 0)
    assert f.failed_calls == {"driver": 1.5}
    [table, _] = tables([run("a", results)])
    cells = dict(zip(table.head, table.rows[0], strict=True))
    assert (cells["grounded"], cells["failed calls"]) == ("50.0 (n=2)", "driver 1.50")
    assert figures([result(1, 0.0, error="down")]).grounding is None


def test_differences_are_paired() -> None:
    """Two runs that differ by a constant: the interval has no width, however hard the questions."""
    assert paired([0.4, 0.9, 0.1], [0.2, 0.7, -0.1]) == pytest.approx((0.2, 0.2, 0.2))
    ours = run("a", [result(i, 1.0) for i in range(5)])
    theirs = run("b", [result(i, 0.5) for i in range(3)])
    assert against(ours, theirs, "100") == (50.0, 50.0, 50.0, 3)
    other = run("c", [result(i, 0.5, question="another?") for i in range(3)])
    assert against(ours, other, "100") is None
    assert against(ours, ours, "100") is None
    with pytest.raises(ValueError, match="as many"):
        paired([1.0], [])


def test_tables_show_ours_and_mark_what_is_published() -> None:
    long = run("disco", [result(i, 1.0, g) for g in ("1000000", "256000") for i in range(3)])
    base = run("full", [result(i, 0.0, "256000") for i in range(3)])
    ours, theirs = tables([long, base], "full")
    assert [row[:4] for row in ours.rows] == [
        ("disco", "256000", "3", "100.0"), ("disco", "1000000", "3", "100.0"),
        ("full", "256000", "3", "0.0"),
    ]  # fmt: skip
    assert ours.rows[0][5] == "+100.0 (+100.0 to +100.0, n=3)" and ours.rows[1][5] == ""
    assert "78.4" in markdown([theirs]) and "not measured here" in theirs.note
    with pytest.raises(ValueError, match="no run 'x'"):
        tables([long], "x")


def test_a_studys_baseline_is_paired_with_on_every_benchmark() -> None:
    """Names as the studies give them: METHOD-BENCHMARK; two of RULER-QA's share one table."""
    groups = {"en_qa": "100", "ruler_squad": "qa_1 100", "ruler_hotpotqa": "qa_2 100"}
    runs = [
        run(f"{method}-{name}", [result(i, score, group) for i in range(3)])
        for method, score in (("full", 0.0), ("disco", 1.0), ("fuller", 1.0))
        for name, group in groups.items()
    ]
    ours, _ = tables(runs, "full")
    gaps = {row[0]: row[5] for row in ours.rows}
    for name in groups:
        assert gaps[f"disco-{name}"] == gaps[f"fuller-{name}"] == "+100.0 (+100.0 to +100.0, n=3)"
        assert gaps[f"full-{name}"] == ""
    again = run("full-again", [result(i, 0.5) for i in range(3)])
    with pytest.raises(ValueError, match=r"several runs on 100: \['full-en_qa', 'full-again'\]"):
        tables([*runs, again], "full")
    ours, _ = tables([*runs, again], "full-again")
    assert {row[0]: row[5] for row in ours.rows}["disco-en_qa"].startswith("+50.0")


def test_runs_of_two_studies_are_told_apart(tmp_path: Path) -> None:
    for study in ("cost", "families"):
        folder = tmp_path / study / "full_context"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("method: {kind: full_context}\n")
        (folder / "items.jsonl").write_text(json.dumps(result(1, 1.0)) + "\n")
    names = ["cost/full_context", "families/full_context"]
    assert [found.name for found in find_runs(tmp_path)] == names
    assert [found.name for found in find_runs(folder)] == ["full_context"]


def test_gemini_and_table_4_are_of_the_long_subset() -> None:
    found = [p for p in published("longbench_v2") if p.group == "long"]
    assert {p.score for p in found if "Gemini" in p.system} == {71.3, 72.2, 70.37}
    assert len(found) == 8 and {p.source for p in found} == {"DISCO paper"}
    assert not any("Gemini" in p.system for p in PUBLISHED if p not in found)


def test_an_unfinished_run_is_said_to_be() -> None:
    [table, _] = tables([Run("half", {"method": {}}, [result(1, 1.0)], False)])
    assert "Not complete: half" in table.note


def test_how_the_driver_asks_is_shown_over_all_its_actions() -> None:
    few = {"actions": 1, "forwarded": 1.0, "names": 4.0, "reused": 0.0}
    many = {"actions": 3, "forwarded": 0.0, "names": 0.0, "reused": 0.4}
    habits = [result(i, 1.0, record={"narrow": n}) for i, n in enumerate((few, many))]
    [_, table, _] = tables([run("disco", habits)])
    assert table.rows == (("disco", "4", "25.0%", "1.00", "30.0%"),)


class Outside(HTMLParser):
    """What a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.found.append(tag)
        self.found += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith("#")]


def test_the_page_stands_alone_and_escapes_what_models_said() -> None:
    pytest.importorskip("matplotlib")
    bad = result(9, 0.0, error="<script>alert(1)</script>", answer=None)
    lengths = [result(i, i % 2, g) for g in ("1000", "2000") for i in range(4)]
    runs = [
        run("a", [*lengths, bad]),
        run("b", lengths, method={"kind": "disco", "dropout": 0.3}, worker={"model": "large"}),
    ]
    for r in runs:
        for item in r.results:
            item["record"] = {"stages": [1, 2]}
    drawn = plots(runs)
    assert [plot.title.partition(": ")[2] for plot in drawn] == [
        "accuracy against length", "cost against accuracy", "stages against fact dropout",
        "Worker against accuracy and latency",
    ]  # fmt: skip
    text = page(runs, tables(runs, "a"), drawn)
    parser = Outside()
    parser.feed(text)
    assert parser.found == [] and text.count("<svg") == 4
    assert "&lt;script&gt;" in text and "<script>" not in text


def test_the_command_refuses_a_folder_without_runs(tmp_path: Path, capsys) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "disco-rl eval" in capsys.readouterr().err


def test_habits_of_a_record_by_hand() -> None:
    def narrow(id: str, instruction: str, shards: object) -> dict:
        return {"id": id, "op": "narrow", "instruction": instruction, "shards": shards}

    def output(id: str, n: int) -> dict:
        return {"op": "narrow", "node": id, "n_shards": n}

    plan = [
        narrow("a", "Find the birth date of Ada Lovelace.", "all"),
        narrow("b", "Who taught the author of it?", [1, 2]),
        {"id": "w", "op": "wide", "instruction": "answer", "inputs": ["a", "b"]},
    ]
    record = {
        "question": "Who taught the author of it?",
        "stages": [
            {"plan": plan, "outputs": [output("a", 4), output("b", 2), {"op": "wide"}]},
            {"plan": [narrow("c", "Find the town of Bo 7.", [0])], "outputs": []},
            {"plan": None, "outputs": []},
        ],
    }
    habits = narrow_habits(record)
    # One of three is the question; Ada and Lovelace., Bo and 7.; shards 1 and 2 of 4 + 2 + 1.
    assert habits == {"actions": 3, "forwarded": 1 / 3, "names": 4 / 3, "reused": 2 / 7}
    assert pooled([habits, narrow_habits({**record, "stages": []})]) == habits
    assert pooled([]) is None
