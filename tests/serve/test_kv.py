"""What caches hold, from a model's config and the servers' reports."""

import json
from pathlib import Path

import pytest

from disco_rl.serve.kv import bytes_per_token, pool_tokens

QWEN3_4B = {
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 2560,
    "torch_dtype": "bfloat16",
}


def test_the_papers_worker_takes_147_kb_a_token() -> None:
    assert bytes_per_token(QWEN3_4B) == 147_456


def test_older_configs_leave_the_head_out() -> None:
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "dtype": "float32",
    }
    assert bytes_per_token(config) == 2 * 2 * 4 * 16 * 4


def test_a_config_without_layers_is_named() -> None:
    with pytest.raises(ValueError, match=r"num_hidden_layers.*set worker\.kv_tokens"):
        bytes_per_token({"num_attention_heads": 4, "hidden_size": 64})


def test_reports_and_host_caches_add_up(tmp_path: Path) -> None:
    assert pool_tokens([100, 200], "org/model", 0) == 300
    assert pool_tokens([100, None], "org/model", 0) is None
    assert pool_tokens([100, 200], "org/model", 8) is None  # nothing known of its size
    (tmp_path / "config.json").write_text(json.dumps({"text_config": QWEN3_4B}))
    assert pool_tokens([100, 200], str(tmp_path), 8) is None
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_4B))
    assert pool_tokens([100, 200], str(tmp_path), 8) == 300 + 2 * (8 * 10**9 // 147_456)
    # SGLang's size is each rank's, which holds its share of the heads.
    assert pool_tokens([100, 200], str(tmp_path), 8, 4) == 300 + 2 * (8 * 10**9 // 36_864)


def test_ranks_beyond_the_heads_hold_copies() -> None:
    assert bytes_per_token(QWEN3_4B, 16) == bytes_per_token(QWEN3_4B, 8) == 147_456 // 8
