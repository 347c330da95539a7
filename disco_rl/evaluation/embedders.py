"""Text embeddings for retrieval: an OpenAI-compatible endpoint, or a model in this process."""

import asyncio
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from disco_rl.clients.http import EndpointError, JsonClient
from disco_rl.engine.protocols import ModelError
from disco_rl.engine.tasks import gather
from disco_rl.engine.workers.dense import TextEncoder
from disco_rl.evaluation.calls import Calls


class Embedder(Protocol):
    """Texts to unit vectors, float32 [texts, dimensions]; what it costs goes into the ledger."""

    async def embed(self, texts: Sequence[str], calls: Calls) -> np.ndarray: ...


class VectorFiles:
    """Vectors by model and texts under a folder; None keeps nothing. Files appear in one move."""

    def __init__(self, folder: Path | None):
        self._folder = folder

    @staticmethod
    def digest(model: str, texts: Sequence[str]) -> str:
        # Lengths too, so that no two lists of texts look alike.
        parts = "\0".join([model, *(f"{len(text)}:{text}" for text in texts)])
        return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()

    def read(self, digest: str) -> np.ndarray | None:
        path = self._folder / f"{digest}.npy" if self._folder else None
        return np.load(path) if path is not None and path.is_file() else None

    def write(self, digest: str, vectors: np.ndarray) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f"{digest}.{os.getpid()}.part"
        with part.open("wb") as file:
            np.save(file, vectors)
        part.replace(self._folder / f"{digest}.npy")


class LocalEmbedder:
    """A `TextEncoder` such as all-MiniLM-L6-v2, one batch at a time. No tokens are counted; with
    `cache` the questions of one context encode it once."""

    def __init__(self, encoder: TextEncoder, *, cache: Path | None = None):
        self._encoder, self._files = encoder, VectorFiles(cache)
        self._lock = asyncio.Lock()

    async def embed(self, texts: Sequence[str], calls: Calls) -> np.ndarray:
        digest = self._files.digest(self._encoder.name, texts)
        async with self._lock:
            vectors = self._files.read(digest)
            if vectors is None:
                vectors = await asyncio.to_thread(self._encoder.encode, list(texts))
                self._files.write(digest, vectors)
        calls.ledger.of("embedder").calls += 1
        return vectors


class EndpointEmbedder:
    """`POST /embeddings` in batches. With `cache` a batch is on disk before its reply is used, so
    that a document asked about again, by another question at the same time, or after a kill, is
    embedded once."""

    def __init__(self, client: JsonClient, *, batch: int = 64, cache: Path | None = None):
        self._client, self._batch, self._files = client, batch, VectorFiles(cache)
        self._under_way: dict[str, asyncio.Lock] = {}

    async def embed(self, texts: Sequence[str], calls: Calls) -> np.ndarray:
        batches = [list(texts[i : i + self._batch]) for i in range(0, len(texts), self._batch)]
        found = await gather([self._one(batch, calls) for batch in batches])
        vectors = np.concatenate(found)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    async def _one(self, texts: list[str], calls: Calls) -> np.ndarray:
        digest = self._files.digest(self._client.endpoint.model, texts)
        spent, key = calls.ledger.of("embedder"), calls.journal.key("embedder", digest)
        # A context's questions come together: the first one pays, the rest find its file.
        paid: dict[str, Any] | None
        async with self._under_way.setdefault(digest, asyncio.Lock()):
            vectors, paid = self._files.read(digest), None
            if vectors is None:
                vectors, paid = await self._post(texts, calls)
                self._files.write(digest, vectors)
                calls.journal.keep(key, paid)
            else:
                # The item that paid shows it, before a kill or after; the others had it for free.
                paid = calls.journal.get(key)
        if paid is not None:
            spent.calls += 1
            spent.prompt += paid["prompt"]
            spent.seconds += paid["seconds"]
        return vectors

    async def _post(self, texts: list[str], calls: Calls) -> tuple[np.ndarray, dict[str, Any]]:
        point = self._client.endpoint
        async with calls.gate.turn(calls.owner):
            began = time.perf_counter()
            try:
                body = {"model": point.model, "input": texts}
                reply = await self._client.post(point.url.rstrip("/") + "/embeddings", body)
            except ModelError:
                calls.ledger.of("embedder").failures += 1
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
        return vectors, {"prompt": tokens, "seconds": seconds}
