"""The session in which a model's code runs: what it can do, and that it gets out nowhere."""

import asyncio
import errno
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from disco_rl.evaluation.methods import repl as repl_module
from disco_rl.evaluation.methods.repl import Ran, Repl, ReplError, ReplLimits
from disco_rl.evaluation.methods.sandbox import supported

pytestmark = pytest.mark.skipif(not supported(), reason="needs Linux on x86_64 or aarch64")
CONTEXT = "The ferry leaves at noon. " * 1000


async def echo(prompts: Sequence[str]) -> list[str]:
    return [f"<{prompt}>" for prompt in prompts]


async def run(code: str, **limits: float) -> Ran:
    async with Repl(CONTEXT, echo, ReplLimits(**limits)) as repl:  # type: ignore[arg-type]
        return await repl.run(code)


async def test_variables_stay_and_only_what_is_printed_returns() -> None:
    async with Repl(CONTEXT, echo) as repl:
        assert await repl.run("found = re.findall('noon', context)") == Ran("", None)
        assert await repl.run("print(len(found), len(context))") == Ran("1000 26000\n", None)
        assert "ZeroDivisionError" in (await repl.run("1 / 0")).output
        assert "SyntaxError" in (await repl.run("if")).output
        assert "SystemExit" in (await repl.run("raise SystemExit")).output
        done = await repl.run("answer['content'] = 'noon'; answer['ready'] = True")
        assert done == Ran("", "noon")


async def test_sub_models_are_asked_one_by_one_and_in_batches() -> None:
    ran = await run("print(llm_query('a'), llm_query_batched(['b', 'c']))")
    assert ran.output == "<a> ['<b>', '<c>']\n"


async def test_a_failed_sub_model_is_an_exception_of_the_code() -> None:
    async def fails(prompts: Sequence[str]) -> list[str]:
        raise ReplError("over 10 sub-model calls")

    async with Repl("", fails) as repl:
        ran = await repl.run("try:\n    llm_query('x')\nexcept RuntimeError as e:\n    print(e)")
    assert ran.output == "ReplError: over 10 sub-model calls\n"


async def test_two_sessions_order_sets_and_draw_numbers_alike() -> None:
    code = "print(list({'a', 'b', 'c', 'd', 'e', 'f'}), random.random())"
    assert (await run(code)).output == (await run(code)).output


async def test_output_is_cut() -> None:
    ran = await run("print('x' * 50_000)", output_chars=100)
    assert ran.output == "x" * 100 + "\n[49901 more characters were cut]"


@pytest.mark.parametrize(
    "attack",
    [
        "open('/etc/passwd').read()",
        "open('{tmp}/escape', 'w')",
        "import os; os.open('/proc/self/environ', os.O_RDONLY)",
        "import os; os.listdir('/')",
        "import os; os.unlink('{tmp}/victim')",
        "import os; os.symlink('/etc', '{tmp}/escape')",
        "import os; os.chdir('{tmp}')",
        "import os; os.memfd_create('x')",
        "import socket; socket.socket()",
        "import _socket; _socket.socket(1, 1)",
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import os; os.system('id > {tmp}/escape') and 1 / 0",
        "import _posixsubprocess",  # harmless itself; what it would call is refused above
        "import _thread; _thread.start_new_thread(print, ())",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.setuid(0)",
        "import os; os.pipe()",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.syscall(2, b'/etc/passwd', 0) >= 0, ctypes.get_errno()",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.syscall(56, 17, 0, 0, 0, 0) >= 0, ctypes.get_errno()",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.ptrace(16, 1, 0, 0) >= 0, ctypes.get_errno()",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.prctl(22, 0, 0, 0, 0) >= 0, ctypes.get_errno()",
    ],
)
async def test_files_network_and_processes_are_out_of_reach(attack: str, tmp_path: Path) -> None:
    escape, victim = tmp_path / "escape", tmp_path / "victim"
    victim.write_text("here")
    attack = attack.replace("{tmp}", str(tmp_path))
    ran = await run(f"{attack}\nprint('GOT' + ' OUT')")
    if "import _posixsubprocess" not in attack:
        assert "GOT OUT" not in ran.output
        assert "Error" in ran.output
    assert victim.read_text() == "here" and not escape.exists()


@pytest.mark.parametrize(
    "attack",
    [
        "open('/etc/passwd').read()",
        "import os; os.listdir('/')",
        "import os; os.memfd_create('x')",
        "import os; os.pipe()",
        "import socket; socket.socket()",
        "import os\nif os.fork() == 0: os._exit(0)",
        "import os; os.system('true') and 1 / 0",
        "import _thread; _thread.start_new_thread(int, ())",
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "assert c.syscall(2, b'/etc/passwd', 0) >= 0, ctypes.get_errno()",
    ],
)
def test_the_same_attacks_succeed_where_nothing_stops_them(attack: str) -> None:
    """Else a refusal above would prove nothing."""
    if "syscall" in attack and platform.machine() != "x86_64":
        pytest.skip("numbers of x86_64")
    done = subprocess.run(
        [sys.executable, "-c", f"{attack}\nprint('GOT' + ' OUT')"], capture_output=True, text=True
    )
    assert done.stdout == "GOT OUT\n", done.stderr


_CALLS = {
    "socket": 41, "connect": 42, "sendto": 44, "bind": 49, "clone": 56, "fork": 57, "vfork": 58,
    "execve": 59, "kill": 62, "rename": 82, "unlink": 87, "ptrace": 101, "prctl": 157,
    "openat": 257, "unshare": 272, "perf_event_open": 298, "setns": 308, "process_vm_readv": 310,
    "seccomp": 317, "memfd_create": 319, "bpf": 321, "execveat": 322, "userfaultfd": 323,
    "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435, "openat2": 437,
}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
async def test_raw_system_calls_are_refused_by_the_kernel() -> None:
    """Below Python: what a module that can't be imported would have called."""
    ran = await run(
        "import ctypes\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {_CALLS!r}.items():\n"
        "    ctypes.set_errno(0)\n"
        "    print(name, c.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())\n"
    )
    assert ran.output.split("\n")[:-1] == [f"{name} -1 {errno.EPERM}" for name in _CALLS]


_CONNECT = """
import ctypes
c = ctypes.CDLL(None, use_errno=True)
there = (2).to_bytes(2, 'little') + ({port}).to_bytes(2, 'big') + bytes([127, 0, 0, 1]) + bytes(8)
print('connected' if c.connect(c.socket(2, 1, 0), there, 16) == 0 else 'refused')
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the address is written for these")
async def test_no_connection_reaches_a_server_that_listens() -> None:
    arrived = 0

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        arrived += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        code = _CONNECT.format(port=server.sockets[0].getsockname()[1])
        assert (await run(code)).output == "refused\n"
        await asyncio.sleep(0.1)
        assert arrived == 0
        free = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code), stdout=asyncio.subprocess.PIPE
        )
        assert (await free.communicate())[0] == b"connected\n"
        await asyncio.sleep(0.1)
        assert arrived == 1


async def test_the_x32_calls_and_a_spoofed_message_only_end_the_session() -> None:
    x32 = "import ctypes; ctypes.CDLL(None).syscall(0x40000002, b'/etc/passwd', 0)"
    with pytest.raises(ReplError, match="ended"):
        await run(x32)
    spoof = """import os; os.write(1, b'{"output": 5, "answer": "x"}\\n')"""
    with pytest.raises(ReplError, match="none of its own"):
        await run(spoof)


async def test_it_inherits_no_environment_and_no_open_files() -> None:
    os.environ["DISCO_TEST_SECRET"] = "hush"
    try:
        ran = await run(
            "import os\n"
            "print(dict(os.environ))\n"
            "def is_open(fd):\n"
            "    try:\n"
            "        return os.lseek(fd, 0, 1) >= 0\n"
            "    except OSError as e:\n"
            "        return e.errno != 9\n"  # EBADF; a pipe can't be sought, but is open
            "print([fd for fd in range(4096) if is_open(fd)])"
        )
    finally:
        del os.environ["DISCO_TEST_SECRET"]
    assert "hush" not in ran.output
    assert ran.output.splitlines()[1] == "[0, 1, 2, 3]"  # two pipes, one twice, and /dev/null


@pytest.mark.parametrize(
    "hog",
    [
        "x = bytearray(1 << 31)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "x = 'a' * (1 << 31)",
    ],
)
async def test_memory_is_bounded(hog: str) -> None:
    ran = await run(hog, memory_mb=256)
    assert "MemoryError" in ran.output


async def test_processor_time_is_bounded_over_all_blocks() -> None:
    limits = ReplLimits(block_s=30, cpu_s=2)
    spin = "import time; end = time.process_time() + 0.8\nwhile time.process_time() < end: pass"
    with pytest.raises(ReplError, match="ended"):
        async with Repl("", echo, limits) as repl:
            for _ in range(5):
                assert (await repl.run(spin)).output == ""


@pytest.mark.parametrize(
    "block",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "9 ** 9 ** 9",
        "re.match('(a+)+$', 'a' * 40 + 'b')",
    ],
)
async def test_time_is_bounded(block: str) -> None:
    began = time.monotonic()
    with pytest.raises(ReplError, match="ran over 0.5 s"):
        await run(block, block_s=0.5)
    assert time.monotonic() - began < 20


async def test_a_flood_ends_the_session() -> None:
    flood = "import os\nwhile True: os.write(1, b'x' * 65536)"
    with pytest.raises(ReplError):
        await run(flood, block_s=20)


async def test_a_session_with_a_full_pipe_is_closed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repl_module, "_LINE", 1 << 16)  # so that what reads the pipe is soon full
    flood = (
        "import os\n"
        """os.write(1, b'{"output": "", "answer": null}\\n')\n"""
        "while True: os.write(1, b'x\\n' * 20_000)"
    )
    async with Repl("", echo) as repl:
        assert await repl.run(flood) == Ran("", None)
        await asyncio.sleep(1)  # while the pipe fills
        await asyncio.wait_for(repl.close(), 30)


async def test_asking_for_nothing_for_ever_is_the_blocks_own_time() -> None:
    with pytest.raises(ReplError, match="ran over 0.2 s"):
        await run("while True: llm_query_batched([])", block_s=0.2)


async def test_a_message_nested_too_deep_ends_the_session() -> None:
    with pytest.raises(ReplError, match="ended"):
        await run("import os; os.write(1, b'[' * 60000 + b'\\n')")


async def test_waiting_for_models_is_not_the_blocks_own_time() -> None:
    async def slow(prompts: Sequence[str]) -> list[str]:
        await asyncio.sleep(3.5)
        return list(prompts)

    async with Repl("", slow, ReplLimits(block_s=3)) as repl:
        assert (await repl.run("print(llm_query('a'))")).output == "a\n"


async def test_a_dead_session_says_so() -> None:
    async with Repl("", echo, ReplLimits(block_s=0.5)) as repl:
        with pytest.raises(ReplError):
            await repl.run("while True: pass")
        with pytest.raises(ReplError, match="over"):
            await repl.run("print(1)")
