"""A context is cut so that the pieces rebuild it, each within the limit, on sentence ends."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from disco_rl.core.shards import Shard, TextContext, cut, shards_of_span
from disco_rl.core.text import normalise_answer, sentence_spans
from tests.fakes import count_words


def count_characters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def count_bytes(texts: Sequence[str]) -> list[int]:
    """Not additive, as in byte-level BPE: three bytes a token, rounded up for each text."""
    return [math.ceil(len(text.encode()) / 3) for text in texts]


def count_with_joints(texts: Sequence[str]) -> list[int]:
    """More than the sum of the parts: a token for each sentence end within the text."""
    return [len(text) + 2 * text[:-1].count(". ") for text in texts]


COUNTS = [count_words, count_characters, count_bytes, count_with_joints]
counts = st.sampled_from(COUNTS)

words = st.text(
    st.sampled_from("abcdefghijklmnopqrstuvwxyzäßéλ文字🙂\u0301"), min_size=1, max_size=12
)
sentences = (
    st.lists(words, min_size=1, max_size=8)
    .map(" ".join)
    .flatmap(
        lambda body: st.sampled_from([". ", "! ", '." ', "?\n", "\n\n", "。", " ", ""]).map(
            body.__add__
        )
    )
)
texts = (
    st.lists(sentences, max_size=25).map("".join)
    | st.text(max_size=200)
    | st.integers(1, 400).map(lambda n: "x" * n)
    | st.lists(st.sampled_from(["giant" * 30, " ", "\n", "a. ", "文" * 40]), max_size=8).map(
        "".join
    )
)


@given(texts)
def test_sentences_rebuild_the_text(text):
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(start < end for start, end in spans)


@given(texts, counts, st.integers(4, 60))
def test_shards_rebuild_the_text_within_the_limit(text, count, limit):
    shards = cut(text, count, limit)
    assert "".join(text[s.start : s.end] for s in shards) == text
    assert [s.index for s in shards] == list(range(len(shards)))
    for shard in shards:
        assert shard.start < shard.end
        assert shard.n_tokens == count([text[shard.start : shard.end]])[0] <= limit


@given(texts, counts, st.integers(4, 60))
def test_shards_end_on_sentence_ends_where_the_sentences_fit(text, count, limit):
    spans = sentence_spans(text)
    assume(all(tokens <= limit for tokens in count([text[a:b] for a, b in spans])))
    assert {s.end for s in cut(text, count, limit)} <= {end for _, end in spans}


@given(st.lists(sentences, min_size=1, max_size=25).map("".join), st.integers(4, 60))
def test_no_shard_could_have_taken_the_next_sentence(text, limit):
    shards = cut(text, count_characters, limit)
    ends = dict(sentence_spans(text))
    for shard, following in pairwise(shards):
        end = ends.get(following.start)
        assert end is None or end - shard.start > limit


@given(st.text(st.sampled_from("abcdefg hij"), max_size=300), st.integers(8, 40))
def test_a_long_sentence_is_cut_between_words(text, limit):
    assume(all(len(word) < limit for word in text.split(" ")))
    for shard in cut(text, count_characters, limit)[:-1]:
        assert text[shard.end - 1] == " "


def test_a_megabyte_without_a_blank_is_cut_in_linear_work():
    read = 0

    def count(batch: Sequence[str]) -> list[int]:
        nonlocal read
        read += sum(map(len, batch))
        return [len(text) // 4 + 1 for text in batch]

    shards = cut("x" * 1_000_000, count, 512)
    assert all(shard.n_tokens <= 512 for shard in shards)
    assert len(shards) == math.ceil(1_000_000 / 2047)
    assert read < 40 * 1_000_000


def test_an_empty_text_has_no_shards():
    assert cut("", count_words, 10) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_is_not_positive_is_refused(limit):
    with pytest.raises(ValueError, match="shard_size"):
        cut("a", count_words, limit)


def test_a_character_over_the_limit_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'🙂'.*2 tokens, over shard_size 1"):
        cut("ok 🙂", count_bytes, 1)


def test_chinese_sentences_end_without_blanks():
    text = "她生于一九零一年。她住在“旧城。”你知道吗？知道"
    assert [text[a:b] for a, b in sentence_spans(text)] == [
        "她生于一九零一年。",
        "她住在“旧城。”",
        "你知道吗？",
        "知道",
    ]


def test_sentences_by_example():
    text = 'Mr. X said "No." Then 3.5 m.\n\nEnd'
    assert [text[a:b] for a, b in sentence_spans(text)] == [
        "Mr. ",
        'X said "No." ',
        "Then 3.5 m.\n\n",
        "End",
    ]


def test_a_context_reads_its_shards_and_refuses_others():
    context = TextContext.cut("c", "One two. Three four. Five.", count_words, 4)
    assert [context.read(s.index) for s in context.shards] == ["One two. Three four. ", "Five."]
    for index in (-1, 2):
        with pytest.raises(IndexError, match="has 2 shards"):
            context.read(index)


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 120), st.integers(0, 40))
def test_shards_of_a_span_are_those_that_share_a_character(sizes, start, length):
    shards, at = [], 0
    for index, size in enumerate(sizes):
        shards.append(Shard(index, at, at + size, size))
        at += size
    asked = range(start, max(start + length, start + 1))  # an empty span stands at its start
    want = [s.index for s in shards if any(i in asked for i in range(s.start, s.end))]
    assert shards_of_span(shards, start, start + length) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("The  Cat's-eye, a Theory!", "catseye theory"),
        ("an A the", ""),
        ("Éire\n1,000", "éire 1000"),
        ("theatre", "theatre"),
    ],
)
def test_answers_are_normalised_as_in_squad(text, want):
    assert normalise_answer(text) == want
