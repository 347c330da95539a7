"""Property tests: any text gives a Plan or a PlanError, and a plan survives its own text."""

import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disco_rl.core.plan import Plan, PlanError, PlanErrorKind
from disco_rl.core.plan_parser import PLAN_SCHEMA, parse_plan
from disco_rl.core.records import plan_nodes
from disco_rl.core.replies import MAX_CHARS
from tests.core.plan_texts import LIMITS, mutated_texts, plan_texts, plans

# Longer in a nightly run: DISCO_RL_FUZZ=20000 pytest tests/core
EXAMPLES = int(os.environ.get("DISCO_RL_FUZZ", "200"))

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**300, -(10**4000)])
    | st.floats()
    | any_text
    | st.sampled_from(["narrow", "wide", "all", "n1", "w1"])
)
keys = any_text | st.sampled_from(["nodes", "id", "op", "instruction", "shards", "inputs"])
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=12,
)


def outcome(text: str) -> Plan | PlanErrorKind:
    """The plan or the error's kind; any other exception fails the test that called."""
    try:
        plan = parse_plan(text, LIMITS)
    except PlanError as error:
        assert isinstance(error.kind, PlanErrorKind)
        assert str(error)
        return error.kind
    assert isinstance(plan, Plan)
    json.dumps(plan_nodes(plan), ensure_ascii=False).encode()  # what was let in can be written
    return plan


@settings(max_examples=EXAMPLES)
@given(any_text)
def test_arbitrary_text(text):
    assert isinstance(outcome(text), Plan | PlanErrorKind)


@settings(max_examples=EXAMPLES)
@given(json_values, st.booleans())
def test_arbitrary_json(value, ascii_only):
    found = outcome(json.dumps(value, ensure_ascii=ascii_only))
    assert isinstance(found, Plan | PlanErrorKind)


@settings(max_examples=EXAMPLES)
@given(st.dictionaries(keys, json_values, max_size=6), st.lists(json_values, max_size=4))
def test_arbitrary_nodes(node, others):
    found = outcome(json.dumps({"nodes": [node, *others]}))
    assert isinstance(found, Plan | PlanErrorKind)


@settings(max_examples=EXAMPLES)
@given(mutated_texts())
@example("x" * (MAX_CHARS + 1))
def test_mutated_plans(text):
    if len(text) > MAX_CHARS:
        assert outcome(text) is PlanErrorKind.TOO_LONG
    else:
        outcome(text)


@given(plan_texts())
def test_a_plan_survives_its_text(pair):
    plan, text = pair
    assert parse_plan(text, LIMITS) == plan


@given(plans())
def test_a_plan_survives_its_record(plan):
    assert parse_plan(json.dumps({"nodes": plan_nodes(plan)}), plan.limits) == plan


BODY = (
    '{"nodes": [{"id": "n1", "op": "narrow", "instruction": "Find Ada."}, '
    '{"id": "w1", "op": "wide", "instruction": "Who is Ada?", "inputs": ["n1"]}]}'
)


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        f"<think>Let me think. {{'no': json}}</think>\n{BODY}",
        f"the prompt opened the thinking</think>{BODY}",
        f"<think>a draft: {BODY[:60]}</think> {BODY}",
        f"<think>one</think><think>two</think>{BODY}",
        f"Here is the plan:\n```json\n{BODY}\n```\nDone.",
        f"The set {{Ada}} is small.\n{BODY}",
        "The set {Ada} is small.\n" + json.dumps(json.loads(BODY), indent=2),
        f'The form is {{"nodes": [...]}}, so:\n{BODY}',
        f"{BODY} {BODY}",
        f"{BODY} {{",
        BODY.replace('"nodes"', '"nodes" '),
    ],
)
def test_what_stands_around_the_object_is_ignored(text):
    plan = parse_plan(text, LIMITS)
    assert [node.id for node in plan.nodes] == ["n1", "w1"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"<think>{BODY}", PlanErrorKind.NO_JSON),  # a draft within the thinking is no plan
        (f"{BODY}<think>wait", PlanErrorKind.NO_JSON),
        (f"{BODY}</think>", PlanErrorKind.NO_JSON),
        (BODY[:-20], PlanErrorKind.BAD_JSON),
        (f"[{BODY}", None),
    ],
)
def test_where_the_plan_must_stand(text, kind):
    got = outcome(text)
    assert isinstance(got, Plan) if kind is None else got is kind


def test_the_schema_for_decoding_is_the_parsers():
    assert PLAN_SCHEMA["required"] == ["nodes"]
    narrow, wide = PLAN_SCHEMA["$defs"]["NarrowNode"], PLAN_SCHEMA["$defs"]["WideNode"]
    assert set(narrow["properties"]) == {"id", "op", "instruction", "shards"}
    assert set(wide["properties"]) == {"id", "op", "instruction", "inputs"}
    assert narrow["additionalProperties"] is wide["additionalProperties"] is False
