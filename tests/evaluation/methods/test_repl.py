"""The session in which a model's code runs: what it can do, and that it gets out nowhere."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

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
        "open('/tmp/disco_rl_escape', 'w')",
        "import os; os.open('/proc/self/environ', os.O_RDONLY)",
        "import os; os.listdir('/')",
        "import os; os.unlink('/tmp/disco_rl_victim')",
        "import os; os.symlink('/etc', '/tmp/disco_rl_escape')",
        "import os; os.chdir('/tmp')",
        "import os; os.memfd_create('x')",
        "import socket; socket.socket()",
        "import _socket; _socket.socket(1, 1)",
        "import os; os.fork()",
        "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import os; os.system('id > /tmp/disco_rl_escape') and 1 / 0",
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
    escape, victim = Path("/tmp/disco_rl_escape"), Path("/tmp/disco_rl_victim")
    victim.write_text("here")
    try:
        ran = await run(f"{attack}\nprint('GOT' + ' OUT')")
        if "import _posixsubprocess" not in attack:
            assert "GOT OUT" not in ran.output
            assert "Error" in ran.output
        assert victim.read_text() == "here" and not escape.exists()
    finally:
        victim.unlink()


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


async def test_memory_is_bounded() -> None:
    ran = await run("x = bytearray(1 << 31)", memory_mb=256)
    assert "MemoryError" in ran.output


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


async def test_asking_for_nothing_for_ever_is_the_blocks_own_time() -> None:
    with pytest.raises(ReplError, match="ran over 0.2 s"):
        await run("while True: llm_query_batched([])", block_s=0.2)


async def test_a_message_nested_too_deep_ends_the_session() -> None:
    with pytest.raises(ReplError, match="ended"):
        await run("import os; os.write(1, b'[' * 60000 + b'\\n')")


async def test_waiting_for_models_is_not_the_blocks_own_time() -> None:
    async def slow(prompts: Sequence[str]) -> list[str]:
        await asyncio.sleep(0.8)
        return list(prompts)

    async with Repl("", slow, ReplLimits(block_s=0.6)) as repl:
        assert (await repl.run("print(llm_query('a'))")).output == "a\n"


async def test_a_dead_session_says_so() -> None:
    async with Repl("", echo, ReplLimits(block_s=0.5)) as repl:
        with pytest.raises(ReplError):
            await repl.run("while True: pass")
        with pytest.raises(ReplError, match="over"):
            await repl.run("print(1)")
