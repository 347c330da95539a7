"""Do a Driver's tokenizer and chat template agree, before anything is trained on their tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TURNS = [
    {"role": "system", "content": "You plan lookups — “briefly”."},
    {"role": "user", "content": "Who built the bridge?\n\n{braces} <tags> 1,024\t"},
]


def template_problems(model: str, kwargs: Mapping[str, Any]) -> list[str]:
    """What is wrong with the tokenizer of `model` under `kwargs`, data.apply_chat_template_kwargs.

    Rollout and trainer take the same ids from the same folder, so they can only disagree where a
    prompt that is rendered and then encoded isn't the prompt that is encoded at once, where the
    reply's end isn't a token that stops it, or where a token has no row in the embedding.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    if not tokenizer.chat_template:
        return ["it has no chat template"]
    options = {"add_generation_prompt": True, **kwargs}
    text = tokenizer.apply_chat_template(_TURNS, tokenize=False, **options)
    encoded = tokenizer.encode(text, add_special_tokens=False)
    at_once = tokenizer.apply_chat_template(_TURNS, tokenize=True, return_dict=False, **options)
    found = []
    if list(at_once) != encoded:
        found.append("a prompt encoded by the template isn't its text encoded")
    if tokenizer.decode(encoded) != text:
        found.append("a prompt decoded from its tokens isn't its text")
    if not all(turn["content"].strip() in text for turn in _TURNS):
        found.append("the template drops a turn")
    answered = [*_TURNS, {"role": "assistant", "content": "done"}]
    closed = tokenizer.apply_chat_template(answered, tokenize=False)
    if tokenizer.eos_token is None or tokenizer.eos_token not in closed.rpartition("done")[2]:
        found.append(f"a turn doesn't end with the end token {tokenizer.eos_token!r}")
    config = Path(model).expanduser() / "config.json"
    if config.is_file():
        rows = json.loads(config.read_text(encoding="utf-8")).get("vocab_size")
        if rows is not None and len(tokenizer) > rows:
            found.append(f"{len(tokenizer)} tokens and {rows} rows of the embedding")
    return found
