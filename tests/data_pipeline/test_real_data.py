"""The real samples end to end: 100 MuSiQue questions, real pages, contexts of 16K to 128K."""

import json
from pathlib import Path

import pytest

from data_pipeline.steps.run import run
from data_pipeline.tokens import count_words
from disco_rl.data import ContextStore, load_rows
from tests.data_pipeline.pipeline import quiet, typed

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
RECORDS = SHARED / "musique" / "hipporag_musique_train.json"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RECORDS.is_file(), reason="shared/data isn't beside this checkout"),
]
LENGTHS = (16384, 32768, 65536, 131072)


@pytest.mark.parametrize("mode", ["replace", "keep_anchor"])
def test_the_real_samples(mode: str, tmp_path: Path) -> None:
    sources = [
        ("pages", SHARED / "wiki" / "pages.jsonl.gz"),
        ("redirects", SHARED / "wiki" / "redirects.json"),
        ("excerpts", RECORDS),
    ]
    words = [
        f"questions.in={RECORDS}",
        f"pages.sources=[{','.join(f'{{kind: {kind}, path: {path}}}' for kind, path in sources)}]",
        f"out={tmp_path / 'out'}",
        f"expansion.mode={mode}",
        f"expansion.lengths=[{','.join(f'[{n}, 1]' for n in LENGTHS)}]",
    ]
    manifests = run(typed(words), "dataset", quiet)
    counts = manifests["questions"]["counts"]
    assert counts["questions"] == counts["every answer stands in its own paragraph"] == 100
    assert manifests["pages"]["counts"]["pages"] > 2000
    data = tmp_path / "out" / "dataset"
    samples, store = load_rows(data / "train.parquet"), ContextStore(data / "contexts")
    records = {f"wiki-{r['id']}": r for r in json.loads(RECORDS.read_text(encoding="utf-8"))}
    assert len(samples) >= 50
    met = set()
    for sample in samples:
        record, text = records[sample.context_id], store.get(sample.context_id).text()
        assert sample.n_tokens == count_words([text])[0]
        target = min(LENGTHS, key=lambda n: abs(n - sample.n_tokens))
        assert abs(sample.n_tokens - target) <= 0.01 * target
        met.add(target)
        for hop, step in zip(sample.hops, record["question_decomposition"], strict=True):
            gold = record["paragraphs"][step["paragraph_support_idx"]]["paragraph_text"]
            evidence = text[slice(*hop.span)]
            assert evidence in gold and step["answer"].casefold() in evidence.casefold()
    assert met == set(LENGTHS)
