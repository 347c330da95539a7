"""The commands that start the model servers of a `serve` config, one a replica."""

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from disco_rl.serve import sglang_flags


@dataclass(frozen=True)
class ServeConfig:
    """Group `serve` of configs/serve.yaml, where each field is documented."""

    model_path: str
    engine: str = "sglang"
    replicas: int = 1
    host: str = "127.0.0.1"
    port: int = 8101
    context: int = 8192
    startup_s: float = 900.0
    restarts: int = 3
    logs: str = "runs/serve"
    gpus: list[int] | None = None
    tensor_parallel: int = 1
    host_cache_gb: int = 0
    flags: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    prompt_cache_mb: int = 4096

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"serve.engine is {self.engine!r}; choose from {list(ENGINES)}")
        if self.replicas < 1 or self.tensor_parallel < 1:
            raise ValueError("serve.replicas and serve.tensor_parallel must be at least 1")


@dataclass(frozen=True)
class Server:
    """A command to run, and the OpenAI base at which it will serve: `local` from this machine."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    url: str
    local: str


def _bases(host: str, port: int) -> tuple[str, str]:
    """`url` and `local` of a server that listens at `host`."""
    every = host == "0.0.0.0"  # no address for others
    names = (socket.gethostname(), "127.0.0.1") if every else (host, host)
    url, local = (f"http://{name}:{port}/v1" for name in names)
    return url, local


def servers(config: ServeConfig, model: str) -> list[Server]:
    """One server a replica, serving under the name `model`. Raises `ValueError`."""
    return [ENGINES[config.engine](config, model, i) for i in range(config.replicas)]


def _sglang(config: ServeConfig, model: str, index: int) -> Server:
    size = config.tensor_parallel
    gpus = config.gpus if config.gpus is not None else list(range(config.replicas * size))
    mine = gpus[index * size : (index + 1) * size]
    if len(mine) < size or len(set(gpus)) < len(gpus):
        raise ValueError(
            f"serve.gpus={gpus} are too few for serve.replicas={config.replicas} of "
            f"serve.tensor_parallel={size}, or one stands twice"
        )
    port = config.port + index
    options: dict[str, Any] = {
        "model-path": config.model_path,
        "served-model-name": model,
        "host": config.host,
        "port": port,
        "tp-size": size,
        "context-length": config.context,
        # Prefix caching is on by default; the ledger needs its report.
        "enable-cache-report": True,
        "enable-metrics": True,
    }
    if config.host_cache_gb:
        options |= {"enable-hierarchical-cache": True, "hicache-size": config.host_cache_gb}
    options |= config.flags
    arguments: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value not in (False, None):
            arguments += [flag, str(value)]
    package = sglang_flags.installed()
    if package is not None:
        sglang_flags.check(arguments, sglang_flags.read_flags(package))
    return Server(
        f"sglang-{index}",
        (sys.executable, "-m", "sglang.launch_server", *arguments),
        {"CUDA_VISIBLE_DEVICES": ",".join(map(str, mine))},
        *_bases(config.host, port),
    )


def _llamacpp(config: ServeConfig, model: str, index: int) -> Server:
    if not os.path.isfile(config.model_path):
        raise ValueError(f"serve.model_path={config.model_path!r} is no GGUF file")
    port = config.port + index
    options = {
        "model-path": config.model_path,
        "name": model,
        "host": config.host,
        "port": port,
        "context": config.context,
        "threads": config.threads,
        "prompt-cache-mb": config.prompt_cache_mb,
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return Server(
        f"llamacpp-{index}",
        (sys.executable, "-m", "disco_rl.serve.llamacpp", *arguments),
        {"OMP_WAIT_POLICY": "passive"},
        *_bases(config.host, port),
    )


ENGINES = {"sglang": _sglang, "llamacpp": _llamacpp}
