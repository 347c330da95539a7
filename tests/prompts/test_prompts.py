"""The strict prompt loader, and the sets that ship."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.prompts import NAMES, PromptError, PromptSet, load_prompts

FIELDS = {
    "system": set(),
    "plan": {"question", "n_shards", "history"},
    "synthesize": {"instruction", "evidence"},
    "review": {"question", "answer", "evidence"},
    "repair": {"error"},
    "worker": {"shard", "instruction"},
}
SETS = ("full", "brief")


@pytest.mark.parametrize("name", SETS)
def test_shipped_sets_load_and_render(name):
    prompts = load_prompts(name)
    assert set(prompts.texts) == set(NAMES) == set(FIELDS)
    for prompt, fields in FIELDS.items():
        text = prompts.render(prompt, **{field: f"<<{field}>>" for field in fields})
        for field in fields:
            assert text.count(f"<<{field}>>") == 1, f"{name}/{prompt}.md"
        assert "{{" not in text


@pytest.mark.parametrize("name", SETS)
def test_a_shard_stands_before_the_instruction(name):
    text = load_prompts(name).render("worker", shard="SHARD", instruction="INSTRUCTION")
    assert text.index("SHARD") < text.index("INSTRUCTION")  # so that a server's cache keeps it


def test_full_has_a_system_text_and_its_example_plan_is_the_schemas():
    assert load_prompts("full").texts["system"]
    assert '{"nodes": [{"id": "n1", "op": "narrow"' in load_prompts("full").texts["plan"]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("prompt", NAMES)
def test_missing_and_extra_fields_raise(name, prompt):
    prompts = load_prompts(name)
    fields = dict.fromkeys(FIELDS[prompt], "x")
    with pytest.raises(PromptError, match=rf"{name}/{prompt}.md: .*unknown fields \['hint'\]"):
        prompts.render(prompt, **fields, hint="x")
    for field in fields:
        with pytest.raises(PromptError, match=rf"missing fields \['{field}'\]"):
            prompts.render(prompt, **{k: v for k, v in fields.items() if k != field})


@given(st.dictionaries(st.sampled_from(["question", "answer", "evidence"]), st.text(), min_size=3))
def test_fields_are_filled_in_one_pass(fields):
    prompts = PromptSet("t", {"review": "{{question}}|{{evidence}}|{{answer}}"})
    assert prompts.render("review", **fields) == "|".join(
        [fields["question"], fields["evidence"], fields["answer"]]
    )


def test_braces_and_backslashes_in_a_field_survive():
    prompts = PromptSet("t", {"review": '{"a": {"b": 1}} {{question}} {{answer}}'})
    text = prompts.render("review", question=r"{{answer}} {x} \1 \g<0>", answer="{{question}}")
    assert text == r'{"a": {"b": 1}} {{answer}} {x} \1 \g<0> {{question}}'


def test_values_that_are_not_text_are_written_as_text():
    assert PromptSet("t", {"plan": "{{n}} {{n}}"}).render("plan", n=4) == "4 4"


def test_unknown_prompts_and_sets_are_refused_by_name(tmp_path):
    with pytest.raises(PromptError, match="prompt 'plna' is not in set 'full'"):
        load_prompts("full").render("plna")
    with pytest.raises(PromptError, match=r"no .* fll/system.md; sets: \['brief', 'full'\]"):
        load_prompts("fll")
    folder = tmp_path / "mine"
    folder.mkdir()
    for prompt in NAMES[:-1]:
        (folder / f"{prompt}.md").write_text(" text\n")
    with pytest.raises(PromptError, match=r"no prompt file mine/worker\.md"):
        load_prompts("mine", tmp_path)
    (folder / "worker.md").write_text("é {{shard}}\n", encoding="utf-8")
    assert load_prompts("mine", tmp_path).render("worker", shard=1) == "é 1"
