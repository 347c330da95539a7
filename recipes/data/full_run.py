"""What a full run costs: 19,938 questions to 4,500 samples, from rates that were measured.

The calls that the filters make are counted, not guessed: a scripted model answers so that no filter
drops anything, which is the most they can ask. What no run here can measure stands in `ASSUMED`.
"""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ASSUMED = {
    "questions": 19_938,  # answerable ones of MuSiQue's train file
    "samples": 4_500,
    "pages of Wikipedia": 5_900_000,  # KILT's knowledge source
    "tokens of them": 3_200_000_000,
    "output tokens of a reply": 1_000,  # of a model that thinks
    "output tokens a second of its server": 3_000,
}
_PASSAGE = re.compile(r"<passage title=")
_QUESTION = re.compile(r"^Question: (.*)$", re.M)


@contextmanager
def scripted_model(records: Path, asked: Counter[str], texts: list[str]) -> Iterator[str]:
    """The address of an endpoint whose replies let every sample pass."""
    from aiohttp import web

    gold = {
        record["question"]: (
            record["answer"],
            len({s["paragraph_support_idx"] for s in record["question_decomposition"]}),
        )
        for record in json.loads(records.read_text(encoding="utf-8"))
    }

    def answer(prompt: str) -> dict[str, Any]:
        texts.append(prompt)
        if prompt.startswith("A claim"):
            asked["contradiction"] += 1
            return {"contradicts": False}
        n_shown = len(_PASSAGE.findall(prompt))
        found, n_gold = gold[_QUESTION.findall(prompt)[-1]]
        whole = n_shown == n_gold
        kind = "stability" if whole else "leave_one_hop_out" if n_shown else "closed_book"
        asked[kind] += 1
        return {"answer": found if whole else None}

    async def complete(request: web.Request) -> web.Response:
        prompt = (await request.json())["messages"][-1]["content"]
        message = {"role": "assistant", "content": json.dumps(answer(prompt))}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {}})

    loop = asyncio.new_event_loop()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, access_log=None)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def mention_prompts(records: Path) -> dict[str, list[str]]:
    """What an LLM would be asked for mentions, by which paragraphs are expanded."""
    from data_pipeline.llm import PROMPTS
    from data_pipeline.musique_records import Record, read_records

    prompts: dict[str, list[str]] = {"all": [], "supporting": []}
    for record in read_records(records):
        if isinstance(record, Record):
            supporting = {step.paragraph for step in record.steps}
            for paragraph in dict.fromkeys(record.paragraphs):
                prompt = PROMPTS.render("mentions", title=paragraph.title, text=paragraph.text)
                prompts["all"].append(prompt)
                if paragraph in supporting:
                    prompts["supporting"].append(prompt)
    return prompts


def estimate(results: dict[str, Any], lengths: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """From the parts `real`, `contexts` and `llm` of results.json. Hours are of one core."""
    real, bench, llm = results["real"], results["contexts"], results["llm"]
    questions, samples = ASSUMED["questions"], ASSUMED["samples"]
    mean = sum(n * weight for n, weight in lengths) / sum(weight for _, weight in lengths)
    planned, written = questions * mean, samples * mean
    per_token = {step: s / bench["tokens"] for step, s in bench["seconds"].items()}
    store = real["store"]
    hours = {
        "page store": ASSUMED["tokens of them"] * store["processor seconds"] / store["tokens"],
        "mentions, offline": questions * real["seconds"]["mentions"] / real["questions"],
        "plans": planned * per_token["plans"],
        "filters of words": planned * per_token["filters"],
        "data set": written * per_token["dataset"],
    }
    gigabytes = {
        "page store": ASSUMED["tokens of them"] * store["bytes a token"],
        "data set": written * real["bytes a token"],
        "contexts while it is written": written * real["bytes a token"],
    }
    dropped = real["dropped by filters of words"] / real["planned"]
    left = questions * (1 - dropped)
    calls = {
        "mentions, supporting paragraphs": questions * llm["mentions"]["supporting"]["a question"],
        "mentions, all paragraphs": questions * llm["mentions"]["all"]["a question"],
        **{kind: left * n for kind, n in llm["filters"]["calls a sample"].items()},
    }
    tokens = (
        calls["mentions, all paragraphs"] * llm["mentions"]["all"]["tokens a call"]
        + left * llm["filters"]["tokens a sample"]
    )
    n_calls = sum(calls.values()) - calls["mentions, supporting paragraphs"]
    output = n_calls * ASSUMED["output tokens of a reply"]
    return {
        "assumed": ASSUMED,
        "tokens of a sample, on average": round(mean),
        "tokens of the data set": round(written),
        "left by the filters of words": round(left),
        "share that the filters of a model may drop": round(1 - samples / left, 3),
        "hours of one core": {what: round(s / 3600, 2) for what, s in hours.items()},
        "gigabytes": {what: round(n / 1e9, 1) for what, n in gigabytes.items()},
        "LLM calls, at most": {what: round(n) for what, n in calls.items()},
        "LLM calls, at most, together": round(n_calls),
        "LLM input tokens": round(tokens),
        "LLM output tokens": round(output),
        "LLM hours": round(output / ASSUMED["output tokens a second of its server"] / 3600, 1),
    }
