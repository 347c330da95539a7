"""Weights by name: loading them into a model, and a digest that two processes can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch


def weights_digest(weights: Mapping[str, torch.Tensor]) -> str:
    """Hex digest of names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def load_weights(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> str:
    """Copy `weights` into `model` in place; returns the digest of the model's copies.

    Raises ValueError when a name or shape doesn't fit; tied weights may be given once or twice.
    """
    own = model.state_dict()
    unknown = sorted(set(weights) - set(own))
    given = {own[name].data_ptr() for name in weights if name in own}
    missing = sorted(name for name, tensor in own.items() if tensor.data_ptr() not in given)
    if unknown or missing:
        raise ValueError(
            f"weights don't match {type(model).__name__}: unknown {unknown[:3]}, "
            f"missing {missing[:3]}; trainer and rollout must load the same model"
        )
    with torch.no_grad():
        for name, tensor in weights.items():
            if own[name].shape != tensor.shape:
                raise ValueError(
                    f"weight {name} has shape {tuple(tensor.shape)}, "
                    f"the rollout's has {tuple(own[name].shape)}"
                )
            own[name].copy_(tensor)
    return weights_digest({name: own[name] for name in weights})
