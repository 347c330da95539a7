"""Writes one context of the embedded test world as a text file, and prints how to ask about it.

python scripts/example_document.py data/embedded exports/driver/example.txt [ROW]
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from disco_rl.data import ContextStore, load_rows


def main(world: Path, out: Path, row: int = 0) -> str:
    """Writes `out` and returns the question of that test row, whose answer `out` holds."""
    sample = load_rows(world / "test.parquet")[row]
    text = ContextStore(world / "contexts").get(sample.context_id).text()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(f'{out}: ask "{sample.question}" (answer: {sample.answers[0]})')
    return sample.question


if __name__ == "__main__":
    if len(sys.argv) < 3 or {"-h", "--help"} & set(sys.argv):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
