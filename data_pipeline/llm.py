"""An LLM behind any OpenAI-compatible endpoint, with a cache by content: a crash repays nothing."""

import asyncio
import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from disco_rl.clients.chat import ChatClient
from disco_rl.clients.http import Endpoint, EndpointError
from disco_rl.core.replies import strip_thinking
from disco_rl.prompts import PromptSet

_FOLDER = Path(__file__).parent / "prompts"
PROMPTS = PromptSet(
    "data_pipeline", {p.stem: p.read_text(encoding="utf-8").strip() for p in _FOLDER.glob("*.md")}
)


def prompts_sha256() -> str:
    return hashlib.sha256(json.dumps(PROMPTS.texts, sort_keys=True).encode()).hexdigest()


class NoReply(ValueError):
    """The model refused this request, or its reply can't be used. Never a verdict."""


class Llm:
    """Asks from any thread; one event loop of its own does the talking.

    Replies are kept in an SQLite file by the hash of everything that decides them. `calls`,
    `cached`, `prompt_tokens` and `output_tokens` count what this process used; the tokens of
    cached replies don't count.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        cache: Path,
        *,
        max_tokens: int = 4096,
        sampling: Mapping[str, Any] | None = None,
    ):
        self._client = ChatClient(endpoint)
        self._max_tokens, self._sampling = max_tokens, dict(sampling or {})
        cache.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(cache, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT)")
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.calls = self.cached = self.prompt_tokens = self.output_tokens = 0

    def __enter__(self) -> "Llm":
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._db.close()

    def ask(self, prompt: str, *, vote: int = 0, **fields: object) -> dict[str, Any]:
        """The JSON object of the reply to prompt file `prompt`. Another `vote` is another sample.

        Raises `NoReply` for a reply without one or a refusal of this request, and `EndpointError`
        where the server is down or refuses every request: then the run stops, and goes on later.
        """
        text = PROMPTS.render(prompt, **fields)
        sampling = {**self._sampling, "seed": vote}
        body: dict[str, Any] = {
            "model": self._client.endpoint.model,
            "prompt": text,
            "sampling": sampling,
        }
        body["max_tokens"] = self._max_tokens
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        with self._lock:
            row = self._db.execute("SELECT reply FROM replies WHERE key=?", (key,)).fetchone()
            self.cached += row is not None
        reply = row[0] if row is not None else self._fetch(key, text, sampling)
        return _object(reply)

    def _fetch(self, key: str, text: str, sampling: Mapping[str, Any]) -> str:
        request = self._client.complete(
            [{"role": "user", "content": text}], max_tokens=self._max_tokens, sampling=sampling
        )
        try:
            reply = asyncio.run_coroutine_threadsafe(request, self._loop).result()
        except EndpointError as error:
            if error.retryable or error.status in (None, 401, 403, 404):
                raise
            raise NoReply(str(error)) from error
        # Cut off, it may be thoughts only, which quote the form of an answer.
        said = "" if reply.finish == "length" else reply.text
        with self._lock, self._db:
            self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, said))
            self.calls += 1
            self.prompt_tokens += reply.usage.prompt
            self.output_tokens += reply.usage.completion
        return said

    def usage(self) -> dict[str, int]:
        names = ("calls", "cached", "prompt_tokens", "output_tokens")
        return {name: getattr(self, name) for name in names}


def _object(reply: str) -> dict[str, Any]:
    said = strip_thinking(reply)
    start = said.find("{") if said else -1
    if not said or start < 0:
        raise NoReply(f"no JSON object in the reply {reply[-120:]!r}")
    try:
        value, _ = json.JSONDecoder().raw_decode(said, start)
    except (ValueError, RecursionError) as error:  # the latter for brackets without end
        raise NoReply(f"the reply's JSON is broken ({error}): {said[:120]!r}") from error
    return dict(value)
