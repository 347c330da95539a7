"""Hypothesis strategies: valid plans, and what a model might make of their texts."""

import json

from hypothesis import strategies as st

from disco_rl.core.plan import NarrowAction, Plan, PlanLimits, WideAction
from disco_rl.core.records import plan_nodes

N_SHARDS = 8
LIMITS = PlanLimits(n_shards=N_SHARDS)

_characters = st.characters(exclude_categories=("Cs",), exclude_characters="<")
ids = st.text(_characters, min_size=1, max_size=12)
words = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Z"), exclude_characters="?<"), min_size=1
).filter(lambda word: word.split() == [word])
instructions = st.lists(words, min_size=1, max_size=8).map(" ".join)
targets = st.none() | st.lists(
    st.integers(0, N_SHARDS - 1), min_size=1, max_size=N_SHARDS, unique=True
).map(tuple)


@st.composite
def plans(draw) -> Plan:
    """Any valid plan: wide nodes over earlier ones, the leaves gathered by the terminal node."""
    names = draw(st.lists(ids, min_size=2, max_size=8, unique=True))
    n_narrow = draw(st.integers(1, len(names) - 1))
    nodes: list[NarrowAction | WideAction] = []
    leaves: list[str] = []
    for name in names[:n_narrow]:
        nodes.append(NarrowAction(name, draw(instructions), draw(targets)))
        leaves.append(name)
    for name in names[n_narrow:-1]:
        earlier = [node.id for node in nodes]
        inputs = draw(st.lists(st.sampled_from(earlier), min_size=1, unique=True))
        nodes.append(WideAction(name, draw(instructions), tuple(inputs)))
        leaves = [leaf for leaf in leaves if leaf not in inputs] + [name]
    nodes = draw(st.permutations(nodes))
    nodes.append(WideAction(names[-1], draw(instructions), tuple(leaves)))
    return Plan(tuple(nodes), LIMITS)


@st.composite
def plan_texts(draw) -> tuple[Plan, str]:
    """A plan and a text that a model could write for it: indented, fenced, after its thinking."""
    plan = draw(plans())
    body = json.dumps(
        {"nodes": plan_nodes(plan)},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 2])),
    )
    before = draw(
        st.sampled_from(["", "<think>\nhm {x}\n</think>\n", "so\n</think>", "Plan {1}:\n"])
    )
    fences = [("", ""), ("```json\n", "\n```"), ("", "\nThat's all."), (" ", "}")]
    opening, closing = draw(st.sampled_from(fences))
    return plan, before + opening + body + closing


_JUNK = (
    "{", "}", "[", "]", '"', "\\", ",", ":", "null", "NaN", "-Infinity", "1e999", "9" * 5000,
    "<think>", "</think>", "```", '{"nodes":', '{"nodes":[]}', "\\ud800", "\ud800", "\x00",
    "[" * 3000, '"inputs"', '"op":{}', '"op":[]', '"shards":[true]', '"shards":[-1]', "\u2028", "é",
)  # fmt: skip


@st.composite
def mutated_texts(draw) -> str:
    """A valid text after 1 to 6 edits; one edit may blow it up past the parser's bound."""
    _, text = draw(plan_texts())
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        stop = draw(st.integers(start, min(len(text), start + 60)))
        edit = draw(st.sampled_from(["delete", "junk", "truncate", "repeat", "swap"]))
        if edit == "delete":
            text = text[:start] + text[stop:]
        elif edit == "junk":
            text = text[:start] + draw(st.sampled_from(_JUNK)) + text[stop:]
        elif edit == "truncate":
            text = text[:start]
        elif edit == "swap":
            text = text[:start] + text[start:stop][::-1] + text[stop:]
        elif len(text) < 20_000:
            times = draw(st.sampled_from([2, 50, 1_000, 20_000]))
            text = text[:start] + text[start:stop] * times + text[stop:]
    return text
