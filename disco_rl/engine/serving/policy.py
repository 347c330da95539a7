"""How Worker calls are spread over endpoints, and what is done when some of them fail."""

import random
from dataclasses import dataclass, fields

from disco_rl.engine.protocols import ModelError


@dataclass(frozen=True)
class ServingPolicy:
    """Times in seconds. Raises `ValueError` for a value that can't be.

    slots: calls under way at one endpoint at once
    reads: of these, calls on shards that the endpoint hasn't read
    attempt_s: one try at one endpoint
    deadline_s: all tries of a call together, with the waits between them. Waiting for a turn, or
        for an endpoint to return when all are down, isn't counted: the episode's deadline is
    max_attempts, backoff_s, max_backoff_s: tries of a call, and the waits between them
    eject_after: failures in a row after which an endpoint is out of service
    probe_s: first pause before an ejected endpoint is probed; doubled up to 12 times that
    hedge_s: a call at a server for longer gets a second request elsewhere, and an endpoint where
        calls in a row take longer, while others don't, is ejected (None: neither)
    hedge_share: at most this share of the calls under way are hedged
    gate: the first call on a shard goes ahead, and the rest follow once it is read
    affinity: a shard's calls go to the endpoint that read it (False: to any, for comparisons)
    """

    slots: int = 64
    reads: int = 8
    attempt_s: float = 120.0
    deadline_s: float = 300.0
    max_attempts: int = 6
    backoff_s: float = 0.5
    max_backoff_s: float = 20.0
    eject_after: int = 3
    probe_s: float = 5.0
    hedge_s: float | None = None
    hedge_share: float = 0.1
    gate: bool = True
    affinity: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, bool) and value is not None and value <= 0:
                raise ValueError(f"worker.{field.name} must be positive, not {value}")


def backoff(attempt: int, failure: ModelError, first: float, most: float) -> float:
    """Seconds to wait after try `attempt` (from 1), at least what the server asks for."""
    # Jitter, so that clients refused together don't come back together.
    wait = min(first * 2 ** (attempt - 1), most) * random.uniform(0.5, 1.0)
    return max(wait, failure.retry_after)
