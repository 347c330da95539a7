"""How many tokens of shards a pool's caches hold together."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LOG = logging.getLogger(__name__)
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def bytes_per_token(config: Mapping[str, Any], ranks: int = 1) -> int:
    """Keys and values of one token in all layers, from a model's `config.json`.

    On each of `ranks` GPUs, which share its heads. Qwen3-4B: 147,456 on one. Raises `ValueError`
    naming the field that is missing.
    """
    try:
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        kv_heads = max(1, (config.get("num_key_value_heads") or heads) // ranks)
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
        return 2 * config["num_hidden_layers"] * kv_heads * size * _BYTES[dtype]
    except KeyError as error:
        raise ValueError(
            f"config.json: {error} is missing or unknown; set worker.kv_tokens"
        ) from None


def pool_tokens(
    reports: Sequence[int | None], model_path: str, host_cache_gb: int, tensor_parallel: int = 1
) -> int | None:
    """What the servers report, and what their host caches hold; None where it can't be known.

    SGLang's `hicache-size`, `host_cache_gb`, is what each rank of a server takes.
    """
    known = [tokens for tokens in reports if tokens]
    if len(known) < len(reports):
        return None
    host = 0
    if host_cache_gb:
        file = Path(model_path) / "config.json"
        if not file.is_file():  # a hub name
            return None
        try:
            each = bytes_per_token(json.loads(file.read_text(encoding="utf-8")), tensor_parallel)
        except (ValueError, TypeError) as error:  # such as a config nested in `text_config`
            _LOG.warning("what the host caches hold isn't known: %s: %s", file, error)
            return None
        host = host_cache_gb * 10**9 // each * len(known)
    return sum(known) + host
