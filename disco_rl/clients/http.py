"""JSON over HTTP to one model server: keep-alive, retries, one deadline, errors that say why."""

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from disco_rl.engine.protocols import ModelError
from disco_rl.engine.serving.policy import backoff

_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)|exceed_context|maximum context|too many tokens|too long",
    re.IGNORECASE,
)


class EndpointError(ModelError):
    """A server that failed or refused. `status` is None when no reply came.

    `retryable` says whether the same request may succeed later (it was retried until the
    deadline); a refusal is final.
    """

    def __init__(
        self,
        endpoint: str,
        status: int | None,
        reason: str,
        move: str,
        retryable: bool,
        retry_after: float = 0.0,
    ):
        self.endpoint, self.status, self.reason = endpoint, status, reason
        self.move, self.retryable, self.retry_after = move, retryable, retry_after
        self.busy = status in (408, 425, 429, 529)
        what = "no usable reply" if status is None else f"status {status}"
        super().__init__(f"{endpoint}: {what}: {reason}; {move}")


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served. `url` is the OpenAI base, such as `http://127.0.0.1:8000/v1`.

    `api_key_env` names the environment variable that holds the key, so that the key itself is in
    no config, log or repr. Times are in seconds: `deadline_s` bounds a request with all its
    retries, `attempt_s` each of its tries.
    """

    url: str
    model: str = ""
    api_key_env: str | None = None
    deadline_s: float = 300.0
    attempt_s: float = 120.0
    max_attempts: int = 6
    backoff_s: float = 0.5
    max_backoff_s: float = 20.0
    max_connections: int = 256

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"endpoint url {self.name!r} must begin with http:// or https://")
        if self.max_attempts < 1 or self.deadline_s <= 0 or self.attempt_s <= 0:
            raise ValueError(f"endpoint {self.name!r}: attempts and times must be positive")

    @property
    def name(self) -> str:
        """The url without a user or password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def root(self) -> str:
        """The server's own root: the url without its `/v1`."""
        return self.url.rstrip("/").removesuffix("/v1")

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, model={self.model!r})"

    def key(self) -> str | None:
        """Raises `EndpointError` where the named variable isn't set."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            move = f"export {self.api_key_env}, or set api_key_env to null"
            raise EndpointError(self.name, None, "no API key", move, retryable=False)
        return key


class JsonClient:
    """Posts JSON to an endpoint over one session with keep-alive. Close it, or use `async with`."""

    def __init__(self, endpoint: Endpoint):
        self.endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> "JsonClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply's JSON object.

        Busy servers, lost connections, timeouts and broken replies are tried again with growing
        waits; other refusals, of which a prompt over the context length is one, are not. Raises
        `EndpointError` with the last reason once the tries or `deadline_s` are used up.
        """
        point = self.endpoint
        end = time.monotonic() + point.deadline_s
        for attempt in range(1, point.max_attempts + 1):
            try:
                return await self.attempt(url, body, min(point.attempt_s, end - time.monotonic()))
            except EndpointError as failure:
                if not failure.retryable:
                    raise
                wait = backoff(attempt, failure, point.backoff_s, point.max_backoff_s)
                late = time.monotonic() + wait >= end
                if attempt == point.max_attempts or late:
                    why = f"deadline_s={point.deadline_s:g}" if late else "max_attempts"
                    raise EndpointError(
                        point.name,
                        failure.status,
                        f"{failure.reason} (try {attempt}, {why} reached)",
                        failure.move,
                        retryable=True,
                    ) from failure.__cause__
                await asyncio.sleep(wait)
        raise AssertionError("unreachable: max_attempts is at least 1")

    async def attempt(self, url: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """`post` with one try, of at most `seconds`. Raises `EndpointError`."""
        headers = self._headers() | {"Content-Type": "application/json"}
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        timeout = aiohttp.ClientTimeout(total=max(seconds, 0.001))
        try:
            async with self._open().post(url, data=data, headers=headers, timeout=timeout) as reply:
                text = (await reply.read()).decode("utf-8", "replace")
                status, after = reply.status, _seconds(reply.headers.get("Retry-After"))
        except asyncio.TimeoutError as error:
            raise self._passing(None, f"no reply within {seconds:.3g} s") from error
        except aiohttp.ClientError as error:
            raise self._passing(None, f"{type(error).__name__}: {error}") from error
        if status != 200:
            raise self._refusal(status, _reason(text), after)
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise self._passing(status, f"the reply is not JSON: {text[:80]!r}") from error
        if not isinstance(parsed, dict):
            raise self._passing(status, f"the reply is not a JSON object: {text[:80]!r}")
        return parsed

    async def get(self, url: str, seconds: float) -> tuple[int, str]:
        """Status and body of a GET. Raises `EndpointError` where there is no reply in time."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._open().get(url, headers=self._headers(), timeout=timeout) as reply:
                return reply.status, (await reply.read()).decode("utf-8", "replace")
        except (asyncio.TimeoutError, aiohttp.ClientError) as error:
            raise self._passing(None, f"{type(error).__name__}: {error}") from error

    def broken_off(self, ended: str) -> EndpointError:
        """The error of a reply that neither its end nor the limit ended: the next may be whole."""
        error = EndpointError(
            self.endpoint.name,
            200,
            f"the reply ended by {ended}, not by stop or length",
            "check the server's log for aborted requests, or its content filter",
            retryable=True,
        )
        error.busy = True  # one reply was broken off: no sign that the endpoint is down
        return error

    def _headers(self) -> dict[str, str]:
        key = self.endpoint.key()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _passing(self, status: int | None, reason: str, after: float = 0.0) -> EndpointError:
        """A failure that another try may get over."""
        move = "check that the server is up and not overloaded"
        return EndpointError(self.endpoint.name, status, self._redact(reason), move, True, after)

    def _refusal(self, status: int, reason: str, after: float) -> EndpointError:
        too_long = _TOO_LONG.search(reason) is not None and status not in (408, 429)
        if status in _BUSY and not too_long:
            return self._passing(status, reason, after)
        move = "check the model name and the request"
        if too_long:
            move = "send less text, or serve the model with a longer context"
        elif status in (401, 403):
            move = f"check the key in {self.endpoint.api_key_env or 'api_key_env (not set)'}"
        elif status == 404:
            move = "check the url (it usually ends in /v1) and the model name"
        return EndpointError(self.endpoint.name, status, self._redact(reason), move, False)

    def _redact(self, reason: str) -> str:
        key = os.environ.get(self.endpoint.api_key_env or "")
        return reason.replace(key, "***") if key else reason

    def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            connector = aiohttp.TCPConnector(limit=self.endpoint.max_connections)
            self._session, self._loop = aiohttp.ClientSession(connector=connector), loop
        return self._session


def _seconds(header: str | None) -> float:
    try:
        return max(float(header or 0), 0.0)
    except ValueError:  # an HTTP date: our own wait will do
        return 0.0


def _reason(text: str) -> str:
    """The message in an error body of any of the servers' shapes, shortened."""
    try:
        body = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and body.get(key):
            body = body[key]
    return str(body)[:300]
