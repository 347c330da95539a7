"""The embedded world: true in its text, apart between splits, the same for the same seed."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.world import RELATIONS, World, WorldConfig, make_world
from data_pipeline.world.check import check_world, read_facts
from data_pipeline.world.filler import reserved_words
from data_pipeline.world.names import SPLITS, SYLLABLES, split_of
from data_pipeline.world.region import Region
from disco_rl.core.shards import shards_of_span

WIDE = WorldConfig(lengths={2048: 0.4, 4096: 0.3, 8192: 0.2, 65536: 0.1})


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    # The longest contexts stand in one split only: they take most of the time.
    return {split: make_world(7, split, 80, WIDE if split == "train" else None) for split in SPLITS}


@pytest.fixture(scope="module")
def world(worlds: dict[str, World]) -> World:
    return worlds["train"]


def titles(world: World) -> list[str]:
    return [title for region in world.regions for title in region.kinds]


def words(region: Region) -> list[str]:
    """The made-up words of a region's names, in lower case."""
    nouns = {"the", *(title.split()[-1].lower() for title in region.kinds if " " in title)}
    found = {word for title in region.kinds for word in title.lower().split()}
    people = {w for t, k in region.kinds.items() if k == "person" for w in t.lower().split()}
    return sorted((found - nouns) | people)


def test_each_hop_has_exactly_one_answer_in_the_text(worlds: dict[str, World]) -> None:
    for world in worlds.values():
        check_world(world)


def test_the_check_sees_a_second_answer_and_a_wrong_place(world: World) -> None:
    question = world.questions[0]
    region = world.region(question.sample.context_id)
    fact = question.chain[0]
    rival = fact.relation.state(fact.subject, "Somebody Else", 0)
    context = replace(region.context, text=f"{region.context.text}{rival}\n")
    others = tuple(r for r in world.regions if r is not region)
    with pytest.raises(ValueError, match="question 0, hop 0: the text states"):
        check_world(replace(world, regions=(*others, replace(region, context=context))))
    hop = replace(question.sample.hops[0], span=(0, 5))
    sample = replace(question.sample, hops=(hop, *question.sample.hops[1:]))
    moved = replace(world, questions=(replace(question, sample=sample), *world.questions[1:]))
    with pytest.raises(ValueError, match="question 0, hop 0"):
        check_world(moved)


def test_facts_stand_at_their_spans_and_are_all_there_is(world: World) -> None:
    for region in world.regions:
        for fact in region.facts:
            assert region.context.text[slice(*fact.span)] == fact.sentence
            assert fact.subject in fact.sentence and fact.object in fact.sentence
        stated = {(f.relation.name, f.subject): [(f.object, f.span)] for f in region.facts}
        assert read_facts(region.context.text) == stated


def test_hops_lie_in_their_shards(world: World) -> None:
    for question in world.questions:
        context = world.region(question.sample.context_id).context
        for hop, fact in zip(question.sample.hops, question.chain, strict=True):
            assert hop.shard_ids == tuple(shards_of_span(context.shards, *hop.span))
            assert any(fact.sentence in context.read(i) for i in hop.shard_ids)


def test_shards_rebuild_the_text_within_the_limit(world: World) -> None:
    for region in world.regions:
        context = region.context
        assert "".join(context.read(s.index) for s in context.shards) == context.text
        assert all(shard.n_tokens <= 512 for shard in context.shards)


def test_lengths_come_close_to_what_was_asked_and_never_pass_it(world: World) -> None:
    asked = Counter({2048: 4, 4096: 3, 8192: 2, 65536: 1})
    reached: Counter[int] = Counter()
    for region in world.regions:
        length = min(length for length in asked if length >= region.n_tokens)
        assert region.n_tokens > 0.97 * length
        reached[length] += 1
    assert reached == asked


def test_splits_share_no_entity_whatever_their_seeds(worlds: dict[str, World]) -> None:
    others = {split: make_world(99, split, 40) for split in SPLITS}
    for a in SPLITS:
        for b in SPLITS:
            if a == b:
                continue
            for left in (worlds[a], others[a]):
                for right in (worlds[b], others[b]):
                    assert set(titles(left)).isdisjoint(titles(right))
                    left_words = {w for region in left.regions for w in words(region)}
                    right_words = {w for region in right.regions for w in words(region)}
                    assert left_words.isdisjoint(right_words)


def test_a_split_never_uses_a_name_twice(worlds: dict[str, World]) -> None:
    for world in worlds.values():
        assert max(Counter(titles(world)).values()) == 1


def test_no_made_up_word_stands_within_another_or_is_plain_english(world: World) -> None:
    for region in world.regions:
        made = words(region)
        joined = " ".join(made)
        for word in made:
            assert joined.count(word) == 1, word
        assert not set(made) & reserved_words()


def test_every_syllable_is_seen_in_training() -> None:
    text = " ".join(titles(make_world(1, "train", 400))).lower()
    assert [syllable for syllable in SYLLABLES if syllable not in text] == []
    assert len(set(SYLLABLES)) == len(SYLLABLES) == 149


def test_twins_differ_by_one_syllable_and_have_the_same_kinds_of_facts(world: World) -> None:
    n_twins = 0
    for region in world.regions:
        by_subject: dict[str, set[str]] = {}
        for fact in region.facts:
            by_subject.setdefault(fact.subject, set()).add(fact.relation.name)
        for name, twin in region.twins.items():
            assert region.twins[twin] == name and region.kinds[twin] == region.kinds[name]
            differing = [(a, b) for a, b in zip(name.split(), twin.split(), strict=True) if a != b]
            assert len(differing) == 1
            (a, b) = differing[0]
            assert any(
                a[:i].lower() + syllable + a[j:] == b.lower()
                for i in range(len(a))
                for j in range(i + 2, min(i + 4, len(a) + 1))
                for syllable in SYLLABLES
            )
            # Only some people are married, and only one town of a country is its capital.
            optional = {"spouse", "capital"}
            assert by_subject[name] - optional == by_subject[twin] - optional
            n_twins += 1
    assert n_twins > 0.3 * len(titles(world))


def test_questions_have_the_asked_hops_and_are_distinct() -> None:
    world = make_world(3, "train", 400)
    hops = Counter(len(q.chain) for q in world.questions)
    assert set(hops) == {2, 3, 4}
    assert 0.4 < hops[2] / 400 < 0.6 and 0.25 < hops[3] / 400 < 0.45
    assert len({q.sample.question for q in world.questions}) > 390
    keys = [tuple((f.relation.name, f.subject) for f in q.chain) for q in world.questions]
    assert len(set(keys)) == 400
    assert [q.sample.index for q in world.questions] == list(range(400))


def test_evidence_is_spread_and_near_duplicates_lie_in_wait() -> None:
    world = make_world(4, "train", 400)
    spread = [
        len({hop.shard_ids for hop in q.sample.hops}) == len(q.chain) for q in world.questions
    ]
    lurking = [
        any(f.subject in world.region(q.sample.context_id).twins for f in q.chain)
        for q in world.questions
    ]
    assert sum(spread) > 0.95 * 400
    assert sum(lurking) > 0.95 * 400


def test_a_question_names_only_the_first_subject(world: World) -> None:
    for q in world.questions:
        assert q.chain[0].subject in q.sample.question
        assert q.sample.question.endswith("?") and q.sample.question.count("?") == 1
        assert not any(fact.object in q.sample.question for fact in q.chain)
        assert not re.search(r"born born|[{}#]", q.sample.question)
        for hop, fact in zip(q.sample.hops, q.chain, strict=True):
            assert fact.subject in hop.question and "#" not in hop.question


def test_every_paraphrase_is_read_back_and_shares_a_word_with_the_lookup() -> None:
    for relation in RELATIONS:
        assert relation.noun.endswith("{s}")
        noun = relation.noun.removeprefix("the ").removesuffix(" of {s}")
        for number in range(len(relation.facts)):
            sentence = relation.state("Sabe Lido", "Tomare Kiva", number)
            # A lexical Worker finds a sentence by the words that the lookup shares with it.
            assert noun in sentence and noun in relation.lookup("Sabe Lido")
            found = read_facts(sentence)
            assert found == {(relation.name, "Sabe Lido"): [("Tomare Kiva", (0, len(sentence)))]}


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    split=st.sampled_from(SPLITS),
    length=st.integers(1000, 5000),
    shard_size=st.integers(40, 800),
    n_hops=st.integers(1, 4),
)
def test_any_small_world_is_sound(
    seed: int, split: str, length: int, shard_size: int, n_hops: int
) -> None:
    config = WorldConfig(shard_size=shard_size, lengths={length: 1}, hops={n_hops: 1})
    world = make_world(seed, split, 5, config)
    check_world(world)
    assert all(split_of(word) == split for region in world.regions for word in words(region))
    assert all(region.n_tokens <= length for region in world.regions)


def test_same_seed_same_world_and_other_seed_another() -> None:
    first, again, other = (make_world(seed, "test", 24) for seed in (5, 5, 6))
    assert first == again
    assert first.regions[0].context.text != other.regions[0].context.text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_world(1, "dev", 8), "split must be one of train, validation, test"),
        (lambda: WorldConfig(lengths={200: 1}), "at least 900 tokens"),
        (lambda: WorldConfig(hops={5: 1}), "hops must lie in 1 to 4"),
        (lambda: WorldConfig(hops={}), "hops must map values to weights"),
        (lambda: WorldConfig(shard_size=8), "under 32 tokens"),
        (lambda: make_world(1, "test", 900, WorldConfig(questions_per_context=900)), "no further"),
    ],
)
def test_impossible_settings_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
