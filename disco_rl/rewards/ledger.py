"""What judging cost, in total and by trajectory, failures included."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields


@dataclass
class JudgeLedger:
    """Counts of questions to a judge. Each ends in exactly one of the second group.

    A request is one generation, whether or not it brought a verdict: a vote, a try at the second
    endpoint, or a reply that could not be parsed was paid for all the same. `seconds` is the wall
    time of the questions, summed: waiting for a slot and retries are in it.
    """

    questions: int = 0

    asked: int = 0  # brought a verdict by a model
    cached: int = 0  # had the same content as an earlier one, or as one under way
    shortcuts: int = 0  # were decided without a model
    errors: int = 0  # brought no verdict, or were cancelled

    undecided: int = 0  # abstentions
    requests: int = 0
    unparsed: int = 0  # requests whose reply held no verdict
    failed: int = 0  # requests that the endpoint failed, after its retries
    failovers: int = 0  # requests that went on to the next endpoint
    cut: int = 0  # questions whose reply or evidence was over its limit and was shortened
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, read from the server's prefix cache
    output_tokens: int = 0
    dollars: float = 0.0  # by judge.prices
    seconds: float = 0.0

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    def charge(self, **counts: float) -> None:
        """Adds to this ledger, and to the one of the innermost `charged_to`."""
        for ledger in (self, _CHARGED.get()):
            if ledger is not None:
                for name, count in counts.items():
                    setattr(ledger, name, getattr(ledger, name) + count)

    def lines(self) -> Iterator[str]:
        """For a person: what isn't zero, one figure a line."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value:
                form = {"seconds": ".1f", "dollars": ".4f"}.get(field.name, ",")
                yield f"{field.name}: {value:{form}}"


_CHARGED: ContextVar[JudgeLedger | None] = ContextVar("judge_ledger", default=None)


@contextmanager
def charged_to(ledger: JudgeLedger) -> Iterator[JudgeLedger]:
    """Within it, judges add to `ledger` too: so that one trajectory's share is known.

    Tasks started within it are charged as well. A question that two trajectories ask at once is
    charged to the first.
    """
    token = _CHARGED.set(ledger)
    try:
        yield ledger
    finally:
        _CHARGED.reset(token)
