"""What `disco-rl doctor` checks of endpoints and GPUs; nothing here starts or loads a model."""

import importlib.metadata
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from disco_rl.commands.checks import Finding, Level

if TYPE_CHECKING:
    from omegaconf import DictConfig

_RAY_PORT = 6379
_PINS = "install the pins as they are: make gpu (docs/launch.md)"


def endpoints(config: "DictConfig", *, timeout_s: float = 10.0) -> Iterator[Finding]:
    """Each endpoint of Workers and judge answers and serves the model that the config names."""
    for role, url, model, key in _endpoints(config):
        name = f"{role} endpoint"
        if url is None:
            yield Finding(Level.FAIL, name, f"{role}.url isn't set", f"set {role}.url=URL")
            continue
        try:
            served = served_models(url, key, timeout_s)
        except (URLError, OSError, ValueError) as error:
            remedy = (
                f"start it (scripts/launch/serve.sh), or correct {role}.url or {role}.api_key_env"
            )
            yield Finding(Level.FAIL, name, f"{url}: {error}", remedy)
            continue
        if model in served:
            yield Finding(Level.OK, name, f"{url} serves {model}")
        else:
            remedy = f"set {role}.model to one of them, or serve it with --served-model-name"
            yield Finding(Level.FAIL, name, f"{url} serves {served}, not {model}", remedy)


def served_models(url: str, key: str | None, timeout_s: float) -> list[str]:
    """Names that an OpenAI-compatible endpoint lists. Raises `OSError` or `ValueError`."""
    request = Request(f"{url.rstrip('/')}/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    with urlopen(request, timeout=timeout_s) as reply:
        listed = json.load(reply)
    try:
        return [str(entry["id"]) for entry in listed["data"]]
    except (KeyError, TypeError):
        raise ValueError("its /models isn't a list of models; is this an OpenAI API?") from None


def gpus(config: "DictConfig") -> Iterator[Finding]:
    """As many GPUs here as the config uses of a node, each with the memory that was planned."""
    wanted = int(config.trainer.n_gpus_per_node)
    if shutil.which("nvidia-smi") is None:
        remedy = "run this on a GPU node, or choose device=cpu"
        yield Finding(Level.FAIL, "GPUs", "no nvidia-smi here", remedy)
        return
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    listed = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout
    cards = [line.rpartition(",") for line in listed.splitlines() if line.strip()]
    shown = f"{len(cards)} x {cards[0][0].strip()}" if cards else "none"
    few = len(cards) < wanted
    remedy = f"set trainer.n_gpus_per_node={len(cards)}, or use a larger node" if few else ""
    yield Finding(Level.FAIL if few else Level.OK, "GPUs", f"{shown}, {wanted} wanted", remedy)
    planned = float(config.plan.hardware.gpu_memory_gb)
    least = min((float(memory) * 2**20 / 1e9 for *_, memory in cards), default=planned)
    if least < planned:
        yield Finding(
            Level.WARN,
            "GPU memory",
            f"{least:.0f} GB, and plan.hardware.gpu_memory_gb={planned:.0f}",
            f"disco-rl plan plan.hardware.gpu_memory_gb={least:.0f} says what then fits",
        )


def cuda(config: "DictConfig") -> Iterator[Finding]:
    """torch sees the GPUs with a CUDA that the driver has, NCCL is there, and the rollout's engine.

    Imports torch, and uses no GPU's memory.
    """
    import torch

    if torch.version.cuda is None:
        detail = f"torch {torch.__version__} is built without CUDA"
        yield Finding(Level.FAIL, "CUDA", detail, _PINS)
    elif not torch.cuda.is_available():
        detail = f"torch {torch.__version__} is for CUDA {torch.version.cuda} and sees no GPU"
        remedy = "update the driver to one for that CUDA, or unset CUDA_VISIBLE_DEVICES"
        yield Finding(Level.FAIL, "CUDA", detail, remedy)
    else:
        yield Finding(Level.OK, "CUDA", f"{torch.version.cuda}, torch {torch.__version__}")
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        version = ".".join(map(str, torch.cuda.nccl.version()))
        yield Finding(Level.OK, "NCCL", version)
    else:
        yield Finding(Level.FAIL, "NCCL", f"torch {torch.__version__} has none", _PINS)
    wanted = [str(config.actor_rollout_ref.rollout.name)]
    if str(config.actor_rollout_ref.rollout.checkpoint_engine.backend) == "nccl":
        wanted.append("cupy-cuda13x")  # verl's transfer of weights between processes
    for name in wanted:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(Level.FAIL, "packages", f"{name} is missing", _PINS)
        else:
            yield Finding(Level.OK, "packages", f"{name} {version}")


def disk(config: "DictConfig") -> Iterator[Finding]:
    """Room for the run's folder, as `disco-rl plan` reckons it."""
    from disco_rl.planning.inputs import inputs
    from disco_rl.planning.step import disk_bytes

    folder = Path(str(config.trainer.default_local_dir)).expanduser().absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    needed = disk_bytes(inputs(config))
    wanted = (needed["checkpoints"] + needed["records"]) / 1e9
    free = shutil.disk_usage(there).free / 1e9
    detail = f"{there}: {free:,.0f} GB free, {wanted:,.0f} planned"
    if free < wanted:
        remedy = "lower trainer.max_actor_ckpt_to_keep, or move trainer.default_local_dir"
        yield Finding(Level.FAIL, "disk, run", detail, remedy)
    else:
        yield Finding(Level.OK, "disk, run", detail)


def ports(config: "DictConfig", *, ray_port: int = _RAY_PORT) -> Iterator[Finding]:
    """Ray's port is free where this run starts Ray, and taken where it joins one."""
    joins = (config.ray_kwargs.get("ray_init") or {}).get("address") is not None
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", ray_port)) == 0
    detail = f"{ray_port} is {'in use' if taken else 'free'}"
    if taken == joins:
        yield Finding(Level.OK, "Ray's port", detail)
    elif taken:
        remedy = "join it with +ray_kwargs.ray_init.address=auto, or stop it: ray stop"
        yield Finding(Level.WARN, "Ray's port", f"{detail}: another Ray runs here", remedy)
    else:
        remedy = f"start it first: ray start --head --port={ray_port}"
        yield Finding(Level.FAIL, "Ray's port", f"{detail}, and this run joins a Ray", remedy)


def _endpoints(config: "DictConfig") -> Iterator[tuple[str, str | None, str | None, str | None]]:
    """Role, address, model and key of every endpoint; the address is None where it isn't set."""
    from omegaconf import OmegaConf

    for role in ("worker", "judge"):
        part: Any = config.get(role) or {}
        if (part.get("kind") if role == "worker" else part.get("name")) not in ("chat", "llm"):
            continue
        key = os.environ.get(str(part.get("api_key_env") or ""))
        given = None if OmegaConf.is_missing(part, "url") else part.url
        for url in [given] if given is None or isinstance(given, str) else list(given):
            yield role, url, None if OmegaConf.is_missing(part, "model") else part.model, key
        if fallback := part.get("fallback_url"):
            other = os.environ.get(str(part.get("fallback_api_key_env") or ""))
            yield role, fallback, part.get("fallback_model") or part.model, other
