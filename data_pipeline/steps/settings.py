"""The settings of configs/data.yaml, typed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from data_pipeline.expansion.expand import Policy
from data_pipeline.expansion.plan import Mode
from data_pipeline.filters import FILTERS

_STRICT = ConfigDict(extra="forbid")


@checked(frozen=True, config=_STRICT)
class Questions:
    source: str
    limit: int | None


@checked(frozen=True, config=_STRICT)
class Pages:
    sources: tuple[dict[str, str], ...]
    max_chars: int


@checked(frozen=True, config=_STRICT)
class MentionSettings:
    by: Literal["linker", "llm"]
    min_shared: int
    stop_titles: tuple[str, ...]


@checked(frozen=True, config=_STRICT)
class Expansion:
    hosts: Literal["all", "supporting"]
    mode: Mode
    order: Literal["breadth", "depth"]
    breadth: int
    max_depth: int
    max_share: float
    lengths: tuple[tuple[int, float], ...]
    lower_target: bool
    seed: int

    def policy(self) -> Policy:
        return Policy(
            self.mode,
            self.order,
            self.breadth,
            self.max_depth,
            self.max_share,
            dict(self.lengths),
            self.lower_target,
            self.seed,
        )


@checked(frozen=True, config=_STRICT)
class FilterSettings:
    names: tuple[str, ...]
    evaluation: tuple[Path, ...]
    min_share: float
    votes: int
    candidates: int


@checked(frozen=True, config=_STRICT)
class DatasetSettings:
    tolerance: float
    min_shards: int
    n_validation: int
    limit: int | None
    push_to: str | None


@checked(frozen=True, config=_STRICT)
class LlmSettings:
    url: str | None
    model: str | None
    api_key_env: str | None
    max_tokens: int
    sampling: dict[str, Any]
    max_concurrency: int
    deadline_s: float
    attempt_s: float


@checked(frozen=True, config=_STRICT)
class Settings:
    """See configs/data.yaml for what each means."""

    out: Path
    tokenizer: str
    shard_size: int
    backend: Literal["process", "ray"]
    workers: int
    questions: Questions
    pages: Pages
    mentions: MentionSettings
    expansion: Expansion
    filters: FilterSettings
    dataset: DatasetSettings
    llm: LlmSettings


def parse_settings(plain: dict[str, Any]) -> Settings:
    """Raises `ValueError` naming the key, its value and what it must be."""
    questions = dict(plain["questions"])
    questions["source"] = str(questions.pop("in"))
    try:
        settings = TypeAdapter(Settings).validate_python({**plain, "questions": questions})
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(str(part) for part in wrong["loc"])
        raise ValueError(f"{key}: {wrong['msg']}, not {wrong['input']!r}") from error
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    expansion, filters = settings.expansion, settings.filters
    least = {
        "shard_size": (settings.shard_size, 16),
        "workers": (settings.workers, 0),
        "expansion.breadth": (expansion.breadth, 1),
        "expansion.max_depth": (expansion.max_depth, 1),
        "filters.votes": (filters.votes, 1),
        "llm.max_concurrency": (settings.llm.max_concurrency, 1),
        "questions.limit": (settings.questions.limit or 0, 0),
        "dataset.limit": (settings.dataset.limit or 0, 0),
        "dataset.n_validation": (settings.dataset.n_validation, 0),
    }
    for key, (value, minimum) in least.items():
        if value < minimum:
            raise ValueError(f"{key} must be at least {minimum}, not {value}")
    if not expansion.lengths or any(n < 1024 or w < 0 for n, w in expansion.lengths):
        raise ValueError(
            "expansion.lengths must be pairs of a length from 1024 tokens on and its weight, as "
            f"[[16384, 1]], not {expansion.lengths!r}"
        )
    if not any(weight for _, weight in expansion.lengths):
        raise ValueError("expansion.lengths: at least one weight must be above 0")
    for name in filters.names:
        if name not in FILTERS:
            raise ValueError(f"filters.names: no filter {name!r}; there are {list(FILTERS)}")
    if settings.llm.url and not settings.llm.model:
        raise ValueError("llm.model: give the model's name beside llm.url")
    if settings.mentions.by == "llm" and not settings.llm.url:
        raise ValueError("mentions.by=llm needs llm.url and llm.model")


@dataclass(frozen=True, slots=True)
class Places:
    """Where each step's output is."""

    out: Path

    @property
    def pages(self) -> Path:
        return self.out / "pages.sqlite"

    @property
    def rejected(self) -> Path:
        """What the sources of pages hold and can't be used."""
        return self.out / "pages_rejected.jsonl"

    @property
    def replies(self) -> Path:
        return self.out / "replies.sqlite"

    @property
    def dataset(self) -> Path:
        return self.out / "dataset"

    def lines(self, step: str) -> Path:
        return self.out / f"{step}.jsonl"
