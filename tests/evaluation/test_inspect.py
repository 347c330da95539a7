"""The harness as an ordinary inspect task: same results, contexts referred to, nothing paid twice.

Runs where inspect_ai is installed (`pip install 'disco-rl[inspect]'`, Python 3.11 or newer).
"""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="no inspect_ai: pip install 'disco-rl[inspect]'")

from inspect_ai import eval as inspect_eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from disco_rl.evaluation.inspect_tasks import disco_eval
from disco_rl.evaluation.runner import read_results
from tests.test_eval import squad


class Model:
    """inspect's mock, speaking by what it is asked; keeps what it was sent."""

    def __init__(self, say: Any):
        self.sent: list[str] = []
        self._say = say

    def build(self) -> Any:
        def outputs(input: Any, tools: Any, choice: Any, config: Any) -> ModelOutput:
            self.sent.append(input[-1].text)
            output = ModelOutput.from_content("mockllm/model", self._say(input[-1].text))
            # Without it the mock would count tokens with a vocabulary from the network.
            output.usage = ModelUsage(input_tokens=7, input_tokens_cache_read=3, output_tokens=2)
            return output

        return get_model("mockllm/model", custom_outputs=outputs, memoize=False)


def command(tmp_path: Path, **more: str) -> str:
    given = {
        "method": "chain_of_agents", "benchmark": "ruler_qa", "method.chunk": "60",
        "benchmark.source": squad(tmp_path / "squad.json"), "benchmark.lengths": "[300]",
        "benchmark.n": "4", "out": str(tmp_path / "run"),
    }  # fmt: skip
    return " ".join(f"{key}={value}" for key, value in (given | more).items())


def run(
    tmp_path: Path, driver: Model, worker: Model, grader: Model | None = None, **more: Any
) -> Any:
    task = disco_eval(command(tmp_path), grader=grader is not None)
    [log] = inspect_eval(
        task,
        model=driver.build(),
        model_roles={"worker": worker.build(), "grader": (grader or driver).build()},
        log_dir=str(tmp_path / "logs"),
        display="none",
        **more,
    )
    assert log.status == "success", log.error
    return log


def verdict(prompt: str) -> str:
    return json.dumps({"verdict": "yes"})


def test_roles_scores_and_a_second_run_that_costs_nothing(tmp_path: Path) -> None:
    driver, worker = Model(lambda prompt: "4 bells"), Model(lambda prompt: "notes")
    run(tmp_path, driver, worker, limit=2)
    assert not (tmp_path / "run" / "summary.json").exists()  # two of four: not complete
    log = run(tmp_path, driver, worker)
    results = read_results(tmp_path / "run")
    assert len(results) == len(log.samples) == 4
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["official"] == 25
    assert len(driver.sent) == 4 and all("last reader" in text for text in driver.sent)
    assert len(worker.sent) == sum(r["ledger"]["worker"]["calls"] for r in results) > 8
    spent = results[0]["ledger"]["driver"]
    assert (spent["calls"], spent["prompt"], spent["cached"], spent["output"]) == (1, 10, 3, 2)
    # One of the four questions has the answer "4 bells".
    official = [sample.scores["official"].value for sample in log.samples]
    assert sorted(official) == [0, 0, 0, 1]
    [shown] = [score for score in log.results.scores if score.name == "official"]
    assert shown.metrics["qa_1 300"].value == 0.25

    again = Model(lambda prompt: "another answer")
    second = run(tmp_path, again, again)
    assert again.sent == [] and len(second.samples) == 4
    assert read_results(tmp_path / "run") == results


def test_contexts_are_not_in_the_log(tmp_path: Path) -> None:
    driver, worker = Model(lambda prompt: "4 bells"), Model(lambda prompt: "notes")
    log = run(tmp_path, driver, worker)
    assert any(event.event == "model" for sample in log.samples for event in sample.events)
    text = log.model_dump_json()
    assert "Bell 9 of" in "".join(worker.sent) and "more characters]" in text
    middle = "Bell 9 of 3 rings. Bell 10 of 3 rings. Bell 11 of 3 rings."
    assert any(middle in sent for sent in worker.sent) and middle not in text


def test_the_grader_is_a_role_too(tmp_path: Path) -> None:
    driver, worker = Model(lambda prompt: "4 bells"), Model(lambda prompt: "notes")
    log = run(tmp_path, driver, worker, grader=Model(verdict))
    assert [r["scores"]["judge"] for r in read_results(tmp_path / "run")] == [1.0] * 4
    [judged] = [score for score in log.results.scores if score.name == "judge"]
    assert judged.metrics["qa_1 300"].value == 1.0

    (tmp_path / "run" / "items.jsonl").unlink()  # as if killed before any result was written
    silent = Model(lambda prompt: "no verdict")
    run(tmp_path, driver, worker, grader=silent)
    assert silent.sent == []
    assert [r["scores"]["judge"] for r in read_results(tmp_path / "run")] == [1.0] * 4


def test_another_model_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    driver, worker = Model(lambda prompt: "x"), Model(lambda prompt: "notes")
    run(tmp_path, driver, worker)
    [log] = inspect_eval(
        disco_eval(command(tmp_path)),
        model=get_model("mockllm/other"),
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    assert log.status == "error" and "another config" in str(log.error.message)
