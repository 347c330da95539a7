"""Continuous batching for a causal language model on the CPU.

One thread owns the model. Requests join the batch between two tokens and leave it when they
finish; equal prompts are read once. Used by the rollout server, `disco-rl ask`, the evaluation
and the export check; needs torch and transformers, neither verl nor Ray.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from disco_rl.trainer.cpu.batch import Batch, Row
from disco_rl.trainer.cpu.kv import ATTENTION
from disco_rl.trainer.cpu.sampling import SamplingParams, derive_seed

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True)
class Request:
    """One prompt (token ids) and how to sample its completion."""

    prompt_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True)
class Completion:
    """Sampled ids (the end token included), their log-probs, and why it ended.

    "stop": an end token; "length": max_tokens or the window; "abort": `BatchGenerator.abort`.
    """

    output_ids: list[int]
    log_probs: list[float]
    finish_reason: FinishReason


def load_model(path: str) -> tuple[PreTrainedModel, list[int]]:
    """The causal language model at `path` in fp32, and the ids that end its completions.

    End ids are those of its generation config and its tokenizer's end token. Raises OSError when
    the folder or one of its files is missing, ValueError when nothing ends a completion.
    """
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    configured = model.generation_config.eos_token_id
    ids = {configured} if isinstance(configured, int) else set(configured or ())
    end = AutoTokenizer.from_pretrained(path).eos_token_id
    ids |= set() if end is None else {end}
    if not ids:
        raise ValueError(f"{path}: no end token in generation_config.json or the tokenizer")
    return model, sorted(ids)


class BatchGenerator:
    """Samples from `model` for many callers at once.

    model: a decoder with full attention, in fp32 for parity with the trainer; it is put in eval
    mode and its attention is replaced, so don't share it with other code. eos_ids end a
    completion. window: most tokens of prompt and completion together (default: the model's).
    max_rows: most sequences decoded together. kv_bytes: memory for keys and values, at least one
    sequence is always admitted. seed: base of the seeds of requests that bring none.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        eos_ids: Iterable[int],
        *,
        window: int | None = None,
        max_rows: int = 256,
        kv_bytes: int = 2 << 30,
        seed: int = 0,
    ) -> None:
        layers = set(getattr(model.config, "layer_types", None) or ["unknown"])
        if layers != {"full_attention"}:
            raise ValueError(
                f"model type {model.config.model_type} has layers of type {sorted(layers)}; the "
                "CPU generator serves decoders with full attention, such as Qwen2 and Qwen3"
            )
        model.set_attn_implementation(ATTENTION)
        self.model = model.eval()
        self.window = window or int(model.config.max_position_embeddings)
        self.vocab_size = int(model.get_input_embeddings().num_embeddings)
        self._eos_ids = tuple(sorted(set(eos_ids)))
        self._seed = seed
        self._epoch = 0
        self._seen: dict[tuple[int, ...], int] = {}
        self._batch = Batch(model, max_rows=max_rows, kv_bytes=kv_bytes)
        self._inbox: queue.SimpleQueue[tuple[Row, Future] | Callable[[], None] | _Abort | None]
        self._inbox = queue.SimpleQueue()
        self._waiting: list[tuple[Row, Future]] = []
        self._running: dict[int, Future] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batch-generator", daemon=True)
        self._thread.start()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Completions in the order of the requests. Blocks; safe from any thread but the model's.

        Raises ValueError for a request that can't be served, naming the limit, before any runs.
        """
        rows = [self._row(request) for request in requests]
        futures = self._enqueue(rows)
        return [future.result() for future in futures]

    async def submit(
        self, prompt_ids: Sequence[int], params: SamplingParams | Mapping[str, Any] | None = None
    ) -> Completion:
        """One completion; concurrent calls share batches. Raises as `generate` does."""
        if params is None:
            params = SamplingParams()
        elif not isinstance(params, SamplingParams):
            params = SamplingParams.from_mapping(params)
        (future,) = self._enqueue([self._row(Request(tuple(prompt_ids), params))])
        return await asyncio.wrap_future(future)

    def reseed(self, epoch: int) -> None:
        """Start a new sequence of derived seeds, e.g. at a new training step."""
        with self._lock:
            self._epoch = epoch
            self._seen.clear()

    def exclusively(self, work: Callable[[], Any]) -> Any:
        """Run `work` on the model's thread when no sequence is in flight; return its result.

        New requests wait until it is done. For loading weights.
        """
        future: Future = Future()

        def task() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._put(task)
        return future.result()

    def abort(self) -> None:
        """End all requests under way with the tokens they have; returns once that is done."""
        done = threading.Event()
        self._put(_Abort(done))
        done.wait()

    def release(self) -> None:
        """Free the key-value memory; it grows back when needed."""
        self.exclusively(self._batch.release)

    def close(self) -> None:
        """Stop the thread; requests not finished fail."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._inbox.put(None)
        self._thread.join()

    def _row(self, request: Request) -> Row:
        prompt, params = request.prompt_ids, request.params
        if not prompt:
            raise ValueError("prompt has no tokens; a request needs at least 1")
        if len(prompt) >= self.window:
            raise ValueError(
                f"prompt has {len(prompt)} tokens, over the limit of {self.window - 1} "
                f"(window {self.window}, at least 1 for the completion)"
            )
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            raise ValueError(
                f"prompt holds token ids {min(prompt)}..{max(prompt)}, outside the model's "
                f"vocabulary of {self.vocab_size}"
            )
        room = self.window - len(prompt)
        stops = params.stop_token_ids + (() if params.ignore_eos else self._eos_ids)
        seed = params.seed
        if seed is None:
            # Equal prompts of one epoch get distinct seeds by how often they were asked, not by
            # when they arrived: a training step draws the same tokens however its calls race.
            with self._lock:
                count = self._seen[prompt] = self._seen.get(prompt, -1) + 1
                seed = derive_seed(self._seed, self._epoch, prompt, count)
        return Row(
            prompt=prompt,
            limit=min(params.max_tokens or room, room),
            stops=stops,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k,
            seed=seed & 0xFFFFFFFFFFFFFFFF,
        )

    def _put(self, item: tuple[Row, Future] | Callable[[], None] | _Abort) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the generator is closed")
            self._inbox.put(item)

    def _enqueue(self, rows: Sequence[Row]) -> list[Future]:
        futures: list[Future] = [Future() for _ in rows]
        for pair in zip(rows, futures, strict=True):
            self._put(pair)
        return futures

    def _run(self) -> None:
        """The model's thread: admit, decode one token, hand out what finished, repeat."""
        tasks: list[Callable[[], None]] = []
        while True:
            closing = self._drain(tasks)
            if closing:
                self._fail(RuntimeError("the generator was closed"))
                return
            if tasks and not self._batch.size:
                tasks.pop(0)()
                continue
            try:
                with torch.inference_mode():
                    if self._waiting and not tasks:
                        self._admit()
                    finished = self._batch.step() if self._batch.size else []
            except Exception as error:
                self._batch.release()
                self._fail(error)
                continue
            for row in finished:
                _resolve(self._running.pop(id(row)), _completion(row))

    def _drain(self, tasks: list[Callable[[], None]]) -> bool:
        """Move the inbox to its places; wait only when there is nothing to do. True: close."""
        idle = not (self._waiting or tasks or self._batch.size)
        while True:
            try:
                item = self._inbox.get(block=idle)
            except queue.Empty:
                return False
            if item is None:
                return True
            if isinstance(item, _Abort):
                self._end_all()
                item.done.set()
            elif callable(item):
                tasks.append(item)
            else:
                self._waiting.append(item)
            # A burst of calls arrives within milliseconds: read the rest of it before starting.
            idle = False

    def _admit(self) -> None:
        count = self._batch.capacity_for([row for row, _ in self._waiting])
        if not count:
            return
        joining, self._waiting = self._waiting[:count], self._waiting[count:]
        for row, future in joining:
            self._running[id(row)] = future
        self._batch.join([row for row, _ in joining])

    def _end_all(self) -> None:
        rows = self._batch.rows
        self._batch.release()
        for row in rows:
            _resolve(self._running.pop(id(row)), _completion(row))
        waiting, self._waiting = self._waiting, []
        for row, future in waiting:
            _resolve(future, _completion(row))

    def _fail(self, error: BaseException) -> None:
        futures = [*self._running.values(), *(future for _, future in self._waiting)]
        self._running.clear()
        self._waiting.clear()
        for future in futures:
            _reject(future, error)


@dataclass(frozen=True)
class _Abort:
    done: threading.Event


def _completion(row: Row) -> Completion:
    reason: FinishReason = "stop" if row.stopped else "length" if row.at_limit else "abort"
    return Completion(row.output_ids, row.log_probs, reason)


def _resolve(future: Future, completion: Completion) -> None:
    # A caller that was cancelled has cancelled its future; its row just ran to the end.
    if future.set_running_or_notify_cancel():
        future.set_result(completion)


def _reject(future: Future, error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
