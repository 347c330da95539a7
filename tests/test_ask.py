"""`disco-rl ask` over text files: answer, evidence with places, the plans, the record."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from disco_rl import cli
from disco_rl.commands import ask, document
from disco_rl.config import compose
from disco_rl.export.settings import settings_of, settings_overrides, write_settings
from tests.clients.scripted import says, serve
from tests.fakes import ScriptedModel

WIKI = Path(__file__).resolve().parents[2] / "shared" / "data" / "wiki" / "pages.jsonl.gz"
TEXT = "Heading\n\nThe tower stands here.\nAda Vey founded the Roe Guild. It is old.\n" + (
    "Nothing else is said about it. " * 40
)
PLAN = json.dumps(
    {
        "nodes": [
            {"id": "n1", "op": "narrow", "instruction": "Find the founder of the Roe Guild.",
             "shards": "all"},
            {"id": "w1", "op": "wide", "instruction": "Who founded it?", "inputs": ["n1"]},
        ]
    }
)  # fmt: skip


class ScriptedDriver(ScriptedModel):
    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Replies of the Driver; fill it before asking. Keeps the config it was made from."""
    replies: list[Any] = []
    seen: list[Any] = []

    def made(config: dict[str, Any]) -> ScriptedDriver:
        seen.append(config)
        return ScriptedDriver(replies)

    monkeypatch.setattr(ask, "_driver", made)
    monkeypatch.setenv("DISCO_CACHE", str(tmp_path / "cache"))
    replies_and_configs: list[Any] = [replies, seen]
    return replies_and_configs


def test_answer_evidence_and_plan_are_printed(
    page: Path, script: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    script[0] += [PLAN, "Ada Vey", '{"accept": false, "gap": "look again"}']
    script[0] += [PLAN, "Ada Vey", '{"accept": true}']
    code = cli.main(
        ["ask", str(page), "Who founded the Roe Guild?", "--model", "m", "document.shard_size=32"]
    )
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "Answer: Ada Vey" in shown.out
    start = TEXT.index("Ada Vey founded")
    assert f"line 4, characters {start}-" in shown.out
    assert shown.out.count("Ada Vey founded the Roe Guild.") >= 3  # as evidence, and in two stages
    evidence = shown.out.partition("Evidence")[2].partition("Stage 1")[0]
    assert evidence.count("Ada Vey founded") == 1  # the same place in two stages is shown once
    assert "w1 wide" in shown.out and "n1 narrow, all shards" in shown.out
    assert "rejected: look again" in shown.out and "accepted" in shown.out
    assert "\x1b[" not in shown.out  # plain where it isn't a terminal


def test_json_is_the_trajectory_record(
    page: Path, script: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    script[0] += [PLAN, "Ada Vey", '{"accept": true}']
    assert cli.main(["ask", str(page), "Who?", "--model", "m", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["version"] == 1 and record["answer"] == "Ada Vey"
    assert record["stop"] == "accepted" and record["document"] == str(page)
    assert record["stages"][0]["outputs"][0]["findings"][0]["quote"].startswith("Ada Vey founded")


def test_no_answer_exits_with_1_and_says_why(
    page: Path, script: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    script[0] += ["no plan", "again no plan"]
    assert cli.main(["ask", str(page), "Who?", "--model", "m"]) == 1
    shown = capsys.readouterr()
    assert "Answer: none" in shown.out and "no valid plan" in shown.out
    assert "no answer (invalid_call)" in shown.err


def test_a_served_worker_is_not_in_a_models_settings() -> None:
    served = {"kind": "retriever", "embeddings_url": "http://10.0.0.7/v1", "api_key_env": "KEY"}
    assert "worker" not in settings_of({"worker": served}, None)
    local = {"kind": "retriever", "embeddings_url": None, "top_k": 2}
    assert settings_of({"worker": local}, None)["worker"] == local


async def test_an_endpoint_is_given_its_times_and_the_template() -> None:
    async with serve(says("hello")) as server:
        given = [f"driver.endpoint={server.url}", "driver.endpoint_model=m"]
        given += ["driver.attempt_s=7.0", "driver.call_deadline_s=9.0"]
        given += ["+driver.template.enable_thinking=false"]
        plain: Any = OmegaConf.to_container(compose(given, name="ask"), resolve=True)
        driver = ask._driver(plain["driver"])
        try:
            await driver.generate([{"role": "user", "content": "Hi"}], max_tokens=8)
        finally:
            await driver.close()
    [body] = server.bodies
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    endpoint = driver._client.endpoint
    assert (endpoint.attempt_s, endpoint.deadline_s) == (7.0, 9.0)


@pytest.mark.skipif(not WIKI.is_file(), reason=f"{WIKI} is absent: real pages are not shipped")
def test_a_real_wikipedia_page_is_searched(
    tmp_path: Path, script: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with gzip.open(WIKI, "rt", encoding="utf-8") as lines:
        text = next(p["text"] for p in map(json.loads, lines) if p["title"] == "Ray Charles")
    (tmp_path / "page.txt").write_text(text, encoding="utf-8")
    plan = PLAN.replace("Find the founder of the Roe Guild.", "Find when Ray Charles was born.")
    script[0] += [plan, "September 23, 1930", '{"accept": true}']
    page = str(tmp_path / "page.txt")
    asked = ["ask", page, "When was he born?", "--model", "m", "--json", "document.shard_size=512"]
    assert cli.main(asked) == 0
    record = json.loads(capsys.readouterr().out)
    findings = record["stages"][0]["outputs"][0]["findings"]
    assert findings and record["workers"]["failures"] == 0
    shards = document.cut_document(text, shard_size=512, tokenizer="words").shards
    for found in findings:
        start, end, _ = document.place(text, shards[found["shard"]], found["span"])
        assert text[start:end] == found["quote"]
    assert any("born" in found["quote"].lower() for found in findings)


def test_a_document_that_is_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {"latin.txt": "caf\xe9".encode("latin-1"), "nul.txt": b"a\0b", "empty.txt": b" \n"}
    for name, raw in cases.items():
        (tmp_path / name).write_bytes(raw)
        assert cli.main(["ask", str(tmp_path / name), "Who?", "--model", "m"]) == 2
        assert name in capsys.readouterr().err
    assert cli.main(["ask", str(tmp_path / "none.txt"), "Who?", "--model", "m"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_standard_input_and_byte_order_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO("\ufeffHello there.".encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert document.read_document("-") == "Hello there."


def test_places_are_those_of_the_document() -> None:
    context = document.cut_document(TEXT, shard_size=8, tokenizer="words")
    assert "".join(context.read(s.index) for s in context.shards) == TEXT
    for shard in context.shards:
        inside = context.read(shard.index).find("Ada")
        if inside >= 0:
            start, end, line = document.place(TEXT, shard, (inside, inside + 7))
            assert (TEXT[start:end], line) == ("Ada Vey", 4)
            return
    pytest.fail("no shard holds the sentence")


def test_a_models_own_settings_come_before_flags_and_overrides(
    page: Path, script: list[Any], tmp_path: Path
) -> None:
    model = tmp_path / "it's a model"
    model.mkdir()
    run = {
        "driver": {"prompts": "brief", "window": 2048, "max_call_tokens": 160, "max_stages": 6},
        "data": {"apply_chat_template_kwargs": {"enable_thinking": False}},
        "actor_rollout_ref": {"rollout": {"val_kwargs": {"do_sample": False, "temperature": 0}}},
        "worker": {"kind": "retriever", "top_k": 2, "cache_dir": "/somewhere", "max_findings": 6},
    }
    write_settings(model, settings_of(run, {"tokenizer": "words", "shard_size": 64}))
    script[0] += [PLAN, "Ada Vey", '{"accept": true}']
    asked = ["ask", str(page), "Who?", "--model", str(model), "driver.max_stages=3"]
    assert cli.main(asked) == 0
    (driver,) = script[1]
    assert driver["model"] == str(model)
    assert (driver["prompts"], driver["window"], driver["max_stages"]) == ("brief", 2048, 3)
    assert driver["template"] == {"enable_thinking": False}
    assert driver["sampling"] == {"temperature": 0.0}
    own = settings_overrides(model)
    assert "++worker.top_k=2" in own and not any("cache_dir" in o for o in own)
    other = settings_overrides(model, worker="chat")
    assert not any("worker" in o for o in other)
    assert settings_overrides(tmp_path) == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("driver.windwo=3", "driver.window"),
        ("worker=retreiver", "worker=retriever"),
        ("driver.prompts=ful", "full"),
        ("document.shard_size=0", "shard_size"),
        ("document.tokenizer=/nowhere/t.json", "document.tokenizer"),
    ],
)
def test_bad_settings_are_refused(
    page: Path, override: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", str(page), "Who?", "--model", "m", override]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_model_is_refused(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", str(page), "Who?", "--model", str(tmp_path)]) == 2
    assert "no config.json" in capsys.readouterr().err


def test_a_real_model_in_this_process_is_asked(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights write no plan: the episode says so, with the tokens it took."""
    from tests.trainer.tiny import write_model

    monkeypatch.setenv("DISCO_CACHE", str(tmp_path / "cache"))
    model = write_model(tmp_path / "model")
    overrides = ["driver.window=1024", "driver.max_call_tokens=16", "driver.prompts=brief"]
    code = cli.main(["ask", str(page), "Who?", "--model", str(model), "--json", *overrides])
    record = json.loads(capsys.readouterr().out)
    assert (code, record["stop"]) == (1, "invalid_call")
    assert len(record["calls"]) == 2 and record["calls"][1]["repair"]
    assert all(0 < call["output_tokens"] <= 1024 for call in record["calls"])
