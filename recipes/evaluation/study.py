"""Runs a study of studies.yaml: every choice of its axes, one after the other, then the report.

    python recipes/evaluation/study.py dense url_chat=http://127.0.0.1:8001/v1 \
        url_embedder=http://127.0.0.1:8002/v1 \
        models.driver.url=http://127.0.0.1:8000/v1 models.driver.model=Qwen/Qwen3-14B \
        tokenizer=Qwen/Qwen3-14B

Killed, the same command goes on. Further KEY=VALUE are overrides of every run.
"""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from disco_rl import cli

STUDIES = Path(__file__).with_name("studies.yaml")


def runs(study: Mapping[str, Any], given: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Name and overrides of each run. Raises `ValueError` naming what must be given."""
    values = dict(word.split("=", 1) for word in given)
    files = set(study.get("files", ()))
    missing = sorted((set(study["needs"]) | files) - set(values))
    if missing:
        raise ValueError(f"give {', '.join(f'{name}=...' for name in missing)}")
    kept = [word for word in given if word.split("=", 1)[0] not in files]
    for choice in itertools.product(*(axis.items() for axis in study["axes"].values())):
        chosen = [override for _, overrides in choice for override in overrides]
        for name in files:
            chosen = [word.replace(f"${{{name}}}", values[name]) for word in chosen]
        # Groups before keys: what is set in a group must find the group chosen.
        words = sorted([*study["common"], *chosen], key=lambda word: "." in word.split("=")[0])
        yield "-".join(name for name, _ in choice), [*words, *kept]


def main(argv: Sequence[str]) -> int:
    studies = yaml.safe_load(STUDIES.read_text(encoding="utf-8"))
    if not argv or argv[0] not in studies:
        print(__doc__)
        print("\n".join(f"  {name:12}{study['shows']}" for name, study in studies.items()))
        return 2
    name, given = argv[0], list(argv[1:])
    folder = Path("runs/eval") / name
    try:
        planned = list(runs(studies[name], given))
    except ValueError as error:
        print(f"study {name}: {error}", file=sys.stderr)
        return 2
    for run, overrides in planned:
        code = cli.main(["eval", *overrides, f"out={folder / run}"])
        if code == 2:
            return code
    baseline = studies[name].get("baseline")
    return cli.main(["report", str(folder), *(["--baseline", baseline] if baseline else [])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
