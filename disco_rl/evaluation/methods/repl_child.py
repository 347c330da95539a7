"""The process in which a model's code runs. Started by `repl.py` as a script, locked, then served.

Speaks lines of JSON over the two pipes it was started with. In: {"context"}, {"code"},
{"replies"}. Out: {"ready"}, {"ask": prompts}, {"output", "answer"}.
"""

import collections
import datetime
import io
import itertools
import json
import math
import os
import random
import re
import statistics
import string
import sys
import traceback
from collections.abc import Iterable
from typing import Any, BinaryIO, NoReturn


class _Output(io.TextIOBase):
    """What is printed, up to a limit; the rest is counted, not kept."""

    def __init__(self, limit: int):
        self.limit, self.size = limit, 0
        self.parts: list[str] = []

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.size < self.limit:
            self.parts.append(text[: self.limit - self.size])
        self.size += len(text)
        return len(text)

    def text(self) -> str:
        lost = self.size - self.limit
        return "".join(self.parts) + (f"\n[{lost} more characters were cut]" if lost > 0 else "")


def serve(source: BinaryIO, sink: BinaryIO, limit: int) -> NoReturn:
    def send(message: dict[str, Any]) -> None:
        sink.write(json.dumps(message).encode() + b"\n")
        sink.flush()

    def receive() -> Any:
        line = source.readline()
        if not line:
            os._exit(0)  # nobody is listening any more
        return json.loads(line)

    def llm_query_batched(prompts: Iterable[Any]) -> list[str]:
        prompts = [str(prompt) for prompt in prompts]
        send({"ask": prompts})
        reply = receive()
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["replies"]

    def llm_query(prompt: Any) -> str:
        return llm_query_batched([prompt])[0]

    random.seed(0)  # a resumed session asks what it asked before
    space: dict[str, Any] = {
        "__name__": "__main__",
        "context": receive()["context"],
        "answer": {"content": "", "ready": False},
        "llm_query": llm_query,
        "llm_query_batched": llm_query_batched,
    }
    for module in (collections, datetime, itertools, json, math, random, re, statistics, string):
        space[module.__name__] = module
    send({"ready": True})
    while True:
        code = receive()["code"]
        out = _Output(limit)
        sys.stdout = sys.stderr = out  # type: ignore[assignment]
        try:
            exec(compile(code, "<repl>", "exec"), space)
        except BaseException:  # SystemExit too: the session goes on
            out.write(traceback.format_exc(limit=-4))
        state = space.get("answer")
        answer = None
        if isinstance(state, dict) and state.get("ready"):
            answer = str(state.get("content", ""))
        send({"output": out.text(), "answer": answer})


if __name__ == "__main__":
    from sandbox import lock  # ours, beside this script; the process imports nothing else of ours

    sys.path.pop(0)
    pipes = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    lock(memory=int(sys.argv[1]), seconds=int(sys.argv[2]))
    serve(*pipes, int(sys.argv[3]))
