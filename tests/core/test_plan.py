"""The rules of a plan, each refused under its own kind."""

import json

import pytest

from disco_rl.core.plan import (
    NarrowAction,
    Plan,
    PlanError,
    PlanErrorKind,
    PlanLimits,
    WideAction,
)
from disco_rl.core.plan_parser import parse_plan
from disco_rl.core.replies import MAX_CHARS

LIMITS = PlanLimits(n_shards=4, max_nodes=5, max_instruction_words=6)


def narrow(id="n1", instruction="Find the birth date of Ada.", **more) -> dict:
    return {"id": id, "op": "narrow", "instruction": instruction} | more


def wide(id="w1", inputs=("n1",), instruction="When was Ada born?") -> dict:
    return {"id": id, "op": "wide", "instruction": instruction, "inputs": list(inputs)}


def text(*nodes: dict) -> str:
    return json.dumps({"nodes": nodes})


EXAMPLES = {
    PlanErrorKind.NO_JSON: ["I can't plan this.", "", "<think>{", "[1, 2]"],
    PlanErrorKind.BAD_JSON: [
        text(narrow(), wide())[:-2],
        '{"nodes": [NaN]}',
        '{"a":' * 100_000,
        '{"nodes": [' + "9" * 5000 + "]}",
        '{"nodes": "\\x"}',
        "{'nodes': []}",
    ],
    PlanErrorKind.SCHEMA: [
        "{}",
        '{"nodes": {}}',
        '{"nodes": [], "comment": ""}',
        text(narrow() | {"op": "lookup"}, wide()),
        text(narrow() | {"op": {}}, wide()),
        text(narrow() | {"parents": []}, wide()),
        text(narrow() | {"shards": "none"}, wide()),
        text(narrow() | {"shards": [True]}, wide()),
        text(narrow() | {"shards": [0.0]}, wide()),
        text(narrow() | {"instruction": 3}, wide()),
        text(narrow(), wide(inputs=[])),
        text(narrow(), wide(inputs=[["n1"]])),
        text(narrow(id=""), wide(inputs=[""])),
        text(narrow(id="n" * 65), wide(inputs=["n" * 65])),
        text(narrow(instruction="Find \ud800."), wide()),
        text(narrow(id="\ud800"), wide(inputs=["\ud800"])),
        text(narrow() | {"op": "\ud800"}, wide()),
        text(narrow() | {"\ud800": 1}, wide()),
    ],
    PlanErrorKind.TOO_LONG: [" " * (MAX_CHARS + 1)],
    PlanErrorKind.EMPTY: ['{"nodes": []}'],
    PlanErrorKind.TOO_MANY_NODES: [
        text(*[narrow(f"n{i}") for i in range(5)], wide()),
        json.dumps({"nodes": [None] * 10_000}),
    ],
    PlanErrorKind.DUPLICATE_ID: [text(narrow(), narrow(), wide())],
    PlanErrorKind.UNKNOWN_PARENT: [text(narrow(), wide(inputs=["n1", "n9"]))],
    PlanErrorKind.CYCLE: [
        text(narrow(), wide("w1", ["n1", "w2"]), wide("w2", ["w1"])),
        text(narrow(), wide("w1", ["n1", "w1"])),
    ],
    PlanErrorKind.NO_TERMINAL: [text(narrow()), text(wide(inputs=["n1"]), narrow())],
    PlanErrorKind.UNREACHABLE: [text(narrow(), narrow("n2"), wide())],
    PlanErrorKind.NO_EVIDENCE: [text(wide("w1", ["w1"]), wide("w2", ["w1"]))],
    PlanErrorKind.SHARD_RANGE: [
        text(narrow(shards=[4]), wide()),
        text(narrow(shards=[-1]), wide()),
        text(narrow(shards=[]), wide()),
        text(narrow(shards=[10**4000]), wide()),
    ],
    PlanErrorKind.NOT_ATOMIC: [
        text(narrow(instruction="  "), wide()),
        text(narrow(instruction="one two three four five six seven"), wide()),
        text(narrow(instruction="Who? Where?"), wide()),
        text(narrow(), wide(instruction="")),
    ],
}


def test_every_kind_has_an_example():
    assert set(EXAMPLES) == set(PlanErrorKind)


@pytest.mark.parametrize("kind", PlanErrorKind)
def test_each_example_is_refused_under_its_kind(kind):
    for example in EXAMPLES[kind]:
        with pytest.raises(PlanError) as caught:
            parse_plan(example, LIMITS)
        assert caught.value.kind is kind, f"{example[:80]!r}: {caught.value}"
        assert 0 < len(str(caught.value)) < 5000


def test_the_message_names_the_place_and_the_next_move():
    def message(*nodes):
        with pytest.raises(PlanError) as caught:
            parse_plan(text(*nodes), LIMITS)
        return str(caught.value)

    assert "'n9'" in message(narrow(), wide(inputs=["n9"]))
    assert "['n1', 'w1']" in message(narrow(), wide(inputs=["n9"]))
    assert "nodes.0.narrow.shards" in message(narrow(shards=["1"]), wide())
    assert "valid integer" in message(narrow(shards=["1"]), wide())
    assert "there are 4, from 0" in message(narrow(shards=[4]), wide())


def test_a_plan_at_every_bound_is_accepted():
    nodes = [narrow(f"n{i}", "one two three four five six?", shards=[0, 3]) for i in range(4)]
    plan = parse_plan(text(*nodes, wide("w" * 64, [n["id"] for n in nodes])), LIMITS)
    assert plan.terminal.id == "w" * 64
    assert [n.shards for n in plan.narrow] == [(0, 3)] * 4
    assert plan.wide == (plan.terminal,)


def test_only_narrow_instructions_are_held_to_one_fact():
    question = "Who was it? And when was that, if it was at all?"
    plan = parse_plan(text(narrow(), wide(instruction=question)), LIMITS)
    assert plan.terminal.instruction == question


def test_shards_and_inputs_named_twice_count_once():
    plan = parse_plan(text(narrow(shards=[2, 0, 2]), wide(inputs=["n1", "n1"])), LIMITS)
    assert plan.narrow[0].shards == (2, 0)
    assert plan.terminal.inputs == ("n1",)


def test_shard_ranges_go_unchecked_where_the_context_is_unknown():
    assert parse_plan(text(narrow(shards=[99]), wide()), PlanLimits()).narrow[0].shards == (99,)


def test_ancestors_are_transitive():
    plan = Plan(
        (
            NarrowAction("a", "Find A."),
            NarrowAction("b", "Find B."),
            WideAction("c", "C", ("a",)),
            WideAction("d", "D", ("b", "c")),
        )
    )
    assert plan.ancestors("d") == {"a", "b", "c"}
    assert plan.ancestors("c") == {"a"}
    assert plan.ancestors("a") == frozenset()


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ((), PlanErrorKind.EMPTY),
        ((NarrowAction("n", "Find."), WideAction("w", "Q", ())), PlanErrorKind.SCHEMA),
        ((NarrowAction("", "Find."), WideAction("w", "Q", ("",))), PlanErrorKind.SCHEMA),
        ((NarrowAction("n", "Find."),), PlanErrorKind.NO_TERMINAL),
    ],
)
def test_no_invalid_plan_can_be_built_in_code(nodes, kind):
    with pytest.raises(PlanError) as caught:
        Plan(nodes)
    assert caught.value.kind is kind
