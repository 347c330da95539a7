"""All steps together: evidence where the rows say, what the folder holds, what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipeline.__main__ import main
from data_pipeline.expansion.mentions import Mentions
from data_pipeline.expansion.render import render
from data_pipeline.lines import read_lines, to_line
from data_pipeline.musique_records import Record
from data_pipeline.steps.dataset import write_dataset
from data_pipeline.steps.report import bars, deciles
from data_pipeline.steps.work import BuildContext, Built, Judged, MakePlan, Planned, Shared
from data_pipeline.tokens import count_words
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import Shard
from disco_rl.data import ContextStore, load_rows
from tests.data_pipeline.pipeline import hashes, overrides, typed


def test_every_row_reads_its_evidence_by_an_independent_check(built: Path, inputs: Path) -> None:
    """Only Parquet, Arrow and the records' JSON: none of the pipeline's own code."""
    records = {}
    for line in (inputs / "musique.jsonl").read_text().splitlines()[:12]:
        record = json.loads(line)
        records[record["question"]] = record
    stream = pa.memory_map(str(built / "dataset" / "contexts" / "data-00000-of-00001.arrow"))
    contexts = {row["context_id"]: row for row in pa.ipc.open_stream(stream).read_all().to_pylist()}
    rows = [
        row
        for split in ("train", "validation")
        for row in pq.read_table(built / "dataset" / f"{split}.parquet").to_pylist()
    ]
    assert len(rows) == len(contexts) > 6
    for row in rows:
        extra, record = row["extra_info"], records[row["prompt"][0]["content"]]
        context = contexts[extra["context_id"]]
        words = len(re.findall(r"\w+|[^\w\s]", context["text"]))
        assert extra["n_tokens"] == words == sum(s["n_tokens"] for s in context["shards"])
        assert min(abs(words - target) / target for target in (2048, 4096)) <= 0.01
        assert max(shard["n_tokens"] for shard in context["shards"]) <= 128
        for hop, step in zip(extra["hops"], record["question_decomposition"], strict=True):
            start, end = hop["span"]
            evidence = context["text"][start:end]
            gold = record["paragraphs"][step["paragraph_support_idx"]]["paragraph_text"]
            assert hop["answer"] == step["answer"] and hop["answer"] in evidence
            assert evidence in gold and evidence.endswith(".")
            holders = [
                k for k, s in enumerate(context["shards"]) if s["start"] < end and start < s["end"]
            ]
            assert hop["shard_ids"] == holders
        assert len({i for hop in extra["hops"] for i in hop["shard_ids"]}) >= 2


def test_the_text_is_the_one_that_was_judged(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a plan is short of its target: it is fitted before the filters, never after."""
    shared = Shared(built / "pages.sqlite", "words", True, 0, ())
    records = list(read_lines(built / "questions.jsonl", Record))
    mentions = list(read_lines(built / "mentions.jsonl", Mentions))
    plans = list(read_lines(built / "plans.jsonl", Planned))
    k, plan = next((k, one.plan) for k, one in enumerate(plans) if one.plan is not None)
    hosts, parents = shared.hosts(records[k]), {one.parent for one in plan.insertions}
    insertions = list(plan.insertions)
    for number in range(len(insertions)):
        ends = shared.store().page(insertions[number].page).ends
        if number not in parents and len(ends) > 3:
            insertions[number] = replace(insertions[number], cut=int(ends[1]))
            break
    short = replace(plan, insertions=tuple(insertions))
    written = BuildContext(shared, 128, 0.5, 1)((records[k], short))
    assert written.text == render(short, hosts, shared.body, shared.starts()).text

    monkeypatch.setattr("data_pipeline.steps.work.expand", lambda *_: short)
    settings = typed(overrides(built, built))
    fitted = MakePlan(shared, settings.expansion.policy())((records[k], mentions[k])).plan
    assert fitted is not None and fitted != short
    written = BuildContext(shared, 128, 0.01, 1)((records[k], fitted))
    assert written.dropped is None and written.sample.n_tokens >= 0.99 * plan.target


def write_sorted(out: Path, seed: int) -> dict[str, Any]:
    """The data set of 20 samples of two hops and then 20 of four, as MuSiQue's files are sorted."""
    text, built = "It is Gold. ", []
    for k in range(40):
        hop = Hop("Which?", "Gold", (), (0,), (0, 11))
        n_hops = 2 if k < 20 else 4
        sample = Sample(0, f"Q{k}?", ("Gold",), f"wiki-{k}", 1, 4, (hop,) * n_hops, "musique-wiki")
        shards = (Shard(0, 0, len(text), 4),)
        built.append(Built(str(k), sample, text, shards, 4, 1, 1, (0.0,) * n_hops, None))
    out.mkdir()
    (out / "contexts.jsonl").write_bytes(b"".join(map(to_line, built)))
    (out / "verdicts.jsonl").write_bytes(b"".join(to_line(Judged(b.id, ())) for b in built))
    write_dataset(
        out / "dataset",
        out / "contexts.jsonl",
        out / "verdicts.jsonl",
        settings={},
        steps={},
        tokenizer="words",
        shard_size=128,
        n_validation=10,
        seed=seed,
    )
    return dict(json.loads((out / "dataset" / "manifest.json").read_text())["counts"])


def test_validation_is_drawn_from_all_the_kept(tmp_path: Path) -> None:
    counts = write_sorted(tmp_path / "a", seed=0)
    for split, n in (("validation", 10), ("train", 30)):
        two, four = (counts[split][f"samples of {hops} hops"] for hops in (2, 4))
        assert two + four == n and min(two, four) >= 0.2 * n
    questions = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        if name != "a":
            write_sorted(tmp_path / name, seed)
        rows = load_rows(tmp_path / name / "dataset" / "validation.parquet")
        assert [row.index for row in rows] == list(range(10))
        questions[name] = [row.question for row in rows]
    assert questions["a"] == questions["b"] != questions["c"]


def test_what_the_folder_holds(built: Path) -> None:
    data = built / "dataset"
    train, validation = (load_rows(data / f"{s}.parquet") for s in ("train", "validation"))
    assert len(validation) == 2 and [s.index for s in validation + train] == list(
        range(len(train) + 2)
    )
    store = ContextStore(data / "contexts", tokenizer="words", shard_size=128)
    assert count_words([store.get(train[0].context_id).text()]) == [train[0].n_tokens]
    card, report = (data / "README.md").read_text(), (data / "report.html").read_text()
    for name in ("closed_book", "contradiction", "decontamination"):
        row = next(line for line in card.splitlines() if line.startswith(f"| {name}"))
        assert row.split("|")[2:4] == [" 0 ", " 0 "] and row.split("|")[5] != " 0 "
    assert "license: cc-by-sa-4.0" in card and "Infinity" not in report
    assert report.count("<svg") == 8 and report.count("<details>") == min(10, len(train) + 2)
    assert report.count("<mark>") >= 2 * min(10, len(train) + 2)
    manifest = json.loads((data / "manifest.json").read_text())
    assert manifest["sha256"] == {n: h for n, h in hashes(data).items() if n != "manifest.json"}
    aside = [json.loads(line) for line in (built / "set_aside.jsonl").read_text().splitlines()]
    assert [(one["line"], one["id"]) for one in aside] == [(13, "broken"), (14, None)]
    assert not (built / "contexts.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["questions.in=no.jsonl"], "no.jsonl: no such file"),
        (["expansion.mode=swap"], "expansion.mode: Input should be 'replace' or 'keep_anchor'"),
        (["expansion.lengths=[[10, 1]]"], "expansion.lengths must be pairs"),
        (["filters.names=[closed]"], "no filter 'closed'; there are"),
        (["mentions.by=llm"], "mentions.by=llm needs llm.url"),
        (["pages.sources=[{kind: pdf, path: a}]"], "a source is {kind, path} with kind of"),
        (["filters.evaluation=[none.json]"], "none.json"),
        (["expansion.bredth=3"], "did you mean 'expansion.breadth'?"),
        (["questions.limit=-1"], "questions.limit must be at least 0, not -1"),
        (["dataset.n_validation=50"], "samples are kept, and 50 are for validation"),
    ],
)
def test_mistakes_are_explained(
    words: list[str],
    message: str,
    inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["all", *overrides(inputs, tmp_path / "out", *words)]) == 2
    assert message in capsys.readouterr().err


def test_charts() -> None:
    assert deciles([0.0, 0.05, 0.999, 1.0])["0-10%"] == 2
    assert deciles([0.0, 0.05, 0.999, 1.0])["90-100%"] == 2
    chart = bars("A & b", {"x<": 2, "y": 1})
    assert "A &amp; b" in chart and "x&lt;" in chart
    assert re.findall(r'width="([\d.]+)" height="16"', chart) == ["360.0", "180.0"]
