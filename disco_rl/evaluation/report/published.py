"""Published figures for the side-by-side tables. Not ours: other models, hardware and samples."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """A score in percent; `group` empty: the source gives one figure over all."""

    scorer: str
    group: str
    system: str
    score: float
    source: str


_DISCO, _MEMAGENT, _CEPO = "DISCO paper", "MemAgent (n=128, lenient scorer)", "LongCePO"
PUBLISHED = (
    Published("longbench_v2", "", "DISCO, Qwen3-14B", 48.7, _DISCO),
    Published("longbench_v2", "", "full context, Qwen3-14B", 38.9, _DISCO),
    Published("longbench_v2", "", "LLM x MapReduce, Qwen3-14B", 33.7, _DISCO),
    Published("longbench_v2", "", "DISCO, Qwen3-14B, generative Worker (Table 3)", 47.3, _DISCO),
    Published("longbench_v2", "", "DISCO, Qwen3-14B, dense Worker (Table 3)", 39.6, _DISCO),
    Published("longbench_v2", "", "DISCO, Gemini-3-Pro, 20.4 dollars", 71.3, _DISCO),
    Published("longbench_v2", "", "full context, Gemini-3-Pro, 126.7 dollars", 72.2, _DISCO),
    Published("ruler_qa", "1000000", "DISCO, Qwen3-8B", 78.4, _DISCO),
    Published("ruler_qa", "1000000", "RAG, Qwen3-8B", 10.9, _DISCO),
    Published("ruler_qa", "7000", "RL-MemAgent-14B, HotpotQA", 83.6, _MEMAGENT),
    Published("ruler_qa", "112000", "RL-MemAgent-14B, HotpotQA", 76.6, _MEMAGENT),
    Published("ruler_qa", "896000", "RL-MemAgent-14B, HotpotQA", 77.3, _MEMAGENT),
    Published("ruler_qa", "3500000", "RL-MemAgent-14B, HotpotQA", 78.1, _MEMAGENT),
    Published("ruler_qa", "7000", "Qwen2.5-14B-1M, HotpotQA", 60.2, _MEMAGENT),
    Published("ruler_qa", "112000", "Qwen2.5-14B-1M, HotpotQA", 50.0, _MEMAGENT),
    Published("ruler_qa", "896000", "Qwen2.5-14B-1M, HotpotQA", 0.0, _MEMAGENT),
    Published("longbench_v2", "medium", "LongCePO, Llama-3.3-70B, 8K window", 38.7, _CEPO),
    Published("longbench_v2", "medium", "full context, Llama-3.3-70B", 27.0, _CEPO),
    Published("infinitebench_mc", "", "LongCePO, Llama-3.3-70B, 8K window", 71.6, _CEPO),
    Published("infinitebench_mc", "", "full context, Llama-3.3-70B", 58.0, _CEPO),
    Published("infinitebench_mc", "", "LLM x MapReduce, Llama3-70B", 82.1, "LLM x MapReduce"),
    Published("infinitebench_qa", "", "LLM x MapReduce, Llama3-70B (F1)", 34.7, "LLM x MapReduce"),
)
"""Of the DISCO paper those that its text gives; where it names no length or split, `group` is
empty. The RULER figures at 1,000,000 are placed there by its text ("up to the 1M token scale")."""


def published(scorer: str) -> list[Published]:
    return [figure for figure in PUBLISHED if figure.scorer == scorer]
