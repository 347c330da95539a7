"""All steps together: same bytes however often they were killed, evidence where the rows say."""

import asyncio
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipeline.__main__ import main
from data_pipeline.expansion.mentions import Mentions
from data_pipeline.expansion.render import render
from data_pipeline.lines import Backend, ordered, read_lines, run_lines, to_line
from data_pipeline.musique_records import Record
from data_pipeline.steps.dataset import write_dataset
from data_pipeline.steps.report import bars, deciles
from data_pipeline.steps.run import _Run, run
from data_pipeline.steps.settings import Places, Settings, parse_settings
from data_pipeline.steps.work import BuildContext, Built, Judged, MakePlan, Planned, Shared
from data_pipeline.tokens import count_words
from disco_rl.config import compose
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import Shard
from disco_rl.data import ContextStore, load_rows
from tests.clients.scripted import says, serve
from tests.data_pipeline import small_wiki

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    made = small_wiki.pages(200, 11)
    small_wiki.write_pages(folder / "pages.jsonl", made)
    names = [page.title for page in made]
    small_wiki.write_records(folder / "musique.jsonl", small_wiki.records(12, names, 4))
    with (folder / "musique.jsonl").open("a") as file:
        file.write('{"id": "broken"}\n{not json\n')
    return folder


def overrides(inputs: Path, out: Path, *more: str) -> list[str]:
    return [
        f"questions.in={inputs / 'musique.jsonl'}",
        f"pages.sources=[{{kind: pages, path: {inputs / 'pages.jsonl'}}}]",
        f"out={out}",
        "expansion.lengths=[[2048, 1], [4096, 1]]",
        "mentions.min_shared=0",
        "shard_size=128",
        "dataset.n_validation=2",
        *more,
    ]


def typed(words: Sequence[str]) -> Settings:
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(compose(words, name="data"), resolve=True)
    return parse_settings(plain)


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".sqlite"
    }


def quiet(name: str, n_done: int) -> None:
    pass


@pytest.fixture(scope="module")
def built(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "out"
    run(typed(overrides(inputs, out)), "dataset", quiet)
    return out


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


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches a kill."""


def test_killed_again_and_again_it_ends_with_the_same_bytes(
    built: Path, inputs: Path, tmp_path: Path
) -> None:
    settings, rng, n_kills = typed(overrides(inputs, tmp_path / "out")), random.Random(5), 0

    def progress(name: str, n_done: int) -> None:
        if n_done and rng.random() < 0.1:
            raise Killed

    while True:
        try:
            run(settings, "dataset", progress)
            break
        except Killed:
            n_kills += 1
            for file in (tmp_path / "out").glob("[a-z]*.jsonl"):
                manifest = tmp_path / "out" / f"{file.stem}.json"
                if manifest.is_file() and '"complete": false' in manifest.read_text():
                    with file.open("ab") as torn:
                        torn.write(b'{"id": "half a li')
        assert n_kills < 300
    assert n_kills > 5
    assert hashes(tmp_path / "out") == hashes(built)


def command(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "data_pipeline", "all", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(random.randrange(1000))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_killed_for_real(built: Path, inputs: Path, tmp_path: Path) -> None:
    words = overrides(inputs, tmp_path / "out", "workers=1")
    for seconds in (1.5, 3.0, 4.5):
        process = command(words)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = command(words)
    output, errors = done.communicate()
    assert done.returncode == 0 and errors == "", errors
    assert "12 questions" in output and "train: samples" in output
    assert hashes(tmp_path / "out" / "dataset") == hashes(built / "dataset")


def test_a_rerun_does_nothing_and_changed_settings_are_refused(
    built: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {file: file.stat().st_mtime_ns for file in built.rglob("*")}
    assert main(["all", *overrides(inputs, built)]) == 0
    assert {file: file.stat().st_mtime_ns for file in built.rglob("*")} == times
    assert main(["all", *overrides(inputs, built, "expansion.breadth=3")]) == 2
    assert "made with other settings, or from other input (breadth)" in capsys.readouterr().err


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


async def test_mentions_and_verdicts_of_a_model(inputs: Path, tmp_path: Path) -> None:
    name = small_wiki.pages(200, 11)[0].title

    async def reply(request: Any) -> Any:
        text = (await request.json())["messages"][0]["content"]
        if "List the names" in text:
            found = re.findall(r"The \w+ of (\w+ \w+) has", text)
            return await says({"mentions": [{"text": n, "page": n} for n in found]})(request)
        if "claim" in text:
            return await says({"contradicts": False})(request)
        gold = re.findall(r"of (Answer \d+ 1)\.", text)
        whole = text.count("<passage title") == 2
        return await says({"answer": gold[0] if whole and gold else None})(request)

    async with serve(reply) as server:
        llm = [f"llm.url={server.url}", "llm.model=m", "llm.max_concurrency=4"]
        settings = typed(overrides(inputs, tmp_path / "out", "mentions.by=llm", *llm))
        first = await asyncio.to_thread(run, settings, "dataset", quiet)
        n_asked = len(server.bodies)
        assert first["llm"]["counts"]["calls"] == n_asked > 60
        counts = first["filters"]["counts"]
        for kind in ("closed_book", "leave_one_hop_out", "contradiction", "stability"):
            assert counts[f"{kind} passed"] > 6, (name, counts)
        # Another folder with the same replies: nothing is asked again.
        other = tmp_path / "other"
        other.mkdir()
        (other / "replies.sqlite").write_bytes((tmp_path / "out/replies.sqlite").read_bytes())
        settings = typed(overrides(inputs, other, "mentions.by=llm", *llm))
        await asyncio.to_thread(run, settings, "dataset", quiet)
        assert len(server.bodies) == n_asked
    assert hashes(other / "dataset") == hashes(tmp_path / "out" / "dataset")


def test_a_built_data_set_is_pushed_too(
    built: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[tuple[Path, str]] = []
    monkeypatch.setattr("data_pipeline.steps.run.push", lambda *args: pushed.append(args))
    run(typed(overrides(inputs, built, "dataset.push_to=me/data")), "dataset", quiet)
    assert pushed == [(built / "dataset", "me/data")]


def test_what_decides_replies_is_in_the_settings_and_word_filters_take_no_model(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, tuple[dict[str, Any], Any, bool]] = {}

    def lines(self: Any, name: str, settings: Any, items: Any, work: Any, *_: Any, **more: Any):
        seen[name] = (settings, work.llm, more["threads"])

    monkeypatch.setattr("data_pipeline.steps.run._Run._lines", lines)
    monkeypatch.setattr("data_pipeline.steps.run._Run._records", lambda self: iter(()))
    monkeypatch.setattr("data_pipeline.steps.run._Run._read", lambda self, *_: iter(()))
    words = [
        "llm.url=http://127.0.0.1:9/v1", "llm.model=m", "llm.max_tokens=77", "mentions.by=llm",
        "filters.names=[answer_outside]", "llm.sampling={temperature: 0.5}",
    ]  # fmt: skip
    settings = typed(overrides(inputs, tmp_path / "out", *words))
    work = _Run(settings, Places(tmp_path / "out"), {"pages": {"counts": {}}}, quiet, object())  # type: ignore[arg-type]
    work.mentions()
    work.filters()
    model = seen["mentions"][0]["model"]
    assert (model["name"], model["max_tokens"]) == ("m", 77)
    assert model["sampling"]["temperature"] == 0.5 and len(model["prompts"]) == 64
    assert seen["filters"][0]["model"] is None and seen["filters"][1:] == (None, False)


def test_records_come_from_the_hub_client(inputs: Path, tmp_path: Path) -> None:
    """`datasets` reads a folder as it reads a repository; no network here."""
    made = small_wiki.records(3, small_wiki.titles(9), 4)
    made[1]["answerable"] = False
    (tmp_path / "mirror").mkdir()
    small_wiki.write_records(tmp_path / "mirror" / "train.jsonl", made)
    source = f"questions.in='hub:{tmp_path / 'mirror'}'"
    manifests = run(typed([*overrides(inputs, tmp_path / "out"), source]), "questions", quiet)
    assert manifests["questions"]["counts"]["questions"] == 2
    aside = json.loads((tmp_path / "out" / "set_aside.jsonl").read_text())
    assert aside["line"] == 2 and "answerable is false" in aside["reason"]


def double(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("backend", [Backend(), Backend("thread", 3), Backend("process", 2)])
def test_backends_keep_the_order(backend: Backend) -> None:
    assert list(ordered(double, range(30), backend)) == [2 * k for k in range(30)]


@pytest.mark.slow
def test_ray_gives_the_same(built: Path, inputs: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        run(typed(overrides(inputs, tmp_path / "out", "backend=ray")), "dataset", quiet)
    finally:
        ray.shutdown()
    assert hashes(tmp_path / "out") == hashes(built)


def test_a_failing_item_stops_the_step_and_the_rest_goes_on_later(tmp_path: Path) -> None:
    def work(value: int) -> dict[str, int]:
        if value == 3 and not (tmp_path / "fixed").exists():
            raise OSError("server down")
        return {"value": value}

    with pytest.raises(OSError, match="server down"):
        run_lines(tmp_path, "step", {"a": 1}, range(6), work)
    (tmp_path / "fixed").touch()
    manifest = run_lines(tmp_path, "step", {"a": 1}, range(6), work, count=lambda v: ["seen"])
    assert manifest["lines"] == 6 and manifest["counts"] == {"seen": 6}
    lines = (tmp_path / "step.jsonl").read_bytes()
    assert [json.loads(line)["value"] for line in lines.splitlines()] == list(range(6))
    assert manifest["sha256"] == hashlib.sha256(lines).hexdigest()
    with pytest.raises(ValueError, match=r"other settings, or from other input \(a\)"):
        run_lines(tmp_path, "step", {"a": 2}, range(6), work)


def test_charts() -> None:
    assert deciles([0.0, 0.05, 0.999, 1.0])["0-10%"] == 2
    assert deciles([0.0, 0.05, 0.999, 1.0])["90-100%"] == 2
    chart = bars("A & b", {"x<": 2, "y": 1})
    assert "A &amp; b" in chart and "x&lt;" in chart
    assert re.findall(r'width="([\d.]+)" height="16"', chart) == ["360.0", "180.0"]
