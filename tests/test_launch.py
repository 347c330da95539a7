"""Launch files: the shell parses, the manifest is whole, no secret stands in them.

None of them has been run on a cluster.
"""

import os
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


def test_a_server_that_ends_takes_its_own_along_and_nobody_else(tmp_path: Path) -> None:
    """Called from a script, as on Slurm: servers share the caller's process group."""
    server = tmp_path / "python"
    server.write_text(
        f"#!/bin/sh\necho $$ >> {tmp_path}/pids\n"
        'case "$*" in *"--port 8101 "*) sleep 0.3;; *) exec sleep 60;; esac\n'
    )
    server.chmod(0o755)
    caller = f"GPUS=2 {LAUNCH / 'serve.sh'} some/model; echo ended with $?"
    done = subprocess.run(
        ["bash", "-c", caller],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.strip() == "ended with 1", done
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_slurm_gives_ray_all_cores_of_a_task() -> None:
    """Since 22.05 srun doesn't inherit --cpus-per-task."""
    text = (LAUNCH / "slurm.sh").read_text()
    assert text.index("SRUN_CPUS_PER_TASK=") < text.index("ray start")


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
