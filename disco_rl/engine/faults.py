"""Faults on purpose, for studies: dropped outputs, failed calls, stragglers. All repeat by seed."""

import asyncio
from dataclasses import dataclass, replace
from hashlib import blake2b

from disco_rl.core.evidence import NarrowOutput
from disco_rl.engine.protocols import BadReplyError


@dataclass(frozen=True)
class Faults:
    """Chances in [0, 1], drawn from `seed` and the name of what they befall.

    fact_dropout: of a narrow action's whole output being discarded (the paper's Fact Dropout)
    fail: of a call on a shard failing
    straggle, straggle_s: of a call taking so many seconds longer
    """

    fact_dropout: float = 0.0
    fail: float = 0.0
    straggle: float = 0.0
    straggle_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("fact_dropout", "fail", "straggle"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"faults.{name} must lie between 0 and 1")
        if self.straggle_s < 0:
            raise ValueError("faults.straggle_s must be 0 or more")

    def drop(self, output: NarrowOutput, name: str) -> NarrowOutput:
        """The output of node `name`, or what is left of it: that the shards were scanned."""
        if not self._befalls("fact_dropout", name):
            return output
        return replace(output, findings=(), failures=(), n_cut=0, dropped=True)

    async def strike(self, name: str) -> None:
        """Delays or fails the call `name`. Raises `BadReplyError`."""
        if self._befalls("straggle", name):
            await asyncio.sleep(self.straggle_s)
        if self._befalls("fail", name):
            raise BadReplyError(f"a failure on purpose (faults.fail={self.fail:g})")

    def _befalls(self, fault: str, name: str) -> bool:
        chance = getattr(self, fault)
        if not chance:
            return False
        draw = blake2b(f"{self.seed}\0{fault}\0{name}".encode(), digest_size=8).digest()
        return int.from_bytes(draw, "big") < chance * 2**64
