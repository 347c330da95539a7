"""Evaluate a method on a benchmark. The same command goes on with a run that was killed.

disco-rl eval method=disco benchmark=ruler_qa benchmark.source=squad.json \
    models.driver.url=http://127.0.0.1:8000/v1 models.driver.model=qwen3-8b \
    worker=chat worker.url=http://127.0.0.1:8001/v1 worker.model=qwen3-4b out=runs/eval/disco
disco-rl eval method=full_context benchmark=longbench_v2 ...    then: disco-rl report runs/eval
"""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

HELP = "evaluate DISCO or another method on a benchmark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of configs/eval.yaml")
    parser.add_argument("--print-config", action="store_true", help="print the config, run nothing")


def run(args: argparse.Namespace) -> int:
    from disco_rl.config import compose, refuse_secrets, to_yaml

    config = compose(args.overrides, name="eval")
    refuse_secrets(config)
    if args.print_config:
        print(to_yaml(config), end="")
        return 0
    from omegaconf import OmegaConf

    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    results = evaluate(plain, to_yaml(config))
    failed = sum(result["error"] is not None for result in results)
    mean = 100 * sum(result["scores"]["official"] for result in results) / len(results)
    print(f"{plain['out']}: {len(results)} items, official score {mean:.1f}, {failed} failed")
    return 0 if failed < len(results) else 1


def evaluate(config: Mapping[str, Any], config_yaml: str) -> list[dict[str, Any]]:
    """Runs what `config` (configs/eval.yaml, plain) describes, and returns its results.

    Raises `ValueError` for a config that can't be run, and `StoreError` for broken data.
    """
    import asyncio
    from contextlib import AsyncExitStack
    from pathlib import Path

    from disco_rl.evaluation import runner
    from disco_rl.evaluation.benchmarks import load_benchmark
    from disco_rl.evaluation.build import build_setup
    from disco_rl.evaluation.tokens import load_tokenizer

    folder = Path(config["out"]).expanduser()
    items = load_benchmark(config["benchmark"], load_tokenizer(config["tokenizer"]))
    began = time.time()
    count = 0

    def on_done(result: Mapping[str, Any]) -> None:
        nonlocal count
        count += 1
        mark = result["error"] or f"{result['scores']['official']:.2f}"
        print(f"[{count}] {result['id']}: {mark}", file=sys.stderr, flush=True)

    async def work() -> list[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            setup = await build_setup(config, folder, stack)
            runner.begin(folder, config_yaml)
            return await runner.run(folder, items, setup, on_done)

    results = asyncio.run(work())
    runner.finish(folder, results, {"wall_s": round(time.time() - began, 1)})
    return results
