"""A Python session in a locked process of its own, and the parent's side of it."""

import asyncio
import json
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disco_rl.engine.protocols import ModelError
from disco_rl.evaluation.methods import sandbox

Ask = Callable[[Sequence[str]], Awaitable[list[str]]]
_CHILD = Path(__file__).with_name("repl_child.py")
_LINE = 64 << 20  # bytes of one message: a batch of long prompts, not a flood


class ReplError(ModelError):
    """The session ended: its time or memory was used up, or it broke. Its variables are lost."""


@dataclass(frozen=True, slots=True)
class ReplLimits:
    """Of one session. `block_s` bounds the running of one block, without the time that its model
    calls take; `cpu_s` is the processor time of the whole session."""

    memory_mb: int = 1024
    block_s: float = 60.0
    cpu_s: float = 600.0
    output_chars: int = 20_000


@dataclass(frozen=True, slots=True)
class Ran:
    """What a block printed, cut; and the answer, where it was set as ready."""

    output: str
    answer: str | None


class Repl:
    """One session; use `async with`. Raises `ReplError` where the machine can't lock a process."""

    def __init__(self, context: str, ask: Ask, limits: ReplLimits = ReplLimits()):
        self._context, self._ask, self._limits = context, ask, limits
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Repl":
        if not sandbox.supported():
            raise ReplError("rlm runs a model's code, which needs Linux on x86_64 or aarch64")
        limits = self._limits
        # Python holds the context once, its JSON line, and its bytes while it is read.
        memory = (limits.memory_mb << 20) + 8 * len(self._context)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-s", "-S", "-B", str(_CHILD)),
            *(str(memory), str(math.ceil(limits.cpu_s)), str(limits.output_chars)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            # No keys; and sets in one order, so that a resumed session asks what it asked before.
            env={"PYTHONHASHSEED": "0"},
            cwd="/",
            limit=_LINE,
            start_new_session=True,
        )
        try:
            await self._send({"context": self._context})
            ready, _ = await self._receive(max(limits.block_s, 30.0))
            if "ready" not in ready:
                raise ReplError("the session did not start")
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()  # reads to the end: wait() alone hangs on a full pipe

    async def run(self, code: str) -> Ran:
        """Runs one block. After a `ReplError` the session is over."""
        await self._send({"code": code})
        left = self._limits.block_s
        while True:
            message, took = await self._receive(left)
            left -= took
            if "ask" in message:
                await self._send(await self._answer(message["ask"]))
                continue
            output, answer = message.get("output"), message.get("answer")
            if not isinstance(output, str) or not isinstance(answer, str | None):
                await self.close()
                raise ReplError("the session sent a message that is none of its own")
            # The child cut it too, but its code could have spoken for it.
            return Ran(output[: self._limits.output_chars + 100], answer)

    async def _answer(self, prompts: Any) -> dict[str, Any]:
        if not isinstance(prompts, list) or not all(isinstance(p, str) for p in prompts):
            return {"error": "llm_query takes a string, llm_query_batched a list of strings"}
        try:
            return {"replies": await self._ask(prompts)}
        except Exception as error:  # told to the model's code, as any function's failure would be
            return {"error": f"{type(error).__name__}: {error}"}

    async def _send(self, message: dict[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise ReplError("the session is over; its variables are lost")
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await asyncio.wait_for(process.stdin.drain(), max(self._limits.block_s, 30.0))
        except (ConnectionError, asyncio.TimeoutError) as error:
            await self.close()
            raise ReplError("the session ended (killed for its memory, or by its code)") from error

    async def _receive(self, seconds: float) -> tuple[dict[str, Any], float]:
        process = self._process
        assert process is not None and process.stdout is not None
        loop = asyncio.get_running_loop()
        began = loop.time()
        if seconds <= 0:  # spent on asking, over and over
            await self.close()
            raise ReplError(f"a block ran over {self._limits.block_s:g} s")
        try:
            line = await asyncio.wait_for(process.stdout.readline(), seconds)
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError("not an object")
        except asyncio.TimeoutError as error:
            await self.close()
            raise ReplError(f"a block ran over {self._limits.block_s:g} s") from error
        except (ValueError, RecursionError) as error:  # end of file, a flood, or noise
            await self.close()
            raise ReplError("the session ended (memory, processor time, or its code)") from error
        return message, loop.time() - began
