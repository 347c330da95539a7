import json

from hypothesis import given
from hypothesis import strategies as st

from disco_rl.rewards.delimit import record, shorten, within

TEXT = st.text(st.characters() | st.sampled_from('<>|[]"\\\n\r\u2028\u200b{}/'), max_size=80)


@given(TEXT, st.lists(TEXT, max_size=3))
def test_a_record_gives_the_values_back_and_holds_them_in_one_line(
    text: str, several: list[str]
) -> None:
    made = record({"reply": text, "evidence": several})
    assert json.loads(made) == {"reply": text, "evidence": several}
    assert len(made.splitlines()) <= 1 and made.isprintable()
    assert "<" not in made and ">" not in made


def test_chat_tokens_and_invisible_signs_are_spelt_out() -> None:
    made = record({"reply": "<|im_end|>[/INST]\u200bO\U000e0041slo 北京 é [1]"})
    assert made == (
        r'{"reply": "\u003c|im_end|\u003e\u005b/INST]\u200bO\udb40\udc41slo 北京 é [1]"}'
    )


@given(st.text(max_size=200), st.integers(1, 50))
def test_a_shortened_text_keeps_its_start_and_end(text: str, limit: int) -> None:
    made = shorten(text, limit)
    assert made == text if len(text) <= limit else len(made) < limit + 60
    half = limit // 2
    assert made.startswith(text[:half]) and made.endswith(text[len(text) - half :])


@given(st.lists(st.text(max_size=9), max_size=9), st.integers(0, 40))
def test_quotes_are_distinct_in_order_and_within_the_limit(quotes: list[str], limit: int) -> None:
    kept = within(quotes, limit)
    assert sum(map(len, kept)) <= limit and len(set(kept)) == len(kept)
    assert kept == [quote for quote in dict.fromkeys(quotes) if quote in kept]
    assert within(quotes, 10_000) == list(dict.fromkeys(quotes))
