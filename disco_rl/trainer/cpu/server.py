"""The rollout server: a Ray actor around the batch generator.

It imports torch and transformers but not verl, which would cost its process several seconds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from disco_rl.trainer.cpu.digest import load_weights
from disco_rl.trainer.cpu.generator import BatchGenerator, load_model


class TokenReply:
    """Becomes verl's TokenOutput where it is unpickled, so that the server needs no verl."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return _token_output, (self.fields,)


def _token_output(fields: dict[str, Any]) -> Any:
    from verl.workers.rollout.replica import TokenOutput

    return TokenOutput(**fields)


def server_name(replica_rank: int) -> str:
    """Ray's name for the server of a replica; the trainer finds it by this."""
    return f"disco_cpu_server_{replica_rank}"


class RolloutServer:
    """Methods are verl's for a rollout server; the model starts from the files at `path`."""

    def __init__(self, path: str, *, window: int, max_rows: int, seed: int, threads: int) -> None:
        torch.set_num_threads(threads)
        model, eos_ids = load_model(path)
        self._generator = BatchGenerator(
            model, eos_ids, window=window, max_rows=max_rows, seed=seed
        )
        self._global_steps: int | None = None
        self._open = asyncio.Event()  # requests wait while it isn't set
        self._open.set()
        self._rejects = False

    async def ready(self) -> bool:
        return True

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: Any = None,
        video_data: Any = None,
        **_: Any,
    ) -> TokenReply:
        """Sample one completion. Raises ValueError for a request that can't be served.

        One that `abort_all_requests` stopped comes back as "aborted" with what it has, and verl's
        client asks for the rest.
        """
        del request_id
        if image_data or video_data:
            raise ValueError("the CPU rollout server takes text only, got images or video")
        if self._rejects:
            return self._reply([], [], "abort")
        await self._open.wait()
        done = await self._generator.submit(prompt_ids, sampling_params)
        return self._reply(done.output_ids, done.log_probs, done.finish_reason)

    def _reply(self, ids: list[int], log_probs: list[float], finish: str) -> TokenReply:
        return TokenReply(
            {
                "token_ids": ids,
                "log_probs": log_probs,
                "stop_reason": "aborted" if finish == "abort" else "completed",
                "extra_fields": {"global_steps": self._global_steps, "finish_reason": finish},
            }
        )

    def load(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> str:
        """Replace the weights once nothing is in flight; returns the digest of what was loaded."""
        digest = self._generator.exclusively(lambda: load_weights(self._generator.model, weights))
        self._global_steps = global_steps
        self._generator.reseed(-1 if global_steps is None else global_steps)
        return digest

    async def sleep(self) -> None:
        """Free the key-value memory while the trainer works."""
        self._generator.release()

    async def wake_up(self) -> None:
        return None

    async def clear_kv_cache(self) -> None:
        self._generator.release()

    async def release_kv_cache(self) -> None:
        self._generator.release()

    async def resume_kv_cache(self) -> None:
        return None

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Stop what is under way; later requests wait for `resume_generation`, or are sent away."""
        self._open.clear()
        self._rejects = reject_request
        self._generator.abort()

    async def resume_generation(self) -> None:
        self._rejects = False
        self._open.set()

    async def start_profile(self, **_: Any) -> None:
        return None

    async def stop_profile(self) -> None:
        return None
