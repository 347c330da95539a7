"""A preallocated key-value cache whose rows start, grow and finish independently.

Row r of the cache holds a sequence from column 0 on, so prompts are padded on the right, never
attended to, and a decode step reads a plain slice: nothing is concatenated or re-padded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface

ATTENTION = "disco_kv"


class KVCache:
    """Keys and values of up to `rows` sequences of up to `columns` tokens.

    Duck-typed for transformers' decoder layers, which call `update(key, value, layer_idx)`. The
    mode is set before a forward pass by `begin_prefill` or `begin_decode`.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.columns = 0
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._prefill: slice | None = None
        self._positions: torch.Tensor | None = None
        self._width = 0

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for at least `rows` x `columns`, keeping what is stored."""
        if rows <= self.rows and columns <= self.columns:
            return
        old_rows, old_columns = self.rows, self.columns
        self.rows, self.columns = max(rows, old_rows), max(columns, old_columns)
        for buffers in (self._keys, self._values):
            for layer, old in enumerate(buffers):
                buffers[layer] = self._empty(old)
                buffers[layer][:old_rows, :, :old_columns] = old

    def clear(self) -> None:
        """Free the memory; every row is lost."""
        self.rows = self.columns = 0
        self._keys.clear()
        self._values.clear()

    def begin_prefill(self, first_row: int, count: int) -> None:
        """The next forward pass writes `count` fresh sequences from row `first_row` on."""
        self._prefill = slice(first_row, first_row + count)

    def begin_decode(self, positions: torch.Tensor) -> None:
        """The next forward pass appends one token to rows 0..n-1, at `positions` [n]."""
        self._prefill = None
        self._positions = positions
        self._width = int(positions.max()) + 1

    def copy_row(self, source: int, target: int, length: int) -> None:
        for buffers in (self._keys, self._values):
            for buffer in buffers:
                buffer[target, :, :length] = buffer[source, :, :length]

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store key and value [n, kv_heads, q_len, head_dim]; return what to attend to."""
        while len(self._keys) <= layer_idx:
            self._keys.append(self._empty(key))
            self._values.append(self._empty(value))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        if self._prefill is not None:
            keys[self._prefill, :, : key.shape[2]] = key
            values[self._prefill, :, : value.shape[2]] = value
            return key, value
        assert self._positions is not None
        count = key.shape[0]
        rows = torch.arange(count)
        keys[rows, :, self._positions] = key[:, :, 0]
        values[rows, :, self._positions] = value[:, :, 0]
        return keys[:count, :, : self._width], values[:count, :, : self._width]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        del layer_idx
        return 0 if self._prefill is not None else self._width - 1

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros, not uninitialised memory: a masked NaN would still poison the weighted sum.
        return torch.zeros(self.rows, like.shape[1], self.columns, like.shape[3], dtype=like.dtype)


def decode_mask(positions: torch.Tensor) -> torch.Tensor:
    """Additive mask [n, 1, 1, max(positions) + 1]: row r sees columns up to positions[r]."""
    columns = torch.arange(int(positions.max()) + 1)
    hidden = columns.unsqueeze(0) > positions.unsqueeze(1)
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, torch.finfo(torch.float32).min)
    return mask[:, None, None, :]


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention for prefill (causal, no mask) and for one-token decoding (with a mask).

    query [n, heads, q_len, dim]; key, value [n, kv_heads, k_len, dim]. Decoding groups the query
    heads of one key head into a small matrix, so the cache is read once and never repeated.
    """
    if query.shape[2] > 1 or attention_mask is None:
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        out = functional.scaled_dot_product_attention(
            query, key, value, is_causal=query.shape[2] > 1, scale=scaling
        )
        return out.transpose(1, 2).contiguous(), None
    count, heads, _, dim = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(count, kv_heads, heads // kv_heads, dim)
    scores = torch.matmul(grouped, key.transpose(2, 3))
    scores = scores * (scaling if scaling is not None else dim**-0.5) + attention_mask
    out = torch.matmul(torch.softmax(scores, dim=-1), value)
    return out.reshape(count, 1, heads, dim), None


AttentionInterface.register(ATTENTION, attention)
