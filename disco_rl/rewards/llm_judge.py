"""A judge that is a language model, behind any OpenAI-compatible endpoint."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from disco_rl.core.text import normalise_answer
from disco_rl.engine.prices import Prices
from disco_rl.rewards.delimit import record, shorten, within
from disco_rl.rewards.judge import JudgeError, Verdict, said
from disco_rl.rewards.ledger import JudgeLedger
from disco_rl.rewards.memory import VerdictMemory
from disco_rl.rewards.panel import Panel
from disco_rl.rewards.tricks import contentless

_PROMPTS = Path(__file__).parent / "prompts"
_LAST = "\n\nThe record ends here. Give the verdict."


@dataclass(frozen=True)
class LLMJudgeConfig:
    """Config group `judge`, name `llm`. Times in seconds.

    deadline_s: one question in all: waiting for a slot, votes, retries and the second endpoint
    attempt_s, max_attempts: a try at an endpoint, and how many
    votes: generations a question; more than one needs a `sampling` that varies
    max_tokens: of a verdict; a judge that thinks needs thousands
    prices: dollars a million tokens, `prompt`, `cached` and `output`, for the ledger
    constrain: ask the server to decode by the verdict's schema; its reply is checked either way
    max_reply_chars, max_evidence_chars: what the judge is shown; more is cut, and counted
    exact_skips: a reply that equals a gold answer, SQuAD-normalised, is right without asking
    max_concurrency: requests under way at once
    cache_size: verdicts kept in memory by content; errors never are
    cache_dir, cache_mb: a folder where they are kept for this machine's other processes and for
        the next start, and how large its file may grow; None: in memory only
    """

    url: str
    model: str
    api_key_env: str | None = None
    fallback_url: str | None = None
    fallback_model: str | None = None
    fallback_api_key_env: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    votes: int = 1
    max_tokens: int = 64
    prices: Mapping[str, float] = field(default_factory=dict)
    constrain: bool = True
    max_reply_chars: int = 2000
    max_evidence_chars: int = 16_000
    exact_skips: bool = False
    max_concurrency: int = 64
    deadline_s: float = 300.0
    attempt_s: float = 60.0
    max_attempts: int = 6
    cache_size: int = 100_000
    cache_dir: str | None = None
    cache_mb: int = 64

    def __post_init__(self) -> None:
        for name in ("votes", "max_tokens", "max_reply_chars", "max_concurrency"):
            if getattr(self, name) < 1:
                raise ValueError(f"judge.{name} must be at least 1, not {getattr(self, name)}")
        if unknown := sorted(set(self.prices) - {f.name for f in fields(Prices)}):
            raise ValueError(f"judge.prices: unknown keys {unknown}; set prompt, cached, output")
        if self.votes > 1 and not float(self.sampling.get("temperature", 1.0)):
            raise ValueError(
                f"judge.votes={self.votes} with temperature 0 asks the same thing again; "
                "set judge.sampling.temperature above 0, or one vote"
            )


class LLMJudge:
    """A `Judge` over one endpoint, or two of which the second serves where the first fails.

    Question, gold answers, reply and evidence are shown as one JSON record (`delimit`), the reply
    without its thinking. A question ends in a verdict or in `JudgeError`, within its deadline.
    """

    def __init__(self, config: LLMJudgeConfig, clients: Sequence[Any] = ()):
        """`clients`, in the shape of `ChatClient`, take the place of the config's endpoints."""
        # aiohttp arrives with the judge that needs it.
        from disco_rl.clients.chat import ChatClient
        from disco_rl.clients.http import Endpoint

        points = [(config.url, config.model, config.api_key_env)]
        if config.fallback_url:
            model = config.fallback_model or config.model
            points.append((config.fallback_url, model, config.fallback_api_key_env))
        clients = clients or [
            ChatClient(
                Endpoint(
                    url,
                    model,
                    key,
                    deadline_s=config.deadline_s / len(points),
                    attempt_s=config.attempt_s,
                    max_attempts=config.max_attempts,
                    max_connections=config.max_concurrency,
                )
            )
            for url, model, key in points
        ]
        self.config = config
        self.ledger = JudgeLedger()
        self._panel = Panel(
            clients,
            self.ledger,
            votes=config.votes,
            sampling=config.sampling,
            max_tokens=config.max_tokens,
            constrain=config.constrain,
            max_concurrency=config.max_concurrency,
            prices=Prices(**config.prices),
        )
        self._systems = {
            name: (_PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()
            for name in ("verdict", "support")
        }
        self._memory = VerdictMemory(config.cache_size, config.cache_dir, config.cache_mb)
        # What a verdict depends on, beside its prompt: kept verdicts outlive the config.
        models = [model for _, model, _ in points]
        self._identity = json.dumps(
            [models, dict(config.sampling), config.votes], sort_keys=True, default=str
        )
        self._flights: dict[str, asyncio.Task[Verdict]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        given = said(reply)
        plain = normalise_answer(given)
        exact = bool(plain) and plain in {normalise_answer(answer) for answer in answers}
        if contentless(given) and not exact:
            return self._shortcut(Verdict.NO)
        if exact and self.config.exact_skips:
            return self._shortcut(Verdict.YES)
        shown = shorten(given, self.config.max_reply_chars)
        fields = {"question": question, "gold_answers": list(answers), "reply": shown}
        return await self._answer("verdict", fields, cut=shown != given)

    async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
        given = said(reply)
        if contentless(given) or not any(quote.strip() for quote in evidence):
            return self._shortcut(Verdict.NO)
        shown = shorten(given, self.config.max_reply_chars)
        quotes = within(evidence, self.config.max_evidence_chars)
        fields = {"question": question, "reply": shown, "evidence": quotes}
        cut = shown != given or len(quotes) < len(set(evidence))
        return await self._answer("support", fields, cut=cut)

    async def close(self) -> None:
        for task in list(self._flights.values()):
            task.cancel()
        self._memory.close()
        await self._panel.close()

    def messages(self, kind: str, fields: Mapping[str, Any]) -> list[dict[str, str]]:
        """The prompt of a `verdict` or `support` question. What a question's trajectories share
        stands first, so that a server's prefix cache serves it."""
        return [
            {"role": "system", "content": self._systems[kind]},
            {"role": "user", "content": record(fields) + _LAST},
        ]

    async def _answer(self, kind: str, fields: Mapping[str, Any], *, cut: bool) -> Verdict:
        """From the cache, from the same question under way, or by asking."""
        began = time.perf_counter()
        messages = self.messages(kind, fields)
        key = hashlib.sha256((self._identity + json.dumps(messages)).encode()).hexdigest()
        self.ledger.charge(questions=1, cut=int(cut))
        ended = "errors"
        try:
            known = self._memory.get(key)
            if known is not None:
                verdict, ended = known, "cached"
            else:
                new = self._fly(key, messages)
                verdict = await self._wait(self._flights[key])
                ended = "asked" if new else "cached"
        finally:
            self.ledger.charge(**{ended: 1}, seconds=time.perf_counter() - began)
        self.ledger.charge(undecided=int(verdict is Verdict.UNDECIDED))
        return verdict

    def _fly(self, key: str, messages: Sequence[Mapping[str, str]]) -> bool:
        """Sees to it that the question is under way; whether it wasn't."""
        self._meet_loop()
        if key in self._flights:
            return False
        flight = self._flights[key] = asyncio.ensure_future(
            asyncio.wait_for(self._panel.vote(messages), self.config.deadline_s)
        )
        flight.add_done_callback(lambda done: self._landed(key, done))
        return True

    async def _wait(self, flight: "asyncio.Task[Verdict]") -> Verdict:
        try:
            # One trajectory's cancellation must not take the verdict from the others that wait.
            return await asyncio.wait_for(asyncio.shield(flight), self.config.deadline_s)
        except asyncio.TimeoutError as error:
            raise JudgeError(
                f"no verdict within judge.deadline_s={self.config.deadline_s:g}; raise it, or "
                "judge.max_concurrency where the endpoint can take more"
            ) from error

    def _landed(self, key: str, done: "asyncio.Task[Verdict]") -> None:
        if self._flights.get(key) is done:
            del self._flights[key]
        if not done.cancelled() and done.exception() is None:
            self._memory.put(key, done.result())

    def _shortcut(self, verdict: Verdict) -> Verdict:
        self.ledger.charge(questions=1, shortcuts=1)
        return verdict

    def _meet_loop(self) -> None:
        """Semaphores and tasks belong to the event loop that made them."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._flights = loop, {}
            self._panel.meet_loop()
