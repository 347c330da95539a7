"""The work of bench_step: a model, questions, and scripted episodes of a fixed number of calls.

Every reply is sampled in full, and then read as the script's next text, so that a random model
takes the path of a real episode: plan, Worker scans, answer, review, next stage.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from _bench_figures import ARMS

from data_pipeline.writer import write_rows, write_store
from disco_rl.config import compose
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import Generation, StopReason
from disco_rl.data.store import StoreInfo
from disco_rl.engine.episode import run_episode
from disco_rl.engine.protocols import Message
from disco_rl.trainer.resources import Resources

T = TypeVar("T")

CALLS_PER_STAGE = 3  # plan, answer, review
FACTS = "Varo Kelin was born in Tessa. Tessa lies on the river Oum. The river Oum is cold."
LOOKUPS = ("Where was Varo Kelin born?", "Which river does Tessa lie on?")
LOOPS = (
    "- name: disco\n  _target_: _bench_loops.DiscoBench\n"
    "- name: stock\n  _target_: _bench_loops.StockBench\n"
)


@dataclass(frozen=True)
class Work:
    """What each side does in a step: groups x sessions trajectories of `calls` calls.

    output_tokens: sampled tokens of a call, exactly
    layers, hidden: of the Qwen3 model, whose weights are random
    """

    groups: int = 4
    sessions: int = 4
    stages: int = 2
    output_tokens: int = 32
    rounds: int = 8
    layers: int = 2
    hidden: int = 128
    window: int = 512
    seed: int = 0

    @property
    def calls(self) -> int:
        return CALLS_PER_STAGE * self.stages

    @property
    def trajectories(self) -> int:
        return self.groups * self.sessions


def script(stages: int) -> tuple[str, ...]:
    """The replies of a trajectory, in order: all stages but the last are sent back."""
    nodes: list[dict[str, Any]] = [
        {"id": f"n{i}", "op": "narrow", "instruction": text} for i, text in enumerate(LOOKUPS)
    ]
    inputs = [node["id"] for node in nodes]
    nodes.append({"id": "w", "op": "wide", "instruction": "Answer it.", "inputs": inputs})
    plan = json.dumps({"nodes": nodes})
    texts = []
    for stage in range(stages):
        last = stage == stages - 1
        verdict = {"accept": True} if last else {"accept": False, "gap": "name the river"}
        texts += [plan, "Tessa, on the river Oum", json.dumps(verdict)]
    return tuple(texts)


def write_world(folder: Path, work: Work) -> None:
    """Model, contexts and both sides' rows. The stock loop's rows are the prompts that ours
    sends, a step's after the other's, so that a round has the same prompts on both sides."""
    from tests.trainer.tiny import sentences, write_model

    folder.mkdir(parents=True, exist_ok=True)
    write_model(
        folder / "model", layers=work.layers, hidden=work.hidden, window=work.window, seed=work.seed
    )
    text = " ".join([*(f"{line.capitalize()}." for line in sentences(60, 10)), FACTS])
    context = TextContext.cut("c1", text, lambda texts: [len(t.split()) for t in texts], 64)
    store = [(context.id, context.text, context.shards)]
    write_store(folder / "contexts", iter(store), StoreInfo("words", 64))
    start = text.index(FACTS)
    hop = Hop(LOOKUPS[0], "Tessa", (), (len(context.shards) - 1,), (start, start + 29))
    n_words = len(text.split())
    samples = [
        Sample(
            i,
            f"On which river is the birthplace of Varo Kelin? ({i:04d})",
            ("Oum",),
            "c1",
            len(context.shards),
            n_words,
            (hop,),
            "bench",
        )
        for i in range(work.groups * work.rounds)
    ]
    write_rows(folder / "disco.parquet", samples)
    (folder / "loops.yaml").write_text(LOOPS, encoding="utf-8")
    prompts = asyncio.run(_prompts(folder, work, samples))
    _write_stock_rows(folder / "stock.parquet", in_rounds(prompts, work.groups))


def overrides(folder: Path, work: Work, rows_at_once: int) -> list[str]:
    """Of configs/train.yaml. `rows_at_once`: most sequences that the server decodes together."""
    return [
        "trainer.v1.trainer_mode=bench",
        f"data.train_files={folder / 'disco.parquet'}",
        f"data.val_files={folder / 'disco.parquet'}",
        f"+bench.stock_files={folder / 'stock.parquet'}",
        f"+bench.calls={work.calls}",
        f"data.train_batch_size={work.groups}",
        "data.shuffle=false",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loops.yaml'}",
        f"actor_rollout_ref.rollout.n={work.sessions}",
        f"actor_rollout_ref.rollout.seed={work.seed}",
        f"actor_rollout_ref.rollout.max_num_seqs={rows_at_once}",
        f"actor_rollout_ref.model.path={folder / 'model'}",
        f"disco.context_store={folder / 'contexts'}",
        f"worker.cache_dir={folder / 'index'}",
        f"driver.window={work.window}",
        f"driver.max_call_tokens={work.output_tokens}",
        f"driver.max_stages={work.stages}",
        f"trainer.total_training_steps={work.rounds * len(ARMS)}",
        f"trainer.total_epochs={work.rounds * len(ARMS)}",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.logger=[file]",
        "trainer.resume_mode=disable",
        f"trainer.default_local_dir={folder / 'run'}",
    ]


class _Recorder:
    """A Driver that only reads the script, and keeps the prompts it was asked with."""

    def __init__(self, encoder: Any, replies: Sequence[str]):
        self._encoder = encoder
        self._replies = iter(replies)
        self.prompts: list[list[Message]] = []

    def count(self, messages: Sequence[Message]) -> int:
        return len(self._encoder.encode(messages))

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        self.prompts.append(list(messages))
        return Generation(next(self._replies))


def in_rounds(prompts: Sequence[Sequence[T]], groups: int) -> list[T]:
    """Prompts by question, put into the order in which ours sends them: a round's questions, of
    these first all first calls, then all second ones. So equal prompts, which the server reads
    once, and prompts of about a length stand together for the stock loop too."""
    return [
        prompt
        for start in range(0, len(prompts), groups)
        for calls in zip(*prompts[start : start + groups], strict=True)
        for prompt in calls
    ]


async def _prompts(
    folder: Path, work: Work, samples: Sequence[Sample]
) -> list[list[list[Message]]]:
    """By sample, what the Driver is asked, call by call."""
    from transformers import AutoTokenizer

    config = compose(overrides(folder, work, work.trajectories))
    resources = Resources.build(config, AutoTokenizer.from_pretrained(folder / "model"))
    prompts: list[list[list[Message]]] = []
    for sample in samples:
        driver = _Recorder(resources.encoder, script(work.stages))
        trajectory = await run_episode(
            sample.question,
            resources.contexts.get(sample.context_id),
            driver,
            resources.pool,
            resources.episode,
        )
        if trajectory.stop is not StopReason.ACCEPTED or len(driver.prompts) != work.calls:
            raise RuntimeError(
                f"the scripted episode stopped as {trajectory.stop.value} after "
                f"{len(driver.prompts)} of {work.calls} calls: {trajectory.error}; "
                "the parsers and scripts/_bench_world.py disagree"
            )
        prompts.append(driver.prompts)
    return prompts


def _write_stock_rows(path: Path, prompts: Sequence[Sequence[Message]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": "bench",
            "agent_name": "stock",
            "prompt": [dict(message) for message in messages],
            "ability": "long_context_qa",
            "reward_model": {"style": "rule", "ground_truth": "Oum"},
            "extra_info": {"index": i},
        }
        for i, messages in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
