"""Runs the steps in order; one that is complete is skipped, one that was killed goes on."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from data_pipeline.expansion.mentions import Mentions
from data_pipeline.filters import FILTERS
from data_pipeline.filters.contamination import contaminated
from data_pipeline.lines import Backend, Manifest, read_lines, run_lines
from data_pipeline.llm import Llm, prompts_sha256
from data_pipeline.musique_records import Record
from data_pipeline.steps.dataset import draw_key, push, write_dataset
from data_pipeline.steps.questions import read_questions
from data_pipeline.steps.settings import Places, Settings
from data_pipeline.steps.work import (
    BuildContext,
    FindMentions,
    Judged,
    JudgePlan,
    MakePlan,
    Planned,
    Shared,
)
from data_pipeline.wiki.build import build_pages
from data_pipeline.wiki.sources import open_source
from data_pipeline.wiki.store import PageStore
from data_pipeline.writer import sha256, write_jsonl
from disco_rl.clients.http import Endpoint

STEPS = ("questions", "pages", "mentions", "plans", "filters", "dataset")
Progress = Callable[[str, int], object]


def run(settings: Settings, last: str, progress: Progress) -> dict[str, Manifest]:
    """The steps up to `last`; their manifests by name. Raises `ValueError` for bad input or
    settings, and `EndpointError` where the LLM is down: run again, and it goes on."""
    places, manifests = Places(settings.out), dict[str, Manifest]()
    with ExitStack() as stack:
        work = _Run(settings, places, manifests, progress, _llm(settings, places, stack))
        for name in STEPS:
            manifests[name] = getattr(work, name)()
            if name == last:
                break
        if work.llm is not None:
            manifests["llm"] = {"counts": work.llm.usage()}
    return manifests


def _llm(settings: Settings, places: Places, stack: ExitStack) -> Llm | None:
    llm = settings.llm
    if not llm.url:
        return None
    endpoint = Endpoint(
        llm.url,
        str(llm.model),
        llm.api_key_env,
        deadline_s=llm.deadline_s,
        attempt_s=llm.attempt_s,
        max_connections=llm.max_concurrency,
    )
    model = Llm(endpoint, places.replies, max_tokens=llm.max_tokens, sampling=llm.sampling)
    return stack.enter_context(model)


class _Run:
    def __init__(
        self,
        settings: Settings,
        places: Places,
        manifests: dict[str, Manifest],
        progress: Progress,
        llm: Llm | None,
    ):
        self.settings, self.places, self.manifests = settings, places, manifests
        self.progress, self.llm = progress, llm
        mentions = settings.mentions
        self.shared = Shared(
            places.pages,
            settings.tokenizer,
            settings.expansion.hosts == "all",
            mentions.min_shared,
            mentions.stop_titles,
        )

    def questions(self) -> Manifest:
        asked = self.settings.questions
        return read_questions(asked.source, asked.limit, self.settings.out, self._told("questions"))

    def pages(self) -> Manifest:
        pages, n_done = self.settings.pages, 0

        def told(n_more: int) -> None:
            nonlocal n_done
            n_done += n_more
            self.progress("pages", n_done)

        counts = build_pages(
            self.places.pages,
            [open_source(about) for about in pages.sources],
            tokenizer=self.settings.tokenizer,
            max_chars=pages.max_chars,
            progress=told,
        )
        rejected, store = self.places.rejected, self.places.pages
        if not rejected.is_file() or rejected.stat().st_mtime_ns < store.stat().st_mtime_ns:
            partial = rejected.with_suffix(".part")
            write_jsonl(partial, (asdict(one) for one in PageStore(store).set_aside()))
            partial.replace(rejected)
        return {"counts": counts}

    def mentions(self) -> Manifest:
        about = self.settings.mentions
        llm = self.llm if about.by == "llm" else None
        settings = {
            **asdict(about),
            "hosts": self.settings.expansion.hosts,
            "tokenizer": self.settings.tokenizer,
            "model": self._model(llm),
            "pages": self.manifests["pages"]["counts"],
        }
        return self._lines(
            "mentions",
            settings,
            self._records(),
            FindMentions(self.shared, llm),
            lambda line: [*(["mentions"] * sum(map(len, line["hosts"]))), *_failures(line)],
            threads=llm is not None,
        )

    def plans(self) -> Manifest:
        return self._lines(
            "plans",
            asdict(self.settings.expansion),
            zip(self._records(), self._read("mentions", Mentions), strict=True),
            MakePlan(self.shared, self.settings.expansion.policy()),
            lambda line: [f"{line['plan']['target']:,} tokens" if line["plan"] else "too short"],
        )

    def filters(self) -> Manifest:
        about = self.settings.filters
        met = contaminated(self._records(), about.evaluation) if about.evaluation else None
        # Only where it is asked: it can't go to another process.
        llm = self.llm if any(FILTERS[name].needs_llm for name in about.names) else None
        judge = JudgePlan(
            self.shared,
            about.names,
            met,
            about.min_share,
            about.votes,
            about.candidates,
            llm,
        )
        settings = {
            **asdict(about),
            "evaluation": [[path.name, sha256(path)] for path in about.evaluation],
            "model": self._model(llm),
        }
        return self._lines(
            "filters",
            settings,
            zip(self._records(), self._read("plans", Planned), strict=True),
            judge,
            lambda line: [f"{v['filter']} {v['status']}" for v in line["verdicts"]],
            threads=llm is not None,
        )

    def dataset(self) -> Manifest:
        about, places = self.settings.dataset, self.places
        settings = {
            "step": "dataset",
            "tokenizer": self.settings.tokenizer,
            "shard_size": self.settings.shard_size,
            "n_validation": about.n_validation,
            "limit": about.limit,
            "tolerance": about.tolerance,
            "min_shards": about.min_shards,
            "expansion": self.manifests["plans"]["settings"],
            "filters": self.manifests["filters"]["settings"],
            "mentions": self.manifests["mentions"]["settings"],
            "questions": self.manifests["questions"]["settings"],
        }
        if not places.dataset.exists():
            build = BuildContext(
                self.shared, self.settings.shard_size, about.tolerance, about.min_shards
            )
            self._lines("contexts", settings, self._kept(about.limit), build)
        manifest, _ = write_dataset(
            places.dataset,
            places.lines("contexts"),
            places.lines("filters"),
            settings=settings,
            steps={n: m for n, m in self.manifests.items() if n != "contexts"},
            tokenizer=self.settings.tokenizer,
            shard_size=self.settings.shard_size,
            n_validation=about.n_validation,
            seed=self.settings.expansion.seed,
        )
        if about.push_to:  # also one built before: the last upload may have failed
            push(places.dataset, about.push_to)
        for name in ("contexts.jsonl", "contexts.json"):  # as large as the store
            (places.out / name).unlink(missing_ok=True)
        return {"counts": _flat(manifest["counts"])}

    def _model(self, llm: Llm | None) -> dict[str, Any] | None:
        """What decides an LLM's replies, beside the question."""
        about = self.settings.llm
        if llm is None:
            return None
        return {
            "name": about.model,
            "sampling": about.sampling,
            "max_tokens": about.max_tokens,
            "prompts": prompts_sha256(),
        }

    def _kept(self, limit: int | None) -> Iterator[tuple[Record, Any]]:
        seed = self.settings.expansion.seed
        ids = [judged.id for judged in self._read("filters", Judged) if judged.kept]
        drawn = set(sorted(ids, key=lambda id: draw_key(seed, id))[:limit])
        for record, planned in zip(self._records(), self._read("plans", Planned), strict=True):
            if record.id in drawn and planned.plan is not None:
                yield record, planned.plan

    def _lines(
        self,
        name: str,
        settings: dict[str, Any],
        items: Iterable[Any],
        work: Callable[[Any], Any],
        count: Callable[[Any], Iterable[str]] | None = None,
        threads: bool = False,
    ) -> Manifest:
        before = [m["sha256"] for m in self.manifests.values() if "sha256" in m]
        backend = Backend(self.settings.backend, self.settings.workers)
        if threads:
            backend = Backend("thread", self.settings.llm.max_concurrency)
        return run_lines(
            self.settings.out,
            name,
            {**settings, "after": before[-1]},
            items,
            work,
            backend=backend,
            count=count,
            progress=self._told(name),
        )

    def _records(self) -> Iterator[Record]:
        return self._read("questions", Record)

    def _read(self, name: str, type_: Any) -> Iterator[Any]:
        return read_lines(self.places.lines(name), type_)

    def _told(self, name: str) -> Callable[[int], object]:
        return lambda n_done: self.progress(name, n_done)


def _failures(line: dict[str, Any]) -> list[str]:
    return ["replies of no use"] * len(line["failures"])


def _flat(counts: dict[str, Any]) -> dict[str, int]:
    return {
        f"{group}: {what}": count
        for group, inner in counts.items()
        if group != "filters"
        for what, count in inner.items()
    }
