"""Text embeddings for retrieval: an OpenAI-compatible endpoint, or a model in this process."""

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from disco_rl.clients.http import EndpointError, JsonClient
from disco_rl.engine.protocols import ModelError
from disco_rl.engine.tasks import gather
from disco_rl.engine.workers.dense import TextEncoder
from disco_rl.evaluation.calls import Calls


class Embedder(Protocol):
    """Texts to unit vectors, float32 [texts, dimensions]; what it costs goes into the ledger."""

    async def embed(self, texts: Sequence[str], calls: Calls) -> np.ndarray: ...


class LocalEmbedder:
    """A `TextEncoder` such as all-MiniLM-L6-v2, one batch at a time. No tokens are counted."""

    def __init__(self, encoder: TextEncoder):
        self._encoder = encoder
        self._lock = asyncio.Lock()

    async def embed(self, texts: Sequence[str], calls: Calls) -> np.ndarray:
        async with self._lock:
            vectors = await asyncio.to_thread(self._encoder.encode, list(texts))
        calls.ledger.of("embedder").calls += 1
        return vectors


class EndpointEmbedder:
    """`POST /embeddings` in batches. With `cache` a batch is on disk before its reply is used, so
    that a document asked about again, or after a kill, is embedded once."""

    def __init__(self, client: JsonClient, *, batch: int = 64, cache: Path | None = None):
        self._client, self._batch, self._cache = client, batch, cache

    async def embed(self, texts: Sequence[str], calls: Calls) -> np.ndarray:
        batches = [list(texts[i : i + self._batch]) for i in range(0, len(texts), self._batch)]
        found = await gather([self._one(batch, calls) for batch in batches])
        vectors = np.concatenate(found)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    async def _one(self, texts: list[str], calls: Calls) -> np.ndarray:
        point = self._client.endpoint
        spent = calls.ledger.of("embedder")
        digest = hashlib.sha256("\0".join([point.model, *texts]).encode()).hexdigest()
        path = self._cache / f"{digest}.npy" if self._cache else None
        key = calls.journal.key("embedder", digest)
        if path is not None and path.is_file():
            # The item that paid for it shows it, before a kill or after; others had it for free.
            if (paid := calls.journal.get(key)) is not None:
                spent.calls += 1
                spent.prompt += paid["prompt"]
                spent.seconds += paid["seconds"]
            return np.load(path)
        async with calls.gate.turn(calls.owner):
            began = time.perf_counter()
            try:
                body = {"model": point.model, "input": texts}
                reply = await self._client.post(point.url.rstrip("/") + "/embeddings", body)
            except ModelError:
                spent.failures += 1
                raise
            seconds = time.perf_counter() - began
        try:
            rows = sorted(reply["data"], key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in rows], np.float32)
            if vectors.shape[0] != len(texts):
                raise ValueError(f"{len(texts)} texts but {vectors.shape[0]} vectors")
        except (KeyError, TypeError, ValueError) as error:
            move = "check that the url serves an embedding model"
            raise EndpointError(point.name, 200, repr(error), move, retryable=False) from error
        tokens = int((reply.get("usage") or {}).get("prompt_tokens") or 0)
        spent.calls += 1
        spent.prompt += tokens
        spent.seconds += seconds
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")
            with part.open("wb") as file:
                np.save(file, vectors)
            part.replace(path)
        calls.journal.keep(key, {"prompt": tokens, "seconds": seconds})
        return vectors
