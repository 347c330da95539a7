"""Polling intervals that verl fixes for steps of minutes, set for steps of seconds."""

from __future__ import annotations

from typing import Any

REPLAY_POLL_S = 0.02


def quicken(trainer: Any) -> None:
    """Let a verl v1 trainer notice finished rollouts within `REPLAY_POLL_S` seconds.

    verl polls its replay buffer every 2 seconds and has no key for it. Raises AttributeError when
    the trainer has no such buffer, rather than setting a value nothing reads.
    """
    buffer = trainer.replay_buffer
    if not hasattr(buffer, "poll_interval"):
        raise AttributeError(
            f"{type(buffer).__name__} has no poll_interval: verl changed, see test_verl_symbols"
        )
    buffer.poll_interval = REPLAY_POLL_S
