"""What a trajectory earns: accuracy, format and evidence, kept apart and summed once."""

from disco_rl.rewards.attribution import EvidenceReport, Fate, HopFate, evidence_report
from disco_rl.rewards.check import RewardCheck, RewardCheckError, reward_check, wilson
from disco_rl.rewards.evidence import EvidenceScore, cited_findings, evidence_score, span_score
from disco_rl.rewards.format import format_share
from disco_rl.rewards.judge import (
    Judge,
    JudgeError,
    MatchJudge,
    Verdict,
    said,
)
from disco_rl.rewards.judges import build_judge
from disco_rl.rewards.ledger import JudgeLedger, charged_to
from disco_rl.rewards.llm_judge import LLMJudge, LLMJudgeConfig
from disco_rl.rewards.parts import (
    PRESETS,
    Abstention,
    Failure,
    Part,
    RewardParts,
    RewardWeights,
    Value,
    weights_from,
)
from disco_rl.rewards.score import score

__all__ = [
    "PRESETS",
    "Abstention",
    "EvidenceReport",
    "EvidenceScore",
    "Failure",
    "Fate",
    "HopFate",
    "Judge",
    "JudgeError",
    "JudgeLedger",
    "LLMJudge",
    "LLMJudgeConfig",
    "MatchJudge",
    "Part",
    "RewardCheck",
    "RewardCheckError",
    "RewardParts",
    "RewardWeights",
    "Value",
    "Verdict",
    "build_judge",
    "charged_to",
    "cited_findings",
    "evidence_report",
    "evidence_score",
    "format_share",
    "reward_check",
    "said",
    "score",
    "span_score",
    "weights_from",
    "wilson",
]
