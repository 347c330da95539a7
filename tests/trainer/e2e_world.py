"""A run small enough to train in a test: `python -m tests.trainer.e2e_world FOLDER [OVERRIDE...]`.

Two-layer Qwen3 with random weights, a real context store and rows, our trainer under verl. It
imports no verl of its own: `train` sets the environment that verl reads when it is imported.
"""

import sys
from pathlib import Path

from data_pipeline.writer import write_rows, write_store
from disco_rl.config import compose
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import TextContext
from disco_rl.data.store import StoreInfo
from disco_rl.trainer.launch import train
from tests.fakes import count_words
from tests.trainer.tiny import write_model

TEXT = "Varo Kelin was born in Tessa. Tessa lies on the river Oum. The river Oum is cold. "
AGENT_LOOP = "- name: disco\n  _target_: tests.trainer.e2e_loop.EvenLoop\n"


def write(folder: Path, n_rows: int = 16) -> list[str]:
    """Model, contexts and rows in `folder`, once; returns the overrides that train on them."""
    model = folder / "model"
    if not (folder / "loop.yaml").exists():  # written last
        _write_files(folder, n_rows)
    return [
        "reward.num_workers=0",
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={folder / 'rows.parquet'}",
        f"data.val_files={folder / 'rows.parquet'}",
        "data.val_max_samples=4",
        "data.max_prompt_length=512",
        "data.max_response_length=512",
        "data.train_batch_size=4",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "trainer.v1.trainer_mode=disco",
        "trainer.logger=[console,file]",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loop.yaml'}",
        "actor_rollout_ref.rollout.agent.default_agent_loop=disco",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"++disco.context_store={folder / 'contexts'}",
        f"++disco.records_dir={folder / 'records'}",
        "++disco.reward={preset:paper,accuracy:1.0,format:0.5,evidence:0.5,gate_floor:null}",
        "++driver={window:512,max_call_tokens:24,max_stages:2,prompts:brief}",
        "++episode={deadline_s:120.0}",
        "++judge={name:match}",
        f"++worker={{kind:retriever,ranker:bm25,cache_dir:'{folder / 'index'}'}}",
    ]


def _write_files(folder: Path, n_rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    context = TextContext.cut("c1", TEXT, count_words, 8)
    write_store(
        folder / "contexts",
        iter([(context.id, context.text, context.shards)]),
        StoreInfo("words", 8),
    )
    hop = Hop("Where was Varo Kelin born?", "Tessa", (), (0,), (0, 29))
    samples = [
        Sample(
            i, f"Where was Varo Kelin born, number {i}?", ("Tessa",), "c1", 3, 18, (hop,), "tiny"
        )
        for i in range(n_rows)
    ]
    write_rows(folder / "rows.parquet", samples)
    write_model(folder / "model")
    (folder / "loop.yaml").write_text(AGENT_LOOP)


def main() -> None:
    folder = Path(sys.argv[1])
    train(compose([*write(folder), *sys.argv[2:]]))


if __name__ == "__main__":
    main()
