"""Builds the embedded Driver: demonstrations on training worlds, a tokenizer, supervised training.

    python scripts/build_driver.py out=data/embedded/driver

Every setting is in configs/build_driver.yaml and can be overridden as key=value. The manifest is
written last: a folder that has one is complete, and a rerun with the same settings does nothing.
"""

import asyncio
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from omegaconf import DictConfig, OmegaConf

from data_pipeline.world import WorldConfig, WorldQuestion, make_world
from data_pipeline.world.demonstrator import NOTHING, Demonstrator, FlawRates, phrases
from data_pipeline.world.names import SYLLABLES
from disco_rl.config import compose
from disco_rl.core.trajectory import Generation
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.workers.retriever import Retriever, RetrieverConfig
from disco_rl.export.settings import settings_of, write_settings
from disco_rl.prompts import load_prompts

VERSION = 2
"""Raised whenever the same settings give another Driver."""


class DemonstratorModel:
    """The demonstrator behind the engine's model protocol; keeps every prompt and reply."""

    def __init__(self, demonstrator: Demonstrator):
        self._demonstrator = demonstrator
        self.calls: list[tuple[list[dict[str, str]], str]] = []

    def count(self, messages: Sequence[dict[str, str]]) -> int:
        return sum(len(message["content"]) // 3 for message in messages)

    async def generate(self, messages, *, max_tokens, schema=None) -> Generation:
        reply = self._demonstrator.reply(messages)
        self.calls.append((list(messages), reply))
        return Generation(reply)


def demonstrations(
    config: DictConfig, seed: int, n_questions: int
) -> Iterator[tuple[WorldQuestion, list[tuple[list[dict[str, str]], str]], str | None]]:
    """Scripted episodes through the real engine and Worker: question, calls, final answer.

    A share `config.clean` of them has no flaw: flawed ones alone seldom gather all the evidence,
    and the Driver would never learn what to do with it.
    """
    flawed = FlawRates(**config.flaws)
    world = make_world(
        seed,
        "train",
        n_questions,
        WorldConfig(lengths=dict(config.lengths), hops=dict(config.hops)),
    )
    pool = WorkerPool(Retriever(RetrieverConfig(**config.worker)), **config.pool)
    episode = EpisodeConfig(load_prompts("brief"), **config.episode)
    rng = random.Random(f"demonstrations {seed}")
    for question in world.questions:
        sample = question.sample
        rates = flawed.without() if rng.random() < config.clean else flawed
        model = DemonstratorModel(
            Demonstrator(sample.question, question.chain, sample.n_shards, rng, rates)
        )
        context = world.region(sample.context_id).context
        trajectory = asyncio.run(run_episode(sample.question, context, model, pool, episode))
        yield question, model.calls, trajectory.answer


def build(config: DictConfig) -> Path:
    """Builds the Driver in `config.out`, or returns at once where it is complete and the same."""
    out = Path(config.out)
    digest = hashlib.sha256(
        json.dumps([VERSION, OmegaConf.to_container(config, resolve=True) | {"out": ""}]).encode()
    ).hexdigest()
    manifest = out / "manifest.json"
    if manifest.is_file() and json.loads(manifest.read_text())["digest"] == digest:
        print(f"{out}: complete, nothing to do")
        return out
    import torch

    from disco_rl.trainer.embedded.tokenizer import build_tokenizer
    from disco_rl.trainer.embedded.warm_start import (
        Demonstration,
        ModelSize,
        WarmStart,
        build_model,
        encode,
        train,
    )

    torch.set_num_threads(config.threads)
    began = time.monotonic()
    shown: list[tuple[Demonstration, int]] = []  # and how often
    texts: list[str] = []
    n_right = 0
    for question, calls, answer in track(
        demonstrations(config, config.seed, config.questions),
        config.questions,
        "demonstrations",
    ):
        n_right += answer == question.chain[-1].object
        for messages, reply in calls:
            times = config.answer_copies if _answers(messages, reply) else 1
            shown.append((Demonstration(tuple(messages), reply), times))
            texts += [messages[-1]["content"], reply] * times
    tokenizer = build_tokenizer(texts, config.vocab_size, phrases(), SYLLABLES)
    template = dict(config.template)
    examples = [
        example
        for demonstration, times in shown
        for example in [encode(demonstration, tokenizer, template)] * times
    ]
    n_all = len(examples)
    examples = [e for e in examples if len(e[0]) + len(e[1]) <= config.max_tokens]
    print(
        f"{n_all} demonstrations from {config.questions} questions ({n_right} answered rightly), "
        f"{n_all - len(examples)} over {config.max_tokens} tokens left out, "
        f"{sum(len(p) + len(r) for p, r in examples) / len(examples):.0f} tokens each"
    )
    model = build_model(ModelSize(**config.model), tokenizer, config.seed)
    schedule = WarmStart(**config.schedule, seed=config.seed)
    with Meter("warm start", schedule.steps) as meter:
        train(model, examples, schedule, meter)
    out.mkdir(parents=True, exist_ok=True)
    manifest.unlink(missing_ok=True)
    model.generation_config.update(do_sample=True, temperature=1.0)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    plain = OmegaConf.to_container(compose(), resolve=True)
    write_settings(out, settings_of(plain, {"tokenizer": "words", "shard_size": 512}))
    manifest.write_text(
        json.dumps(
            {
                "digest": digest,
                "parameters": model.num_parameters(),
                "demonstrations": len(examples),
                "final_loss": meter.mean,
                "seconds": round(time.monotonic() - began, 1),
            },
            indent=2,
        )
    )
    print(
        f"{out}: {model.num_parameters():,} parameters, loss {meter.mean:.3f}, "
        f"{time.monotonic() - began:.0f} s"
    )
    return out


def _answers(messages: Sequence[dict[str, str]], reply: str) -> bool:
    """Whether the call names an answer: a few tokens, copied from the evidence, that decide the
    accuracy and are a hundredth of what the demonstrations say."""
    return messages[0]["content"].startswith("answer") and reply.strip() != NOTHING


def continue_training(config: DictConfig, driver: str, out: Path, seconds: float) -> None:
    """Trains the Driver in `driver` on, for `seconds`, on fresh demonstrations of the same kind.

    The control of recipes/embedded: what the time of a GRPO run buys without GRPO. Uses a tenth
    of the schedule's learning rate, where the warm start ended, without another warm-up.
    """
    import torch
    from transformers import AutoTokenizer, Qwen3ForCausalLM

    from disco_rl.trainer.embedded.warm_start import Demonstration, WarmStart, encode, train

    torch.set_num_threads(config.threads)
    tokenizer = AutoTokenizer.from_pretrained(driver)
    model = Qwen3ForCausalLM.from_pretrained(driver, dtype=torch.float32)
    template = dict(config.template)
    examples = [
        example
        for _, calls, _ in demonstrations(config, config.seed + 1, config.questions)
        for messages, reply in calls
        for _ in range(config.answer_copies if _answers(messages, reply) else 1)
        if sum(
            map(len, example := encode(Demonstration(tuple(messages), reply), tokenizer, template))
        )
        <= config.max_tokens
    ]
    schedule = dict(config.schedule) | {
        "copy_steps": 0, "warmup": 0, "lr": 0.1 * config.schedule.lr, "steps": 10**6,
    }  # fmt: skip
    done = train(model, examples, WarmStart(**schedule, seed=config.seed + 1, seconds=seconds))
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "manifest.json").write_text(json.dumps({"steps": done, "seconds": seconds}))


def track(items, total: int, title: str):
    """rich's progress bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    return rich_track(items, title, total, console=console, disable=not console.is_terminal)


class Meter:
    """Progress with the mean loss of late; off a terminal, a line every hundred steps."""

    def __init__(self, title: str, total: int):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self.mean = float("nan")
        self._quiet = not console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeRemainingColumn(), TextColumn("loss {task.fields[loss]:.3f}"),
            console=console, disable=self._quiet,
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, loss=self.mean)

    def __enter__(self) -> "Meter":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, step: int, loss: float) -> None:
        self.mean = loss if step == 1 else 0.98 * self.mean + 0.02 * loss
        self._bar.update(self._task, completed=step, loss=self.mean)
        if self._quiet and step % 100 == 0:
            print(f"step {step}: loss {self.mean:.3f}", flush=True)


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    config = OmegaConf.load(ROOT / "configs" / "build_driver.yaml")
    OmegaConf.set_struct(config, True)
    config.merge_with_dotlist(sys.argv[1:])
    build(config)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
