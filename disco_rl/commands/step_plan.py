"""How large a training step is, said before anything starts.

Users compare their step time with other people's, whose steps had another size. So the numbers
that set it are printed first, with an estimate that says what it rests on.
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

# A trained Driver of the paper takes 3.4 stages (its Table 2); a stage is at least a plan, a
# synthesis and a review. Used only where no earlier run of this configuration left records.
_STAGES, _CALLS = 3.4, 3.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Driver calls a trajectory, and tokens a call, on average."""

    calls: float
    prompt_tokens: float
    output_tokens: float
    source: str


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The size of one step. `parameters` and `flops` (a second) are None where unknown."""

    questions: int
    group: int
    max_calls: int
    window: int
    max_call_tokens: int
    shape: Shape
    parameters: int | None = None
    flops: float | None = None

    @property
    def trajectories(self) -> int:
        return self.questions * self.group

    @property
    def sequences(self) -> int:
        """Expected training sequences: one a Driver call."""
        return round(self.trajectories * self.shape.calls)

    @property
    def tokens(self) -> int:
        """Expected tokens of those sequences, prompts included."""
        return round(self.sequences * (self.shape.prompt_tokens + self.shape.output_tokens))

    @property
    def seconds(self) -> float | None:
        """Least seconds of arithmetic: 2 FLOP a parameter and token to sample and to score, 6 to
        train. Attention, overheads and Workers come on top."""
        if self.parameters is None or not self.flops:
            return None
        return self.tokens * self.parameters * (2 + 2 + 6) / self.flops

    def lines(self) -> Iterator[str]:
        shape = self.shape
        yield (
            f"step: {self.questions} questions x {self.group} trajectories = "
            f"{self.trajectories:,} trajectories"
        )
        yield (
            f"expected: {self.sequences:,} sequences ({shape.calls:.1f} Driver calls a trajectory, "
            f"at most {self.max_calls:,}), {self.tokens:,} tokens "
            f"({shape.prompt_tokens:.0f} prompt + {shape.output_tokens:.0f} output a call, at most "
            f"{self.window:,} together); from {shape.source}"
        )
        if self.seconds is not None and self.parameters and self.flops:
            yield (
                f"estimate: at least {self.seconds:,.1f} s of arithmetic a step "
                f"({self.parameters / 1e6:,.1f}M parameters, {self.flops / 1e9:,.0f} GFLOP/s "
                "measured here); overheads and Workers come on top"
            )
        else:
            yield "estimate: none before the first step (model size or speed unknown here)"


def step_plan(config: "DictConfig") -> StepPlan:
    """The plan of a composed train config."""
    driver, rollout = config.driver, config.actor_rollout_ref.rollout
    records = config.disco.get("records_dir")
    shape = recorded_shape(Path(str(records))) if records else None
    parameters = count_parameters(Path(str(config.actor_rollout_ref.model.path)).expanduser())
    return StepPlan(
        questions=int(config.data.train_batch_size),
        group=int(rollout.n),
        # Each wide node is a synthesis, each call may be repaired once.
        max_calls=int(driver.max_stages) * (int(driver.max_plan_nodes) + 1) * 2,
        window=int(driver.window),
        max_call_tokens=int(driver.max_call_tokens),
        shape=shape or assumed_shape(driver.max_stages, driver.window, driver.max_call_tokens),
        parameters=parameters,
        flops=measured_flops() if parameters and config.trainer.device == "cpu" else None,
    )


def assumed_shape(max_stages: int, window: int, max_call_tokens: int) -> Shape:
    """The paper's number of stages, and a quarter of each token limit."""
    return Shape(
        calls=min(_STAGES, max_stages) * _CALLS,
        prompt_tokens=(window - max_call_tokens) / 4,
        output_tokens=max_call_tokens / 4,
        source="the paper's 3.4 stages and a quarter of the token limits, for want of records",
    )


def recorded_shape(records: Path, *, limit: int = 256) -> Shape | None:
    """What the last trajectories on record took; None where there are none to read."""
    files = sorted((records / "train").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    seen: list[dict[str, Any]] = []
    while files and len(seen) < limit:
        for line in files.pop().read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                seen.append(json.loads(line))
            except ValueError:
                continue  # the run that wrote it was killed within this line
    calls = [call for record in seen for call in record.get("calls", ())]
    if not calls:
        return None
    return Shape(
        calls=len(calls) / len(seen),
        prompt_tokens=sum(call["prompt_tokens"] for call in calls) / len(calls),
        output_tokens=sum(call["output_tokens"] for call in calls) / len(calls),
        source=f"{len(seen)} trajectories on record in {records}",
    )


def count_parameters(model: Path) -> int | None:
    """Parameters of a safetensors folder, from the files' headers; None for a hub name."""
    from safetensors import safe_open

    files = sorted(model.glob("*.safetensors")) if model.is_dir() else []
    total = 0
    for file in files:
        with safe_open(str(file), framework="numpy") as tensors:
            total += sum(math.prod(tensors.get_slice(k).get_shape()) for k in tensors.keys())  # noqa: SIM118
    return total or None


def measured_flops() -> float:
    """Floating-point operations a second of an fp32 matrix product on this machine."""
    import numpy as np

    size = 512
    a = np.ones((size, size), dtype=np.float32)
    (a @ a).sum()  # starts the threads
    best, until = math.inf, time.perf_counter() + 0.2
    while time.perf_counter() < until:
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2.0 * size**3 / best
