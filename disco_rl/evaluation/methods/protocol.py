"""What a method is given and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from disco_rl.core.trajectory import Trajectory
from disco_rl.evaluation.calls import Calls

_LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class Document:
    """A context by id; `load` reads its text, which is kept by nobody."""

    id: str
    load: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Task:
    """A question about a document. `style` says how to answer, in the benchmark's own terms."""

    question: str
    options: tuple[str, ...] = ()
    style: str = "Answer with the answer only, in as few words as possible."
    max_tokens: int = 32

    @property
    def asked(self) -> str:
        """The question with its options, a line each."""
        lines = (f"({x}) {option}" for x, option in zip(_LETTERS, self.options, strict=False))
        return "\n".join((self.question, *lines))


@dataclass
class Attempt:
    """A method's answer, why it ended, and `record`: what a person needs to follow it.

    `truncated` counts tokens of the context that the method never read. Everything in `record` is
    plain JSON, and no part of it is the context. `trajectory` is DISCO's, for its reward parts.
    """

    answer: str | None
    stop: str = "answered"
    truncated: int = 0
    trajectory: Trajectory | None = None
    record: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """A system that answers questions about documents longer than its models can read."""

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        """Raises `ModelError` when a model that it can't do without failed."""
        ...
