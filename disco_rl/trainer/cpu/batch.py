"""The sequences being decoded together, and one step for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from disco_rl.trainer.cpu.kv import KVCache, decode_mask
from disco_rl.trainer.cpu.sampling import sample, uniforms

PREFILL_TOKENS = 8192
"""Most padded tokens read in one forward pass: bounds the activations, keeps them in cache."""


@dataclass(eq=False)
class Row:
    """One sequence: what was asked, and what was sampled so far."""

    prompt: tuple[int, ...]
    limit: int
    stops: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    seed: int
    output_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stopped: bool = False

    @property
    def reach(self) -> int:
        """Most columns of the cache that the sequence can come to need."""
        return len(self.prompt) + self.limit

    @property
    def at_limit(self) -> bool:
        return len(self.output_ids) >= self.limit


class Batch:
    """Rows 0..size-1 of the cache are the sequences in flight."""

    def __init__(self, model: PreTrainedModel, *, max_rows: int, kv_bytes: int) -> None:
        config = model.config
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        per_token = 2 * config.num_hidden_layers * kv_heads * head_dim * 4
        self._model = model
        self._max_rows = max_rows
        self._max_cells = max(1, kv_bytes // per_token)
        self._cache = KVCache()
        self._rows: list[Row] = []
        self._state: _State | None = None

    @property
    def size(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> list[Row]:
        """The sequences in flight, those included that end at the next step."""
        return list(self._rows)

    def capacity_for(self, waiting: Sequence[Row]) -> int:
        """How many of the waiting rows, in order, fit beside those in flight."""
        reach = max((row.reach for row in self._rows), default=0)
        count = 0
        for row in waiting:
            reach = max(reach, row.reach)
            rows = self.size + count + 1
            if rows > 1 and (rows > self._max_rows or rows * reach > self._max_cells):
                break
            count += 1
        return count

    def release(self) -> None:
        """Forget the sequences in flight and free their memory."""
        self._rows.clear()
        self._state = None
        self._cache.clear()

    def join(self, rows: Sequence[Row]) -> None:
        """Read the prompts of new rows and sample the first token of each."""
        first = self.size
        # Equal prompts stand together and are read once; similar lengths waste little padding.
        ordered = sorted(rows, key=lambda row: (len(row.prompt), row.prompt))
        longest = max(len(row.prompt) for row in [*self._rows, *ordered])
        self._grow(first + len(ordered), longest + 1)
        hidden: list[torch.Tensor] = []
        start = 0
        while start < len(ordered):
            stop = start
            prompts: list[tuple[int, ...]] = []
            while stop < len(ordered):
                prompt = ordered[stop].prompt
                fresh = not prompts or prompt != prompts[-1]
                if fresh and prompts and (len(prompts) + 1) * len(prompt) > PREFILL_TOKENS:
                    break
                if fresh:
                    prompts.append(prompt)
                stop += 1
            hidden.append(self._prefill(first + start, prompts, ordered[start:stop]))
            start = stop
        self._rows.extend(ordered)
        fresh_state = _State.of(ordered)
        self._state = fresh_state if self._state is None else self._state.extended(fresh_state)
        self._sample(torch.cat(hidden), first)

    def step(self) -> list[Row]:
        """Drop the rows that are done and return them; give every other row one more token."""
        finished = self._drop_finished()
        if self._rows:
            assert self._state is not None
            positions = self._state.positions
            self._grow(self.size, int(positions.max()) + 1)
            self._cache.begin_decode(positions)
            hidden = self._forward(
                self._state.last.unsqueeze(1), positions.unsqueeze(1), decode_mask(positions)
            )
            self._state.positions = positions + 1
            self._sample(hidden[:, 0], 0)
        return finished

    def _prefill(
        self, first_row: int, prompts: list[tuple[int, ...]], rows: Sequence[Row]
    ) -> torch.Tensor:
        """Read distinct prompts, then copy each to its twins; last hidden states [rows, dim]."""
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        for i, prompt in enumerate(prompts):
            ids[i, : len(prompt)] = torch.tensor(prompt)
        self._cache.begin_prefill(first_row, len(prompts))
        hidden = self._forward(ids, torch.arange(width).unsqueeze(0), None)
        place = {prompt: i for i, prompt in enumerate(prompts)}
        sources = [place[row.prompt] for row in rows]
        # From the last row down: a source stands before its copies and must not be overwritten
        # while a later row still needs it.
        for target in range(len(rows) - 1, -1, -1):
            if sources[target] != target:
                self._cache.copy_row(
                    first_row + sources[target], first_row + target, len(rows[target].prompt)
                )
        ends = torch.tensor([len(row.prompt) - 1 for row in rows])
        return hidden[torch.tensor(sources), ends]

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        output = self._model.base_model(
            input_ids=ids,
            position_ids=positions,
            attention_mask={"full_attention": mask},
            past_key_values=self._cache,
            use_cache=True,
        )
        return output.last_hidden_state

    def _sample(self, hidden: torch.Tensor, first: int) -> None:
        """Sample one token for the rows from `first` on, from hidden states [rows, dim]."""
        state = self._state
        assert state is not None
        logits = self._model.get_output_embeddings()(hidden).float()
        draws = uniforms(state.seeds[first:], state.counts[first:])
        tokens, log_probs = sample(
            logits,
            state.temperature[first:],
            state.top_p[first:],
            state.top_k[first:],
            torch.from_numpy(draws),
        )
        # One bad logit spoils its row's normaliser, so the sampled log-prob shows it.
        if not bool(torch.isfinite(log_probs).all()):
            raise FloatingPointError("the model produced a logit that is not finite")
        state.last[first:] = tokens
        state.counts[first:] += 1
        for row, token, log_prob in zip(
            self._rows[first:], tokens.tolist(), log_probs.tolist(), strict=True
        ):
            row.output_ids.append(token)
            row.log_probs.append(log_prob)
            row.stopped = token in row.stops

    def _drop_finished(self) -> list[Row]:
        """Take out rows that are done; rows from the end move into the holes."""
        done = [i for i, row in enumerate(self._rows) if row.stopped or row.at_limit]
        if not done:
            return []
        finished = [self._rows[i] for i in done]
        assert self._state is not None
        size = self.size - len(done)
        holes = [i for i in done if i < size]
        gone = set(done)
        movers = [i for i in range(size, self.size) if i not in gone]
        order = list(range(size))
        for hole, mover in zip(holes, movers, strict=True):
            self._cache.copy_row(mover, hole, int(self._state.positions[mover]))
            order[hole] = mover
        self._rows = [self._rows[i] for i in order]
        self._state = self._state.taken(order)
        return finished

    def _grow(self, rows: int, columns: int) -> None:
        # In steps, so that a growing sequence doesn't copy the cache at every token.
        if rows > self._cache.rows or columns > self._cache.columns:
            self._cache.reserve(rows, -(-columns // 128) * 128)


@dataclass
class _State:
    """What the step needs of each row, as arrays [rows]."""

    last: torch.Tensor
    positions: torch.Tensor
    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    seeds: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _State:
        return cls(
            last=torch.zeros(len(rows), dtype=torch.long),
            positions=torch.tensor([len(row.prompt) for row in rows]),
            temperature=torch.tensor([row.temperature for row in rows]),
            top_p=torch.tensor([row.top_p for row in rows]),
            top_k=torch.tensor([row.top_k for row in rows]),
            seeds=np.array([row.seed for row in rows], dtype=np.uint64),
            counts=np.zeros(len(rows), dtype=np.int64),
        )

    def extended(self, other: _State) -> _State:
        return _State(
            torch.cat([self.last, other.last]),
            torch.cat([self.positions, other.positions]),
            torch.cat([self.temperature, other.temperature]),
            torch.cat([self.top_p, other.top_p]),
            torch.cat([self.top_k, other.top_k]),
            np.concatenate([self.seeds, other.seeds]),
            np.concatenate([self.counts, other.counts]),
        )

    def taken(self, order: list[int]) -> _State:
        index = torch.tensor(order, dtype=torch.long)
        at = np.array(order, dtype=np.int64)
        return _State(
            self.last[index],
            self.positions[index],
            self.temperature[index],
            self.top_p[index],
            self.top_k[index],
            self.seeds[at],
            self.counts[at],
        )
