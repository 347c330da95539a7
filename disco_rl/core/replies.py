"""What the Driver's replies must look like: thinking stripped, reviews and answers parsed."""

import json
import re
from enum import Enum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from disco_rl.core.trajectory import Review

MAX_CHARS = 1 << 20
"""Longest reply that is parsed. A longer one is refused, not cut."""

_OPEN, _CLOSE = "<think>", "</think>"


class ReplyErrorKind(str, Enum):
    """Why a review or an answer was refused. Plans have their own kinds, `PlanErrorKind`."""

    TOO_LONG = "reply_too_long"
    TRUNCATED = "truncated"  # the call's token limit ended the reply
    UNFINISHED_THINKING = "unfinished_thinking"
    EMPTY_ANSWER = "empty_answer"
    REVIEW_JSON = "review_json"
    REVIEW_SCHEMA = "review_schema"


class ReplyError(ValueError):
    """A reply that was refused; `kind` for counting, the message for the repair turn."""

    def __init__(self, kind: ReplyErrorKind, message: str):
        super().__init__(message)
        self.kind = kind


def encodable(text: str) -> str:
    """`text` itself. Raises `ValueError` on a lone surrogate, which JSON can spell (`\\ud800`).

    Refused here as the Driver's fault; no tokenizer or file could take it later.
    """
    text.encode()
    return text


class ReviewModel(BaseModel):
    """The review's schema, for the parser and for constrained decoding alike."""

    model_config = ConfigDict(extra="forbid", strict=True)

    accept: bool
    gap: Annotated[str, AfterValidator(encodable)] = Field(default="", max_length=2000)


REVIEW_SCHEMA: dict[str, Any] = ReviewModel.model_json_schema()


def strip_thinking(text: str) -> str | None:
    """The text after the last `</think>`; None where thinking began and never ended.

    A chat template may have put `<think>` into the prompt, so a lone `</think>` is accepted.
    """
    close = text.rfind(_CLOSE)
    if text.find(_OPEN, max(close, 0)) != -1:
        return None
    return text[close + len(_CLOSE) :] if close != -1 else text


def first_object(text: str, key: str) -> dict[str, Any] | None:
    """The JSON object that begins with `key`, else the first object; None where there is none.

    Prose and code fences around it are ignored. Tries three starts at most, so the time is linear
    in the text. Raises `ValueError` where an object begins and isn't JSON.
    """
    keyed = [match.start() for match in re.finditer(r'\{\s*"' + re.escape(key) + '"', text)]
    starts = [*keyed[:1], *([text.index("{")] if "{" in text else []), *keyed[-1:]]
    failure: ValueError | None = None
    for start in dict.fromkeys(starts):
        try:
            value, _ = _DECODER.raw_decode(text, start)
            return value
        except RecursionError:
            failure = failure or ValueError("it is nested too deep")
        except ValueError as error:
            failure = failure or error
    if failure:
        raise failure
    return None


def parse_review(text: str) -> Review:
    """Reads a review, `{"accept": true}` or `{"accept": false, "gap": "..."}`.

    Raises `ReplyError`: no verdict is never a verdict.
    """
    body = _body(text)
    kind = ReplyErrorKind
    try:
        value = first_object(body, "accept")
    except ValueError as error:
        raise ReplyError(kind.REVIEW_JSON, f"the review isn't valid JSON: {error}") from None
    if value is None:
        raise ReplyError(kind.REVIEW_JSON, 'write the review as {"accept": ..., "gap": "..."}')
    try:
        model = ReviewModel.model_validate(value)
    except ValidationError as error:
        raise ReplyError(kind.REVIEW_SCHEMA, f"the review: {first_problem(error)}") from None
    if not model.accept and not model.gap.strip():
        raise ReplyError(kind.REVIEW_SCHEMA, "a review that rejects must name the gap")
    return Review(model.accept, "" if model.accept else model.gap.strip())


def parse_answer(text: str, truncated: bool) -> str:
    """The answer after the thinking. Raises `ReplyError` where it is cut off or empty."""
    answer = _body(text).strip()
    if truncated:
        raise ReplyError(ReplyErrorKind.TRUNCATED, "the reply reached the token limit; be brief")
    if not answer:
        raise ReplyError(ReplyErrorKind.EMPTY_ANSWER, "the reply holds no answer after thinking")
    return answer


def first_problem(error: ValidationError) -> str:
    """The first of pydantic's deepest complaints, as `place: what`, at most 300 characters.

    The deepest, since of a union's branches it is the one that fits the value best.
    """
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    problem = max(problems, key=lambda p: len(p["loc"]))
    place = ".".join(str(part) for part in problem["loc"]) or "top level"
    return f"{place}: {problem['msg']}"[:300]


def _body(text: str) -> str:
    if len(text) > MAX_CHARS:
        raise ReplyError(ReplyErrorKind.TOO_LONG, f"the reply is over {MAX_CHARS} characters")
    body = strip_thinking(text)
    if body is None:
        raise ReplyError(
            ReplyErrorKind.UNFINISHED_THINKING, "the thinking never ended; think less and answer"
        )
    return body


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
