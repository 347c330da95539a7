"""The judges by name."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from disco_rl.rewards.judge import Judge, MatchJudge
from disco_rl.rewards.llm_judge import LLMJudge, LLMJudgeConfig

JUDGES = ("match", "llm")


def build_judge(config: Mapping[str, Any], *, processes: int = 1, fresh: bool = False) -> Judge:
    """The judge of config group `judge`: its `name`, and the fields of that judge's config.

    `processes` share its endpoints, and each has its part of `max_concurrency`. `fresh`: without
    the verdicts that earlier starts and other processes left, where the judge itself is tested.

    Raises `ValueError` naming what is unknown or missing.
    """
    name = config.get("name")
    if name not in JUDGES:
        raise ValueError(f"judge.name is {name!r}; known: {sorted(JUDGES)}")
    known = {f.name: f for f in fields(LLMJudgeConfig)} if name == "llm" else {}
    given = {str(key): config[key] for key in config if key != "name"}
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"judge ({name}): unknown keys {unknown}; known: {sorted(known)}")
    needed = [
        key
        for key, f in known.items()
        if f.default is MISSING and f.default_factory is MISSING and key not in given
    ]
    if needed:
        raise ValueError(f"judge ({name}): set {', '.join('judge.' + key for key in needed)}")
    if name == "match":
        return MatchJudge()
    made = LLMJudgeConfig(**given)
    share = -(-made.max_concurrency // processes)
    return LLMJudge(
        replace(made, max_concurrency=share, cache_dir=None if fresh else made.cache_dir)
    )
