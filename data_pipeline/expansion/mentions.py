"""Mentions in a question's paragraphs: from the offline linker, or from an LLM and checked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.expansion.hosts import Host
from data_pipeline.expansion.linker import Linker
from data_pipeline.llm import Llm, NoReply
from data_pipeline.set_aside import printable
from data_pipeline.wiki.page import Link, title_key
from disco_rl.engine.workers.lexical import terms


@dataclass(frozen=True, slots=True)
class Mentions:
    """Of one question: for each host, its mentions. `failures` are replies that were of no use."""

    id: str
    hosts: tuple[tuple[Link, ...], ...]
    failures: tuple[str, ...] = ()


def link_hosts(id: str, hosts: Sequence[Host], linker: Linker, llm: Llm | None) -> Mentions:
    """Titles are those of pages that the store has. Raises `EndpointError` (see `Llm.ask`)."""
    found, failures = [], []
    for host in hosts:
        body = len(host.title) + 1
        if llm is None:
            found.append(linker.link(host.text, body))
            continue
        try:
            reply = llm.ask("mentions", title=host.title, text=host.text[body:].strip())
            found.append(_checked(reply, host.text, body, linker))
        except NoReply as error:
            failures.append(f"{host.title}: {error}")
            found.append(())
    return Mentions(id, tuple(found), tuple(failures))


def _checked(reply: dict, text: str, body: int, linker: Linker) -> tuple[Link, ...]:
    """What stands in the text and names a page that has to do with it, once a name.

    The page's lead must share a term with the paragraph, one less than the offline linker asks for
    a name of one word: the model has read the paragraph too, but writes titles from memory.
    """
    mentions = reply.get("mentions")
    if not isinstance(mentions, list):
        raise NoReply(f"'mentions' must be a list, not {mentions!r}")
    around = frozenset(terms(text))
    links: list[Link] = []
    for one in mentions:
        name, title = (one.get("text"), one.get("page")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(title, str) or not name.strip():
            continue
        name = name.strip()
        # Whole words: Rome doesn't stand in Romeo.
        place = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)").search(text, body)
        id = linker.store.find(printable(title))
        if place is None or id is None or linker.stops(title_key(title)):
            continue
        meant = linker.choose(id, name, around, linker.min_shared - 1)
        if meant is not None:
            links.append(Link(place.start(), place.end(), linker.store.page(meant).title))
    links.sort(key=lambda link: (link.start, -link.end))
    return tuple(
        link for k, link in enumerate(links) if all(link.start >= b.end for b in links[:k])
    )
