"""LLM x MapReduce v1 (Zhou et al. 2024): read parts in parallel, collapse, reduce by confidence."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disco_rl.engine.tasks import gather
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.tokens import Tokenizer, chunks, count, head

_MARKED = re.compile(r"\[\s*no\s+information\s*\]", re.IGNORECASE)  # as texts/map.md asks
_NOTHING = re.compile(r"no\s+information", re.IGNORECASE)
_ANSWER = re.compile(r"^\W*answer\W*[:：][\s*_]*", re.IGNORECASE | re.MULTILINE)
_CONFIDENCE = re.compile(r"confidence(?: score)?\W*([0-5](?:\.\d+)?)", re.IGNORECASE)
# Where a text may be split, the best places first: lines, sentences and clauses, words.
_BREAKS = (re.compile(r"(?<=\n)"), re.compile(r"(?<=[.!?;,。！？；，])"), re.compile(r"(?<=\s)"))


@dataclass(frozen=True)
class MapReduce:
    """`window` holds prompt, question, a part and the reply; `reply` tokens are for the reply.

    Collapsing stops after `max_rounds`; what is still over the budget is dropped from the lowest
    confidence up, and counted.
    """

    tokenizer: Tokenizer
    window: int = 4096
    reply: int = 300
    max_rounds: int = 5

    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        fields, question = render("fields"), task.asked
        room = self._room(render("map", chunk="", question=question, fields=fields))
        parts = split(self.tokenizer, document.load(), room)
        replies = await gather(
            [
                calls.ask(
                    "worker",
                    render("map", chunk=part, question=question, fields=fields),
                    max_tokens=self.reply,
                )
                for part in parts
            ]
        )
        found = [reply for reply in replies if informative(reply)]
        room = self._room(render("collapse", findings="", question=question, fields=fields))
        rounds = 0
        while len(found) > 1 and self._size(found) > room and rounds < self.max_rounds:
            rounds += 1
            found = await gather(
                [
                    calls.ask(
                        "worker",
                        render("collapse", findings=joined, question=question, fields=fields),
                        max_tokens=self.reply,
                    )
                    for joined in self._groups(found, room)
                ]
            )
        kept = self._best(found, room)
        prompt = render(
            "reduce", findings=_join(kept) or "(none)", question=question, style=task.style
        )
        # The rationale needs room beside the answer.
        reply = await calls.ask("driver", prompt, max_tokens=self.reply + task.max_tokens)
        record = {
            "parts": len(parts),
            "informative": sum(map(informative, replies)),
            "rounds": rounds,
            "dropped": len(found) - len(kept),
            "reply": reply,
        }
        return Attempt(final_answer(reply), record=record)

    def _room(self, prompt: str) -> int:
        room = self.window - self.reply - count(self.tokenizer, prompt)
        if room < 1:
            raise ValueError(
                f"map_reduce: window {self.window} leaves no room for text; make it larger"
            )
        return room

    def _size(self, findings: Sequence[str]) -> int:
        return count(self.tokenizer, _join(findings))

    def _groups(self, findings: Sequence[str], room: int) -> list[str]:
        """Neighbours packed up to `room`, at least two a group, so that every round shrinks."""
        groups: list[list[str]] = [[]]
        for finding in findings:
            if len(groups[-1]) >= 2 and self._size([*groups[-1], finding]) > room:
                groups.append([])
            groups[-1].append(finding)
        return [head(self.tokenizer, _join(group), room) for group in groups]

    def _best(self, findings: list[str], room: int) -> list[str]:
        kept: list[str] = []
        for finding in sorted(findings, key=confidence, reverse=True):
            if self._size([*kept, finding]) <= room:
                kept.append(finding)
        return [finding for finding in findings if finding in kept]


def split(tokenizer: Tokenizer, text: str, room: int) -> list[str]:
    """Parts of at most `room` tokens, on line ends, else on punctuation, else on blanks."""
    parts: list[str] = []
    size = 0
    for piece, tokens in _pieces(tokenizer, text, room, 0):
        if parts and size + tokens <= room:
            parts[-1] += piece
            size += tokens
        else:
            parts.append(piece)
            size = tokens
    return parts


def _pieces(tokenizer: Tokenizer, text: str, room: int, level: int) -> Iterator[tuple[str, int]]:
    tokens = count(tokenizer, text)
    if tokens <= room:
        if text:
            yield text, tokens
    elif level == len(_BREAKS):
        yield from ((c, count(tokenizer, c)) for c in chunks(tokenizer, text, room))
    else:
        for piece in _BREAKS[level].split(text):
            yield from _pieces(tokenizer, piece, room, level + 1)


def informative(reply: str) -> bool:
    """Whether a reply says more than that there is nothing."""
    if not reply.strip() or _MARKED.search(reply):
        return False
    return not (_NOTHING.search(reply) and confidence(reply) == 0)


def confidence(reply: str) -> float:
    """0 to 5; 0 where none is stated."""
    match = _CONFIDENCE.search(reply)
    return min(float(match[1]), 5.0) if match else 0.0


def final_answer(reply: str) -> str:
    """What stands after the last `Answer:`, else the whole reply."""
    starts = [match.end() for match in _ANSWER.finditer(reply)]
    return reply[starts[-1] :].strip() if starts else reply.strip()


def _join(findings: Sequence[str]) -> str:
    return "\n\n".join(f"[{i}]\n{finding}" for i, finding in enumerate(findings, 1))
