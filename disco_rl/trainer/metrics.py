"""Every metric of ours: its name, what it means, and the one place where it is computed.

`disco/train/<name>` and `disco/val/<name>` are means over trajectories, never over rows, so that a
long trajectory counts once. `disco/<name>` exists in training only. A metric with nothing to
average is left out of the step rather than logged as 0 or NaN.
"""

from collections.abc import Callable, Mapping, Sequence

from disco_rl.core.plan import PlanErrorKind
from disco_rl.core.replies import ReplyErrorKind
from disco_rl.core.trajectory import StopReason
from disco_rl.trainer import watch
from disco_rl.trainer.facts import TrajectoryFacts

Of = Callable[[TrajectoryFacts], float | None]


def _judge(name: str) -> Of:
    return lambda t: t.judge.get(name, 0.0) if t.judge else None


def _hops(fate: str, number: int | None = None) -> Of:
    """The share of a trajectory's gold hops with this fate: of all, or of the one of `number`."""

    def share(t: TrajectoryFacts) -> float | None:
        hops = t.hops if number is None else t.hops[number - 1 : number]
        return sum(got == fate for got, _ in hops) / len(hops) if hops else None

    return share


def _found(stage: int | None = None) -> Of:
    """The mean stage, from 1, of its hops that were found; or the share found first in `stage`."""

    def figure(t: TrajectoryFacts) -> float | None:
        stages = [at + 1 for got, at in t.hops if at is not None and got in ("used", "unused")]
        if stage is None:
            return sum(stages) / len(stages) if stages else None
        return stages.count(stage) / len(t.hops) if t.hops else None

    return figure


def _failed(part: str) -> Of:
    return lambda t: float(part in t.failed)


def _agrees(t: TrajectoryFacts) -> float | None:
    return None if t.second_agrees is None else float(t.second_agrees)


FATES: Mapping[str, str] = {
    "used": "that were found and are behind the answer",
    "unused": "found, and not behind the answer: the Driver's miss",
    "missed": "asked for and not found: the Worker's miss",
    "failed": "asked for where the Worker failed",
    "never_asked": "whose subject no lookup named: the Driver's miss",
}
HOPS = range(1, 5)  # numbers of hops, and stages, that have a metric of their own

# name -> (what it means, its value for one trajectory; None leaves the trajectory out)
MEANS: Mapping[str, tuple[str, Of]] = {
    "reward": ("composite reward, over the trajectories that are not masked", lambda t: t.reward),
    "accuracy": ("the judge's yes, over those judged", lambda t: t.accuracy),
    "format": ("format part, over those scored", lambda t: t.format),
    "evidence": ("evidence part, over those scored", lambda t: t.evidence),
    "recall": ("share of gold hops one of whose shards is cited", lambda t: t.recall),
    "precision": ("share of cited shards that are a gold hop's", lambda t: t.precision),
    "span_recall": ("share of gold hops on whose place a quote stands", lambda t: t.span_recall),
    "span_precision": ("share of cited quotes on a gold hop's place", lambda t: t.span_precision),
    **{f"hops_{fate}": (f"share of gold hops {text}", _hops(fate)) for fate, text in FATES.items()},
    **{
        f"hop_{number}/{fate}": (f"share of gold hops of this number {text}", _hops(fate, number))
        for number in HOPS
        for fate, text in FATES.items()
    },
    "hop_stage": ("stage, from 1, in which a gold hop was first found", _found()),
    **{
        f"hops_found_in/{stage}": ("share of gold hops first found in this stage", _found(stage))
        for stage in HOPS
    },
    "judge_questions": ("questions to the judge, of those who asked any", _judge("questions")),
    "judge_requests": (
        "of these, generations asked for; HTTP retries not counted",
        _judge("requests"),
    ),
    "judge_cached": ("questions answered from its cache", _judge("cached")),
    "judge_shortcuts": ("questions decided without the model", _judge("shortcuts")),
    "judge_errors": ("questions that brought no verdict", _judge("errors")),
    "judge_unparsed": ("its replies that held no verdict", _judge("unparsed")),
    "judge_failovers": ("requests that went on to the second endpoint", _judge("failovers")),
    "judge_undecided": ("questions on which it abstained", _judge("undecided")),
    "judge_prompt_tokens": ("tokens the judge read", _judge("prompt_tokens")),
    "judge_output_tokens": ("tokens the judge wrote", _judge("output_tokens")),
    "judge_dollars": ("cost of its questions by judge.prices", _judge("dollars")),
    "judge_seconds": ("waited for the judge", _judge("seconds")),
    "judge_agreement": ("second judge's agreement, where it was asked", _agrees),
    "masked": ("share masked out of the update by a failure", lambda t: float(bool(t.masked))),
    **{
        f"failed/{part}": (
            f"share whose {part} part failed, which masks only where it counts",
            _failed(part),
        )
        for part in watch.PARTS
    },
    "stages": ("stages begun", lambda t: t.stages),
    "calls": ("Driver calls, repairs included", lambda t: t.calls),
    "plan_valid": (
        "share of its plan calls that parsed and validated, over those that called for a plan",
        lambda t: t.plan_valid / t.plan_calls if t.plan_calls else None,
    ),
    "refused_calls": ("Driver calls refused, of any kind", lambda t: sum(t.errors.values())),
    "prompt_tokens": ("prompt tokens of its Driver calls", lambda t: t.prompt_tokens),
    "output_tokens": ("sampled tokens of its Driver calls", lambda t: t.output_tokens),
    "seconds": ("wall time of the episode", lambda t: t.seconds),
    "findings": ("findings kept", lambda t: t.findings),
    "worker_calls": ("Worker calls: narrow actions times shards", lambda t: t.worker_calls),
    "worker_failures": ("Worker calls that failed", lambda t: t.worker_failures),
    "worker_memo_hits": (
        "Worker calls answered by an identical one, at no cost",
        lambda t: t.worker_memo_hits,
    ),
    "worker_prompt_tokens": ("Worker prompt tokens", lambda t: t.worker_prompt_tokens),
    "worker_cached_tokens": ("of these, read from cache", lambda t: t.worker_cached_tokens),
    "worker_output_tokens": ("tokens the Workers wrote", lambda t: t.worker_output_tokens),
    "worker_queued_s": ("seconds its Worker calls waited for a turn", lambda t: t.worker_queued_s),
    "worker_served_s": ("seconds its Worker calls were served", lambda t: t.worker_served_s),
    "worker_retries": ("tries of Worker calls after their first", lambda t: t.worker_retries),
    "worker_hedges": ("second requests for Worker calls that lagged", lambda t: t.worker_hedges),
    "worker_dollars": ("cost of its Worker calls by worker.prices", lambda t: t.worker_dollars),
}

MAXIMA: Mapping[str, tuple[str, Callable[[TrajectoryFacts], float]]] = {
    "calls_max": ("most Driver calls of a trajectory", lambda t: t.calls),
    "call_tokens_max": ("most sampled tokens of one Driver call", lambda t: t.max_call_tokens),
    "seconds_max": ("the slowest trajectory, which the step waited for", lambda t: t.seconds),
}

STOPS = tuple(reason.value for reason in StopReason)
ERRORS = tuple(kind.value for kind in (*PlanErrorKind, *ReplyErrorKind))

# name (without disco/train/ or disco/val/) -> what it means
COUNTS: Mapping[str, str] = {
    "trajectories": "trajectories that came back",
    "masked_count": "of these, masked by a failure (driver server, judge, a bug): out of the "
    "update and of their group's statistics",
    "lost_count": "expected trajectories of which nothing came back (verl dropped the prompt)",
    "drop_rate": "(masked + lost) / expected trajectories",
    "worker_computed_tokens": "prompt tokens that Workers computed for all trajectories together",
    "worker_shard_tokens": "tokens of the distinct shards that they were asked about",
    "worker_reads": "the first over the second: how often a shard was read; the aim is 1",
    "worker_dollars_sum": "cost of all Worker calls by worker.prices",
}
SHARES: Mapping[str, str] = {
    f"stop/{stop}": f"share of trajectories that stopped as {stop}" for stop in STOPS
} | {f"errors/{kind}": f"calls refused as {kind}, a trajectory" for kind in ERRORS}

# name -> what it means; training only, logged as disco/<name>
TRAINING: Mapping[str, str] = {
    "disco/groups": "prompt groups in the step",
    "disco/groups_flat": "groups with no spread in reward: they teach nothing",
    "disco/rows": "rows (Driver calls) in the update, padding left out",
    "disco/rows_padding": "rows added so that the data-parallel ranks get the same number",
    "disco/optimizer_steps": "optimizer updates of this step, counted from the actor's reports",
    "disco/update_skipped": "1 where no trajectory was usable, so that nothing was updated",
    "disco/logprob_diff_max": "largest |rollout - trainer| log-probability of a sampled token; in "
    "the asynchronous modes the rollout's weights are older, which shows here",
    "disco/logprob_diff_max_run": "the same, over the run since it was started",
    **watch.METRICS,
}


def names(split: str) -> dict[str, str]:
    """All metrics of `split` ("train" or "val") and what each means."""
    prefix = f"disco/{split}/"
    plain = {name: text for name, (text, _) in (*MEANS.items(), *MAXIMA.items())}
    result = {prefix + name: text for name, text in ({**plain, **COUNTS, **SHARES}).items()}
    return result | dict(TRAINING) if split == "train" else result


def summarise(
    trajectories: Sequence[TrajectoryFacts], split: str, expected: int | None = None
) -> dict[str, float]:
    """The metrics of `split`; `expected` is how many trajectories were asked for (None: these)."""
    prefix = f"disco/{split}/"
    count = len(trajectories)
    expected = max(expected or 0, count)
    masked = sum(t.masked is not None for t in trajectories)
    result: dict[str, float] = {
        "trajectories": count,
        "masked_count": masked,
        "lost_count": expected - count,
    }
    if expected:
        result["drop_rate"] = (masked + expected - count) / expected
    result |= _reading(trajectories)
    for name, (_, value) in MEANS.items():
        values = [v for t in trajectories if (v := value(t)) is not None]
        if values:
            result[name] = sum(values) / len(values)
    if trajectories:
        for name, (_, size) in MAXIMA.items():
            result[name] = max(size(t) for t in trajectories)
        for stop in STOPS:
            result[f"stop/{stop}"] = sum(t.stop == stop for t in trajectories) / count
        for kind in ERRORS:
            result[f"errors/{kind}"] = sum(t.errors.get(kind, 0) for t in trajectories) / count
    return {prefix + name: float(value) for name, value in result.items()}


def _reading(trajectories: Sequence[TrajectoryFacts]) -> dict[str, float]:
    """What reading cost, beside the least it could; nothing where no Worker reports tokens."""
    computed = sum(t.worker_prompt_tokens - t.worker_cached_tokens for t in trajectories)
    distinct = {(t.context, shard): n for t in trajectories for shard, n in t.shards.items()}
    if not computed or not distinct:
        return {}
    shards = sum(distinct.values())
    return {
        "worker_computed_tokens": computed,
        "worker_shard_tokens": shards,
        "worker_reads": computed / shards,
        "worker_dollars_sum": sum(t.worker_dollars for t in trajectories),
    }
