"""A training run whose judge is down for its middle third: masked, never zero, and it finishes.

Beside it what watches a judge in a run: canaries every so many steps, a second judge that is
compared, and the verdicts that are kept for the next start.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from disco_rl.core.text import normalise_answer

ROOT = Path(__file__).resolve().parents[2]
STEPS, DOWN = 6, (3, 4)
CANARIES = 2  # steps between them: one of the three falls into the outage
TRAJECTORIES = 4 * 4
LOOP = "- name: disco\n  _target_: tests.trainer.judged_loop.JudgedLoop\n"


@contextmanager
def judge() -> Iterator[tuple[str, Counter]]:
    """An endpoint that likes even sums, and gold answers to other questions (canaries), which it
    counts as step 0. It answers 503 in steps `DOWN`. Its url, and its requests by step."""
    asked: Counter = Counter()
    now = 0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal now
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            reply = re.search(r"(even|odd) \d+ at step (\d+)", body)
            step = int(reply[2]) if reply else 0
            now = step or now  # canaries come after their step's trajectories
            asked[step] += 1
            verdict = "yes" if (reply[1] == "even" if reply else is_gold(body)) else "no"
            message = {"role": "assistant", "content": json.dumps({"verdict": verdict})}
            made = {"choices": [{"message": message, "finish_reason": "stop"}]}
            data = json.dumps(made).encode()
            self.send_response(503 if now in DOWN else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()


def is_gold(body: str) -> bool:
    content = json.loads(body)["messages"][-1]["content"]
    record = json.loads(content.splitlines()[0])
    answers = {normalise_answer(answer) for answer in record["gold_answers"]}
    return normalise_answer(record["reply"]) in answers


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_judge_is_down_for_the_middle_third(tmp_path: Path) -> None:
    folder, loop, log = tmp_path / "run", tmp_path / "loop.yaml", tmp_path / "metrics.jsonl"
    loop.write_text(LOOP)
    with judge() as (url, asked):
        overrides = [
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loop}",
            *("judge=llm", "judge.name=llm", f"judge.url={url}", "judge.model=judge"),
            *("judge.max_attempts=2", "judge.deadline_s=10"),
            *(f"trainer.total_training_steps={STEPS}", "trainer.total_epochs=2"),
            *("trainer.save_freq=-1", "trainer.test_freq=-1"),
            f"disco.watch.canaries_every={CANARIES}",
            *("disco.watch.second_judge={name:match}", "disco.watch.second_share=1.0"),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "tests.trainer.e2e_world", str(folder), *overrides],
            cwd=ROOT,
            env={**os.environ, "VERL_FILE_LOGGER_PATH": str(log), "RAY_worker_niceness": "0"},
            capture_output=True,
            text=True,
            timeout=1700,
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    metrics = {row["step"]: row["data"] for row in map(json.loads, log.read_text().splitlines())}
    assert sorted(metrics) == list(range(1, STEPS + 1))  # the run finished
    agreed: list[float] = []
    for step, seen in metrics.items():
        down = step in DOWN
        assert seen["disco/train/masked_count"] == (TRAJECTORIES if down else 0)
        assert seen["disco/train/drop_rate"] == seen["disco/alert/masked"] == float(down)
        assert seen["disco/train/judge_errors"] == float(down)
        assert seen["disco/train/failed/accuracy"] == float(down)
        canaries = step % CANARIES == 0
        assert ("disco/alert/canary" in seen) is canaries
        if canaries:
            assert seen["disco/alert/canary"] == float(down)
            assert seen["disco/canary/errors"] == (8.0 if down else 0.0)
            assert seen.get("disco/canary/right") == (None if down else 1.0)
        assert seen["disco/update_skipped"] == float(down)
        assert ("disco/train/accuracy" in seen) is not down  # nothing to average, not a zero
        if not down:  # the match judge calls every such answer wrong
            agreed.append(seen["disco/train/judge_agreement"])
            assert agreed[-1] == pytest.approx(1.0 - seen["disco/train/accuracy"])
        assert seen["disco/alert/agreement"] == float(sum(agreed) / len(agreed) < 0.8)
        records = (folder / "records" / "train" / f"{step:06d}.jsonl").read_text().splitlines()
        assert len(records) == TRAJECTORIES
        for record in map(json.loads, records):
            accuracy = record["reward"]["accuracy"]
            if down:
                assert "status 503" in accuracy["failure"] and record["reward"]["total"] is None
                assert record["masked"].startswith("accuracy: the judge gave no verdict")
            else:
                assert accuracy["value"] == float(record["answer"].startswith("even"))
    assert asked[0] >= 3 * 8 and set(asked) == set(range(STEPS + 1))
    assert all(asked[step] > asked[1] for step in DOWN)  # it was tried again before giving up
    (kept,) = (folder / "checkpoints" / "judge").glob("*.sqlite")
    with closing(sqlite3.connect(kept)) as db:
        rows = db.execute("SELECT text FROM replies").fetchall()
    assert {text for (text,) in rows} == {"yes", "no"} and len(rows) <= asked.total() - asked[0]
