"""What a served model's tokens cost."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prices:
    """Dollars a million tokens: prompt tokens computed, read from cache, and generated."""

    prompt: float = 0.0
    cached: float = 0.0
    output: float = 0.0

    def dollars(self, prompt: int, cached: int, output: int) -> float:
        computed = (prompt - cached) * self.prompt
        return (computed + cached * self.cached + output * self.output) / 1e6
