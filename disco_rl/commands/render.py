"""A trajectory for people: answer, evidence with its places, and each stage's plan as a tree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from disco_rl.commands.document import place
from disco_rl.core.evidence import Finding, NarrowOutput, WideOutput
from disco_rl.core.plan import NarrowAction, Plan
from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import Stage, Trajectory
from disco_rl.rewards.evidence import cited_findings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree


def show(trajectory: Trajectory, context: TextContext, console: "Console") -> None:
    """Prints the whole trajectory. Plain text where the console is no terminal."""
    from rich.text import Text

    answer = Text(trajectory.answer or "none", style="bold green" if trajectory.answer else "red")
    console.print(Text("Answer: ", style="bold") + answer)
    console.print(Text(_outcome(trajectory), style="dim"))
    console.print(Text("\nEvidence", style="bold"))
    lines = list(evidence(trajectory, context))
    for line in lines or ["  none that stands verbatim in the document"]:
        console.print(Text(line))
    for stage in trajectory.stages:
        console.print()
        console.print(stage_tree(stage))


def evidence(trajectory: Trajectory, context: TextContext) -> Iterator[str]:
    """One line a quote behind the answer: shard, characters and line in the document, text."""
    seen: set[tuple[int, tuple[int, int]]] = set()
    for finding in cited_findings(trajectory):
        assert finding.span is not None  # only verbatim findings are cited
        if (finding.shard, finding.span) in seen:
            continue
        seen.add((finding.shard, finding.span))
        start, end, line = place(context.text, context.shards[finding.shard], finding.span)
        where = f"line {line}, characters {start}-{end}, shard {finding.shard}"
        yield f"  {where}: {_flat(finding.quote)}"


def stage_tree(stage: Stage) -> "Tree":
    """The plan with its terminal node as root and each node's inputs below it."""
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(f"Stage {stage.index + 1}", style="bold"))
    if stage.plan is None:
        tree.add(Text("no valid plan"))
    else:
        _add(tree, stage.plan, stage.plan.terminal.id, stage, set())
    if stage.review is not None:
        verdict = "accepted" if stage.review.accept else f"rejected: {_flat(stage.review.gap)}"
        tree.add(Text(f"review: {verdict}"))
    return tree


def _add(tree: "Tree", plan: Plan, node_id: str, stage: Stage, shown: set[str]) -> None:
    from rich.text import Text

    node = next(n for n in plan.nodes if n.id == node_id)
    if node_id in shown:  # a node with two readers is spelled out once
        tree.add(Text(f"{node_id} (above)"))
        return
    shown.add(node_id)
    if isinstance(node, NarrowAction):
        where = "all shards" if node.shards is None else f"shards {list(node.shards)}"
        head = f"{node_id} narrow, {where}: {_flat(node.instruction)}"
    else:
        head = f"{node_id} wide: {_flat(node.instruction)}"
    branch = tree.add(Text(head))
    for line in _results(stage.pool.outputs.get(node_id)):
        branch.add(Text(line))
    if not isinstance(node, NarrowAction):
        for parent in dict.fromkeys(node.inputs):
            _add(branch, plan, parent, stage, shown)


def _results(output: NarrowOutput | WideOutput | None) -> Iterator[str]:
    if output is None:
        yield "= not run"
    elif isinstance(output, WideOutput):
        yield f"= {_flat(output.text)}"
    else:
        for finding in output.findings:
            yield f"= [{finding.shard}] {_quote(finding)}"
        if not output.findings:
            yield "= nothing found"
        if output.n_cut:
            yield f"= {output.n_cut} more findings were cut"
        if output.failures:
            yield f"= {len(output.failures)} shards failed: {output.failures[0].reason}"


def _quote(finding: Finding) -> str:
    note = "" if finding.span is not None else " (not verbatim)"
    return f"{_flat(finding.quote)}{note}"


def _outcome(trajectory: Trajectory) -> str:
    usage = trajectory.workers
    said = (
        f"{trajectory.stop.value}, {len(trajectory.stages)} stages, "
        f"{len(trajectory.calls)} Driver calls, {usage.calls} Worker calls"
        f"{f' ({usage.failures} failed)' if usage.failures else ''}, {trajectory.seconds:.1f} s"
    )
    return f"{said}: {trajectory.error}" if trajectory.error else said


def _flat(text: str, limit: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
