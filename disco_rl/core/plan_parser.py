"""From the Driver's text to a Plan or a PlanError, never anything else, in linear time."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from disco_rl.core.plan import (
    MAX_ID_CHARS,
    NarrowAction,
    Plan,
    PlanError,
    PlanErrorKind,
    PlanLimits,
    WideAction,
)
from disco_rl.core.replies import (
    MAX_CHARS,
    encodable,
    first_object,
    first_problem,
    strip_thinking,
)

_Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
_Text = Annotated[str, AfterValidator(encodable)]


class NarrowNode(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: _Id
    op: Literal["narrow"]
    instruction: _Text
    # fail_fast: a list of 500,000 wrong items would otherwise become 500,000 error objects.
    shards: Literal["all"] | Annotated[list[int], Field(fail_fast=True)] = "all"


class WideNode(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: _Id
    op: Literal["wide"]
    instruction: _Text
    inputs: Annotated[list[_Id], Field(min_length=1, fail_fast=True)]


class PlanModel(BaseModel):
    """The plan text's schema (design.md, Plan text)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: list[Annotated[NarrowNode | WideNode, Field(discriminator="op")]]


PLAN_SCHEMA: dict[str, Any] = PlanModel.model_json_schema()
"""JSON schema for constrained decoding, made from the model that parses."""


def parse_plan(text: str, limits: PlanLimits) -> Plan:
    """Reads a plan; thinking, prose and code fences around the JSON object are tolerated.

    Raises `PlanError` with one of its kinds, whatever the text.
    """
    kind = PlanErrorKind
    if len(text) > MAX_CHARS:
        raise PlanError(kind.TOO_LONG, f"the plan text is over {MAX_CHARS} characters")
    body = strip_thinking(text)
    if body is None:
        raise PlanError(kind.NO_JSON, "the thinking never ended, so there is no plan; think less")
    try:
        value = first_object(body, "nodes")
    except ValueError as error:
        raise PlanError(kind.BAD_JSON, f"the plan isn't valid JSON: {error}") from None
    if value is None:
        raise PlanError(kind.NO_JSON, 'there is no JSON object; write {"nodes": [...]}')
    nodes = value.get("nodes")
    if isinstance(nodes, list) and len(nodes) > limits.max_nodes:
        raise PlanError(
            kind.TOO_MANY_NODES, f"the plan has {len(nodes)} nodes, over {limits.max_nodes}"
        )
    try:
        model = PlanModel.model_validate(value)
    except ValidationError as error:
        raise PlanError(kind.SCHEMA, first_problem(error)) from None
    return Plan(tuple(_action(node) for node in model.nodes), limits)


def _action(node: NarrowNode | WideNode) -> NarrowAction | WideAction:
    if isinstance(node, WideNode):
        return WideAction(node.id, node.instruction, tuple(dict.fromkeys(node.inputs)))
    shards = None if node.shards == "all" else tuple(dict.fromkeys(node.shards))
    return NarrowAction(node.id, node.instruction, shards)
