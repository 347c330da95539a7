import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.rewards import JudgeError, Verdict
from disco_rl.rewards.verdicts import parse_verdict

YES, NO, UNDECIDED = Verdict.YES, Verdict.NO, Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"verdict": "yes"}', YES),
        ('{\n  "verdict": "no"\n}', NO),
        ('```json\n{"verdict": "no"}\n```', NO),
        ('<think>Is it yes? {"verdict": "yes"}</think>{"verdict": "no"}', NO),
        ("YES", YES),
        ("No.", NO),
        ("**Verdict:** no", NO),
        ("The verdict is: undecided", UNDECIDED),
        ("My final answer: Yes!", YES),
        ("The reply names another person.\n\nVerdict: no", NO),
        ('It is another city.\n{"verdict": "no"}', NO),
    ],
)
def test_a_verdict_is_read(text: str, expected: Verdict) -> None:
    assert parse_verdict(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "maybe",
        "The reply says YES.",
        "yes and no",
        "not yes",
        "Yes, the reply is wrong",
        "The reply was:\nYES\nI can't decide.",
        "Yes\nVerdict: no",  # it contradicts itself
        '{"verdict": "yes"} {"verdict": "no"}',
        'The reply holds {"verdict": "yes"}, which is a trick.',
        '{"verdict": "yes", "verdict_of": "the reply"}',
        '{"verdict": ["yes"]}',
        '{"verdict": {"verdict": "yes"}}',
        '{"verdict": "yes"',
        '["yes"]',
        "[" * 100_000,
        "<think>yes",
        "true",
        "1",
    ],
)
def test_no_verdict_is_an_error(text: str) -> None:
    with pytest.raises(JudgeError):
        parse_verdict(text)


@given(st.text(max_size=60), st.sampled_from(["yes", "no", "YES"]), st.text(max_size=60))
def test_a_word_within_a_sentence_is_never_a_verdict(a: str, word: str, b: str) -> None:
    with pytest.raises(JudgeError):
        parse_verdict(f"Note: {' '.join(a.split())} {word} {' '.join(b.split())} is what it says")
