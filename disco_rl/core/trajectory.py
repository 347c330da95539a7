"""A trajectory: stages, Driver calls, and why it stopped."""

from dataclasses import dataclass, field
from enum import Enum

from disco_rl.core.evidence import EvidencePool
from disco_rl.core.plan import Plan


class StopReason(str, Enum):
    """Why an episode ended."""

    ACCEPTED = "accepted"  # the Driver's review accepted the answer
    STAGE_LIMIT = "stage_limit"  # driver.max_stages used up; the last answer stands
    INVALID_CALL = "invalid_call"  # a Driver call and its repair were both unusable
    DEADLINE = "deadline"  # episode.deadline_s passed
    WINDOW = "window"  # a prompt doesn't fit driver.window even with all evidence cut
    ERROR = "error"  # the infrastructure failed (not the Driver): masked, never a zero


class CallKind(str, Enum):
    """What a Driver call was for."""

    PLAN = "plan"
    SYNTHESIZE = "synthesize"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a model: exact prompt ids, sampled ids and their log-probabilities.

    `output_ids` and `logprobs` have equal lengths (the stop token included); all three are empty
    for an endpoint that doesn't report them, and then the counts come from its usage.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = "stop"  # "stop" or "length"
    n_prompt: int = 0
    n_output: int = 0
    extra: dict = field(default_factory=dict)  # the server's own fields, kept for the trainer


@dataclass(frozen=True, slots=True)
class DriverCall:
    """One Driver generation, one training sample. `error` is the parse error's kind, or None."""

    kind: CallKind
    stage: int
    node: str | None
    generation: Generation
    error: str | None = None
    message: str | None = None
    repair: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Review:
    """The Driver's verdict on a stage's answer: accepted, or the gap the next stage must close."""

    accept: bool
    gap: str = ""


@dataclass
class Stage:
    """One round of plan, evidence, answer and review; parts are None where it ended early."""

    index: int
    plan: Plan | None = None
    pool: EvidencePool = field(default_factory=EvidencePool)
    answer: str | None = None
    review: Review | None = None
    n_history_cut: int = 0  # lines that didn't fit the plan prompt
    n_review_cut: int = 0  # lines that didn't fit the review prompt


@dataclass
class WorkerUsage:
    """The ledger of a trajectory's Worker calls, as the pool counted them.

    failures: calls without a usable reply; `lost` of these because a server failed or refused,
        which is not the Worker's doing: such a trajectory is not scored
    cancelled: calls under way, or waiting for the pool's turn, when the episode ended
    memo_hits: calls answered by an identical one, at no cost
    prompt_tokens, cached_tokens, output_tokens: as servers report them, 0 for a retriever;
        `prompt_tokens - cached_tokens` were computed
    seconds: from asking the pool's turn to the reply, `queued_s` and `served_s` of these waiting
        for a turn at an endpoint and being served there
    dollars: by the price table of the config
    shards: tokens by index of the shards that were asked about
    """

    calls: int = 0
    failures: int = 0
    lost: int = 0
    cancelled: int = 0
    memo_hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    queued_s: float = 0.0
    served_s: float = 0.0
    retries: int = 0
    hedges: int = 0
    dollars: float = 0.0
    shards: dict[int, int] = field(default_factory=dict)


@dataclass
class Trajectory:
    """Stages, the answer and why it stopped. `answer` is None when no stage answered."""

    question: str
    context_id: str
    stages: list[Stage] = field(default_factory=list)
    calls: list[DriverCall] = field(default_factory=list)
    answer: str | None = None
    stop: StopReason = StopReason.ERROR
    workers: WorkerUsage = field(default_factory=WorkerUsage)
    error: str | None = None
    seconds: float = 0.0

    @property
    def accepted(self) -> Stage | None:
        """The stage whose answer stands: the accepted one, else the last that answered."""
        answered = [stage for stage in self.stages if stage.answer is not None]
        return answered[-1] if answered else None
