"""The chat Worker: a small language model behind any OpenAI-compatible endpoint."""

import json
import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from disco_rl.core.shards import Context
from disco_rl.engine.prices import Prices
from disco_rl.engine.protocols import BadReplyError, Message, Quote, Scan
from disco_rl.engine.serving.calls import Calls, Text
from disco_rl.engine.serving.disk_cache import DiskCache
from disco_rl.engine.serving.holds import Holds
from disco_rl.engine.serving.policy import ServingPolicy
from disco_rl.engine.serving.router import Router
from disco_rl.engine.workers.index_store import cache_dir, digest
from disco_rl.engine.workers.quotes import locate
from disco_rl.prompts import load_prompts

_LOG = logging.getLogger(__name__)

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "found": {"type": "boolean"},
        "quotes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["found", "quotes"],
    "additionalProperties": False,
}
"""What a Worker must reply; servers constrain the decoding to it, and the reply is checked."""


@dataclass(frozen=True)
class ChatWorkerConfig:
    """The endpoints and how to ask them. `sampling` goes into the request as it is.

    Greedy by default, so that an identical call has an identical answer. `url` is one OpenAI base
    or a list of them, all serving `model`. `slots` and the fields after it are those of
    `ServingPolicy`. `cache_dir` None is `$DISCO_CACHE/worker`, else under `~/.cache`; its file is
    one a machine, since SQLite's write-ahead log can't be shared over a network. `memo` keeps so
    many replies in memory (0: identical calls are asked again). `hold` is the share of the
    servers' caches that contexts may hold, each until `hold_s` after its last call, and needs
    SGLang's eviction by priority (0: none).
    """

    url: str | Sequence[str]
    model: str
    api_key_env: str | None = None
    prompts: str = "full"
    max_tokens: int = 512
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    prices: Mapping[str, float] = field(default_factory=dict)
    memo: int = 200_000
    cache_dir: str | None = None
    cache_mb: int = 2048
    kv_tokens: int | None = None
    hold: float = 0.0
    hold_s: float = 90.0
    slots: int = 64
    reads: int = 8
    deadline_s: float = 300.0
    attempt_s: float = 120.0
    max_attempts: int = 6
    eject_after: int = 3
    probe_s: float = 5.0
    hedge_s: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.hold < 1.0 or self.hold_s <= 0:
            raise ValueError("worker.hold must be in [0, 1), and worker.hold_s positive")

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url,) if isinstance(self.url, str) else tuple(self.url)

    @property
    def policy(self) -> ServingPolicy:
        known = {f.name for f in fields(ServingPolicy)}
        return ServingPolicy(
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        )


class ChatWorker:
    """A `Worker` that reads a shard with a language model and quotes from it."""

    def __init__(self, config: ChatWorkerConfig, processes: int = 1):
        """`processes` share the endpoints, and each has its part of their caches."""
        # aiohttp arrives with the Worker that needs it.
        from disco_rl.clients.backend import ChatBackend, Request
        from disco_rl.clients.chat import ChatReply, Usage
        from disco_rl.clients.http import Endpoint

        self.config = config
        self._request = Request
        self._prompts = load_prompts(config.prompts)
        self._prices = Prices(**config.prices)
        self.backends = [
            ChatBackend(
                Endpoint(url, config.model, config.api_key_env, max_connections=config.slots),
                max_tokens=config.max_tokens,
                sampling=config.sampling,
                schema=SCHEMA,
            )
            for url in config.urls
        ]
        self._processes = processes
        self._lanes = len(self.backends) * processes
        self._told = False
        self._holds = Holds(0, config.hold_s)
        kv = config.kv_tokens
        self.router: Router[Any, Any] = Router(
            self.backends, config.policy, kv and kv // self._lanes
        )
        root = Path(config.cache_dir).expanduser() if config.cache_dir else cache_dir("worker")
        size = config.cache_mb * 2**20
        file = root / f"{platform.node() or 'machine'}.sqlite"
        disk = DiskCache(file, size) if size and config.memo else None
        whole = Text[Any](
            lambda reply: reply.text if self._usable(reply) else None,
            lambda text: ChatReply(text, "stop", Usage()),
        )
        self._calls = Calls(self.router, whole, config.memo, disk, config.deadline_s)
        # What a reply depends on, beside the shard and the instruction.
        shape = [self._prompts.texts["worker"], SCHEMA, dict(config.sampling), config.max_tokens]
        self._key = digest(config.model, json.dumps(shape, sort_keys=True))

    def messages(self, instruction: str, text: str) -> list[Message]:
        """The prompt. The shard comes first, so that a server's prefix cache serves all calls."""
        content = self._prompts.render("worker", shard=text, instruction=instruction)
        return [{"role": "user", "content": content}]

    def outage(self) -> float:
        """Seconds so far in which every endpoint was down."""
        return self.router.outage()

    async def kv_tokens(self) -> int | None:
        """What the endpoints' caches hold together: as set, else by their own report.

        None where one of them reports nothing. What is found also bounds what counts as read.
        """
        total = self.config.kv_tokens
        if total is None:
            reports = [await backend.kv_tokens() for backend in self.backends]
            known = [tokens for tokens in reports if tokens]
            if len(known) < len(reports):
                self._tell([b.name for b, n in zip(self.backends, reports, strict=True) if not n])
                return None
            total = sum(known)
        self.router.set_kv_tokens(total // self._lanes)
        self._holds = Holds(int(total * self.config.hold) // self._processes, self.config.hold_s)
        return total

    @contextmanager
    def hold(self, context: Context) -> Iterator[None]:
        """One trajectory over `context`, whose shards the servers keep meanwhile if they fit."""
        with self._holds.member(context.id, sum(shard.n_tokens for shard in context.shards)):
            yield

    def _tell(self, silent: list[str]) -> None:
        if not self._told:
            _LOG.warning(
                "%s reported no KV cache size: for this run nothing bounds what counts as read, "
                "and worker.overcommit and worker.hold have no effect; set worker.kv_tokens",
                ", ".join(silent),
            )
        self._told = True

    async def scan(self, instruction: str, context: Context, shard: int) -> Scan:
        read = digest(context.read(shard))
        hold_s = self.config.hold_s if context.id in self._holds else 0.0
        reply, receipt = await self._calls.ask(
            digest(self._key, read, instruction),
            read,
            context.shards[shard].n_tokens,
            self._request(
                lambda: self.messages(instruction, context.read(shard)),
                hold_s if self.config.hold else None,
            ),
            hold_s,
        )
        spent = Scan((), memo_hit=receipt is None)
        if receipt is not None:
            used = reply.usage
            dollars = self._prices.dollars(used.prompt, used.cached, used.completion)
            spent = Scan(
                (), used.prompt, used.cached, used.completion, dollars=dollars, **vars(receipt)
            )
        if reply.finish == "length":
            raise self._malformed(f"cut off at worker.max_tokens={self.config.max_tokens}", spent)
        text = context.read(shard)
        quotes = tuple(_quote(q, text) for q in self._parse(reply.text, spent))
        return replace(spent, quotes=quotes)

    async def close(self) -> None:
        await self._calls.close()

    def _usable(self, reply: Any) -> bool:
        """Whether it's worth keeping: a reply of no use is asked for again."""
        try:
            self._parse(reply.text)
        except BadReplyError:
            return False
        return bool(reply.finish == "stop")

    def _parse(self, reply: str, spent: Scan = Scan(())) -> list[str]:
        """The distinct quotes of a reply, in order; [] only where it says that nothing is found."""
        try:
            data = json.loads(reply)
        except ValueError as error:
            raise self._malformed(f"not JSON: {reply[:80]!r}", spent) from error
        found = data.get("found") if isinstance(data, dict) else None
        quotes = data.get("quotes") if isinstance(data, dict) else None
        if not isinstance(found, bool) or not isinstance(quotes, list):
            raise self._malformed(f"not of the schema: {reply[:80]!r}", spent)
        texts = [q.get("text") if isinstance(q, dict) else None for q in quotes]
        if not all(isinstance(text, str) for text in texts):
            raise self._malformed(f"a quote without text: {reply[:80]!r}", spent)
        kept = [text for text in dict.fromkeys(texts) if text and text.strip()]
        if found and not kept:
            raise self._malformed("it says found, and quotes nothing", spent)
        return kept if found else []

    def _malformed(self, why: str, spent: Scan) -> BadReplyError:
        error = BadReplyError(
            f"worker {self.config.model!r}: reply {why}; check that the server constrains decoding "
            "to the JSON schema, or raise worker.max_tokens"
        )
        error.spent = spent
        return error


def _quote(quote: str, text: str) -> Quote:
    span = locate(quote, text)
    return Quote(quote.strip() if span is None else text[span[0] : span[1]], span)
