"""The arithmetic of `disco-rl plan` against cases worked by hand, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disco_rl import cli
from disco_rl.config import compose
from disco_rl.planning.inputs import Inputs, inputs
from disco_rl.planning.memory import driver_memory, refusals, replicas, served_kv
from disco_rl.planning.model import Architecture, architecture
from disco_rl.planning.report import lines, refused
from disco_rl.planning.step import (
    disk_bytes,
    dollars,
    seconds,
    steps,
    trajectory_seconds,
    work,
    worker_tokens,
)

GB = 1e9


@pytest.fixture(scope="module")
def paper() -> Inputs:
    """The 8B run with 4 stages of 3 narrow actions, as the design's count of reads has it."""
    return inputs(compose(["experiment=qwen3_8b", "plan.shape.stages=4.0"]))


def changed(given: Inputs, **groups: dict[str, Any]) -> Inputs:
    """`given` with other values in groups of its plan."""
    plan = {key: {**value, **groups.get(key, {})} for key, value in given.plan.items()}
    return replace(given, plan=plan)


def test_sizes_are_the_published_ones(paper: Inputs) -> None:
    known = paper.plan["models"]
    published = {  # model cards, in billions; Ministral's is its language part
        "Qwen/Qwen3-8B": 8.19,
        "Qwen/Qwen3-14B": 14.77,
        "Qwen/Qwen3-4B-Instruct-2507": 4.02,
        "mistralai/Ministral-3-8B-Reasoning-2512": 8.49,
    }
    for name, billions in published.items():
        assert architecture(name, known).parameters / 1e9 == pytest.approx(billions, abs=0.01)
    judge = architecture("Qwen/Qwen3-235B-A22B-Instruct-2507", known)
    assert judge.parameters / 1e9 == pytest.approx(235, abs=0.5)
    assert judge.active / 1e9 == pytest.approx(22, abs=0.5)
    assert architecture("Qwen/Qwen3-4B-Instruct-2507", known).kv_bytes == 147_456


def test_a_small_architecture_by_hand() -> None:
    """A layer: attention 8 * 2 * (2 * 4 + 2 * 2) = 192, MLP 3 * 8 * 16 = 384."""
    tiny = Architecture(2, 8, heads=4, kv_heads=2, head_dim=2, intermediate=16, vocab=10)
    assert tiny.parameters == 2 * (192 + 384) + 2 * 10 * 8
    assert tiny.kv_bytes == 2 * 2 * 2 * 2 * 2
    # 2 a parameter, and 4 * layers * heads * head_dim = 64 a token before this one.
    assert tiny.flops(3, position=10) == 3 * (2 * tiny.parameters + 640)
    assert replace(tiny, tied=True).parameters == tiny.parameters - 80


def test_a_model_folder_is_read(tmp_path: Path) -> None:
    config = {
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 10,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert architecture(str(tmp_path), {}) == Architecture(2, 8, 4, 2, 2, 16, 10, True)
    with pytest.raises(ValueError, match=r"no plan.models entry; known: \['a'\]"):
        architecture("org/unknown", {"a": {}})


def test_a_step_by_hand(paper: Inputs) -> None:
    """256 x 8 x 4 x 3 x 32 calls; each shard of 4,096 read once, or by every call."""
    step = work(changed(paper, worker={"overhead_tokens": 0.0}))
    assert step.trajectories == 2048 and step.shards == 32
    assert step.worker_calls == 786_432
    assert step.prefill_alone == 786_432 * 4096  # 3.2 billion
    assert step.prefill_shared == 256 * 32 * 4096  # 34 million
    assert step.sequences == 2048 * 4 * 3  # plan, one wide action, review
    assert step.tokens == 24_576 * (2048 + 4096)
    assert (step.judge_calls, step.judge_prompt) == (4096, 4096 * 1500)
    assert work(paper).prefill_shared == 256 * 32 * 4096 + 786_432 * 256


def test_seconds_by_hand(paper: Inputs) -> None:
    """Rates that make the sums easy: 1 TFLOP/s a GPU at all, sizes as rated."""
    even = changed(
        paper,
        hardware={"peak_tflops": 2.0},
        rates={"mfu": 0.5, "generate": 1000.0, "prefill": 1e6, "decode": 1e5, "overhead_s": 7.0},
        worker={"gpus": 4, "overhead_tokens": 0.0, "output_tokens": 10.0},
    )
    step = work(even)
    took = seconds(even, step)
    scale = even.driver.parameters / 8e9
    assert took.sample == pytest.approx(24_576 * 4096 / 8000 * scale)
    assert even.worker is not None
    read, written = 33_554_432 / 4e6, 7_864_320 / 4e5
    assert took.workers == pytest.approx((read + written) * even.worker.parameters / 4e9)
    assert took.score == pytest.approx(step.tokens * even.driver.flops(1, 3072) / 8e12)
    assert took.update == pytest.approx(3 * took.score)
    assert took.step == pytest.approx(max(took.sample, took.workers) + 4 * took.score + 7)
    alone = seconds(even, step, shared=False)
    assert alone.workers > took.workers and alone.sample == took.sample


def test_a_run_by_hand(paper: Inputs) -> None:
    assert steps(paper) == 34  # 4,500 // 256 = 17 whole batches, twice
    assert steps(replace(paper, total_steps=5)) == 5
    disk = disk_bytes(paper)
    assert disk["checkpoints"] == 4 * 16 * paper.driver.parameters  # 2 kept, one written, the best
    assert disk["records"] == 34 * 4 * 24_576 * 6144
    every = disk_bytes(replace(paper, kept=None))  # 34 steps, one saved every 5: 7 of them
    assert every["checkpoints"] == (7 + 2) * 16 * paper.driver.parameters
    assert disk_bytes(replace(paper, save_every=-1))["checkpoints"] == 0
    assert dollars(paper, work(paper), hours=10)["GPUs"] == 24 * 10 * 2.5
    paid = changed(paper, judge={"gpus": 0, "dollars_million_prompt": 1.0})
    paid = replace(paid, judge=None)
    cost = dollars(paid, work(paid), hours=10)
    assert cost["GPUs"] == 16 * 10 * 2.5
    assert cost["judge"] == pytest.approx(34 * (4096 * 1500 * 1.0 + 4096 * 16 * 0.6) / 1e6)


def test_memory_by_hand_with_fsdp2(paper: Inputs) -> None:
    """Three fifths of 80 GB to the rollout; 16 bytes a parameter over 8 GPUs."""
    count = paper.driver.parameters
    need = driver_memory(paper.driver, paper.training, 80 * GB)
    assert need.weights == need.gradients == count / 2  # 4 bytes over 8 GPUs
    assert need.optimizer == count
    assert need.logits == 10 * 8192 * 151_936
    assert need.activations == 2 * 8192 * (36 * 4096 + 8 * 4096 + 4 * 12_288)
    assert need.kv == pytest.approx(48 * GB - 2 * count)
    assert need.sampling == 1.5 * count + 48 * GB  # verl frees gradients after the update
    parts = need.activations + need.logits + need.gathered
    assert need.update == pytest.approx(2 * count + parts)
    away = driver_memory(
        paper.driver,
        replace(paper.training, param_offload=True, optimizer_offload=True),
        80 * GB,
    )
    assert away.sampling == 48 * GB and away.update == need.update


def test_memory_by_hand_with_megatron() -> None:
    given = inputs(compose(["experiment=qwen3_8b", "strategy=megatron"]))
    count = given.driver.parameters
    need = driver_memory(given.driver, given.training, 80 * GB)
    assert need.weights == 2 * count / 4 and need.gradients == 4 * count / 4
    assert need.optimizer == 12 * count / 8
    assert need.logits == 10 * 24_576 * 151_936 / 4
    assert need.sampling == 6 * count / 4 + 48 * GB  # its optimizer is away, its buffers stay


def test_worker_budget_by_hand(paper: Inputs) -> None:
    assert paper.worker is not None
    weights = 2 * paper.worker.parameters
    assert served_kv(paper.worker, 8, 70 * GB) == 8 * (70 * GB - weights)
    assert worker_tokens(paper) == pytest.approx(8 * (0.92 * 80 * GB - weights) / 147_456)
    big = Architecture(10, 8192, 64, 8, 128, 28672, 128_256)
    assert 2 * 10 * GB < 2 * big.parameters < 0.85 * 4 * 10 * GB  # so 4 GPUs hold it, 2 don't
    assert replicas(big, 8, 10 * GB) == 2


def fits(given: Inputs, **training: Any) -> list[str]:
    return refusals(replace(given, training=replace(given.training, **training)))


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_the_shipped_experiments_fit(mode: str) -> None:
    for name in ("qwen3_8b", "qwen3_14b"):
        for strategy in ("fsdp2", "megatron"):
            chosen = [f"experiment={name}", f"strategy={strategy}", f"mode={mode}"]
            assert refused(inputs(compose(chosen))) == []


def test_gpus_that_only_sample_by_hand(paper: Inputs) -> None:
    """They hold the rollout and nothing else, and the update runs beside them."""
    given = inputs(compose(["experiment=qwen3_8b", "mode=separate_async"]))
    assert given.gpus == {"Driver (update)": 8, "Driver (rollout)": 8, "Workers": 8, "judge": 8}
    need = driver_memory(given.driver, given.training, 80 * GB)
    assert need.sampling == need.rollout == 48 * GB
    assert need.update == driver_memory(paper.driver, paper.training, 80 * GB).update
    step = work(given)
    took = seconds(given, step)
    rate = 8 * given.plan["rates"]["generate"]
    assert took.sample == pytest.approx(step.output_tokens / rate * given.driver.parameters / 8e9)
    training = took.score + took.update
    assert took.step == max(took.sample, took.workers, training) + took.overhead


def test_a_trajectory_lasts_as_long_as_its_steps_rollout(paper: Inputs) -> None:
    took = seconds(paper, work(paper))
    assert trajectory_seconds(paper) == took.rollout == max(took.sample, took.workers)
    assert trajectory_seconds(replace(paper, ahead=True)) == took.rollout + took.step
    assert refused(paper) == []
    (short,) = refused(replace(paper, deadline_s=1800.0))
    assert "episode.deadline_s=1,800 would end it: set episode.deadline_s=" in short
    knob = float(short.partition("set episode.deadline_s=")[2].partition(",")[0])
    assert refused(replace(paper, deadline_s=knob)) == []


def test_a_model_that_is_not_named_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"worker.model isn't set"):
        inputs(compose(["experiment=qwen3_8b", "worker=chat"]))


@pytest.mark.parametrize(
    ("training", "knob"),
    [
        ({"gpus": 6}, "can't be divided into groups of 4"),
        ({"tokens": 4096}, "raise actor.ppo_max_token_len_per_gpu to 6144"),
        ({"rollout_split": 3}, "doesn't divide a node's 8"),
        ({"rollout_share": 0.8}, "set rollout.gpu_memory_utilization=0.76"),
        ({"rollout_share": 0.2}, "raise rollout.gpu_memory_utilization"),
        ({"tokens": 65_536}, "set actor.ppo_max_token_len_per_gpu lower"),
        ({"rollout_stays": True, "tokens": 24_576}, "the update needs"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_knob(
    paper: Inputs, training: dict[str, Any], knob: str
) -> None:
    assert fits(paper) == []
    problems = fits(paper, **training)
    assert any(knob in problem for problem in problems), problems


def test_a_driver_too_large_asks_for_nodes(paper: Inputs) -> None:
    larger = replace(paper.driver, layers=144)
    (update, *_) = refusals(replace(paper, driver=larger))
    assert "the update needs" in update and "trainer.nnodes=" in update


def test_a_judge_and_a_disk_too_small(paper: Inputs) -> None:
    (judge,) = refusals(changed(paper, judge={"gpus": 4}))
    assert "set plan.judge.gpus=8" in judge
    (disk,) = refused(changed(paper, disk={"free_gb": 100.0}))
    assert "lower trainer.max_actor_ckpt_to_keep" in disk


def test_a_retriever_and_the_match_judge_need_no_gpus() -> None:
    given = inputs(compose(["experiment=qwen3_8b", "worker=retriever", "judge=match"]))
    assert sum(given.gpus.values()) == 8
    step = work(given)
    assert (step.worker_calls, step.prefill_alone, step.judge_calls) == (0, 0, 0)
    assert not any("Workers:" in line for line in lines(given))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "experiment=qwen3_8b"]) == 0
    shown = capsys.readouterr().out
    for word in ("KV budget", "without sharing", "a step", "judge calls", "dollars", "disk"):
        assert word in shown
    more = "actor_rollout_ref.rollout.gpu_memory_utilization=0.7"
    assert cli.main(["plan", "experiment=qwen3_14b", "trainer.nnodes=1", more]) == 1
    assert "refused: rollout beside what training keeps" in capsys.readouterr().out
    assert cli.main(["plan"]) == 2
    assert "choose device=gpu" in capsys.readouterr().err
