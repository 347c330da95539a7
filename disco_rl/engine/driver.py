"""The Driver's three acts on a model: prompts that fit the window, one repair, calls kept."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from disco_rl.core.evidence import NarrowOutput, WideOutput
from disco_rl.core.history import Line, evidence_lines, fit, history_lines
from disco_rl.core.plan import Plan, PlanError, PlanLimits
from disco_rl.core.plan_parser import PLAN_SCHEMA, parse_plan
from disco_rl.core.replies import (
    REVIEW_SCHEMA,
    ReplyError,
    parse_answer,
    parse_review,
    strip_thinking,
)
from disco_rl.core.trajectory import CallKind, DriverCall, Generation, Review, Stage, StopReason
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.protocols import DriverModel

T = TypeVar("T")
_ERROR_CHARS = 400
_BAD_REPLY_CHARS = 4000


class EpisodeStop(Exception):
    """Ends the episode from within a Driver act, for the stated reason."""

    def __init__(self, reason: StopReason, message: str):
        super().__init__(message)
        self.reason = reason


class Driver:
    """Plans, synthesises and reviews for one trajectory; every call is appended to `calls`."""

    def __init__(self, model: DriverModel, config: EpisodeConfig, calls: list[DriverCall]):
        self._model = model
        self._config = config
        self._calls = calls

    async def plan(
        self, question: str, n_shards: int, earlier: Sequence[Stage], stage: Stage
    ) -> Plan:
        limits = PlanLimits(
            n_shards, self._config.max_plan_nodes, self._config.max_instruction_words
        )
        messages, stage.n_history_cut = self._fitted(
            "plan", "history", history_lines(earlier), question=question, n_shards=n_shards
        )
        return await self._call(
            CallKind.PLAN,
            stage.index,
            None,
            messages,
            lambda reply: parse_plan(reply.text, limits),
            PLAN_SCHEMA,
        )

    async def synthesize(
        self,
        instruction: str,
        outputs: Sequence[NarrowOutput | WideOutput],
        earlier: Sequence[Stage],
        stage: int,
        node: str,
    ) -> WideOutput:
        messages, n_cut = self._fitted(
            "synthesize", "evidence", _evidence(earlier, outputs), instruction=instruction
        )
        text = await self._call(
            CallKind.SYNTHESIZE,
            stage,
            node,
            messages,
            lambda reply: parse_answer(reply.text, reply.finish == "length"),
        )
        return WideOutput(node, text, n_cut)

    async def review(self, question: str, earlier: Sequence[Stage], stage: Stage) -> Review:
        lines = _evidence(earlier, list(stage.pool.outputs.values())[:-1])
        messages, stage.n_review_cut = self._fitted(
            "review", "evidence", lines, question=question, answer=stage.answer
        )
        return await self._call(
            CallKind.REVIEW,
            stage.index,
            None,
            messages,
            lambda reply: parse_review(reply.text),
            REVIEW_SCHEMA,
        )

    def _fitted(
        self, prompt: str, field: str, lines: Sequence[Line], **fields: object
    ) -> tuple[list[dict[str, str]], int]:
        prompts = self._config.prompts

        def messages(text: str) -> list[dict[str, str]]:
            user = {"role": "user", "content": prompts.render(prompt, **fields, **{field: text})}
            system = prompts.texts["system"]
            return [{"role": "system", "content": system}, user] if system else [user]

        fitted = fit(
            lines, lambda text: self._model.count(messages(text)) <= self._config.prompt_budget
        )
        return messages(fitted.text), fitted.n_cut

    async def _call(
        self,
        kind: CallKind,
        stage: int,
        node: str | None,
        messages: list[dict[str, str]],
        parse: Callable[[Generation], T],
        schema: dict[str, Any] | None = None,
    ) -> T:
        turn = messages
        error: PlanError | ReplyError | None = None
        for attempt in range(self._config.repairs + 1):
            room = self._config.window - self._model.count(turn) - 1
            if room < 1 and error:  # no room to repair: the reply's fault, not the prompt's
                break
            if room < 1:
                raise EpisodeStop(
                    StopReason.WINDOW,
                    f"the {kind.value} prompt doesn't fit driver.window={self._config.window}",
                )
            began = time.perf_counter()
            reply = await self._model.generate(
                turn, max_tokens=min(self._config.max_call_tokens, room), schema=schema
            )
            error = None
            try:
                return parse(reply)
            except (PlanError, ReplyError) as refused:
                error = refused
            finally:
                self._calls.append(
                    DriverCall(
                        kind,
                        stage,
                        node,
                        reply,
                        error.kind.value if error else None,
                        str(error)[:_ERROR_CHARS] if error else None,
                        attempt > 0,
                        time.perf_counter() - began,
                    )
                )
            turn = messages + self._repair(reply, error)
        raise EpisodeStop(StopReason.INVALID_CALL, f"{kind.value}: {str(error)[:_ERROR_CHARS]}")

    def _repair(self, reply: Generation, error: PlanError | ReplyError) -> list[dict[str, str]]:
        """The bad reply without its thinking, cut where it is long, and what was wrong with it."""
        bad = strip_thinking(reply.text) or reply.text
        if len(bad) > _BAD_REPLY_CHARS:
            bad = f"{bad[:_BAD_REPLY_CHARS]}\n[{len(bad) - _BAD_REPLY_CHARS} more characters]"
        text = self._config.prompts.render("repair", error=str(error)[:_ERROR_CHARS])
        return [{"role": "assistant", "content": bad}, {"role": "user", "content": text}]


def _evidence(earlier: Sequence[Stage], outputs: Sequence[NarrowOutput | WideOutput]) -> list[Line]:
    """Earlier stages' lines, then this stage's, which are cut last."""
    return history_lines(earlier) + evidence_lines(outputs, rank=10 * (len(earlier) + 1))
