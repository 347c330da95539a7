"""Builds a method and its models from a config (configs/eval.yaml)."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from disco_rl.clients.chat import ChatClient
from disco_rl.clients.drivers import EndpointDriver
from disco_rl.clients.http import Endpoint, JsonClient
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.protocols import DriverModel
from disco_rl.engine.workers import POOL_KEYS, build_worker
from disco_rl.evaluation.calls import ChatModel
from disco_rl.evaluation.embedders import Embedder, EndpointEmbedder, LocalEmbedder
from disco_rl.evaluation.ledger import Price
from disco_rl.evaluation.methods.chain_of_agents import ChainOfAgents
from disco_rl.evaluation.methods.disco import Disco
from disco_rl.evaluation.methods.full_context import FullContext
from disco_rl.evaluation.methods.map_reduce import MapReduce
from disco_rl.evaluation.methods.protocol import Method
from disco_rl.evaluation.methods.rag import Rag
from disco_rl.evaluation.methods.repl import ReplLimits
from disco_rl.evaluation.methods.rlm import Rlm
from disco_rl.evaluation.runner import Setup
from disco_rl.evaluation.tokens import Tokenizer, WordTokenizer, count, load_tokenizer
from disco_rl.prompts import load_prompts
from disco_rl.rewards import Judge, build_judge

METHODS: Mapping[str, Any] = {
    "full_context": FullContext,
    "rag": Rag,
    "chain_of_agents": ChainOfAgents,
    "map_reduce": MapReduce,
    "rlm": Rlm,
    "disco": Disco,
}
"""By `kind`. One more is one more file, and a line here."""


async def build_setup(
    config: Mapping[str, Any],
    folder: Path,
    stack: AsyncExitStack,
    driver: DriverModel | None = None,
    clients: Mapping[str, Any] | None = None,
) -> Setup:
    """The setup of a run; clients are closed with `stack`. `driver` is DISCO's, in place of the
    configured one; `clients`, by role, serve where the config has no url.

    Raises `ValueError` naming the key that is missing, unknown or bad.
    """
    models, prices = {}, {}
    for role, model in config["models"].items():
        prices[role] = Price(**(model.get("price") or {}))
        client = (clients or {}).get(role)
        if model.get("url") and role != "embedder":
            client = ChatClient(endpoint(model))
            await stack.enter_async_context(client)
        if client is not None:
            models[role] = ChatModel(client, request(model), model.get("thinking_tokens") or 0)
    own = config["worker"].get("prices") or {}
    if config["method"].get("kind") == "disco" and any(own.values()):
        prices["worker"] = Price(**own)
    tokenizer = load_tokenizer(config["tokenizer"])
    local = config["models"]["driver"]["url"] or config["method"].get("driver_folder")
    if driver is None and clients and not local:
        driver = served_driver(clients["driver"], config, tokenizer)
    method = await build_method(config, tokenizer, folder, stack, driver)
    limits = {key: config["limits"][key] for key in ("max_items", "max_calls", "deadline_s")}
    judge = await _judge(config["judge"], folder, stack)
    return Setup(method, models, prices, tokenizer, judge, **limits)


async def build_method(
    config: Mapping[str, Any],
    tokenizer: Tokenizer,
    folder: Path,
    stack: AsyncExitStack,
    driver: DriverModel | None = None,
) -> Method:
    given = dict(config["method"])
    kind = given.pop("kind", None)
    if kind not in METHODS:
        raise ValueError(f"method.kind is {kind!r}; choose from {sorted(METHODS)}")
    known = {field.name for field in fields(METHODS[kind])}
    if (
        kind == "full_context"
        and config["tokenizer"] == "words"
        and config["models"]["driver"]["url"]
    ):
        raise ValueError(
            "method full_context cuts its prompt at `limit` tokens of the Driver's, which words are"
            " not; set tokenizer= to the Driver's tokenizer (its folder or hub name)"
        )
    # The parts that are built here, not set in the config by value.
    if kind == "disco":
        given |= await _disco_parts(config, given, tokenizer, folder, stack, driver)
    if kind == "rag":
        given["embedder"] = await _embedder(config["models"].get("embedder") or {}, folder, stack)
    if kind == "rlm" and "limits" in given:
        given["limits"] = ReplLimits(**given["limits"])
    if "tokenizer" in known:
        given["tokenizer"] = tokenizer
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(f"method ({kind}): unknown keys {unknown}; known: {sorted(known)}")
    return METHODS[kind](**given)


async def _judge(config: Mapping[str, Any], folder: Path, stack: AsyncExitStack) -> Judge:
    """Its verdicts are kept in the run's folder: a killed run doesn't pay for them again."""
    settings = dict(config)
    if settings.get("name") == "llm" and not settings.get("cache_dir"):
        settings["cache_dir"] = str(folder / "judge")
    made: Any = build_judge(settings)
    if hasattr(made, "close"):
        stack.push_async_callback(made.close)
    return made


def endpoint(model: Mapping[str, Any]) -> Endpoint:
    keys = ("deadline_s", "attempt_s", "max_attempts", "max_connections")
    limits = {key: model[key] for key in keys if model.get(key) is not None}
    return Endpoint(model["url"], model.get("model") or "", model.get("api_key_env"), **limits)


def request(model: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into every request: `sampling`, and thinking turned on or off where it is set."""
    sampling = dict(model.get("sampling") or {})
    if model.get("thinking") is not None:
        template = dict(sampling.get("chat_template_kwargs") or {})
        sampling["chat_template_kwargs"] = template | {"enable_thinking": model["thinking"]}
    return sampling


async def _disco_parts(
    config: Mapping[str, Any],
    given: dict[str, Any],
    tokenizer: Tokenizer,
    folder: Path,
    stack: AsyncExitStack,
    driver: DriverModel | None,
) -> dict[str, Any]:
    names = {field.name for field in fields(EpisodeConfig)} - {"prompts"}
    limits = {name: given.pop(name) for name in sorted(names & set(given))}
    episode = EpisodeConfig(load_prompts(given.pop("prompts", "full")), **limits)
    local = given.pop("driver_folder", None)
    if driver is None:
        made = _driver(local, config, episode, tokenizer)
        stack.push_async_callback(made.close)
        driver = made
    settings = dict(config["worker"])
    settings.pop("serve", None)  # `disco-rl serve workers` reads it
    kept = {key: settings.pop(key) for key in POOL_KEYS if key in settings}
    # What a method costs mustn't depend on what earlier runs kept.
    if settings.get("kind") == "chat":
        settings["cache_mb"] = 0
    elif settings.get("embeddings_url") and not settings.get("cache_dir"):
        settings["cache_dir"] = str(folder / "retriever")
    worker = build_worker(settings)
    if hasattr(worker, "close"):
        stack.push_async_callback(worker.close)
    return {
        "driver": driver,
        "worker": worker,
        "episode": episode,
        "max_findings": kept.get("max_findings", 16),
    }


def _driver(
    local: str | None, config: Mapping[str, Any], episode: EpisodeConfig, tokenizer: Tokenizer
) -> Any:
    model = config["models"]["driver"]
    if local:
        from disco_rl.trainer.cpu.driver import LocalDriver

        return LocalDriver.load(
            local,
            window=episode.window,
            template={} if model["thinking"] is None else {"enable_thinking": model["thinking"]},
            sampling=model["sampling"] or None,
            seed=config["seed"],
        )
    if model["url"]:
        return served_driver(ChatClient(endpoint(model)), config, tokenizer)
    raise ValueError("method disco needs models.driver.url, or method.driver_folder")


def served_driver(client: Any, config: Mapping[str, Any], tokenizer: Tokenizer) -> EndpointDriver:
    """A Driver over chat completions whose prompts are measured by the run's tokenizer."""

    def length(text: str) -> int:
        if isinstance(tokenizer, WordTokenizer):  # words are fewer than tokens
            return -(-len(text.encode("utf-8", "replace")) // 3)
        return count(tokenizer, text)

    sampling = request(config["models"]["driver"])
    return EndpointDriver(client, sampling=sampling, length=length)


async def _embedder(model: Mapping[str, Any], folder: Path, stack: AsyncExitStack) -> Embedder:
    if model.get("url"):
        client = await stack.enter_async_context(JsonClient(endpoint(model)))
        return EndpointEmbedder(client, cache=folder / "embeddings")
    from disco_rl.engine.workers.dense import Encoder, require_model

    require_model()
    return LocalEmbedder(Encoder(), cache=folder / "embeddings")
