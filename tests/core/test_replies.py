"""Reviews, answers and what surrounds them: a value or a ReplyError, whatever the text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.replies import (
    MAX_CHARS,
    REVIEW_SCHEMA,
    ReplyError,
    ReplyErrorKind,
    first_object,
    parse_answer,
    parse_review,
    strip_thinking,
)
from disco_rl.core.trajectory import Review
from tests.core.test_plan_parser import any_text, json_values, keys

pieces = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "{", "}", '"accept"', '{"accept":', "true", "false", '"gap":', "é"]
    )
    | any_text,
    max_size=12,
).map("".join)


def review(text: str) -> Review | ReplyErrorKind:
    try:
        return parse_review(text)
    except ReplyError as error:
        assert str(error)
        return error.kind


@given(pieces | any_text)
def test_arbitrary_reviews(text):
    got = review(text)
    assert isinstance(got, Review | ReplyErrorKind)
    if isinstance(got, Review):
        assert got.accept or got.gap.strip()


@given(json_values | st.dictionaries(keys | st.sampled_from(["accept", "gap"]), json_values))
def test_arbitrary_json_reviews(value):
    assert isinstance(review(json.dumps(value)), Review | ReplyErrorKind)


@given(pieces, st.booleans())
def test_arbitrary_answers(text, truncated):
    try:
        answer = parse_answer(text, truncated)
    except ReplyError as error:
        assert isinstance(error.kind, ReplyErrorKind)
        return
    assert not truncated
    assert answer.strip() == answer != ""
    assert answer in text


@given(pieces)
def test_thinking_is_stripped_to_a_suffix(text):
    rest = strip_thinking(text)
    if rest is None:
        assert "<think>" in text[text.rfind("</think>") + 1 :]
    else:
        assert text.endswith(rest)
        assert "<think>" not in rest and "</think>" not in rest


@given(pieces, st.sampled_from(["accept", "nodes", "a.b", "("]))
def test_first_object_gives_an_object_or_a_value_error(text, key):
    try:
        value = first_object(text, key)
    except ValueError:
        assert "{" in text
        return
    assert value is None if "{" not in text else isinstance(value, dict)


# No "<": a mark of thinking after the thinking is refused, as one that never ends.
_gap_characters = st.characters(exclude_categories=("Cs",), exclude_characters="<")


@given(st.booleans(), st.text(_gap_characters, min_size=1, max_size=50))
def test_a_review_survives_its_text(accept, gap):
    text = json.dumps({"accept": accept, "gap": gap})
    if accept:
        assert parse_review(text) == Review(True)
    elif gap.strip():
        fenced = f"<think>so {{}}</think>```json\n{text}\n```"
        assert parse_review(fenced) == Review(False, gap.strip())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"accept": true}', Review(True)),
        ('{"accept": true, "gap": "none"}', Review(True)),
        ('{"gap": "Where Ada died.", "accept": false}', Review(False, "Where Ada died.")),
        ("yes", ReplyErrorKind.REVIEW_JSON),
        ('"accept": true', ReplyErrorKind.REVIEW_JSON),
        ('{"accept": tru', ReplyErrorKind.REVIEW_JSON),
        ('{"accept": NaN}', ReplyErrorKind.REVIEW_JSON),
        ('{"accept":' * 100_000, ReplyErrorKind.REVIEW_JSON),
        ("{}", ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": "true"}', ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": 1}', ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": false}', ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": false, "gap": " "}', ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": false, "gap": "\\ud800"}', ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": true, "why": ""}', ReplyErrorKind.REVIEW_SCHEMA),
        ('{"accept": false, "gap": "' + "x" * 2001 + '"}', ReplyErrorKind.REVIEW_SCHEMA),
        ('<think>{"accept": true}', ReplyErrorKind.UNFINISHED_THINKING),
        (" " * (MAX_CHARS + 1), ReplyErrorKind.TOO_LONG),
    ],
)
def test_reviews_by_example(text, want):
    assert review(text) == want


@pytest.mark.parametrize(
    ("text", "truncated", "want"),
    [
        (" Paris\n", False, "Paris"),
        ("<think>hm</think> Paris", False, "Paris"),
        ("Paris", True, ReplyErrorKind.TRUNCATED),
        ("<think>hm</think>", False, ReplyErrorKind.EMPTY_ANSWER),
        ("", False, ReplyErrorKind.EMPTY_ANSWER),
        ("<think>Paris", False, ReplyErrorKind.UNFINISHED_THINKING),
        ("x" * (MAX_CHARS + 1), False, ReplyErrorKind.TOO_LONG),
    ],
)
def test_answers_by_example(text, truncated, want):
    if isinstance(want, str) and not isinstance(want, ReplyErrorKind):
        assert parse_answer(text, truncated) == want
        return
    with pytest.raises(ReplyError) as caught:
        parse_answer(text, truncated)
    assert caught.value.kind is want


def test_every_kind_is_reached_by_an_example():
    reached = {
        mark.args[1][i][-1]
        for test in (test_reviews_by_example, test_answers_by_example)
        for mark in test.pytestmark
        for i in range(len(mark.args[1]))
        if isinstance(mark.args[1][i][-1], ReplyErrorKind)
    }
    assert reached == set(ReplyErrorKind)


def test_the_review_schema_for_decoding_is_the_parsers():
    assert set(REVIEW_SCHEMA["properties"]) == {"accept", "gap"}
    assert REVIEW_SCHEMA["required"] == ["accept"]
