"""A Driver on a model folder, in this process: what `disco-rl ask` and the evaluation use."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_rl.core.trajectory import Generation
from disco_rl.engine.protocols import Message, ModelError
from disco_rl.trainer.server_driver import ChatEncoder

if TYPE_CHECKING:
    from disco_rl.trainer.cpu.generator import BatchGenerator

SAMPLING_KEYS = ("temperature", "top_p", "top_k")


class LocalDriver:
    """A `DriverModel` on the batched CPU generator; generations carry the exact ids."""

    def __init__(
        self, generator: BatchGenerator, encoder: ChatEncoder, sampling: Mapping[str, Any]
    ):
        self._generator = generator
        self._encoder = encoder
        self._sampling = dict(sampling)

    @classmethod
    def load(
        cls,
        model: str,
        *,
        window: int | None = None,
        template: Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> LocalDriver:
        """Loads a Hugging Face folder or hub name in fp32.

        `sampling` None takes the model's own generation config, greedy where it says nothing.
        Raises `ValueError` where the model can't be loaded or has no chat template.
        """
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        from disco_rl.trainer.cpu.generator import BatchGenerator

        _check_folder(model)
        if not sys.stderr.isatty():
            logging.disable_progress_bar()
        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
            loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"model {model!r} can't be loaded: {error}; give a Hugging Face folder, such as "
                "one that `disco-rl export` wrote, or a hub name that can be reached"
            ) from error
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(f"model {model!r} has no chat template; use an instruction-tuned one")
        config = loaded.generation_config
        if sampling is None:
            sampling = {"temperature": 0.0}
            if config.do_sample:
                asked = {key: getattr(config, key, None) for key in SAMPLING_KEYS}
                sampling = {"temperature": 1.0} | {k: v for k, v in asked.items() if v is not None}
        ends = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
        generator = BatchGenerator(
            loaded,
            ends if isinstance(ends, list) else [ends],
            window=min(
                window or loaded.config.max_position_embeddings,
                loaded.config.max_position_embeddings,
            ),
            seed=seed,
        )
        return cls(generator, ChatEncoder(tokenizer, template), sampling)

    def count(self, messages: Sequence[Message]) -> int:
        return len(self._encoder.encode(messages))

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        """One reply. `schema` is not enforced: this generator has no constrained decoding."""
        prompt = self._encoder.encode(messages)
        try:
            done = await self._generator.submit(
                prompt, {**self._sampling, "max_tokens": max_tokens}
            )
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"local model: {error}") from error
        return Generation(
            text=self._encoder.text(done.output_ids),
            prompt_ids=tuple(prompt),
            output_ids=tuple(done.output_ids),
            logprobs=tuple(done.log_probs),
            finish=done.finish_reason,
            n_prompt=len(prompt),
            n_output=len(done.output_ids),
        )

    async def close(self) -> None:
        self._generator.close()


def _check_folder(model: str) -> None:
    """A path that isn't a model folder would be taken for a hub name, and fail obscurely."""
    path = Path(model).expanduser()
    looks_local = path.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_local and not (path / "config.json").is_file():
        raise ValueError(f"model {model!r}: no config.json in that folder; check the path")
