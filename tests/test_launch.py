"""Launch files: the shell parses, the manifest is whole, no secret stands in them.

None of them has been run on a cluster.
"""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
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


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """slurm.sh with stand-ins for Slurm's commands; training writes `training` and ends in time."""
    fakes = {
        "scontrol": 'case "$1" in show) echo one;; *) echo "$@" > requeued;; esac',
        "srun": 'case "$*" in *--ip-address*) echo 127.0.0.1;; *"disco-rl train"*)\n'
        "touch training; until [ -e over ]; do /bin/sleep 0.05; done; exit 7;; esac",
        "sleep": "touch over",  # the trap's: the job is taken down meanwhile
    }
    (tmp_path / "bin").mkdir()
    for name, text in fakes.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "one", "SLURM_CPUS_PER_TASK": "2"}
    process = subprocess.Popen(
        ["bash", str(LAUNCH / "slurm.sh"), "experiment=qwen3_8b"],
        cwd=tmp_path,
        env={**os.environ, **job, "VENV": str(tmp_path)},
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not (tmp_path / "training").exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    yield process
    (tmp_path / "over").touch()
    process.wait(60)


def test_slurm_requeues_a_run_that_is_out_of_time(slurm: subprocess.Popen, tmp_path: Path) -> None:
    assert "#SBATCH --signal=B:USR1@" in (LAUNCH / "slurm.sh").read_text()
    slurm.send_signal(signal.SIGUSR1)  # to the batch shell only, as Slurm does
    assert slurm.wait(60) != 0
    assert (tmp_path / "requeued").read_text() == "requeue 4711\n"


def test_slurm_sees_how_a_run_ended(slurm: subprocess.Popen, tmp_path: Path) -> None:
    (tmp_path / "over").touch()
    assert slurm.wait(60) == 7 and not (tmp_path / "requeued").exists()


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
