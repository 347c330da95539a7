"""Start model servers and keep them running; Ctrl-C stops them.

Prints the overrides with which `disco-rl train` and `ask` use them:
  disco-rl serve workers serve.model_path=Qwen/Qwen3-4B-Instruct-2507 serve.replicas=8
  disco-rl serve workers serve.engine=llamacpp serve.model_path=model.gguf worker.model=small
"""

import argparse
import sys
from typing import Any

HELP = "start model servers for the Workers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("workers",), help="whose servers")
    parser.add_argument("overrides", nargs="*", help="key=value on configs/serve.yaml")
    parser.add_argument("--print-commands", action="store_true", help="show them; start nothing")


def run(args: argparse.Namespace) -> int:
    import asyncio
    import shlex
    import signal
    from pathlib import Path

    from omegaconf import OmegaConf

    from disco_rl.config import compose, refuse_secrets
    from disco_rl.serve.commands import ServeConfig, servers
    from disco_rl.serve.kv import pool_tokens
    from disco_rl.serve.sglang_flags import installed
    from disco_rl.serve.supervisor import Supervisor

    composed = compose(args.overrides, name="serve")
    refuse_secrets(composed)
    if OmegaConf.is_missing(composed.serve, "model_path"):
        raise ValueError("set serve.model_path to a model folder, a hub name, or a GGUF file")
    plain: Any = OmegaConf.to_container(composed.serve, resolve=True)
    config = ServeConfig(**plain)
    named = not OmegaConf.is_missing(composed.worker, "model")
    model = composed.worker.model if named else Path(config.model_path).stem
    pool = servers(config, model)
    if args.print_commands:
        for server in pool:
            words = [f"{name}={value}" for name, value in server.environment.items()]
            print(shlex.join(["env", *words, *server.command]))
        return 0
    if config.engine == "sglang" and installed() is None:
        raise ValueError("SGLang isn't installed here; serve.engine=llamacpp runs on a CPU")
    urls = [server.url for server in pool]

    async def ready() -> None:
        line = f"worker=chat worker.model={model} worker.url=[{','.join(urls)}]"
        if config.engine == "llamacpp":
            line += " worker.slots=1"  # more would only wait in the server, out of order
        else:
            from disco_rl.clients.backend import ChatBackend
            from disco_rl.clients.http import Endpoint

            backends = [ChatBackend(Endpoint(server.local, model)) for server in pool]
            reports = [await backend.kv_tokens() for backend in backends]
            for backend in backends:
                await backend.close()
            tokens = pool_tokens(
                reports, config.model_path, config.host_cache_gb, config.tensor_parallel
            )
            line += f" worker.kv_tokens={tokens}" if tokens else ""
            flags = {name.replace("_", "-"): value for name, value in config.flags.items()}
            if flags.get("radix-eviction-policy") == "priority" and not config.host_cache_gb:
                line += " worker.hold=0.8"  # recipes/workers
        print(line, flush=True)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        supervisor = Supervisor(pool, Path(config.logs), config.startup_s, config.restarts)
        print(f"starting {len(pool)} servers; logs in {config.logs}", file=sys.stderr)
        await supervisor.run(ready, stop)

    asyncio.run(serve())
    return 0
