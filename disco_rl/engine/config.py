"""The limits of an episode, each under its own name (design.md, Limits)."""

from dataclasses import dataclass, fields

from disco_rl.prompts import PromptSet


@dataclass(frozen=True)
class EpisodeConfig:
    """Limits in tokens unless named otherwise. Raises `ValueError` where they contradict.

    window: most tokens of one Driver call, prompt and reply together (paper: 24,576)
    max_call_tokens: most generated tokens of one Driver call (paper: 16,384)
    max_stages: plans before the episode ends (paper: 10)
    max_plan_nodes, max_instruction_words: bounds of one plan (ours)
    repairs: extra turns after an unusable reply, the error shown (ours)
    deadline_s: seconds for the whole trajectory, all phases together
    """

    prompts: PromptSet
    window: int = 24_576
    max_call_tokens: int = 16_384
    max_stages: int = 10
    max_plan_nodes: int = 16
    max_instruction_words: int = 64
    repairs: int = 1
    deadline_s: float = 1800.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in ("prompts", "repairs") and value <= 0:
                raise ValueError(f"{field.name} must be positive, not {value}")
        if self.repairs < 0:
            raise ValueError(f"repairs must be 0 or more, not {self.repairs}")
        if self.prompt_budget < 1:
            raise ValueError(
                f"max_call_tokens {self.max_call_tokens} leaves no room for a prompt in "
                f"window {self.window}; lower it"
            )

    @property
    def prompt_budget(self) -> int:
        """Prompt tokens that leave `max_call_tokens` for the reply, one token spare."""
        return self.window - self.max_call_tokens - 1
