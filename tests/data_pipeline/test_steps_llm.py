"""The steps with a model behind a socket: mentions, verdicts, what decides its replies."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.steps.run import _Run, run
from data_pipeline.steps.settings import Places
from tests.clients.scripted import says, serve
from tests.data_pipeline import small_wiki
from tests.data_pipeline.pipeline import hashes, overrides, quiet, typed


async def test_mentions_and_verdicts_of_a_model(inputs: Path, tmp_path: Path) -> None:
    name = small_wiki.pages(200, 11)[0].title

    async def reply(request: Any) -> Any:
        text = (await request.json())["messages"][0]["content"]
        if "List the names" in text:
            found = re.findall(r"The \w+ of (\w+ \w+) has", text)
            return await says({"mentions": [{"text": n, "page": n} for n in found]})(request)
        if "claim" in text:
            return await says({"contradicts": False})(request)
        gold = re.findall(r"of (Answer \d+ 1)\.", text)
        whole = text.count("<passage title") == 2
        return await says({"answer": gold[0] if whole and gold else None})(request)

    async with serve(reply) as server:
        llm = [f"llm.url={server.url}", "llm.model=m", "llm.max_concurrency=4"]
        settings = typed(overrides(inputs, tmp_path / "out", "mentions.by=llm", *llm))
        first = await asyncio.to_thread(run, settings, "dataset", quiet)
        n_asked = len(server.bodies)
        assert first["llm"]["counts"]["calls"] == n_asked > 60
        counts = first["filters"]["counts"]
        for kind in ("closed_book", "leave_one_hop_out", "contradiction", "stability"):
            assert counts[f"{kind} passed"] > 6, (name, counts)
        # Another folder with the same replies: nothing is asked again.
        other = tmp_path / "other"
        other.mkdir()
        (other / "replies.sqlite").write_bytes((tmp_path / "out/replies.sqlite").read_bytes())
        settings = typed(overrides(inputs, other, "mentions.by=llm", *llm))
        await asyncio.to_thread(run, settings, "dataset", quiet)
        assert len(server.bodies) == n_asked
    assert hashes(other / "dataset") == hashes(tmp_path / "out" / "dataset")


def test_what_decides_replies_is_in_the_settings_and_word_filters_take_no_model(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, tuple[dict[str, Any], Any, bool]] = {}

    def lines(self: Any, name: str, settings: Any, items: Any, work: Any, *_: Any, **more: Any):
        seen[name] = (settings, work.llm, more["threads"])

    monkeypatch.setattr("data_pipeline.steps.run._Run._lines", lines)
    monkeypatch.setattr("data_pipeline.steps.run._Run._records", lambda self: iter(()))
    monkeypatch.setattr("data_pipeline.steps.run._Run._read", lambda self, *_: iter(()))
    words = [
        "llm.url=http://127.0.0.1:9/v1", "llm.model=m", "llm.max_tokens=77", "mentions.by=llm",
        "filters.names=[answer_outside]", "llm.sampling={temperature: 0.5}",
    ]  # fmt: skip
    settings = typed(overrides(inputs, tmp_path / "out", *words))
    work = _Run(settings, Places(tmp_path / "out"), {"pages": {"counts": {}}}, quiet, object())  # type: ignore[arg-type]
    work.mentions()
    work.filters()
    model = seen["mentions"][0]["model"]
    assert (model["name"], model["max_tokens"]) == ("m", 77)
    assert model["sampling"]["temperature"] == 0.5 and len(model["prompts"]) == 64
    assert seen["filters"][0]["model"] is None and seen["filters"][1:] == (None, False)
