"""Prompts as text files, one a prompt, and a strict loader.

A field stands as `{{name}}` and is filled in one pass, so braces in a question can't corrupt it.
`full` is written for instruction-tuned models, `brief` for the small embedded Driver.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FIELD = re.compile(r"\{\{(\w+)\}\}")
_FOLDER = Path(__file__).parent
NAMES = ("system", "plan", "synthesize", "review", "repair", "worker")


class PromptError(ValueError):
    """A prompt file or a field is missing, or a field is unknown; the message names it."""


@dataclass(frozen=True)
class PromptSet:
    """The texts of one set by name. `system` may be empty: then there is no system message."""

    name: str
    texts: Mapping[str, str]

    def render(self, prompt: str, **fields: object) -> str:
        """Fills `prompt`. Raises `PromptError` where a field is missing or unknown."""
        if prompt not in self.texts:
            raise PromptError(f"prompt {prompt!r} is not in set {self.name!r}; known: {NAMES}")
        text = self.texts[prompt]
        wanted = set(_FIELD.findall(text))
        if wanted != set(fields):
            raise PromptError(
                f"prompt {self.name}/{prompt}.md: missing fields {sorted(wanted - set(fields))}, "
                f"unknown fields {sorted(set(fields) - wanted)}"
            )
        return _FIELD.sub(lambda match: str(fields[match[1]]), text)


def load_prompts(name: str, folder: Path = _FOLDER) -> PromptSet:
    """Reads the set `name`. Raises `PromptError` naming the file that is missing."""
    texts = {}
    for prompt in NAMES:
        path = folder / name / f"{prompt}.md"
        if not path.is_file():
            sets = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != "_")
            raise PromptError(f"no prompt file {name}/{prompt}.md; sets: {sets}")
        texts[prompt] = path.read_text(encoding="utf-8").strip()
    return PromptSet(name, texts)
