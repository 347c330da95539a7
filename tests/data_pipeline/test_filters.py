"""Linker, LLM client, mentions and filters: what they find, what they refuse, what they say."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.expansion.expand import Policy, expand
from data_pipeline.expansion.hosts import Host, hosts_of
from data_pipeline.expansion.linker import Linker
from data_pipeline.expansion.mentions import _checked, link_hosts
from data_pipeline.expansion.plan import Plan
from data_pipeline.filters import FILTERS, Case, Status, judge
from data_pipeline.filters.contamination import contaminated
from data_pipeline.filters.leak import answer_outside, one_page
from data_pipeline.llm import Llm, NoReply
from data_pipeline.musique_records import Paragraph, Record, Step
from data_pipeline.tokens import count_words
from data_pipeline.wiki.page import Link, SourcePage
from data_pipeline.wiki.store import PageStore
from disco_rl.clients.http import Endpoint, EndpointError
from tests.clients.scripted import ScriptedServer, says, serve, status
from tests.data_pipeline import small_wiki

PAGES = [
    SourcePage("Tesmar", "Tesmar is a harbour town in the valley of Velis. " * 3),
    SourcePage("Red", "Red is a song by a band. It sold copies."),
    SourcePage("Mercury", "Mercury may refer to: the planet, the god.",
               (Link(0, 7, "Mercury (planet)"), Link(9, 12, "Mercury (god)")), True),
    SourcePage("Mercury (planet)", "Mercury is a planet near the sun, its orbit is fast."),
    SourcePage("Mercury (god)", "Mercury is a god of trade, messengers and thieves."),
    SourcePage("This", "This is an album of songs and a harbour."),
    SourcePage("Velis River", "The Velis River has water. It runs to a harbour town."),
    SourcePage("Answers", "The mayor of Tesmar town is Varo Hall. " + "More of it here. " * 400),
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> PageStore:
    return small_wiki.store(tmp_path, PAGES)


def linked(store: PageStore, text: str) -> list[tuple[str, str]]:
    return [(text[k.start : k.end], k.title) for k in Linker(store).link(text)]


def test_the_linker_takes_names_that_fit_and_leaves_homonyms(store: PageStore) -> None:
    text = "This is about Tesmar, a harbour town. Red roofs line the Velis River's water."
    assert linked(store, text) == [("Tesmar", "Tesmar"), ("Velis River", "Velis River")]
    # The name alone isn't enough.
    assert linked(store, "The novel Tesmar was printed twice.") == []
    assert linked(store, "The planet Mercury has an orbit close to the sun.") == [
        ("Mercury", "Mercury (planet)")
    ]
    assert linked(store, "Singer Freddie Mercury had a moustache.") == []


def test_a_models_name_is_found_as_whole_words(store: PageStore) -> None:
    text = "Host\nTesmarian songs are sung in Tesmar. The Redwood harbour is old."
    reply = {"mentions": [{"text": t, "page": t.strip()} for t in ("Tesmar ", "Red")]}
    links = _checked(reply, text, 5, Linker(store))
    assert [(k.start, k.end, k.title) for k in links] == [(33, 39, "Tesmar")]
    assert text[33:39] == "Tesmar"


def record() -> Record:
    gold = (
        Paragraph("Song", "Song is sung in Tesmar. Few know the harbour town."),
        Paragraph("Mayors", "A list. The mayor of Tesmar is Varo Hall. It is long."),
    )
    steps = (
        Step("Where is Song sung?", "Tesmar", gold[0]),
        Step("Who is the mayor of Tesmar?", "Varo Hall", gold[1]),
    )
    question = "Who is the mayor of the town where Song is sung?"
    return Record("2hop__1_2", question, ("Varo Hall", "Hall"), gold, steps)


def case(store: PageStore, llm: Llm | None = None, title: str = "Answers") -> Case:
    hosts = hosts_of(record(), False)
    at = hosts.hosts[0].text.index("Few")
    mentions = ((Link(at, at + 3, title),), ())
    tokens = count_words([host.text for host in hosts.hosts])
    policy = Policy(lengths={1024: 1.0}, max_share=9)
    plan = expand("q", hosts, mentions, tokens, store, Linker(store), policy, 0)
    assert isinstance(plan, Plan), plan
    return Case(record(), hosts, plan, store, llm)


def test_leaks_are_found_in_the_words(store: PageStore) -> None:
    reason = answer_outside(case(store))
    assert reason is not None and "The mayor of Tesmar town is Varo Hall" in reason
    assert one_page(case(store)) is None  # Song isn't spoken of
    verdicts = {v.filter: v for v in judge(case(store), list(FILTERS))}
    assert verdicts["answer_outside"].status is Status.DROPPED
    assert {v.status for n, v in verdicts.items() if n != "answer_outside"} == {Status.NOT_RUN}


def test_a_gold_paragraph_may_leak_beside_its_evidence(tmp_path: Path) -> None:
    far = small_wiki.store(tmp_path, [SourcePage("Far", "Nothing of use here. " * 400)])
    one = case(far, title="Far")
    (start, end), *_ = one.hosts.hosts[1].evidence
    mayors = one.hosts.hosts[1].text
    twice = f"{mayors}The mayor of Tesmar, then, is Hall. And more.\n"
    assert "Varo Hall" in mayors[start:end] and answer_outside(one) is None
    hosts = replace(one.hosts, hosts=(one.hosts.hosts[0], replace(one.hosts.hosts[1], text=twice)))
    reason = answer_outside(replace(one, hosts=hosts))
    assert reason is not None and "'Mayors' answers it in one sentence: 'The mayor of" in reason


def test_a_page_with_all_answers(tmp_path: Path) -> None:
    text = (
        "Song is sung in Tesmar. Of a town and its mayor.\n" + "More of it. " * 400 + "Varo Hall."
    )
    full = small_wiki.store(tmp_path, [SourcePage("Far", text[:60] + " Varo Hall.\n" + text)])
    assert answer_outside(case(full, title="Far")) is None
    assert one_page(case(full, title="Far")) == "page 'Far' has the answers of all hops"


def test_without_a_model_its_filters_are_not_run(tmp_path: Path) -> None:
    clean = small_wiki.store(tmp_path, [SourcePage("Far", "Nothing of use here. " * 400)])
    verdicts = {v.filter: v for v in judge(case(clean, title="Far"), list(FILTERS))}
    assert [n for n, v in verdicts.items() if v.status is Status.PASSED] == [
        "answer_outside",
        "one_page",
    ]
    for name, one in FILTERS.items():
        if one.needs_llm:
            assert verdicts[name].status is Status.NOT_RUN
            assert "needs an LLM" in verdicts[name].reason


def by_prompt(replies: Callable[[str], Any], asked: list[str]) -> Callable[[Any], Any]:
    """A server's reply from the text of the prompt."""

    async def reply(request: Any) -> Any:
        text = (await request.json())["messages"][0]["content"]
        asked.append(text)
        return await says(replies(text), prompt_tokens=10, completion_tokens=2)(request)

    return reply


def llm(server: ScriptedServer, tmp_path: Path) -> Llm:
    point = Endpoint(server.url, "m", max_attempts=1)
    return Llm(point, tmp_path / "replies.sqlite", sampling={"temperature": 0.5})


@pytest.mark.parametrize(
    ("dropped", "reason"),
    [
        (None, ""),
        ("closed_book", "without any text: 'the hall'"),
        ("leave_one_hop_out", "without the paragraph 'Song': 'Varo Hall'"),
        ("contradiction", "'Far' contradicts 'Varo Hall': 'The mayor of Tesmar was Bo.'"),
        ("stability", "from all the evidence the model answers 'Bo'"),
    ],
)
async def test_filters_that_ask_a_model(tmp_path: Path, dropped: str | None, reason: str) -> None:
    pages = [SourcePage("Far", "The mayor of Tesmar was Bo. " + "Nothing of use here. " * 400)]
    far, asked = small_wiki.store(tmp_path, pages), list[str]()

    def replies(text: str) -> Any:
        if "claim" in text:
            return {"contradicts": dropped == "contradiction" and "Varo" in text and "Bo" in text}
        n_given = text.count("<passage title")
        if n_given == 2:
            return {"answer": "Bo" if dropped == "stability" else "Varo  Hall."}
        if n_given == 1:
            shortcut = dropped == "leave_one_hop_out" and "Mayors" in text
            return {"answer": "Varo Hall" if shortcut else None}
        return {"answer": "the hall" if dropped == "closed_book" else "Someone"}

    async with serve(by_prompt(replies, asked)) as server:
        with llm(server, tmp_path) as model:
            for _ in range(2):
                verdicts = await asyncio.to_thread(
                    judge, case(far, model, "Far"), [n for n, f in FILTERS.items() if f.needs_llm]
                )
            found = [(v.filter, v.reason) for v in verdicts if v.status is Status.DROPPED]
            assert found == ([(dropped, found[0][1])] if dropped else []), verdicts
            assert not dropped or reason in found[0][1]
            assert dropped or {v.status for v in verdicts} == {Status.PASSED}
            # The second round was answered from the cache.
            assert model.calls == len(asked) == model.cached
            assert model.usage()["prompt_tokens"] == 10 * len(asked)


async def test_a_useless_reply_is_no_verdict_and_a_dead_server_stops_the_run(
    tmp_path: Path, store: PageStore
) -> None:
    script = [says("<think>well</think> I don't know"), status(400, {"error": "too long"}),
              says({"answer": 3, "x": "{"}), status(503)]  # fmt: skip
    async with serve(*script) as server:
        with llm(server, tmp_path) as model:

            def ask(question: str) -> dict[str, Any]:
                return model.ask("answer", question=question, passages="", given="")

            with pytest.raises(NoReply, match="no JSON object"):
                await asyncio.to_thread(ask, "a")
            with pytest.raises(NoReply, match="too long"):
                await asyncio.to_thread(ask, "b")
            assert (await asyncio.to_thread(ask, "c {{x}}"))["answer"] == 3
            with pytest.raises(EndpointError):
                await asyncio.to_thread(ask, "d")
            # The useless reply isn't paid for again, and is no verdict of a filter.
            with pytest.raises(NoReply, match="no JSON object"):
                await asyncio.to_thread(ask, "a")
    assert len(server.bodies) == 4


@pytest.mark.parametrize(
    "reply",
    [
        says('Okay. The form is {"answer": "..."}. So let', finish="length"),  # thoughts, cut off
        says('{"a":' * 5000),
    ],
)
async def test_no_reply_of_use_stays_none(reply: Any, tmp_path: Path) -> None:
    async with serve(reply) as server:
        with llm(server, tmp_path) as model:
            for _ in range(2):  # as it comes, and from the cache
                with pytest.raises(NoReply):
                    await asyncio.to_thread(model.ask, "answer", question="", passages="", given="")
    assert len(server.bodies) == 1


async def test_a_filter_without_a_verdict_has_failed(tmp_path: Path, store: PageStore) -> None:
    async with serve(says("Who knows?")) as server:
        with llm(server, tmp_path) as model:
            one = case(store, model)
            names = ["closed_book", "stability"]
            failed, later = await asyncio.to_thread(judge, one, names)
    assert failed.status is Status.FAILED and "no JSON object" in failed.reason
    assert later.status is Status.NOT_RUN


async def test_mentions_of_a_model_are_checked(tmp_path: Path, store: PageStore) -> None:
    text = "H\nIn Tesmar by Velis River, a harbour, Mercury and Red shone. This is it.\n\n"
    mentions = [
        {"text": "Velis River", "page": "Velis River"},
        {"text": "River", "page": "Tesmar"},  # inside another one
        {"text": "Tesmar", "page": "tesmar"},
        {"text": "Mercury", "page": "Mercury"},  # a disambiguation that nothing decides
        {"text": "Mercury", "page": "Mercury (god)"},  # no trade, messengers or thieves here
        {"text": "Reds", "page": "Red"},  # doesn't stand there
        {"text": "This", "page": "This"},  # a stop title
        {"text": "Red", "page": "Nowhere"},
        {"text": "Red", "page": "Re\ud83d"},
        {"text": 3, "page": "Red"},
    ]
    replies = [says({"mentions": mentions}), says({"mentions": "none"})]
    hosts = [Host("H", text, ()), Host("I", "I\nText.\n\n", ())]
    async with serve(*replies) as server:
        with llm(server, tmp_path) as model:
            found = await asyncio.to_thread(link_hosts, "q", hosts, Linker(store), model)
    assert [(text[k.start : k.end], k.title) for k in found.hosts[0]] == [
        ("Tesmar", "Tesmar"),
        ("Velis River", "Velis River"),
    ]
    assert found.hosts[1] == () and "'mentions' must be a list" in found.failures[0]
    assert "In Tesmar by Velis River" in server.bodies[0]["messages"][0]["content"]


def test_decontamination(tmp_path: Path) -> None:
    words = " ".join(f"word{k}" for k in range(20))
    gold = Paragraph("T", f"Before. {words}. After.")
    one = Record("a", "Who is it?", ("x",), (gold,), (Step("q", "x", gold),))
    other = Record("b", "Where is it?", ("x",), (), (Step("q", "x", Paragraph("T", "Else.")),))
    path, lines = tmp_path / "bench.json", tmp_path / "bench.jsonl"
    path.write_text(json.dumps({"data": [{"input": f"In it: {words[3:140].upper()}!"}]}))
    lines.write_text(json.dumps({"q": "where IS it"}) + "\n" + json.dumps({"q": "word1 word2"}))
    assert contaminated([one, other], [path]) == {"a": "bench.json"}
    assert contaminated([one, other], [lines]) == {"b": "bench.jsonl"}
    lines.write_text("{broken")
    with pytest.raises(ValueError, match=r"bench\.jsonl: not JSON"):
        contaminated([one], [lines])
