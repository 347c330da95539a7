"""Doctor's checks of endpoints, GPUs, disk and ports; every failure comes with its remedy."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from disco_rl.commands import cluster_checks
from disco_rl.commands.checks import Finding, Level


class Models(BaseHTTPRequestHandler):
    """Lists one model to whoever has the key, and something else under /other."""

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == "Bearer k-1"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        body = {"data": [{"id": "small"}]} if self.path == "/v1/models" else ["no list"]
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("WORKER_KEY", "k-1")
    with HTTPServer(("127.0.0.1", 0), Models) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def check(worker: dict, judge: dict | None = None) -> list[Finding]:
    config = OmegaConf.create({"worker": worker, "judge": judge or {"name": "match"}})
    found = list(cluster_checks.endpoints(config, timeout_s=5))
    assert all(bool(finding.remedy) == (finding.level is Level.FAIL) for finding in found)
    assert not any("k-1" in f"{finding.detail}{finding.remedy}" for finding in found)
    return found


def worker(url: object, **more: str) -> dict:
    return {"kind": "chat", "url": url, "model": "small", "api_key_env": "WORKER_KEY", **more}


def test_an_endpoint_that_serves_the_model_passes(server: str) -> None:
    (found,) = check(worker(f"{server}/v1"))
    assert found.level is Level.OK and "serves small" in found.detail
    both = check(worker([f"{server}/v1", f"{server}/v1/"]))
    assert [finding.level for finding in both] == [Level.OK, Level.OK]


def test_an_endpoint_that_serves_another_fails(server: str) -> None:
    (found,) = check(worker(f"{server}/v1", model="large"))
    assert found.level is Level.FAIL and "serves ['small'], not large" in found.detail


def test_endpoints_that_cannot_be_used_fail(server: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        (found,) = check(worker(nobody))
    assert found.level is Level.FAIL and "scripts/launch/serve.sh" in found.remedy
    (found,) = check(worker(f"{server}/v1", api_key_env="NO_SUCH_KEY"))
    assert found.level is Level.FAIL and "401" in found.detail
    (found,) = check(worker(f"{server}/other"))
    assert "is this an OpenAI API?" in found.detail
    (found,) = check({"kind": "chat", "url": "???", "model": "small"})
    assert found.detail == "worker.url isn't set"


def test_a_judge_and_its_fallback_are_asked(server: str) -> None:
    judge = {
        "name": "llm",
        "url": f"{server}/v1",
        "model": "small",
        "api_key_env": "WORKER_KEY",
        "fallback_url": f"{server}/v1",
        "fallback_model": "other",
        "fallback_api_key_env": "WORKER_KEY",
    }
    first, second = check({"kind": "retriever"}, judge)
    assert (first.level, second.level) == (Level.OK, Level.FAIL)
    assert "not other" in second.detail


def test_nothing_is_asked_where_nothing_is_served() -> None:
    assert check({"kind": "retriever"}) == []


def gpu_config(wanted: int) -> object:
    return OmegaConf.create(
        {
            "trainer": {"n_gpus_per_node": wanted},
            "plan": {"hardware": {"gpu_memory_gb": 80.0}},
        }
    )


def test_gpus_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559'\necho 'NVIDIA H100, 40960'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    count, memory = cluster_checks.gpus(gpu_config(2))
    assert count.level is Level.OK and count.detail.startswith("2 x NVIDIA H100")
    assert memory.level is Level.WARN and "gpu_memory_gb=43" in memory.remedy
    few, *_ = cluster_checks.gpus(gpu_config(8))
    assert few.level is Level.FAIL and "trainer.n_gpus_per_node=2" in few.remedy
    monkeypatch.setattr(cluster_checks.shutil, "which", lambda name: None)
    (none,) = cluster_checks.gpus(gpu_config(8))
    assert none.level is Level.FAIL and "device=cpu" in none.remedy


def stack(monkeypatch: pytest.MonkeyPatch, *, here: bool, backend: str = "naive") -> list[Finding]:
    """What `cuda` finds where torch, NCCL and the engines are as they should be, or are not."""
    import torch

    def version(name: str) -> str:
        if not here:
            raise cluster_checks.importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: here)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr(cluster_checks.importlib.metadata, "version", version)
    rollout = {"name": "sglang", "checkpoint_engine": {"backend": backend}}
    found = list(cluster_checks.cuda(OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})))
    assert all(bool(finding.remedy) == (finding.level is Level.FAIL) for finding in found)
    return found


def test_cuda_nccl_and_the_rollouts_engine_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = stack(monkeypatch, here=True)
    assert [(f.name, f.level) for f in found] == [
        ("CUDA", Level.OK),
        ("NCCL", Level.OK),
        ("packages", Level.OK),
    ]
    assert found[1].detail == "2.28.9" and found[2].detail == "sglang 1.0"
    driver, nccl, engine, transfer = stack(monkeypatch, here=False, backend="nccl")
    assert driver.level is Level.FAIL and "sees no GPU" in driver.detail
    assert nccl.level is Level.FAIL and "make gpu" in nccl.remedy
    assert "sglang is missing" in engine.detail and "cupy-cuda13x is missing" in transfer.detail
    import torch

    monkeypatch.setattr(torch.version, "cuda", None)
    (first, *_) = cluster_checks.cuda(
        OmegaConf.create(
            {"actor_rollout_ref": {"rollout": {"name": "x", "checkpoint_engine": {"backend": ""}}}}
        )
    )
    assert "built without CUDA" in first.detail


@pytest.mark.parametrize(
    ("taken", "address", "level"),
    [
        (False, None, Level.OK),
        (True, None, Level.WARN),
        (True, "auto", Level.OK),
        (False, "auto", Level.FAIL),
    ],
)
def test_rays_port(taken: bool, address: str | None, level: Level) -> None:
    config = OmegaConf.create({"ray_kwargs": {"ray_init": {"address": address}}})
    with socket.socket() as ray:
        ray.bind(("127.0.0.1", 0))
        if taken:
            ray.listen()
        (found,) = cluster_checks.ports(config, ray_port=ray.getsockname()[1])
    assert found.level is level and bool(found.remedy) == (level is not Level.OK)


def test_disk_against_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from disco_rl.config import compose

    run = tmp_path / "not" / "yet"
    config = compose(["experiment=qwen3_8b", f"trainer.default_local_dir={run}"])
    monkeypatch.setattr(cluster_checks.shutil, "disk_usage", lambda at: SimpleNamespace(free=1e12))
    (found,) = cluster_checks.disk(config)
    assert found.level is Level.OK and f"{tmp_path}: 1,000 GB free, 542 planned" in found.detail
    monkeypatch.setattr(cluster_checks.shutil, "disk_usage", lambda at: SimpleNamespace(free=9e10))
    (found,) = cluster_checks.disk(config)
    assert found.level is Level.FAIL and "max_actor_ckpt_to_keep" in found.remedy
