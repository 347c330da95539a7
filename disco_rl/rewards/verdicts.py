"""The verdict of a model judge: its schema, and how a reply is read."""

import json
import re
from collections.abc import Mapping
from typing import Any

from disco_rl.core.replies import strip_thinking
from disco_rl.rewards.judge import JudgeError, Verdict

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": [verdict.value for verdict in Verdict]}},
    "required": ["verdict"],
    "additionalProperties": False,
}
"""What a judge must reply; servers constrain the decoding to it, and the reply is checked."""

_FENCE = re.compile(r"^```\w*$")
_MARKS = r"[\s*_`\"'.:!]"
_LINE = re.compile(
    rf"{_MARKS}*(?:(?:my |the |final )*(?:verdict|answer)(?: is)?{_MARKS}+)?"
    rf"(yes|no|undecided){_MARKS}*",
    re.IGNORECASE,
)


def parse_verdict(text: str) -> Verdict:
    """The verdict of a judge's reply, thinking stripped.

    Either the whole reply is the schema's JSON object, or its last line is nothing but a verdict,
    as that object, as the word, or as "verdict: no", and no other line says otherwise. A yes
    within a sentence is never a verdict, since judges quote what they judge. Raises `JudgeError`.
    """
    body = strip_thinking(text)
    if body is None:
        raise JudgeError("its thinking never ended; raise judge.max_tokens")
    lines = [line.strip() for line in body.splitlines()]
    lines = [line for line in lines if line and not _FENCE.match(line)]
    whole = _from_json("\n".join(lines))
    if whole is not None:
        return whole
    said = [_from_line(line) for line in lines]
    given = {verdict for verdict in said if verdict is not None}
    if not said or said[-1] is None or len(given) > 1:
        raise JudgeError(f"no verdict in its reply {body.strip()[:80]!r}")
    return said[-1]


def _from_line(line: str) -> Verdict | None:
    match = _LINE.fullmatch(line)
    return Verdict(match[1].lower()) if match else _from_json(line)


def _from_json(text: str) -> Verdict | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    word = value.get("verdict") if isinstance(value, dict) else None
    known = isinstance(word, str) and word.lower() in {verdict.value for verdict in Verdict}
    return Verdict(word.lower()) if known and isinstance(word, str) and len(value) == 1 else None
