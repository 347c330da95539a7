"""What the nodes of a stage produced."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """What a Worker found for narrow action `node` in `shard`.

    `span` is the quote's half-open character span within the shard's text, or None where the
    quote doesn't stand there verbatim. `score` is the retriever's, if there is one.
    """

    node: str
    shard: int
    quote: str
    span: tuple[int, int] | None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A shard that could not be scanned for a narrow action: a gap the Driver is told of."""

    node: str
    shard: int
    reason: str


@dataclass(frozen=True, slots=True)
class NarrowOutput:
    """Findings in shard order, the shards scanned and failed, and findings cut by the limit.

    `dropped`: a study's `fact_dropout` discarded what was found.
    """

    node: str
    findings: tuple[Finding, ...]
    failures: tuple[WorkerFailure, ...] = ()
    n_shards: int = 0
    n_cut: int = 0
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class WideOutput:
    """The Driver's synthesis for a wide action; `n_cut` inputs didn't fit its window."""

    node: str
    text: str
    n_cut: int = 0


@dataclass
class EvidencePool:
    """Outputs by node id, filled as the executor goes."""

    outputs: dict[str, NarrowOutput | WideOutput] = field(default_factory=dict)

    def findings(self, nodes: frozenset[str] | None = None) -> list[Finding]:
        """Findings of the given narrow nodes (None: of all), in node and shard order."""
        return [
            finding
            for output in self.outputs.values()
            if isinstance(output, NarrowOutput) and (nodes is None or output.node in nodes)
            for finding in output.findings
        ]
