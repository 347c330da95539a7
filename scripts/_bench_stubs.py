"""_stub_server.py in a process of its own, for the benchmarks."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any


class Stub:
    """Serves at `url`; `delay` is in seconds a reply. Its calls block: use a thread."""

    def __init__(self, port: int = 0, delay: float = 0.0):
        script = str(Path(__file__).with_name("_stub_server.py"))
        command = [sys.executable, script, str(port), str(delay)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        served = re.findall(r":(\d+)/", self.url)
        if not served:
            raise RuntimeError(f"the stub server ended with {self._process.wait()}")
        self.port = int(served[0])

    def slow(self, delay: float) -> None:
        self._call("/control", {"delay": delay})

    def requests(self) -> int:
        return int(self._call("/counts")["requests"])

    def replies(self) -> int:
        return int(self._call("/counts")["replies"])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url.removesuffix("/v1") + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return dict(json.load(reply))
