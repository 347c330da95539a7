"""Keeps the best checkpoint by validation, and says when a run has stopped getting better.

RUN/best.json                                 metric, best step and value, every validation
RUN/best/global_step_N/actor/...              its weights, without the optimizer's state
RUN/best/latest_checkpointed_iteration.txt    written last; `disco-rl export RUN/best` reads it

verl rotates its own checkpoints by age, so the best one would be lost; this is a copy.
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

STATE, FOLDER, TRACKER = "best.json", "best", "latest_checkpointed_iteration.txt"
OLD = f".{FOLDER}.old"  # RUN/best while a better one takes its place


@dataclass
class Best:
    """The validations of a run by step, and the best of them; a resumed run goes on from them."""

    run: Path
    metric: str
    patience: int | None = None
    step: int | None = None
    value: float | None = None
    validations: dict[int, float] = field(default_factory=dict)

    @classmethod
    def load(cls, run: Path, metric: str, patience: int | None = None) -> "Best":
        """From RUN/best.json; anew where there is none, or where it is of another metric."""
        made = cls(run, metric, patience)
        if (path := run / STATE).is_file():
            state = json.loads(path.read_text(encoding="utf-8"))
            if state["metric"] == metric:
                made.step, made.value = state["step"], state["value"]
                made.validations = {int(k): v for k, v in state["validations"].items()}
        return made

    def resume(self, loaded: int) -> None:
        """Forgets the validations that aren't of a run going on from step `loaded` (0: anew).

        Where RUN/best is of such a validation, it's set aside as RUN/best_set_aside_N. A best whose
        copy a kill prevented is copied now, if its checkpoint is still there. Raises `OSError`.
        """
        folder, old = self.run / FOLDER, self.run / OLD
        if old.is_dir() and not folder.exists():
            os.replace(old, folder)  # killed within `keep`
        kept = {at: value for at, value in self.validations.items() if at <= loaded}
        self.validations = kept if loaded else {}
        self.step = max(self.validations, key=lambda at: (self.validations[at], -at), default=None)
        self.value = None if self.step is None else self.validations[self.step]
        held = self.held()
        if held is not None and held not in self.validations:
            aside = self.run / f"{FOLDER}_set_aside_{held}"
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(folder, aside)
        if (self.run / STATE).is_file():
            self.save()
        if self.step is not None and self.step != held and self.saved(self.step):
            self.keep(self.step)

    def held(self) -> int | None:
        """The step whose weights RUN/best holds, or None."""
        tracker = self.run / FOLDER / TRACKER
        return int(tracker.read_text(encoding="utf-8")) if tracker.is_file() else None

    def see(self, step: int, value: float) -> bool:
        """Takes note of a validation; whether it is the best so far. `save` writes it down."""
        better = self.value is None or value > self.value
        self.validations[step] = value
        if better:
            self.step, self.value = step, value
        return better

    def save(self) -> None:
        """Writes RUN/best.json; before `keep`, which `resume` makes up for after a kill between."""
        state = {
            "metric": self.metric,
            "step": self.step,
            "value": self.value,
            "validations": self.validations,
        }
        path = self.run / STATE
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(state, indent=1), encoding="utf-8")
        os.replace(partial, path)

    def exhausted(self, step: int) -> str | None:
        """Why the run should stop after `step`, or None."""
        if self.patience is None or self.step is None:
            return None
        stale = sum(self.step < at <= step for at in self.validations)
        if stale < self.patience:
            return None
        return (
            f"{stale} validations in a row without a better {self.metric} than {self.value:.4f} of "
            f"step {self.step} (disco.watch.patience={self.patience}, which a higher one goes past)"
        )

    def saved(self, step: int) -> bool:
        """Whether the run's own checkpoint of `step` is there."""
        return (self.run / f"global_step_{step}" / "actor").is_dir()

    def keep(self, step: int) -> Path:
        """Copies the checkpoint of `step` to RUN/best. Raises `OSError` where that fails."""
        name = f"global_step_{step}"
        folder, old, partial = self.run / FOLDER, self.run / OLD, self.run / f".{FOLDER}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        shutil.copytree(
            self.run / name / "actor",
            partial / name / "actor",
            ignore=shutil.ignore_patterns("optim_*", "extra_state_*"),
        )
        for extra in ("config.yaml", "metrics"):  # the model card reads them
            source = self.run / extra
            if source.is_file():
                shutil.copy2(source, partial / extra)
            elif source.is_dir():
                shutil.copytree(source, partial / extra)
        (partial / TRACKER).write_text(str(step), encoding="utf-8")
        if folder.exists():  # renamed, not removed: a kill here must not leave the run without any
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
        os.replace(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
        return folder
