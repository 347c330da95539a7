"""The harness as an `inspect_ai` task: its viewer, logs, retries and model roles over our methods.

    inspect eval disco_rl/evaluation/inspect_tasks.py@disco_eval --model openai/qwen3-14b \
        --model-role worker=openai/qwen3-4b \
        -T "overrides=method=chain_of_agents benchmark=musique out=runs/inspect/musique"

`overrides` are those of `disco-rl eval` (configs/eval.yaml), a blank between them. A role of
`models` without a url is inspect's model role of that name, else the model of the eval;
`grader=true` asks the role `grader` for a yes or no beside the scores. Results are those of
`disco-rl eval`, in `out`, so that `disco-rl report` and a retry find them: a reply that was
received is not paid for again.

Contexts stay out of the logs: a sample is its question and its context's id, and what a model was
sent is logged shortened. Needs `pip install 'disco-rl[inspect]'` (Python 3.11 or newer).
"""

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.model._model import use_model_event_sink
from inspect_ai.scorer import Score, Scorer, Target, grouped, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from disco_rl.clients.chat import ChatReply, Usage
from disco_rl.clients.http import Endpoint
from disco_rl.config import compose, refuse_secrets, to_yaml
from disco_rl.engine.protocols import Message, ModelError
from disco_rl.evaluation import runner
from disco_rl.evaluation.benchmarks import load_benchmark
from disco_rl.evaluation.benchmarks.item import Item
from disco_rl.evaluation.build import build_setup
from disco_rl.evaluation.gate import FairGate
from disco_rl.evaluation.tokens import load_tokenizer
from disco_rl.rewards.llm_judge import LLMJudge, LLMJudgeConfig

ROLES = ("driver", "worker")
_SHOWN = 200  # characters of each end of a long message that its log keeps
_MESSAGES = {"system": ChatMessageSystem, "assistant": ChatMessageAssistant}


@task
def disco_eval(overrides: str | Sequence[str] = "", grader: bool = False) -> Task:
    """One method on one benchmark. Raises `ValueError` for a config that can't be run."""
    # inspect's command line takes a value with commas for a list.
    words = overrides if isinstance(overrides, str) else ",".join(map(str, overrides))
    config = compose(shlex.split(words), name="eval")
    refuse_secrets(config)
    from omegaconf import OmegaConf

    plain: Any = OmegaConf.to_container(config, resolve=True)
    items = load_benchmark(plain["benchmark"], load_tokenizer(plain["tokenizer"]))
    samples = [
        Sample(
            id=item.id,
            input=item.task.asked,
            target=list(item.gold.answers),
            metadata={"group": item.group, "context": item.document.id, "scorer": item.scorer},
        )
        for item in items
    ]
    return Task(
        dataset=MemoryDataset(samples, name=str(plain["benchmark"]["kind"])),
        solver=_solver(_Run(plain, to_yaml(config), grader, len(items)), items),
        scorer=[_scorer(name) for name in ("official", "strict", "judge")],
        metadata={"method": plain["method"]["kind"], "out": plain["out"]},
    )


def _solver(run: "_Run", items: Sequence[Item]) -> Solver:
    by_id = {item.id: item for item in items}

    @solver
    def answer() -> Solver:  # no arguments: inspect writes a solver's arguments into its log
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            result = await run.result(by_id[str(state.sample_id)])
            shown = {key: value for key, value in result.items() if key not in ("record", "gold")}
            state.metadata["result"] = shown
            state.output = ModelOutput.from_content(str(state.model), result["answer"] or "")
            state.completed = True
            return state

        return solve

    return answer()


def _scorer(name: str) -> Scorer:
    """`official`, `strict` or `judge` of a result; a judge without a verdict is no wrong answer."""

    @scorer(metrics=[grouped(mean(), "group"), stderr()], name=name)
    def kept() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            result = state.metadata["result"]
            value, told = result["scores"][name], {"answer": result["answer"] or ""}
            if value is None:
                return Score.unscored(reason="no_verdict", **told)
            return Score(value=value, explanation=result["error"], **told)

        return score

    return kept()


class _Run:
    """What a task's samples share: results so far, and models while any sample is under way."""

    def __init__(self, config: Mapping[str, Any], config_yaml: str, grader: bool, n: int):
        self._config, self._yaml, self._grader, self._n = config, config_yaml, grader, n
        self._folder = Path(config["out"]).expanduser()
        self._done: dict[str, dict[str, Any]] | None = None
        self._results: dict[str, dict[str, Any]] = {}
        self._users, self._lock = 0, asyncio.Lock()

    async def result(self, item: Item) -> dict[str, Any]:
        """The item's result; with the last one the run is complete."""
        result = self._results[item.id] = await self._result(item)
        if len(self._results) == self._n:
            runner.finish(self._folder, list(self._results.values()), {})
        return result

    async def _result(self, item: Item) -> dict[str, Any]:
        if self._done is None:
            # Which models the roles are is known only here, and decides the figures too.
            roles = [role for role in ROLES if not self._config["models"][role]["url"]]
            roles += ["grader"] * self._grader
            named = "".join(f"# {role}: {get_model(role=role)}\n" for role in roles)
            runner.begin(self._folder, self._yaml + named)
            self._done = runner.finished(self._folder)
        if item.id not in self._done:
            async with self._open() as (setup, gate):
                result = await runner.run_item(self._folder, item, setup, gate)
            if result["stop"] == "error":
                return result
            self._done[item.id] = result
        return self._done[item.id]

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[runner.Setup, FairGate]]:
        """Clients are closed when no sample needs them: nobody says which one is the last."""
        async with self._lock:
            if not self._users:
                self._stack = AsyncExitStack()
                clients = {role: RoleClient(role) for role in ROLES}
                setup = await build_setup(self._config, self._folder, self._stack, clients=clients)
                if self._grader:
                    kept = LLMJudgeConfig(
                        "", str(get_model(role="grader")), cache_dir=str(self._folder / "judge")
                    )
                    judge = LLMJudge(kept, [RoleClient("grader")])
                    self._stack.push_async_callback(judge.close)
                    setup = replace(setup, judge=judge)
                self._setup = setup, FairGate(setup.max_calls)
            self._users += 1
        stack = self._stack
        try:
            yield self._setup
        finally:
            self._users -= 1
            if not self._users:
                await stack.aclose()


class RoleClient:
    """inspect's model of a role, in the shape of `ChatClient`."""

    def __init__(self, role: str):
        self.role = role

    @property
    def endpoint(self) -> Endpoint:
        """Names the model, so that a journal's replies are never taken for another model's."""
        return Endpoint("http://inspect", str(get_model(role=self.role)))

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> ChatReply:
        """As of `ChatClient`; tries and times are inspect's own. Raises `ModelError`."""
        known = {k: v for k, v in (sampling or {}).items() if k in GenerateConfig.model_fields}
        body = {k: v for k, v in (sampling or {}).items() if k not in known}
        if schema is not None:  # as it is: inspect's own JSONSchema knows no $defs
            form = {"name": "reply", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        config = GenerateConfig(max_tokens=max_tokens, extra_body=body or None, **known)
        sent: list[ChatMessage] = [
            _MESSAGES.get(m["role"], ChatMessageUser)(content=m["content"]) for m in messages
        ]
        model = get_model(role=self.role)
        try:
            with use_model_event_sink(_Shortened()):
                output = await model.generate(sent, config=config)
        except Exception as error:  # providers raise their own
            raise ModelError(f"{self.role} {model}: {type(error).__name__}: {error}") from error
        usage = output.usage or ModelUsage()
        cached = usage.input_tokens_cache_read or 0
        prompt = usage.input_tokens + cached + (usage.input_tokens_cache_write or 0)
        finish = "length" if output.stop_reason == "max_tokens" else "stop"
        return ChatReply(output.completion, finish, Usage(prompt, cached, usage.output_tokens))

    async def close(self) -> None:
        """inspect closes its own models."""


class _Shortened:
    """Logs model calls without the contexts in them, which are referred to by id."""

    def on_pending(self, event: ModelEvent) -> None:
        event.input = [m.model_copy(update={"content": _short(m.text)}) for m in event.input]
        transcript()._event(event)

    def on_complete(self, event: ModelEvent) -> None:
        event.call = None  # the raw request holds the context too
        transcript()._event_updated(event)


def _short(text: str) -> str:
    left = len(text) - 2 * _SHOWN
    return text if left <= 0 else f"{text[:_SHOWN]} [{left} more characters] {text[-_SHOWN:]}"
