"""The Plan: a validated DAG of narrow and wide actions that ends in one wide action."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MAX_ID_CHARS = 64


class PlanErrorKind(str, Enum):
    """Why a plan was refused. A closed set: metrics count each kind by its value."""

    NO_JSON = "no_json"  # no JSON object in the text
    BAD_JSON = "bad_json"  # an object begins, but it isn't JSON (cut off, a bad escape, ...)
    SCHEMA = "schema"  # JSON, but not of the plan's schema
    TOO_LONG = "too_long"  # the text is over the parser's bound
    EMPTY = "empty"  # no nodes
    TOO_MANY_NODES = "too_many_nodes"
    DUPLICATE_ID = "duplicate_id"
    UNKNOWN_PARENT = "unknown_parent"
    CYCLE = "cycle"
    NO_TERMINAL = "no_terminal"  # the last node isn't a wide action
    UNREACHABLE = "unreachable"  # a node that doesn't lead to the terminal one
    NO_EVIDENCE = "no_evidence"  # no narrow action at all
    SHARD_RANGE = "shard_range"
    NOT_ATOMIC = "not_atomic"  # an instruction that is empty, over the word limit, or several


class PlanError(ValueError):
    """A plan that was refused; `kind` for counting, the message for the Driver's repair turn."""

    def __init__(self, kind: PlanErrorKind, message: str):
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class NarrowAction:
    """An atomic, entity-centric lookup, sent to shards (None: to all). It has no parents."""

    id: str
    instruction: str
    shards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WideAction:
    """A synthesis by the Driver over the outputs of its parents."""

    id: str
    instruction: str
    inputs: tuple[str, ...]


Action = NarrowAction | WideAction


@dataclass(frozen=True)
class PlanLimits:
    """What a plan may ask for. `n_shards` is the context's; None leaves shard ranges unchecked."""

    n_shards: int | None = None
    max_nodes: int = 16
    max_instruction_words: int = 64


@dataclass(frozen=True)
class Plan:
    """A valid DAG; the last node is the terminal wide action, which is the question itself.

    Raises `PlanError` where the nodes break a rule, so an invalid Plan can't exist.
    """

    nodes: tuple[Action, ...]
    limits: PlanLimits = PlanLimits()

    def __post_init__(self) -> None:
        _check(self.nodes, self.limits)

    @property
    def terminal(self) -> WideAction:
        last = self.nodes[-1]
        assert isinstance(last, WideAction)  # held by _check
        return last

    @property
    def narrow(self) -> tuple[NarrowAction, ...]:
        return tuple(n for n in self.nodes if isinstance(n, NarrowAction))

    @property
    def wide(self) -> tuple[WideAction, ...]:
        return tuple(n for n in self.nodes if isinstance(n, WideAction))

    def ancestors(self, node_id: str) -> frozenset[str]:
        """Ids of all nodes that `node_id` depends on, itself excluded."""
        parents = {n.id: n.inputs if isinstance(n, WideAction) else () for n in self.nodes}
        return _reach(parents, node_id) - {node_id}


def _reach(parents: dict[str, tuple[str, ...]], start: str) -> frozenset[str]:
    seen, todo = {start}, [start]
    while todo:
        for parent in parents[todo.pop()]:
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return frozenset(seen)


def _check(nodes: Sequence[Action], limits: PlanLimits) -> None:
    kind = PlanErrorKind
    if not nodes:
        raise PlanError(kind.EMPTY, "the plan has no nodes; write at least one narrow and one wide")
    if len(nodes) > limits.max_nodes:
        raise PlanError(
            kind.TOO_MANY_NODES, f"the plan has {len(nodes)} nodes, over {limits.max_nodes}"
        )
    known: dict[str, Action] = {}
    for node in nodes:
        if node.id in known:
            raise PlanError(kind.DUPLICATE_ID, f"two nodes have the id {node.id!r}")
        known[node.id] = node
        _check_form(node)
        _check_instruction(node, limits)
        if isinstance(node, NarrowAction):
            _check_shards(node, limits)
    parents: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        parents[node.id] = node.inputs if isinstance(node, WideAction) else ()
        for parent in parents[node.id]:
            if parent not in known:
                raise PlanError(
                    kind.UNKNOWN_PARENT,
                    f"node {node.id!r} depends on {parent!r}, which is not in the plan; "
                    f"known: {list(known)[:20]}",
                )
    if not any(isinstance(node, NarrowAction) for node in nodes):
        raise PlanError(kind.NO_EVIDENCE, "the plan has no narrow node, so nothing is looked up")
    _check_acyclic(parents)
    last = nodes[-1]
    if not isinstance(last, WideAction):
        raise PlanError(
            kind.NO_TERMINAL, f"the last node {last.id!r} is narrow; the last must be wide"
        )
    reached = _reach(parents, last.id)
    lost = [node.id for node in nodes if node.id not in reached]
    if lost:
        raise PlanError(
            kind.UNREACHABLE, f"nodes {lost[:20]} don't lead to the last node {last.id!r}"
        )


def _check_form(node: Action) -> None:
    """What the plan text's schema demands, for plans that are built in code."""
    if not 1 <= len(node.id) <= MAX_ID_CHARS:
        raise PlanError(
            PlanErrorKind.SCHEMA,
            f"node id {node.id[:20]!r} doesn't have 1 to {MAX_ID_CHARS} letters",
        )
    if isinstance(node, WideAction) and not node.inputs:
        raise PlanError(PlanErrorKind.SCHEMA, f"wide node {node.id!r} names no inputs")


def _check_instruction(node: Action, limits: PlanLimits) -> None:
    words = len(node.instruction.split())
    if not words:
        raise PlanError(PlanErrorKind.NOT_ATOMIC, f"node {node.id!r} has an empty instruction")
    if not isinstance(node, NarrowAction):
        return
    if words > limits.max_instruction_words:
        raise PlanError(
            PlanErrorKind.NOT_ATOMIC,
            f"the instruction of {node.id!r} has {words} words, over "
            f"{limits.max_instruction_words}; ask for one fact",
        )
    if node.instruction.count("?") > 1:
        raise PlanError(
            PlanErrorKind.NOT_ATOMIC, f"node {node.id!r} asks several questions; ask for one fact"
        )


def _check_shards(node: NarrowAction, limits: PlanLimits) -> None:
    if node.shards is None:
        return
    if not node.shards:
        raise PlanError(PlanErrorKind.SHARD_RANGE, f"node {node.id!r} names no shard; use 'all'")
    for shard in node.shards:
        if shard < 0 or (limits.n_shards is not None and shard >= limits.n_shards):
            most = "" if limits.n_shards is None else f"; there are {limits.n_shards}, from 0"
            raise PlanError(
                PlanErrorKind.SHARD_RANGE, f"node {node.id!r} names shard {shard}{most}"
            )


def _check_acyclic(parents: dict[str, tuple[str, ...]]) -> None:
    """Kahn's algorithm; a parent named twice counts once."""
    waiting = {node: len(set(names)) for node, names in parents.items()}
    children: dict[str, list[str]] = {node: [] for node in parents}
    for node, names in parents.items():
        for parent in set(names):
            children[parent].append(node)
    ready = [node for node, left in waiting.items() if not left]
    done = 0
    while ready:
        done += 1
        for child in children[ready.pop()]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if done < len(parents):
        stuck = [node for node, left in waiting.items() if left]
        raise PlanError(PlanErrorKind.CYCLE, f"nodes {stuck[:20]} depend on each other in a cycle")
