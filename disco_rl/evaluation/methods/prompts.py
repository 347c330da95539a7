"""The methods' prompts, one text file each, read through the strict renderer."""

from functools import cache
from pathlib import Path

from disco_rl.prompts import PromptSet

_FOLDER = Path(__file__).parent / "texts"


@cache
def _all() -> PromptSet:
    texts = {path.stem: path.read_text(encoding="utf-8").strip() for path in _FOLDER.glob("*.md")}
    return PromptSet("methods", texts)


def render(prompt: str, **fields: object) -> str:
    """Fills a prompt. Raises `PromptError` where a field is missing or unknown."""
    return _all().render(prompt, **fields)
