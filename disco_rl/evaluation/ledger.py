"""What an answer cost: calls, tokens and dollars by role."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Spent:
    """Of one role. Tokens as the servers report them; `cached` is the part of `prompt` that a
    prefix cache served. `cut` counts replies that hit their token limit."""

    calls: int = 0
    failures: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    cut: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. `cached` None: cached tokens cost what others do."""

    prompt: float = 0.0
    output: float = 0.0
    cached: float | None = None

    def dollars(self, spent: Spent) -> float:
        cached = self.prompt if self.cached is None else self.cached
        fresh = spent.prompt - spent.cached
        return (fresh * self.prompt + spent.cached * cached + spent.output * self.output) / 1e6


@dataclass
class Ledger:
    """Spendings by role: driver, worker, embedder."""

    roles: dict[str, Spent] = field(default_factory=dict)

    def of(self, role: str) -> Spent:
        return self.roles.setdefault(role, Spent())

    def dollars(self, prices: Mapping[str, Price]) -> float:
        """Roles without a price are free."""
        free = Price()
        return sum(prices.get(role, free).dollars(spent) for role, spent in self.roles.items())

    def to_json(self) -> dict[str, Any]:
        return {role: asdict(spent) for role, spent in sorted(self.roles.items())}
