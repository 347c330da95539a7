"""A training or test sample: the question, its gold answers, and where each hop's evidence is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hop:
    """One gold step: `shard_ids` hold its evidence, `span` is its place in the context (chars)."""

    question: str
    answer: str
    aliases: tuple[str, ...]
    shard_ids: tuple[int, ...]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the dataset, without its context, which the store holds under `context_id`."""

    index: int
    question: str
    answers: tuple[str, ...]
    context_id: str
    n_shards: int
    n_tokens: int
    hops: tuple[Hop, ...]
    data_source: str

    def to_row(self) -> dict[str, Any]:
        """The row that verl reads (design.md, Sample row)."""
        return {
            "data_source": self.data_source,
            "prompt": [{"role": "user", "content": self.question}],
            "ability": "long_context_qa",
            "reward_model": {"style": "rule", "ground_truth": list(self.answers)},
            "agent_name": "disco",
            "extra_info": {
                "index": self.index,
                "question": self.question,
                "context_id": self.context_id,
                "n_shards": self.n_shards,
                "n_tokens": self.n_tokens,
                "hops": [
                    {
                        "question": hop.question,
                        "answer": hop.answer,
                        "aliases": list(hop.aliases),
                        "shard_ids": list(hop.shard_ids),
                        "span": list(hop.span),
                    }
                    for hop in self.hops
                ],
            },
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Sample":
        """Reads a row back. Raises `ValueError` naming the row and the field that is missing."""
        extra = row.get("extra_info") or {}
        try:
            return cls(
                index=int(extra["index"]),
                question=str(extra["question"]),
                answers=_answers(row["reward_model"]["ground_truth"]),
                context_id=str(extra["context_id"]),
                n_shards=int(extra["n_shards"]),
                n_tokens=int(extra["n_tokens"]),
                hops=tuple(
                    Hop(
                        question=str(hop["question"]),
                        answer=str(hop["answer"]),
                        aliases=tuple(str(a) for a in hop["aliases"]),
                        shard_ids=tuple(int(i) for i in hop["shard_ids"]),
                        span=(int(hop["span"][0]), int(hop["span"][1])),
                    )
                    for hop in extra["hops"]
                ),
                data_source=str(row.get("data_source", "")),
            )
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise ValueError(
                f"row {extra.get('index', '?')}: field {error} is missing or malformed; "
                "build the rows with data_pipeline"
            ) from error


def _answers(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):  # would be read as one answer a letter
        raise TypeError("reward_model.ground_truth: a list of answers, not a string,")
    return tuple(str(answer) for answer in value)
