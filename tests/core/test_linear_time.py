"""Parsing takes time and memory linear in the text, on inputs made to break that.

Two measures that a busy machine doesn't upset: how often the JSON decoder is started, and the
ratio of CPU times for a text and one four times as long (linear: 4, quadratic: 16), the best of
several tries, with times under 50 ms passing outright.
"""

import contextlib
import json
import time
import tracemalloc
from collections.abc import Callable

import pytest

from disco_rl.core import replies
from disco_rl.core.plan import PlanError, PlanLimits
from disco_rl.core.plan_parser import parse_plan
from disco_rl.core.replies import MAX_CHARS, ReplyError, parse_answer, parse_review

LIMITS = PlanLimits(n_shards=8)
HEAD = '{"nodes":[{"id":"n1","op":"narrow","instruction":"Find it."'


def repeated(unit: str) -> Callable[[int], str]:
    return lambda n: unit * (n // len(unit))


def wide_with(parent: str) -> Callable[[int], str]:
    """A plan whose wide node lists the JSON value `parent` as often as fits."""
    item = parent + ","
    head = HEAD + '},{"id":"w1","op":"wide","instruction":"Who?","inputs":['
    return lambda n: head + item * ((n - len(head) - 99) // len(item)) + '"n1"]}]}'


FAMILIES: dict[str, Callable[[int], str]] = {
    **{
        name: repeated(unit)
        for name, unit in {
            "braces": "{",
            "spaced braces": "{ ",
            "brackets": "[",
            "openings": '{"nodes"',
            "nested openings": '{"nodes":',
            "nested lists": '{"nodes":[',
            "closed openings": '{"nodes":1}',
            "accepts": '{"accept"',
            "thinking": "<think>",
            "thought": "</think>",
            "thoughts": "<think></think>",
            "quotes": '"',
            "backslashes": "\\",
            "open string": '{"nodes":"\\\\',
            "blanks": " ",
            "fences": "```json\n{",
        }.items()
    },
    "blank after brace": lambda n: "{" + " " * (n - 1),
    "half blanks": lambda n: ("{" + " " * 999) * (n // 1000),
    "one long string": lambda n: '{"nodes":"' + "\\u0041" * ((n - 20) // 6),
    "many keys": lambda n: '{"nodes":{' + ",".join(f'"{i:07}":0' for i in range(n // 13)) + "}}",
    "extra keys": lambda n: '{"nodes":[],' + ",".join(f'"{i:07}":0' for i in range(n // 13)) + "}",
    "one key many times": lambda n: "{" + '"nodes":[],' * (n // 12) + '"nodes":[]}',
    "many nodes": lambda n: '{"nodes":[' + '{"id":"n"},' * (n // 12) + "{}]}",
    "many parents": wide_with('"n1"'),
    "many unknown parents": wide_with('"n9"'),
    "many wrong parents": wide_with("1"),
    "many shards": lambda n: HEAD + ',"shards":[' + "7," * (n // 2 - 60) + "7]}]}",
    "many wrong shards": lambda n: HEAD + ',"shards":[' + "{}," * (n // 3 - 60) + "7]}]}",
    "long number": lambda n: HEAD + ',"shards":[' + "9" * (n - 100) + "]}]}",
    "long numbers": lambda n: HEAD + ',"shards":[' + ("9" * 4300 + ",") * (n // 4301 - 1) + "1]}]}",
    "long float": lambda n: HEAD + ',"shards":[0.' + "1" * (n - 100) + "]}]}",
    "long instruction": lambda n: HEAD[:-2] + " ?" * (n // 2 - 60) + '"}]}',
    "long id": lambda n: '{"nodes":[{"id":"' + "x" * (n - 60) + '"}]}',
    "long op": lambda n: '{"nodes":[{"op":"' + "x" * (n - 60) + '"}]}',
}
PARSERS = {
    "plan": lambda text: parse_plan(text, LIMITS),
    "review": parse_review,
    "answer": lambda text: parse_answer(text, False),
}


def run(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(PlanError, ReplyError):
        parse(text)


def seconds(parse: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    run(parse, text)
    return time.process_time() - began


class CountingDecoder:
    """The parser's decoder, counting its starts and the characters it could have read."""

    def __init__(self, decoder: json.JSONDecoder):
        self.decoder = decoder
        self.starts = 0

    def raw_decode(self, text: str, start: int):
        self.starts += 1
        return self.decoder.raw_decode(text, start)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_time_is_linear(family, parser, monkeypatch):
    counter = CountingDecoder(replies._DECODER)
    monkeypatch.setattr(replies, "_DECODER", counter)
    parse, make = PARSERS[parser], FAMILIES[family]
    short, long = make(MAX_CHARS // 4), make(MAX_CHARS)
    assert MAX_CHARS // 5 < len(short) <= MAX_CHARS // 4
    assert 3.5 * len(short) < len(long) <= MAX_CHARS
    run(parse, long)
    assert counter.starts <= 3
    for _ in range(5):  # one quiet moment is enough
        if seconds(parse, long) <= max(0.05, 10 * seconds(parse, short)):
            return
    pytest.fail(f"{family}: four times the text takes over ten times the time")


@pytest.mark.parametrize("family", ["many wrong parents", "many wrong shards", "many nodes"])
def test_a_text_full_of_errors_is_not_turned_into_as_many_error_objects(family):
    text = FAMILIES[family](MAX_CHARS)
    tracemalloc.start()
    try:
        run(PARSERS["plan"], text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60 * len(text)
