"""A tokenizer whose template and tokens disagree is found out before training."""

from pathlib import Path

import pytest

from disco_rl.trainer.parity import template_problems
from tests.trainer.tiny import make_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def edited(folder: Path, template: str) -> list[str]:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return template_problems(str(folder), {})


def test_a_sound_tokenizer_has_no_problem(folder: Path) -> None:
    assert template_problems(str(folder), {"enable_thinking": True}) == []


def test_problems_are_named(folder: Path) -> None:
    ask = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    turn = "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    only_last = f"{{% for m in messages[-1:] %}}{turn}<|im_end|>{{% endfor %}}{ask}"
    assert edited(folder, only_last) == ["the template drops a turn"]
    endless = f"{{% for m in messages %}}{turn}\n{{% endfor %}}{ask}"
    (problem,) = edited(folder, endless)
    assert "end token '<|im_end|>'" in problem


def test_tokens_without_a_row_are_found(folder: Path) -> None:
    (folder / "config.json").write_text('{"vocab_size": 100}')
    (problem,) = template_problems(str(folder), {})
    assert "100 rows of the embedding" in problem
