"""How the Driver asks as training goes on, from the records that training writes.

    python recipes/evaluation/behaviour.py runs/embedded [OUT.json]

Of each step's sampled trajectories: narrow actions, the share of them that forward the question,
names in each, shards asked again within a stage, plans refused, stages, and the share that was
right. Step 1 is sampled before the first update, so it is the Driver before RL.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from disco_rl.evaluation.habits import narrow_habits, pooled


def row(step: int, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    plans = [call for r in records for call in r["calls"] if call["kind"] == "plan"]
    right = [
        part["value"]
        for r in records
        if (part := (r["reward"] or {}).get("accuracy")) and part.get("value") is not None
    ]
    habits = pooled(map(narrow_habits, records)) or {}
    return {
        "step": step,
        "trajectories": len(records),
        **{name: round(value, 4) for name, value in habits.items()},
        "plans_refused": round(mean(call["error"] is not None for call in plans), 4),
        "stages": round(mean(len(r["stages"]) for r in records), 3),
        "accuracy": round(mean(right), 4) if right else None,
    }


def rows(run: Path) -> list[dict[str, Any]]:
    """Raises `ValueError` where the run wrote no records."""
    found = []
    for path in sorted((run / "records" / "train").glob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found.append(row(int(path.stem), records))
    if not found:
        raise ValueError(f"{run}: no records/train/*.jsonl; give the folder of a training run")
    return found


def main(argv: Sequence[str]) -> None:
    if not argv:
        raise SystemExit(__doc__)
    found = rows(Path(argv[0]))
    print("| " + " | ".join(found[0]) + " |\n|" + "---|" * len(found[0]))
    for one in found:
        print("| " + " | ".join(str(value) for value in one.values()) + " |")
    if len(argv) > 1:
        Path(argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
