"""A checkpoint as verl's FSDP engine writes it, made without training."""

import json
from pathlib import Path

import torch
from transformers import PreTrainedModel

from tests.trainer.tiny import make_model, make_tokenizer


def write_checkpoint(run: Path, *, step: int = 3, own_weights: bool = True) -> PreTrainedModel:
    """RUN/global_step_N of one rank; returns the model whose weights it holds."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed=step)
    actor = run / f"global_step_{step}" / "actor"
    huggingface = actor / "huggingface"
    huggingface.mkdir(parents=True)
    if own_weights:
        model.save_pretrained(huggingface)
    else:
        model.config.save_pretrained(huggingface)
    tokenizer.save_pretrained(huggingface)
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    (run / "latest_checkpointed_iteration.txt").write_text(str(step))
    return model
