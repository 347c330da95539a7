"""Expansion: every plan keeps the evidence, uses a page once, ends at its length; any graph."""

import random
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.expansion.expand import Policy, Short, expand
from data_pipeline.expansion.hosts import Host, Hosts
from data_pipeline.expansion.linker import Linker
from data_pipeline.expansion.order import Grown, balanced_order
from data_pipeline.expansion.plan import Insertion, Plan, check_plan, enters
from data_pipeline.expansion.render import Body, Rendered, cut_shards, fit_to_length, render
from data_pipeline.tokens import TokenStarts, token_starts
from data_pipeline.wiki.page import Link, SourcePage
from data_pipeline.wiki.store import PageStore
from disco_rl.core.text import sentence_spans
from tests.data_pipeline import small_wiki


@pytest.fixture(scope="module")
def bpe() -> Iterator[str]:
    """A byte-level BPE with GPT-2's pattern, trained on the pages: the kind that Workers have."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([p.text for p in small_wiki.pages(300, 1)], trainer)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        yield folder


@lru_cache
def made_store(tokenizer: str) -> PageStore:
    return small_wiki.store(Path(tempfile.mkdtemp()), small_wiki.pages(300, 7), tokenizer)


def body_of(store: PageStore, page: int) -> Body:
    about = store.page(page)
    return Body(store.text(page), about.ends, about.counts)


def naive(plan: Plan, hosts: Hosts, store: PageStore) -> str:
    """The context again, by plain string work from the last place to the first."""

    def fill(text: str, stop: int, children: list[tuple[int, Insertion]]) -> str:
        head = text[:stop]
        for number, one in sorted(children, key=lambda c: (c[1].start, c[1].end, c[0]))[::-1]:
            page = store.text(one.page)
            inner = [(k, c) for k, c in enumerate(plan.insertions) if c.parent == number]
            end = "\n\n" if one.cut < len(page) else ""
            head = head[: one.start] + "\n\n" + fill(page, one.cut, inner) + end + head[one.end :]
        return head

    roots = [(k, c) for k, c in enumerate(plan.insertions) if c.parent is None]
    return "".join(
        fill(hosts.hosts[h].text, len(hosts.hosts[h].text), [r for r in roots if r[1].host == h])
        for h in plan.order
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[Hosts, tuple[tuple[Link, ...], ...]]:
    """Paragraphs with mentions anywhere, of any title, and evidence that is whole sentences."""
    names = small_wiki.titles(300)
    hosts, mentions, hops = [], [], []
    for number in range(draw(st.integers(2, 5))):
        sentences = draw(
            st.lists(st.sampled_from([*names, "A fact.", "Short", "é 🙂"]), min_size=2, max_size=8)
        )
        title = f"Host {number}"
        text = f"{title}\n" + " ".join(f"Of {s} it is said." for s in sentences) + "\n\n"
        links = tuple(
            Link(text.index(s, len(title)), text.index(s, len(title)) + len(s), s)
            for s in dict.fromkeys(sentences)
            if s in names
        )
        spans = [s for s in sentence_spans(text) if s[0] > len(title)]
        gold = sorted(draw(st.sets(st.sampled_from(spans), max_size=2))) if number < 3 else []
        evidence = tuple((a, a + len(text[a:b].rstrip())) for a, b in gold)
        hops += [(number, span) for span in evidence]
        hosts.append(Host(title, text, evidence))
        mentions.append(tuple(sorted(links, key=lambda link: link.start)))
    return Hosts(tuple(hosts), tuple(hops)), tuple(mentions)


policies = st.builds(
    Policy,
    mode=st.sampled_from(["replace", "keep_anchor"]),
    order=st.sampled_from(["breadth", "depth"]),
    breadth=st.integers(1, 8),
    max_depth=st.integers(1, 6),
    max_share=st.sampled_from([0.3, 1.0]),
    lengths=st.sampled_from([{4096: 1.0}, {8192: 1.0, 16384: 1.0}]),
    seed=st.integers(0, 99),
)


@pytest.mark.parametrize("tokenizer", ["words", "bpe"])
@settings(max_examples=25)
@given(question=questions(), policy=policies, shard_size=st.sampled_from([64, 512]))
def test_any_plan_keeps_the_evidence_and_its_length(
    tokenizer: str,
    question: tuple[Hosts, tuple[tuple[Link, ...], ...]],
    policy: Policy,
    shard_size: int,
    bpe: str,
) -> None:
    hosts, mentions = question
    name = bpe if tokenizer == "bpe" else "words"
    store, starts = made_store(name), token_starts(name)
    tokens = [len(found) for found in starts([host.text for host in hosts.hosts])]
    joint = 1 if tokenizer == "bpe" else 0
    plan = expand("q", hosts, mentions, tokens, store, Linker(store), policy, joint)
    if isinstance(plan, Short):
        assert plan.reached < plan.target
        return
    check_plan(plan, hosts)
    assert 1 <= plan.depth <= policy.max_depth
    assert len({one.page for one in plan.insertions}) == len(plan.insertions)
    done = render(plan, hosts, lambda page: body_of(store, page), starts)
    assert done.text == naive(plan, hosts, store)
    for (host, span), found in zip(hosts.hops, done.hops, strict=True):
        assert done.text[slice(*found)] == hosts.hosts[host].text[slice(*span)]
    assert int(done.counts.sum()) == len(starts([done.text])[0])
    plan = fit_to_length(plan, hosts, lambda page: body_of(store, page), starts)
    check_plan(plan, hosts)
    fitted = render(plan, hosts, lambda page: body_of(store, page), starts)
    assert abs(len(starts([fitted.text])[0]) - plan.target) <= 0.01 * plan.target
    check_shards(fitted, starts, shard_size)


def check_shards(done: Rendered, starts: TokenStarts, shard_size: int) -> None:
    shards = cut_shards(done.text, done.ends, done.counts, starts, shard_size)
    assert shards is not None
    assert "".join(done.text[s.start : s.end] for s in shards) == done.text
    texts = [done.text[s.start : s.end] for s in shards]
    assert [s.n_tokens for s in shards] == [len(found) for found in starts(texts)]
    assert max(s.n_tokens for s in shards) <= shard_size
    ends = {end for _, end in sentence_spans(done.text)} | set(done.ends.tolist())
    assert all(s.end in ends for s in shards)


def test_a_page_in_a_circle_of_links_is_used_once(tmp_path: Path) -> None:
    circle = [
        SourcePage("Aa Bb", "To Cc Dd. " * 30, (Link(3, 8, "Cc Dd"), Link(0, 2, "Aa Bb"))),
        SourcePage("Cc Dd", "To Aa Bb. " * 30, (Link(3, 8, "Aa Bb"),)),
    ]
    store = small_wiki.store(tmp_path, circle)
    hosts = Hosts((Host("H", "H\nX is here. See Aa Bb now.\n\n", ((2, 12),)),), ((0, (2, 12)),))
    mentions = ((Link(17, 22, "Aa Bb"),),)
    made = expand("q", hosts, mentions, [8], store, Linker(store), Policy(lengths={2048: 1.0}))
    assert isinstance(made, Short) and 150 < made.reached < 260


@pytest.mark.parametrize("mode", ["replace", "keep_anchor"])
def test_the_modes(mode: str, tmp_path: Path) -> None:
    store = small_wiki.store(tmp_path, [SourcePage("Aa Bb", "Words of it. " * 400)])
    text = "H\nX is in Aa Bb. See Aa Bb of old. More.\n\n"
    hosts = Hosts((Host("H", text, ((2, 16),)),), ((0, (2, 16)),))
    links = (Link(10, 15, "Aa Bb"), Link(21, 26, "Aa Bb"))
    policy = Policy(mode=mode, lengths={1024: 1.0}, max_share=2.0)  # type: ignore[arg-type]
    plan = expand("q", hosts, (links,), [16], store, Linker(store), policy, 0)
    assert isinstance(plan, Plan), plan
    done = render(plan, hosts, lambda page: body_of(store, page), token_starts())
    (one,) = plan.insertions
    if mode == "replace":
        assert (one.start, one.end) == (21, 26)
        assert done.text.startswith("H\nX is in Aa Bb. See \n\nAa Bb\nWords of it.")
        assert done.text.endswith("of it. \n\n of old. More.\n\n")
    else:
        assert one.start == one.end and one.start in (17, 34)
        assert "See Aa Bb of old. " in done.text.replace("\n", "")
    assert done.text[slice(*done.hops[0])] == "X is in Aa Bb."


def test_evidence_is_spread_evenly_over_many_samples() -> None:
    store, rng = made_store("words"), random.Random(3)
    names = small_wiki.titles(300)
    positions = []
    for number in range(80):
        hosts, mentions = [], []
        for h in range(6):
            mine = rng.sample(names, 4)
            text = f"H{h}\n" + "".join(f"Of {n} it is said. " for n in mine[:2]) + "It is so. "
            at = text.index("It is so.")
            text += "".join(f"Of {n} it is said. " for n in mine[2:])
            hosts.append(Host(f"H{h}", text, ((at, at + 9),) if h < 2 else ()))
            mentions.append(tuple(Link(text.index(n), text.index(n) + len(n), n) for n in mine))
        gold = Hosts(tuple(hosts), tuple((h, hosts[h].evidence[0]) for h in range(2)))
        policy = Policy(lengths={8192: 1.0})
        plan = expand(str(number), gold, mentions, [50] * 6, store, Linker(store), policy, 0)
        assert isinstance(plan, Plan), plan
        done = render(plan, gold, lambda page: body_of(store, page), token_starts())
        positions += [span[0] / len(done.text) for span in done.hops]
    counts = np.histogram(positions, 5, (0, 1))[0]
    assert counts.min() >= 0.5 * len(positions) / 5, counts


def test_paragraphs_are_ordered_by_what_they_have_grown_to() -> None:
    """Few mentions lead on, in other paragraphs than the gold ones: all that can be chosen is the
    order, and the evidence must not gather at the ends."""
    text = "T\nOf it. It is so. And so on.\n\n"
    gold = Host("T", text, ((9, 18),))
    hosts = [gold, gold, *[Host("T", text, ())] * 6]
    grown = [Grown(host, 5, 1000) for host in range(2, 8)]
    sizes = [100 + 1000 * (host > 1) for host in range(8)]
    positions = []
    for seed in range(200):
        rng = random.Random(seed)
        order = balanced_order(hosts, [100] * 8, grown, range(8), rng)
        assert sorted(order) == list(range(8))
        for host in (0, 1):
            before = sum(sizes[h] for h in order[: order.index(host)])
            positions.append((before + 100 * 9 / len(text)) / sum(sizes))
    counts = np.histogram(positions, 5, (0, 1))[0]
    assert counts.min() >= 0.5 * len(positions) / 5, counts


def test_what_grew_before_the_evidence_is_counted() -> None:
    """The gold paragraph itself has grown, before its evidence: at the end of the order it would
    stand behind everything, at its start in the middle."""
    text = "T\nOf it. It is so. And so on.\n\n"
    hosts = [Host("T", text, ((9, 18),)), Host("T", text, ())]
    wanted = random.Random(3)
    place = wanted.random()
    first = balanced_order(hosts, [10, 1000], [Grown(0, 5, 1000)], (1, 0), random.Random(3))
    assert first == ((0, 1) if place < 0.75 else (1, 0))


@pytest.mark.parametrize(
    ("span", "entered"),
    [
        ((0, 5), False),
        ((0, 6), True),
        ((9, 12), True),
        ((10, 12), False),
        ((5, 5), False),
        ((7, 7), True),
        ((10, 10), False),
        ((0, 20), True),
    ],
)
def test_enters(span: tuple[int, int], entered: bool) -> None:
    assert enters(*span, [(5, 10)]) is entered
