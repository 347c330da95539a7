"""`disco-rl eval` and `disco-rl report`, over a scripted server and killed for real."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from disco_rl import cli
from disco_rl.config import compose
from disco_rl.evaluation.build import build_setup
from disco_rl.evaluation.runner import read_results
from disco_rl.rewards import Verdict
from tests.clients.scripted import says, serve
from tests.evaluation.methods.served import talks

ROOT = Path(__file__).resolve().parents[1]


def squad(path: Path) -> str:
    paragraphs = [
        {
            "context": f"Town {i} has {i} bells. "
            + " ".join(f"Bell {j} of {i} rings." for j in range(20)),
            "qas": [{"question": f"Bells of town {i}?", "answers": [{"text": f"{i} bells"}]}],
        }
        for i in range(6)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return str(path)


def overrides(tmp_path: Path, url: str, **more: str) -> list[str]:
    given = {
        "method": "chain_of_agents", "benchmark": "ruler_qa", "method.chunk": "60",
        "benchmark.source": squad(tmp_path / "squad.json"), "benchmark.lengths": "[300]",
        "benchmark.n": "4", "models.driver.url": url, "models.driver.model": "scripted",
        "models.driver.price": "{prompt: 1.0, output: 2.0, cached: null}",
        "limits.max_items": "1",
    }  # fmt: skip
    return [f"{key}={value}" for key, value in (given | more).items()]


def say(prompt: str) -> str:
    return "4 bells" if "last reader" in prompt else "notes"


async def command(*args: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "disco_rl.cli", *args),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode() + err.decode()


@pytest.mark.slow
async def test_killed_by_the_system_and_resumed_nothing_is_paid_for_twice(tmp_path: Path) -> None:
    out = tmp_path / "run"
    async with serve(talks(say)) as server:
        given = ["eval", *overrides(tmp_path, server.url, out=str(out))]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "disco_rl.cli", *given),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        while len(server.bodies) < 9:
            await asyncio.sleep(0.01)
            assert process.returncode is None
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
        before = len(server.bodies)
        code, shown = await command(*given)
        assert code == 0, shown
        requests = [json.dumps(body, sort_keys=True) for body in server.bodies]
    results = read_results(out)
    assert len(results) == 4 and before < len(requests)
    # One call at a time is in the air (Chain-of-Agents, one item): at most that one is sent twice.
    assert len(requests) - len(set(requests)) <= 1
    calls = sum(s["calls"] for r in results for s in r["ledger"].values())
    assert calls == len(set(requests))
    code, shown = await command("report", str(tmp_path), "--no-plots")
    assert code == 0 and "ruler_qa" in (tmp_path / "report.md").read_text(), shown


async def test_evaluate_and_report_in_one_process(tmp_path: Path, capsys) -> None:
    out = tmp_path / "runs" / "chain"
    async with serve(talks(say)) as server:
        given = ["eval", *overrides(tmp_path, server.url, out=str(out))]
        assert await asyncio.to_thread(cli.main, given) == 0
        paid = len(server.bodies)
        assert await asyncio.to_thread(cli.main, given) == 0  # finished: nothing is asked again
        assert len(server.bodies) == paid
        code = await asyncio.to_thread(cli.main, [*given, "method.chunk=50"])
        assert code == 2 and "another config" in capsys.readouterr().err
    assert (out / "summary.json").is_file()
    assert cli.main(["report", str(tmp_path / "runs"), "--no-plots"]) == 0
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "chain" in page and "<svg" not in page
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| chain")]
    assert "| qa_1 300 | 4 | 25.0 |" in row  # one of the four questions has the answer "4 bells"


@pytest.mark.parametrize("worker", ["retriever", "chat", "embedding"])
async def test_disco_builds_with_every_kind_of_worker(tmp_path: Path, worker: str) -> None:
    url = "http://127.0.0.1:1/v1"
    given = [f"worker={worker}", f"models.driver.url={url}", "models.driver.model=m"]
    given += [f"worker.url={url}", "worker.model=m"] if worker == "chat" else []
    given += [f"worker.embeddings_url={url}"] if worker == "embedding" else []
    composed = compose([*given, "benchmark.source=x"], name="eval")
    config = OmegaConf.to_container(composed, resolve=True)
    async with contextlib.AsyncExitStack() as stack:
        setup = await build_setup(config, tmp_path, stack)
    assert setup.method.worker is not None


async def test_the_workers_own_prices_are_what_disco_costs(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/v1"
    given = [f"models.driver.url={url}", "models.driver.model=m", "benchmark.source=x"]
    given += ["worker=chat", f"worker.url={url}", "worker.model=w", "worker.prices.prompt=0.5"]
    for method, prompt in (("disco", 0.5), ("chain_of_agents", 0.0)):
        composed = compose([*given, f"method={method}"], name="eval")
        config = OmegaConf.to_container(composed, resolve=True)
        async with contextlib.AsyncExitStack() as stack:
            setup = await build_setup(config, tmp_path, stack)
        assert setup.prices["worker"].prompt == prompt


async def test_a_judges_verdict_is_paid_for_once_a_run(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/v1"
    async with serve(says({"verdict": "yes"})) as server:
        given = [f"models.driver.url={url}", "models.driver.model=m", "benchmark.source=x"]
        given += ["judge=llm", f"judge.url={server.url}", "judge.model=judge"]
        config = OmegaConf.to_container(compose(given, name="eval"), resolve=True)
        for _ in range(2):  # the second is the run after a kill
            async with contextlib.AsyncExitStack() as stack:
                judge = (await build_setup(config, tmp_path, stack)).judge
                assert await judge.verdict("Who?", ["Ada Vey"], "It was Ada.") is Verdict.YES
        assert len(server.bodies) == 1


def test_bad_requests_say_what_to_set(tmp_path: Path, capsys) -> None:
    source = squad(tmp_path / "squad.json")
    base = ["eval", f"benchmark.source={source}", f"out={tmp_path / 'run'}"]
    assert cli.main(base) == 2
    assert "models.driver.url" in capsys.readouterr().err
    driver = ["models.driver.url=http://127.0.0.1:1/v1", "models.driver.model=m"]
    assert cli.main([*base, "+method.limit=3", *driver]) == 2
    assert "unknown keys ['limit']" in capsys.readouterr().err
    assert cli.main([*base, "method=full_context", *driver]) == 2
    assert "set tokenizer=" in capsys.readouterr().err
    assert cli.main(["eval", "metod=rag"]) == 2
    assert not (tmp_path / "run").exists()
