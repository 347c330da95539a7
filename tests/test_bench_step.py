"""The step benchmark's arithmetic: which step is whose, what a log says, what is compared."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from disco_rl.core.plan import PlanLimits
from disco_rl.core.plan_parser import parse_plan
from disco_rl.core.replies import parse_review

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures = _load("_bench_figures")
world = _load("_bench_world")


def metrics(scale: float = 1.0, **changed: Any) -> dict[str, Any]:
    """As verl logs a step of 96 rows with 100 prompt and 20 sampled tokens: 10 s times `scale`."""
    parts = {
        "gen": 4.0,
        "old_log_prob": 1.5,
        "adv": 0.5,
        "update_actor": 3.0,
        "update_weights": 0.2,
    }
    return {
        **{f"timing_s/{name}": value * scale for name, value in parts.items()},
        "timing_s/step": 10.0 * scale,
        "bench/cpu_s": 12.0 * scale,
        "bench/stock": False,
        "prompt_length/mean": 100.0,
        "response_length/mean": 20.0,
        "perf/total_num_tokens": 96 * 120,
        "actor/ppo_kl": 0.0,
        **changed,
    }


def log(path: Path, rounds: int, scale: dict[str, float]) -> Path:
    steps = range(1, rounds * len(figures.ARMS) + 1)
    lines = [
        {
            "step": s,
            "data": metrics(
                scale[figures.arm_of(s)] * (1 + s // 100),
                **{"bench/stock": figures.ARMS[figures.arm_of(s)].stock},
            ),
        }
        for s in steps
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_round_has_each_arm_once_and_the_sides_take_turns() -> None:
    n = len(figures.ARMS)
    order = [figures.arm_of(step) for step in range(1, 4 * n + 1)]
    for i in range(0, len(order), n):
        assert set(order[i : i + n]) == set(figures.ARMS)
    assert order[:2] == ["stock", "disco"] and order[n : n + 2] == ["disco", "stock"]


def test_a_log_is_split_by_arm_and_its_phases_add_up(tmp_path: Path) -> None:
    scale = {"stock": 1.0, "disco": 1.04, "stock_poll": 1.2}
    arms = figures.read_steps(log(tmp_path / "log", 6, scale), drop=2)
    assert {name: len(steps) for name, steps in arms.items()} == dict.fromkeys(scale, 4)
    for name, steps in arms.items():
        for step in steps:
            seconds = dict(step.seconds)
            assert seconds["step"] == pytest.approx(10 * scale[name])
            assert seconds["trained"] == pytest.approx(6 * scale[name])
            assert sum(seconds[phase] for phase in figures.PHASES) == pytest.approx(seconds["step"])
            assert step.work == (96, 9600, 1920)
    assert figures.check_same_work(arms, 20) == (96, 9600, 1920)
    for of in figures.WHOLE:
        assert figures.round_ratios(arms["stock"], arms["disco"], of) == pytest.approx([1.04] * 4)


def test_the_difference_is_shared_out_over_the_phases(tmp_path: Path) -> None:
    arms = figures.read_steps(log(tmp_path / "log", 3, dict.fromkeys(figures.ARMS, 1.0)), drop=0)
    slower = [figures.Step.of(metrics(**{"timing_s/adv": 1.0, "timing_s/step": 10.5}))] * 3
    lines = figures.compare(figures.spreads(arms["stock"]), figures.spreads(slower))
    by_phase = {line.phase: line for line in lines}
    assert by_phase["adv"].ratio == pytest.approx(2.0)
    assert by_phase["adv"].share == pytest.approx(0.05)
    assert by_phase["step"].ratio == pytest.approx(1.05)
    assert by_phase["cpu"].share == pytest.approx(0.0)
    assert sum(by_phase[phase].share for phase in figures.PHASES) == pytest.approx(0.05)


def test_runs_that_did_other_work_are_refused() -> None:
    same = figures.Step.of(metrics())
    assert figures.check_same_work({"stock": [same], "disco": [same]}, 20)
    for change, said in (
        ({"perf/total_num_tokens": 97 * 120}, "disco, step 1"),
        ({"prompt_length/mean": 101.0, "perf/total_num_tokens": 96 * 121}, "disco, step 1"),
        ({"actor/ppo_kl": 0.01}, "over one update"),
    ):
        other = figures.Step.of(metrics(**change))
        with pytest.raises(figures.LogError, match=said):
            figures.check_same_work({"stock": [same], "disco": [same, other]}, 20)
    with pytest.raises(figures.LogError, match="not every row has 24"):
        figures.check_same_work({"stock": [same]}, 24)


def test_a_log_without_its_metrics_or_rounds_is_refused(tmp_path: Path) -> None:
    incomplete = metrics()
    del incomplete["timing_s/adv"]
    with pytest.raises(figures.LogError, match="timing_s/adv"):
        figures.Step.of(incomplete)
    path = log(tmp_path / "log", 2, dict.fromkeys(figures.ARMS, 1.0))
    with pytest.raises(figures.LogError, match="beyond 2"):
        figures.read_steps(path, drop=2)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(figures.LogError, match="no rounds"):
        figures.read_steps(path, drop=0)
    with pytest.raises(figures.LogError, match="0 steps"):
        figures.read_steps(tmp_path / "absent", drop=0)


def test_one_step_has_no_spread() -> None:
    assert figures.Spread.of([2.0]).to_dict() == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert figures.Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]).to_dict() == {
        "median": 3.0,
        "low": 2.0,
        "high": 4.0,
    }


def test_the_stock_rows_come_in_the_order_of_our_calls() -> None:
    by_question = [["a1", "a2"], ["b1", "b2"], ["c1", "c2"], ["d1", "d2"]]
    expected = ["a1", "b1", "a2", "b2", "c1", "d1", "c2", "d2"]
    assert world.in_rounds(by_question, 2) == expected


def test_the_script_is_what_the_parsers_read() -> None:
    texts = world.script(2)
    assert len(texts) == world.Work(stages=2).calls == 6
    plan = parse_plan(texts[0], PlanLimits(11, 16, 64))
    assert [node.id for node in plan.nodes] == ["n0", "n1", "w"]
    assert [parse_review(texts[i]).accept for i in (2, 5)] == [False, True]


def test_arms_that_do_not_change_are_refused(tmp_path: Path) -> None:
    path = log(tmp_path / "log.jsonl", 3, dict.fromkeys(figures.ARMS, 1.0))
    path.write_text(path.read_text().replace('"bench/stock": true', '"bench/stock": false'))
    with pytest.raises(figures.LogError, match="the arms don't change"):
        figures.read_steps(path, 1)
