"""Launch files: the shell parses, the manifest is whole, no secret stands in them.

None of them has been run on a cluster.
"""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from disco_rl import cli
from disco_rl.config import compose

LAUNCH = Path(__file__).resolve().parents[1] / "scripts" / "launch"
MANIFEST: list[dict[str, Any]] = list(yaml.safe_load_all((LAUNCH / "kuberay.yaml").read_text()))
JOB = MANIFEST[0]["spec"]


@pytest.mark.parametrize("file", sorted(LAUNCH.glob("*.sh")), ids=lambda path: path.name)
def test_the_shell_parses_it(file: Path) -> None:
    assert subprocess.run(["bash", "-n", str(file)]).returncode == 0


def test_the_jobs_command_is_one_of_ours() -> None:
    words = shlex.split(JOB["entrypoint"])
    assert words[0] == "disco-rl"
    args = cli.parse(words[1:])
    config = compose(args.overrides)
    nodes = 1 + sum(group["replicas"] for group in JOB["rayClusterSpec"]["workerGroupSpecs"])
    assert config.trainer.nnodes == nodes
    container = JOB["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert config.trainer.n_gpus_per_node == container["resources"]["limits"]["nvidia.com/gpu"]
    assert str(config.trainer.default_local_dir).startswith("/shared/")  # survives a preemption


def test_ray_is_the_pinned_one() -> None:
    lock = (LAUNCH.parents[1] / "constraints" / "gpu.txt").read_text()
    assert f"ray=={JOB['rayClusterSpec']['rayVersion']}" in lock.splitlines()


def test_addresses_are_those_of_the_services() -> None:
    services = {d["metadata"]["name"]: d["spec"] for d in MANIFEST if d["kind"] == "Service"}
    (workers,) = [d["spec"] for d in MANIFEST if d["kind"] == "StatefulSet"]
    found = re.findall(r"http://([\w.-]+):(\d+)/v1", JOB["entrypoint"])
    assert len(found) == 1 + workers["replicas"]
    for host, port in found:
        service = services[host.rpartition(".")[2]]
        assert service["ports"] == [{"port": int(port)}]


def test_secrets_are_named_and_not_written() -> None:
    container = JOB["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "disco-rl"}}]
    for file in LAUNCH.iterdir():
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"(KEY|TOKEN|SECRET)=[^.\s]", text), file
