"""Answer a question about a text file.

Examples:
  disco-rl ask page.txt "Where was Ray Charles born?" --model exports/driver
  disco-rl ask page.txt "..." --endpoint http://127.0.0.1:8000/v1 driver.endpoint_model=qwen3-8b
  disco-rl ask page.txt "..." --model DIR --worker chat worker.url=... worker.model=...
"""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from disco_rl.core.shards import TextContext
    from disco_rl.core.trajectory import Trajectory

HELP = "answer a question about a text file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "document", metavar="DOC", help="a UTF-8 text file, or - for standard input"
    )
    parser.add_argument("question")
    parser.add_argument("overrides", nargs="*", help="key=value on configs/ask.yaml")
    driver = parser.add_mutually_exclusive_group(required=True)
    driver.add_argument("--model", help="Hugging Face folder or hub name, run in this process")
    driver.add_argument("--endpoint", help="OpenAI-compatible base address of a served model")
    parser.add_argument("--worker", choices=("retriever", "chat"), help="what scans the shards")
    parser.add_argument("--json", action="store_true", help="print the trajectory record")


def run(args: argparse.Namespace) -> int:
    from disco_rl.commands.document import cut_document, read_document
    from disco_rl.config import compose, refuse_secrets

    config = compose(_overrides(args), name="ask")
    refuse_secrets(config)
    text = read_document(args.document)
    context = cut_document(
        text, shard_size=config.document.shard_size, tokenizer=config.document.tokenizer
    )
    trajectory = answer(config, args.question, context)
    if args.json:
        from disco_rl.core.records import to_record

        print(json.dumps(to_record(trajectory, document=args.document), ensure_ascii=False))
    else:
        from rich.console import Console

        from disco_rl.commands.render import show

        console = Console(highlight=False, markup=False, soft_wrap=True)
        show(trajectory, context, console)
    if trajectory.answer is None:
        print(
            f"disco-rl ask: no answer ({trajectory.stop.value}): "
            f"{trajectory.error or 'no stage answered'}",
            file=sys.stderr,
        )
        return 1
    return 0


def answer(config: "DictConfig", question: str, context: "TextContext") -> "Trajectory":
    """Runs the episode that `config` (configs/ask.yaml) describes.

    Raises `ValueError` where the model or Worker can't be made.
    """
    import asyncio

    from omegaconf import OmegaConf

    from disco_rl.engine.config import EpisodeConfig
    from disco_rl.engine.episode import run_episode
    from disco_rl.engine.workers import build_pool
    from disco_rl.prompts import load_prompts

    plain: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    limits = {
        key: plain["driver"][key]
        for key in (
            "window",
            "max_call_tokens",
            "max_stages",
            "max_plan_nodes",
            "max_instruction_words",
            "repairs",
        )
    }
    episode = EpisodeConfig(load_prompts(plain["driver"]["prompts"]), **limits, **plain["episode"])

    async def ask() -> "Trajectory":
        pool = build_pool(plain["worker"])
        driver = _driver(plain["driver"])
        try:
            return await run_episode(question, context, driver, pool, episode)
        finally:
            await driver.close()
            await pool.close()

    return asyncio.run(ask())


def _driver(config: dict[str, Any]) -> Any:
    if config["model"]:
        from disco_rl.trainer.cpu.driver import LocalDriver

        return LocalDriver.load(
            config["model"],
            window=config["window"],
            template=config["template"],
            sampling=config["sampling"],
            seed=config["seed"],
        )
    from disco_rl.clients.drivers import EndpointDriver
    from disco_rl.clients.http import Endpoint

    endpoint = Endpoint(
        config["endpoint"],
        config["endpoint_model"],
        config["api_key_env"],
        attempt_s=config["attempt_s"],
        deadline_s=config["call_deadline_s"],
    )
    sampling = dict(config["sampling"] or {})
    if config["template"]:
        given = sampling.get("chat_template_kwargs") or {}
        sampling["chat_template_kwargs"] = {**given, **config["template"]}
    return EndpointDriver(endpoint, sampling=sampling)


def _overrides(args: argparse.Namespace) -> list[str]:
    """The model's own settings, then the flags, then what was asked for last."""
    from disco_rl.export.settings import hydra_value, settings_overrides

    flags = []
    worker = args.worker
    if args.worker:
        flags.append(f"worker={args.worker}")
    else:
        chosen = [o for o in args.overrides if o.startswith("worker=")]
        worker = chosen[-1].partition("=")[2] if chosen else None
    own: list[str] = []
    if args.model:
        own = settings_overrides(args.model, worker=worker)
        flags.append(f"driver.model={hydra_value(args.model)}")
    else:
        flags.append(f"driver.endpoint={hydra_value(args.endpoint)}")
    return [*own, *flags, *args.overrides]
