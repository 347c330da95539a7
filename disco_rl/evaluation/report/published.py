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
    Published("longbench_v2", "", "DISCO, Qwen3-14B, Qwen3-4B Worker (Figure 4)", 50.9, _DISCO),
    Published("longbench_v2", "", "DISCO, Qwen3-14B, Qwen3-14B Worker (Figure 4)", 53.8, _DISCO),
    Published("longbench_v2", "", "DISCO, Qwen3-8B, Qwen3-4B Worker (Figure 4)", 39.8, _DISCO),
    Published("longbench_v2", "long", "DISCO, Gemini-3-Pro, 20.4 dollars", 71.3, _DISCO),
    Published("longbench_v2", "long", "full context, Gemini-3-Pro, 126.7 dollars", 72.2, _DISCO),
    Published("longbench_v2", "long", "DISCO, Gemini-3-Pro, Ministral-3-8B Worker", 70.37, _DISCO),
    Published("longbench_v2", "long", "full context, LLaMA-3.1-70B", 25.9, _DISCO),
    Published("longbench_v2", "long", "DISCO, LLaMA-3.1-70B, Ministral-3-8B Worker", 28.7, _DISCO),
    Published("longbench_v2", "long", "DISCO, LLaMA-3.1-70B, Qwen3-4B Worker", 27.8, _DISCO),
    Published("longbench_v2", "long", "full context, Ministral-8B-Reasoning", 32.41, _DISCO),
    Published("longbench_v2", "long", "DISCO, Ministral-8B-Reasoning", 37.96, _DISCO),
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
"""Of the DISCO paper the scores that its text gives to a decimal; where it names no length or
split, `group` is empty. The RULER figures at 1,000,000 are placed there by its text ("up to the 1M
token scale"), Gemini's of Figure 3 at `long` by its comparing one of them with Table 4, which is of
that subset."""


def published(scorer: str) -> list[Published]:
    return [figure for figure in PUBLISHED if figure.scorer == scorer]
