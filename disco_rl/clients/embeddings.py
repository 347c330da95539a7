"""Embeddings from an OpenAI-compatible endpoint, for the dense retriever."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

import numpy as np

from disco_rl.clients.http import Endpoint, EndpointError

_BATCH = 32
_RETRIED = (408, 429, 500, 502, 503, 504)


class EndpointEncoder:
    """Unit-length vectors, float32 [texts, dimensions]. Blocking: the retriever has a thread.

    `prompt_tokens` counts what the server billed so far.
    """

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self.name = endpoint.model
        self.prompt_tokens = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Raises `EndpointError` once the endpoint's tries or its deadline are used up."""
        rows: list[np.ndarray] = []
        for first in range(0, len(texts), _BATCH):
            rows.append(self._embed(list(texts[first : first + _BATCH])))
        vectors = np.concatenate(rows)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def _embed(self, batch: list[str]) -> np.ndarray:
        point = self._endpoint
        headers = {"Content-Type": "application/json"}
        if key := point.key():
            headers["Authorization"] = f"Bearer {key}"
        body = json.dumps({"model": point.model, "input": batch}).encode()
        url, end = point.url.rstrip("/") + "/embeddings", time.monotonic() + point.deadline_s
        for attempt in range(1, point.max_attempts + 1):
            request = urllib.request.Request(url, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=point.attempt_s) as reply:
                    answered = json.load(reply)
                data, usage = answered["data"], answered.get("usage") or {}
                vectors = [item["embedding"] for item in sorted(data, key=lambda d: d["index"])]
                if len(vectors) != len(batch):
                    raise ValueError(f"{len(vectors)} vectors for {len(batch)} texts")
                self.prompt_tokens += int(usage.get("prompt_tokens") or 0)
                return np.array(vectors, np.float32)
            except urllib.error.HTTPError as error:
                reason, status = error.read().decode("utf-8", "replace")[:300], error.code
                if error.code not in _RETRIED:
                    move = "check the model's name, and that it is served for embeddings"
                    raise EndpointError(point.name, status, reason, move, False) from error
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
                reason, status = f"{type(error).__name__}: {error}", None
            wait = min(point.backoff_s * 2 ** (attempt - 1), point.max_backoff_s)
            if attempt == point.max_attempts or time.monotonic() + wait > end:
                break
            time.sleep(wait)
        move = "check that the server is up and serves embeddings"
        raise EndpointError(point.name, status, f"{reason} (try {attempt})", move, True)
