"""Fakes of what surrounds an agent loop: a tokenizer, verl's server manager, a Worker, a config."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import TextContext
from disco_rl.core.text import normalise_answer
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import Quote, Scan
from disco_rl.prompts import load_prompts
from disco_rl.rewards import Judge, MatchJudge, RewardWeights
from disco_rl.trainer import resources as resources_module
from disco_rl.trainer.agent_loop import DiscoAgentLoop
from disco_rl.trainer.records_sink import RecordsSink
from disco_rl.trainer.resources import Resources
from disco_rl.trainer.reward_bridge import Scorer
from disco_rl.trainer.server_driver import ChatEncoder

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEXT = "Varo Kelin was born in Tessa. Tessa lies on the river Oum. The river Oum is cold. "
PLAN = (
    '{"nodes": [{"id": "n1", "op": "narrow", "instruction": "birthplace of Varo Kelin",'
    ' "shards": "all"}, {"id": "w1", "op": "wide", "instruction": "Where was Varo Kelin born?",'
    ' "inputs": ["n1"]}]}'
)
ACCEPT = '{"accept": true, "gap": ""}'
REJECT = '{"accept": false, "gap": "look again"}'
GOOD = [PLAN, "Tessa", ACCEPT]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few merges, so that most texts have several spellings in ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(alphabet)}
    merges = [("s", "s"), ("T", "e"), ("Te", "ss"), ("r", "r"), ("i", "d"), ("n", "o"), ("c", "c")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|user|>", "<|assistant|>", "<|system|>", "<think>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def spelled_out(tokenizer: Any, text: str) -> list[int]:
    """`text` one byte a token and the stop token: never what the tokenizer would write."""
    ids = [tokenizer.convert_tokens_to_ids(piece) for piece in pre_bytes(text)]
    return [*ids, tokenizer.eos_token_id]


def pre_bytes(text: str) -> list[str]:
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
        text
    )
    return [char for piece, _ in pieces for char in piece]


class FakeServer:
    """verl's server manager: each request id gets the replies in turn, spelled out in ids."""

    def __init__(self, tokenizer: Any, replies: Sequence[str | Exception]):
        self.tokenizer = tokenizer
        self.replies = replies
        self.calls: list[dict[str, Any]] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._turn: dict[str, int] = defaultdict(int)

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        reply = self.replies[self._turn[request_id] % len(self.replies)]
        self._turn[request_id] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.001)
        self.in_flight -= 1
        if isinstance(reply, Exception):
            raise reply
        ids = spelled_out(self.tokenizer, reply)[: sampling_params["max_tokens"]]
        noise = random.Random(str((request_id, len(self.calls))))
        logprobs = [-noise.random() for _ in ids]
        self.calls.append(
            {
                "request_id": request_id,
                "prompt_ids": list(prompt_ids),
                "output_ids": list(ids),
                "logprobs": list(logprobs),
                "sampling_params": dict(sampling_params),
            }
        )
        steps = {"global_steps": 6, "min_global_steps": 6, "max_global_steps": 6}
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields=steps
        )


class FakeWorker:
    """Finds the sentence that holds the most words of the instruction, two at least."""

    async def scan(self, instruction: str, context: Any, shard: int) -> Scan:
        text = context.read(shard)
        words = set(normalise_answer(instruction).split())
        best = max(text.split(". "), key=lambda s: len(words & set(normalise_answer(s).split())))
        if len(words & set(normalise_answer(best).split())) < 2:
            return Scan(())
        start = text.index(best)
        return Scan((Quote(best, (start, start + len(best)), 1.0),))


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def sample(index: int = 0) -> Sample:
    return Sample(
        index=index,
        question="Where was Varo Kelin born?",
        answers=("Tessa",),
        context_id="c1",
        n_shards=3,
        n_tokens=18,
        hops=(Hop("Where was Varo Kelin born?", "Tessa", (), (0,), (0, 29)),),
        data_source="fake",
    )


class Contexts:
    """A context store with one context."""

    def __init__(self) -> None:
        self._context = TextContext.cut("c1", TEXT, count_words, 8)

    def get(self, context_id: str) -> TextContext:
        if context_id != "c1":
            raise KeyError(f"no context {context_id!r}")
        return self._context


def make_config(**disco: Any) -> Any:
    """The keys that our trainer and agent loop read."""
    return OmegaConf.create(
        {
            "disco": {"context_store": "unused", **disco},
            "driver": {"window": 2000},
            "data": {"train_batch_size": 2, "apply_chat_template_kwargs": {}},
            "algorithm": {
                "adv_estimator": "grpo",
                "use_kl_in_reward": False,
                "norm_adv_by_std_in_grpo": True,
                "gamma": 1.0,
                "lam": 1.0,
            },
            "trainer": {"v1": {"trainer_mode": "disco"}, "default_local_dir": "unused"},
            "actor_rollout_ref": {
                "rollout": {
                    "calculate_log_probs": True,
                    "prompt_length": 1000,
                    "response_length": 1000,
                    "n": 2,
                    "temperature": 1.0,
                },
                "actor": {
                    "loss_agg_mode": "token-mean",
                    "calculate_entropy": False,
                    "entropy_coeff": 0.0,
                    "ppo_epochs": 1,
                    "data_loader_seed": 1,
                    "shuffle": False,
                    "use_dynamic_bsz": True,
                },
            },
        }
    )


def make_loop(
    server: FakeServer,
    *,
    judge: Judge | None = None,
    folder: Any = None,
    window: int = 2000,
    max_call_tokens: int = 600,
    deadline_s: float = 30.0,
) -> DiscoAgentLoop:
    """An agent loop as verl makes one, over shared resources of fakes."""
    config = make_config()
    resources_module._BUILT[id(config)] = (
        config,
        Resources(
            contexts=Contexts(),
            pool=WorkerPool(FakeWorker()),
            scorer=Scorer(judge or MatchJudge(), RewardWeights()),
            encoder=ChatEncoder(server.tokenizer),
            episode=EpisodeConfig(
                load_prompts("brief"),
                window=window,
                max_call_tokens=max_call_tokens,
                max_stages=2,
                deadline_s=deadline_s,
            ),
            sink=RecordsSink(folder) if folder else None,
            filler=server.tokenizer.eos_token_id,
        ),
    )
    return DiscoAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=server.tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(config.data),
    )


def row_kwargs(session: int = 0, step: int = 7, **extra: Any) -> dict[str, Any]:
    """What verl passes to `run` beside the sampling parameters."""
    return {
        **sample().to_row(),
        "uid": "u0",
        "session_id": session,
        "global_steps": step,
        "raw_prompt": [],
        "index": 0,
        **extra,
    }
