"""Times our trainer's steps beside those of verl's stock single-turn loop, and says where the
difference goes.

One run makes steps of both in turn: same model, prompts, rows, sampled tokens and one optimizer
update a step, which the logs must confirm. Ours are scripted episodes of several calls, the stock
loop's a row a call. See recipes/bench_step/README.md.

    python scripts/bench_step.py
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for tests.trainer.tiny, which makes the model

from _bench_figures import (
    ARMS,
    PHASES,
    WHOLE,
    Line,
    LogError,
    Spread,
    check_same_work,
    compare,
    read_steps,
    round_ratios,
    spreads,
)
from _bench_world import Work, overrides, write_world

RESULTS = ROOT / "recipes" / "bench_step" / "results.json"
PACKAGES = ("verl", "torch", "transformers", "ray", "TransferQueue")
AIM = 1.05
PROGRAM = """
import os, sys
from disco_rl.config import compose
from disco_rl.trainer import launch
config = compose(sys.argv[1:])
os.environ.update(launch.environment(config))  # before verl is imported
import _bench_trainer
launch.train(config)
"""


def main() -> None:
    args = _arguments()
    work = Work(
        groups=args.groups,
        sessions=args.sessions,
        stages=args.stages,
        output_tokens=args.tokens,
        rounds=args.drop + args.rounds,
        layers=args.layers,
        hidden=args.hidden,
    )
    rows_at_once = args.rows_at_once or work.trajectories
    began, load = time.time(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-step-") as temporary:
        folder = args.keep or Path(temporary)
        if not (folder / "stock.parquet").exists():  # written last
            write_world(folder, work)
        try:
            arms = read_steps(_run(folder, work, rows_at_once), args.drop)
            rows, prompt_tokens, output_tokens = check_same_work(arms, work.output_tokens)
        except LogError as error:
            raise SystemExit(f"no comparison: {error}") from None
    figures = {name: spreads(steps) for name, steps in arms.items()}
    ratios = {
        f"{other} / {base}": {
            of: Spread.of(round_ratios(arms[base], arms[other], of)).to_dict() for of in WHOLE
        }
        for base, other in (("stock", "disco"), ("stock", "stock_poll"))
    }
    lines = compare(figures["stock"], figures["disco"])
    result = {
        "made_from": _made_from(load, time.time() - began),
        "settings": {**asdict(work), "dropped_rounds": args.drop, "rows_at_once": rows_at_once},
        "work_of_a_step": {
            "rows": rows,
            "prompt_tokens": prompt_tokens,
            "sampled_tokens": output_tokens,
            "updates": 1,
        },
        "aim": AIM,
        "ratios_of_a_round": ratios,
        "seconds": {
            name: {
                "label": ARMS[name].label,
                "poll_s": ARMS[name].poll_s,
                "steps": len(arms[name]),
                **{phase: spread.to_dict() for phase, spread in by_phase.items()},
            }
            for name, by_phase in figures.items()
        },
        "ours_over_stock": [
            {name: _rounded(value) for name, value in asdict(line).items()} for line in lines
        ],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _show(lines, figures, result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results.json goes")
    parser.add_argument("--rounds", type=int, default=8, help=f"of {len(ARMS)} steps, that count")
    parser.add_argument("--drop", type=int, default=2, help="rounds before them, to warm up")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=4, help="of a group")
    parser.add_argument("--stages", type=int, default=2, help="of a trajectory, 3 calls each")
    parser.add_argument("--tokens", type=int, default=32, help="sampled in a call")
    parser.add_argument("--layers", type=int, default=Work.layers)
    parser.add_argument("--hidden", type=int, default=Work.hidden)
    parser.add_argument(
        "--rows-at-once",
        type=int,
        help="sequences that the server decodes together (default: a step's trajectories)",
    )
    parser.add_argument("--keep", type=Path, help="folder for the world and the logs")
    return parser.parse_args()


def _run(folder: Path, work: Work, rows_at_once: int) -> Path:
    """The training run, in a process of its own; returns the path of its metrics."""
    log, metrics = folder / "run.log", folder / "metrics.jsonl"
    paths = [str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "RAY_worker_niceness": "0",
        "VERL_FILE_LOGGER_PATH": str(metrics),
    }
    with log.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *overrides(folder, work, rows_at_once)],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace")[-4000:]
        raise SystemExit(f"the run failed with code {done.returncode}:\n{tail}")
    return metrics


def _show(
    lines: Sequence[Line],
    figures: Mapping[str, Mapping[str, Spread]],
    result: Mapping[str, Any],
) -> None:
    from rich.console import Console
    from rich.table import Table

    work = result["work_of_a_step"]
    table = Table(
        title=f"Seconds a step (medians): {work['rows']} rows, {work['prompt_tokens']} prompt and "
        f"{work['sampled_tokens']} sampled tokens, one update"
    )
    table.add_column("phase")
    others = [name for name in figures if name not in ("stock", "disco")]
    for title in ("stock", "ours", "ratio", "difference / step"):
        table.add_column(title, justify="right")
    for name in others:
        table.add_column(ARMS[name].label, justify="right")
    table.add_column("what it is")
    for line in lines:
        if line.phase == next(iter(WHOLE)):
            table.add_section()
        table.add_row(
            line.phase,
            f"{line.base:.3f}",
            f"{line.other:.3f}",
            "" if line.ratio is None else f"{line.ratio:.3f}",
            f"{line.share:+.1%}",
            *(f"{figures[name][line.phase].median:.3f}" for name in others),
            {**PHASES, **WHOLE}[line.phase],
        )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for pair, by_whole in result["ratios_of_a_round"].items():
        for of, ratio in by_whole.items():
            console.print(
                f"{pair}, {of}: {ratio['median']:.3f}, the median of the rounds' ratios "
                f"(quartiles {ratio['low']:.3f} to {ratio['high']:.3f})"
            )
    console.print(f"aim: disco / stock, step: at most {AIM}")


def _made_from(load: float, seconds: float) -> dict[str, Any]:
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return {
        "commit": run.stdout.strip() or None,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "threads": os.environ.get("OMP_NUM_THREADS", "1"),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "seconds": round(seconds),
    }


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
