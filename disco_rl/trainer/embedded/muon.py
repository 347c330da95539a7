"""Muon in fp32 for hidden matrices, AdamW for the rest: fewer steps of a warm start on the CPU.

`torch.optim.Muon` orthogonalises in bfloat16, which a CPU without bfloat16 instructions multiplies
a dozen times slower than fp32; this is the same update (Jordan et al. 2024, with the scale of
arXiv 2502.16982 that makes AdamW's learning rates carry over), with matrices of one shape
orthogonalised together.
"""

from collections.abc import Iterable

import torch

_QUINTIC = (3.4445, -4.7750, 2.0315)
_STEPS = 5


class Muon:
    """Optimizer of a model's parameters. `lr` may be set before each step; decay is decoupled."""

    def __init__(
        self,
        named: Iterable[tuple[str, torch.nn.Parameter]],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ):
        by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
        rest: list[torch.nn.Parameter] = []
        for name, parameter in named:
            hidden = parameter.dim() == 2 and "embed" not in name and "lm_head" not in name
            (by_shape.setdefault(parameter.shape, []) if hidden else rest).append(parameter)
        self._groups = list(by_shape.values())
        self._momenta = [torch.zeros(len(group), *group[0].shape) for group in self._groups]
        self._adam = torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0, fused=True)
        self._momentum, self._decay = momentum, weight_decay
        self.lr = lr

    def zero_grad(self) -> None:
        self._adam.zero_grad(set_to_none=True)
        for parameter in (p for group in self._groups for p in group):
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients, which every parameter must have."""
        for group in self._adam.param_groups:
            group["lr"] = self.lr
        self._adam.step()
        for group, momentum in zip(self._groups, self._momenta, strict=True):
            gradient = torch.stack([parameter.grad for parameter in group])
            momentum.lerp_(gradient, 1 - self._momentum)
            update = orthogonal(gradient.lerp(momentum, self._momentum))
            scale = 0.2 * max(group[0].shape) ** 0.5
            for parameter, change in zip(group, update, strict=True):
                parameter.mul_(1 - self.lr * self._decay).sub_(change, alpha=self.lr * scale)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Each of `matrices` (n, rows, columns) with its singular values brought near 1.

    Newton-Schulz: after five rounds they lie between about 0.7 and 1.2.
    """
    a, b, c = _QUINTIC
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
