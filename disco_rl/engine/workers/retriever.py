"""The retriever Worker: the passages of a shard that match an instruction best, or none.

The paper's alternative Worker (its Table 3), with BM25 beside the dense ranker and a threshold
under which a shard holds "nothing". The defaults were measured on held-out data: see
recipes/retriever.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from disco_rl.core.shards import Context
from disco_rl.engine.lru import Lru
from disco_rl.engine.protocols import Quote, Scan
from disco_rl.engine.workers.context_index import ContextIndex, open_index
from disco_rl.engine.workers.dense import Encoder, TextEncoder, require_model
from disco_rl.engine.workers.index_store import IndexStore, cache_dir, digest
from disco_rl.engine.workers.lexical import Match
from disco_rl.engine.workers.passages import PassageRule, split

THRESHOLDS = {"bm25": (0.36, 0.8), "dense": (0.54, 0.9), "fusion": (0.48, 0.85)}
"""By ranker: the least score of a find (covered idf mass, cosine, or the mean of the two), and
the least share of the context's best score."""

_RRF = 60.0  # the usual constant of reciprocal rank fusion (Cormack et al. 2009)


@dataclass(frozen=True)
class RetrieverConfig:
    """How the retriever splits, ranks and keeps.

    A passage is a find when its score is at least `threshold` (None: the ranker's measured one)
    and at least `relative` (None: likewise) of the best score in the whole context, so that what
    is nearly the thing is dropped where the thing itself stands. `passage_words` 0 means
    sentences. `max_passages` bounds what stays in memory, in passages of contexts.
    `embeddings_url` names an OpenAI-compatible endpoint that takes the place of MiniLM;
    `query_prefix` is what its model wants before a query.
    """

    ranker: str = "bm25"
    threshold: float | None = None
    relative: float | None = None
    top_k: int = 3
    passage_words: int = 0
    headings: bool = True
    cache_dir: str | None = None
    max_passages: int = 1_000_000
    embeddings_url: str | None = None
    embeddings_model: str = ""
    api_key_env: str | None = None
    query_prefix: str = ""

    def __post_init__(self) -> None:
        if self.ranker not in THRESHOLDS:
            raise ValueError(f"worker.ranker is {self.ranker!r}; choose from {list(THRESHOLDS)}")
        if self.top_k < 1:
            raise ValueError(f"worker.top_k must be at least 1, not {self.top_k}")


class Retriever:
    """A `Worker` without a language model. Safe to share between threads and event loops."""

    def __init__(
        self, config: RetrieverConfig = RetrieverConfig(), *, encoder: TextEncoder | None = None
    ):
        """`encoder` takes the place of MiniLM for the dense ranker."""
        if config.embeddings_url and encoder is None:
            encoder = _served(config)
        if config.ranker != "bm25" and encoder is None:
            require_model()
        self.config = config
        default, relative = THRESHOLDS[config.ranker]
        self.threshold = default if config.threshold is None else config.threshold
        self._relative = relative if config.relative is None else config.relative
        self._rule = PassageRule(config.passage_words, config.headings)
        root = Path(config.cache_dir).expanduser() if config.cache_dir else cache_dir("retriever")
        self._store = IndexStore(root)
        self._indexes: Lru[ContextIndex] = Lru(config.max_passages)
        self._matches: Lru[Match] = Lru(config.max_passages)
        self._vectors: Lru[np.ndarray] = Lru(config.max_passages // 4)  # 1.5 KB a passage
        self._encoder: TextEncoder = encoder or Encoder()
        # Indexing and encoding are bound by the CPU: one thread, so that tasks that wait for the
        # same index find it made by the first of them.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="retriever")

    async def scan(self, instruction: str, context: Context, shard: int) -> Scan:
        """The passages of the shard over the threshold, best first, at most `top_k`, verbatim."""
        text = context.read(shard)
        index = self._kept(context, shard, text)
        if index is not None:
            match = self._matches.get((index.key, instruction))
            if match is None and self.config.ranker == "bm25":
                match = self._match(instruction, context, index)  # a millisecond or less
            if match is not None:
                return self._answer(match, index, shard, text)
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self.search, instruction, context, shard
        )

    def search(self, instruction: str, context: Context, shard: int) -> Scan:
        """`scan` for callers without an event loop. What a served model embeds for it is billed to
        it: the query, and passages that weren't embedded before."""
        text, billed = context.read(shard), getattr(self._encoder, "prompt_tokens", 0)
        index = self._kept(context, shard, text)
        if index is None:
            index = open_index(context, self._rule, self._store)
            self._indexes.put(context.id, index, len(index.spans) + 1)
        match = self._matches.get((index.key, instruction))
        if match is None:
            match = self._match(instruction, context, index)
        scan = self._answer(match, index, shard, text)
        tokens = getattr(self._encoder, "prompt_tokens", 0) - billed
        return replace(scan, prompt_tokens=tokens) if tokens else scan

    def _kept(self, context: Context, shard: int, text: str) -> ContextIndex | None:
        """The index in memory, unless it is that of another text under the same id."""
        index = self._indexes.get(context.id)
        if index is None or index.digests[shard : shard + 1] != (digest(text),):
            return None
        return index

    def _match(self, instruction: str, context: Context, index: ContextIndex) -> Match:
        """How well every passage of the context matches; kept, since every shard is asked."""
        if self.config.ranker == "bm25":
            match = index.lexical.match(instruction)
        else:
            cosine = self._cosine(instruction, context, index)
            match = Match(cosine, cosine)
            if self.config.ranker == "fusion":
                lexical = index.lexical.match(instruction)
                rank = _reciprocal(lexical.rank) + _reciprocal(cosine)
                match = Match(rank, (lexical.score + cosine) / 2)
        self._matches.put((index.key, instruction), match, len(match.rank) + 1)
        return match

    def _answer(self, match: Match, index: ContextIndex, shard: int, text: str) -> Scan:
        first, end = index.offsets[shard : shard + 2]
        score = match.score[first:end]
        least = max(self.threshold, self._relative * match.best)
        passed = np.flatnonzero(score >= least)
        if not len(passed):
            return Scan(())
        order = np.argsort(-match.rank[first:end][passed], kind="stable")
        quotes = []
        for row in passed[order][: self.config.top_k].tolist():
            start, stop = index.spans[first + row].tolist()
            quotes.append(Quote(text[start:stop], (start, stop), round(float(score[row]), 4)))
        return Scan(tuple(quotes))

    def _cosine(self, instruction: str, context: Context, index: ContextIndex) -> np.ndarray:
        query = self._encoder.encode([self.config.query_prefix + instruction])[0]
        cosine = [np.empty(0, np.float32)]
        for shard, heading in enumerate(index.headings):
            if index.offsets[shard] < index.offsets[shard + 1]:  # else it has no passages
                cosine.append(self._embedded(context.read(shard), heading) @ query)
        return np.concatenate(cosine)

    def _embedded(self, text: str, heading: str) -> np.ndarray:
        """Vectors of a shard's passages, float32 [passages, dimensions], from memory or disk."""
        key = digest("dense-1", self._encoder.name, repr(self._rule), heading, text)
        vectors = self._vectors.get(key)
        if vectors is None:
            vectors = self._load_or_embed(key, text, heading)
            self._vectors.put(key, vectors, len(vectors) + 1)
        return vectors

    def _load_or_embed(self, key: str, text: str, heading: str) -> np.ndarray:
        passages, _ = split(text, self._rule, heading)
        folder = self._store.path(key)
        if folder is not None:
            try:
                vectors = np.load(folder / "vectors.npy").astype(np.float32)
                if len(vectors) == len(passages):
                    return vectors
            except (OSError, ValueError):
                pass
            self._store.drop(key)
        texts = [f"{p.heading}: " * bool(p.heading) + text[p.start : p.end] for p in passages]
        halves = self._encoder.encode(texts).astype(np.float16)
        self._store.write(key, lambda folder: np.save(folder / "vectors.npy", halves))
        return halves.astype(np.float32)


def _served(config: RetrieverConfig) -> TextEncoder:
    from disco_rl.clients.embeddings import EndpointEncoder
    from disco_rl.clients.http import Endpoint

    assert config.embeddings_url
    point = Endpoint(config.embeddings_url, config.embeddings_model, config.api_key_env)
    return EndpointEncoder(point)


def _reciprocal(scores: np.ndarray) -> np.ndarray:
    ranks = np.empty(len(scores), np.float32)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return 1.0 / (_RRF + ranks)
