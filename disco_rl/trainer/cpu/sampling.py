"""Vectorised sampling whose draws depend on the request, not on the batch it runs in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled.

    temperature 0 is greedy; top_k -1 and top_p 1 are off. max_tokens None means "up to the
    window". stop_token_ids are added to the model's own end tokens. The same seed, prompt and
    weights give the same tokens, whatever else is in the batch (up to float rounding); seed None
    lets the generator derive one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 (greedy) or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k == 0 or self.top_k < -1:
            raise ValueError(f"top_k must be -1 (off) or at least 1, got {self.top_k}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")

    @classmethod
    def from_mapping(cls, params: Mapping[str, Any]) -> SamplingParams:
        """Read verl's or OpenAI's names; ignores `logprobs` (always returned).

        Raises ValueError for a key that would change the distribution and isn't supported.
        """
        known = dict(params)
        known.pop("logprobs", None)
        if known.pop("repetition_penalty", 1.0) not in (None, 1, 1.0):
            raise ValueError("the CPU generator has no repetition_penalty; set it to 1")
        if "max_new_tokens" in known:
            known["max_tokens"] = known.pop("max_new_tokens")
        known["stop_token_ids"] = tuple(known.get("stop_token_ids") or ())
        unknown = sorted(set(known) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(
                f"sampling parameters {unknown} are not supported by the CPU generator; "
                f"known: {sorted(cls.__dataclass_fields__)}"
            )
        return cls(**known)


def derive_seed(base: int, *parts: int | Sequence[int]) -> int:
    """A 64-bit seed from a base and integers or integer sequences."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (base, *parts):
        values = [part] if isinstance(part, int) else list(part)
        digest.update(np.asarray([len(values), *values], dtype=np.int64).tobytes())
    return int.from_bytes(digest.digest(), "little")


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One draw in [0, 1) for each (seed, position): splitmix64, float64.

    seeds uint64 [n], positions integer [n] (index of the token in its completion).
    """
    with np.errstate(over="ignore"):
        z = seeds + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_p: torch.Tensor,
    top_k: torch.Tensor,
    draws: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Next tokens and their log-probabilities.

    logits float32 [n, vocab]; temperature, top_p float32 [n]; top_k int64 [n] (-1 off); draws
    float64 [n] in [0, 1). Returns tokens int64 [n] and log-probs float32 [n].

    The log-prob is that of the temperature-scaled distribution before top-k and top-p, which is
    what verl's actor computes (`logits / temperature`, then log-softmax); greedy rows use
    temperature 1.
    """
    greedy = temperature == 0
    # verl clamps the temperature at 1e-8 (FSDP engine, _scale_logits_by_temperature).
    scale = torch.where(greedy, torch.ones_like(temperature), temperature.clamp(min=1e-8))
    logits = logits / scale.unsqueeze(-1)
    log_probs = torch.log_softmax(logits, dim=-1)
    if bool(greedy.all()):
        tokens = logits.argmax(dim=-1)
    else:
        weights = log_probs.exp().double()
        if bool((top_k > 0).any()) or bool((top_p < 1).any()):
            weights = _restrict(weights, top_p, top_k)
        cdf = weights.cumsum(dim=-1)
        total = cdf[:, -1]
        # Strictly under the total: the first entry above the target then has a weight over 0.
        target = torch.minimum(draws * total, torch.nextafter(total, torch.zeros_like(total)))
        tokens = torch.searchsorted(cdf, target.unsqueeze(-1), right=True).squeeze(-1)
        # Only past the end when a logit isn't finite, which the caller reports.
        tokens = tokens.clamp(max=logits.shape[-1] - 1)
        tokens = torch.where(greedy, logits.argmax(dim=-1), tokens)
    return tokens, log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def _restrict(weights: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Zero the weights outside each row's top-k, then outside its top-p nucleus."""
    ordered, index = weights.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(weights.shape[-1]).unsqueeze(0)
    limit = torch.where(top_k > 0, top_k, weights.shape[-1]).unsqueeze(-1)
    ordered = ordered.masked_fill(rank >= limit, 0.0)
    before = ordered.cumsum(dim=-1) - ordered
    nucleus = top_p.double().unsqueeze(-1) * ordered.sum(dim=-1, keepdim=True)
    off = (top_p >= 1).unsqueeze(-1)
    # The first token always stays: nothing stands before it.
    ordered = ordered.masked_fill((before >= nucleus) & ~off, 0.0)
    return torch.zeros_like(weights).scatter(-1, index, ordered)
