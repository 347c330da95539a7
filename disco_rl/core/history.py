"""What the Driver is shown of findings and earlier stages, within a token budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disco_rl.core.evidence import NarrowOutput, WideOutput
from disco_rl.core.trajectory import Stage


@dataclass(frozen=True, slots=True)
class Line:
    """One line of evidence. Lines of the lowest `rank` are cut first, later ones before earlier."""

    text: str
    rank: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """The lines that fit, in order, and how many were cut."""

    text: str
    n_cut: int


def evidence_lines(outputs: Sequence[NarrowOutput | WideOutput], rank: int) -> list[Line]:
    """Findings as `node [shard]: quote`; failures and empty results are said, not left out.

    Failures stand one rank above the findings, since they are short and change what is concluded.
    """
    lines: list[Line] = []
    for output in outputs:
        if isinstance(output, WideOutput):
            lines.append(Line(f"{output.node}: {_flat(output.text)}", rank + 1))
            continue
        for finding in output.findings:
            lines.append(Line(f"{output.node} [{finding.shard}]: {_flat(finding.quote)}", rank))
        if output.failures:
            failed = len(output.failures)
            lines.append(
                Line(f"{output.node}: {failed} of {output.n_shards} shards failed", rank + 1)
            )
        if not output.findings and (not output.failures or len(output.failures) < output.n_shards):
            lines.append(Line(f"{output.node}: nothing found", rank + 1))
    return lines


def history_lines(stages: Sequence[Stage]) -> list[Line]:
    """Earlier stages, oldest first: findings that their answers rest on, the answer, the gap.

    Answers and gaps outrank findings, later stages outrank earlier ones.
    """
    lines: list[Line] = []
    for position, stage in enumerate(stages):
        rank, name = 10 * (position + 1), f"stage {stage.index + 1}"
        outputs = [o for o in stage.pool.outputs.values() if isinstance(o, NarrowOutput)]
        for line in evidence_lines(outputs, rank):
            lines.append(Line(f"{name} {line.text}", line.rank))
        if stage.answer is not None:
            lines.append(Line(f"{name} answer: {_flat(stage.answer)}", rank + 1000))
        if stage.review is not None and not stage.review.accept:
            lines.append(Line(f"{name} gap: {_flat(stage.review.gap)}", rank + 1001))
    return lines


def fit(lines: Sequence[Line], fits: Callable[[str], bool]) -> Fitted:
    """The most lines whose joined text `fits`, cut by rank; asks `fits` O(log n) times.

    Where not even the empty text fits, that is returned all the same, with everything cut: the
    caller decides whether a prompt without evidence is of use.
    """
    text = "\n".join(line.text for line in lines)
    if fits(text):
        return Fitted(text, 0)
    by_rank = sorted(range(len(lines)), key=lambda i: (lines[i].rank, -i))

    def without(n: int) -> str:
        dropped = set(by_rank[:n])
        return "\n".join(line.text for i, line in enumerate(lines) if i not in dropped)

    low, high = min(1, len(lines)), len(lines)
    while low < high:
        middle = (low + high) // 2
        if fits(without(middle)):
            high = middle
        else:
            low = middle + 1
    return Fitted(without(low), low)


def _flat(text: str) -> str:
    return " ".join(text.split())
