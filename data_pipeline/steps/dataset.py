"""Step `dataset`: the built contexts become rows, context store, card and report."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_pipeline.lines import Manifest, read_lines
from data_pipeline.output import DataFolder, complete
from data_pipeline.steps.card import card
from data_pipeline.steps.report import Figures, SampleView, report
from data_pipeline.steps.work import Built, Judged
from data_pipeline.writer import StoreItem, new_folder, write_jsonl
from disco_rl.core.sample import Sample
from disco_rl.data.store import StoreInfo

N_SHOWN = 10


@dataclass
class _Kept:
    """Filled while the store is written, so that one context is in memory at a time."""

    samples: list[Sample] = field(default_factory=list)
    about: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[dict[str, str]] = field(default_factory=list)
    views: list[SampleView] = field(default_factory=list)

    def items(self, path: Path) -> Iterator[StoreItem]:
        for built in read_lines(path, Built):
            if built.dropped is not None:
                verdict = built.dropped
                self.dropped.append(
                    {"id": built.id, "filter": verdict.filter, "reason": verdict.reason}
                )
                continue
            self.samples.append(built.sample)
            self.about.append(
                {
                    "id": built.id,
                    "target": built.target,
                    "n_tokens": built.sample.n_tokens,
                    "pages": built.n_pages,
                    "depth": built.depth,
                    "hops": len(built.sample.hops),
                    "positions": list(built.positions),
                    "shards": len({i for hop in built.sample.hops for i in hop.shard_ids}),
                }
            )
            if len(self.views) < N_SHOWN:
                self.views.append(SampleView.of(built))
            yield built.sample.context_id, built.text, built.shards


def write_dataset(
    out: Path,
    contexts: Path,
    verdicts: Path,
    *,
    settings: dict[str, Any],
    steps: dict[str, Manifest],
    tokenizer: str,
    shard_size: int,
    n_validation: int,
    seed: int,
) -> tuple[Manifest, bool]:
    """Writes rows, store, card, report, what was dropped and the manifest to the new folder `out`.

    Returns the manifest, and whether it was built now. Raises `ValueError` when no sample is kept,
    or a hop's answer isn't where its row says.
    """
    manifest = complete(out, settings)
    if manifest is not None:
        return manifest, False
    for stale in out.parent.glob(f".{out.name}.*"):  # of a build that was killed
        shutil.rmtree(stale)
    kept, tally, dropped = _Kept(), Counter[tuple[str, str]](), []
    for judged in read_lines(verdicts, Judged):
        for verdict in judged.verdicts:
            tally[verdict.filter, verdict.status.value] += 1
            if verdict.status.value in ("dropped", "failed"):
                dropped.append(
                    {"id": judged.id, "filter": verdict.filter, "reason": verdict.reason}
                )
    with new_folder(out) as folder:
        data = DataFolder(folder)
        data.write_contexts(kept.items(contexts), StoreInfo(tokenizer, shard_size))
        if len(kept.samples) <= n_validation:
            raise ValueError(
                f"{len(kept.samples)} samples are kept, and {n_validation} are for validation; "
                f"see the reasons in {verdicts}"
            )
        samples = _shuffled(kept, seed)
        splits = {"validation": samples[:n_validation], "train": samples[n_validation:]}
        missing = [at for one in data.write_splits(splits).values() for at in one.missing]
        if missing:
            raise ValueError(f"evidence isn't where the rows say: {missing[:3]}")
        for one in kept.dropped:
            tally[one["filter"], "dropped"] += 1
        for name in ("evidence", "length", "position"):
            tally[name, "passed"] += len(kept.samples)
        write_jsonl(folder / "samples.jsonl", kept.about)
        data.write_dropped([*dropped, *kept.dropped])
        counts = {
            **{split: _counts(samples) for split, samples in splits.items() if samples},
            "filters": {f"{n} {status}": count for (n, status), count in sorted(tally.items())},
        }
        figures = Figures(settings, counts, steps, kept.about, dict(tally), kept.views)
        (folder / "README.md").write_text(card(figures), encoding="utf-8")
        (folder / "report.html").write_text(report(figures), encoding="utf-8")
        return data.finish(settings, counts), True


def draw_key(seed: int, id: str) -> str:
    """What samples are ordered by before any are left out: MuSiQue's files are sorted by hops."""
    return hashlib.sha256(f"{seed}:{id}".encode()).hexdigest()


def _shuffled(kept: _Kept, seed: int) -> list[Sample]:
    about = zip(kept.about, kept.samples, strict=True)
    drawn = sorted(about, key=lambda one: draw_key(seed, one[0]["id"]))
    return [replace(sample, index=k) for k, (_, sample) in enumerate(drawn)]


def push(folder: Path, repository: str) -> str:
    """Uploads the data set; returns its address. Raises what `huggingface_hub` raises."""
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, repo_type="dataset", exist_ok=True)
    return str(api.upload_folder(repo_id=repository, repo_type="dataset", folder_path=str(folder)))


def _counts(samples: list[Sample]) -> dict[str, int]:
    by_hops = Counter(len(sample.hops) for sample in samples)
    return {
        "samples": len(samples),
        **{f"samples of {n} hops": count for n, count in sorted(by_hops.items())},
        "hops": sum(len(sample.hops) for sample in samples),
        "tokens": sum(sample.n_tokens for sample in samples),
        "shards": sum(sample.n_shards for sample in samples),
    }
