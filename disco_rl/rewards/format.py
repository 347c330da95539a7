"""Format: did the Driver's calls parse and validate."""

from collections.abc import Sequence

from disco_rl.core.trajectory import DriverCall
from disco_rl.rewards.parts import Abstention, Part, Value


def format_share(calls: Sequence[DriverCall], *, strict: bool = False) -> Part:
    """The share of calls without an error; `strict`: 1 only where no call had one.

    A failed call and its repair turn count as two calls, so a repaired plan earns less than one
    that was right at once. No call at all is an abstention. (The paper says only that format is
    rewarded; the share, and its all-or-nothing variant, are ours.)
    """
    if not calls:
        return Abstention("the Driver was never called")
    good = sum(call.error is None for call in calls)
    if strict:
        return Value(float(good == len(calls)))
    return Value(good / len(calls))
