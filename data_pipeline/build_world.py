"""Step `world`: the embedded world's rows and context store."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from data_pipeline.output import DataFolder, complete
from data_pipeline.tokens import counter
from data_pipeline.world import WorldConfig, make_world
from data_pipeline.world.check import check_world
from data_pipeline.world.generate import VERSION
from data_pipeline.world.names import SPLITS
from data_pipeline.writer import new_folder
from disco_rl.data.store import StoreInfo


def build_world(
    out: Path,
    *,
    seed: int,
    n_questions: dict[str, int],
    config: WorldConfig,
    tokenizer: str,
    progress: Callable[[str, int], object] = lambda split, n_done: None,
) -> tuple[dict[str, Any], bool]:
    """Writes `SPLIT.parquet` for each split with questions, `contexts/` and the manifest to `out`.

    Returns the manifest, and whether it was built now (False: it stood there, complete). The
    bytes depend on the arguments only. Every fact is checked in the text before anything is
    written. Raises `ValueError` for bad settings or an `out` that holds something else.
    """
    settings: dict[str, Any] = {
        "step": "world",
        "version": VERSION,
        "seed": seed,
        "n_questions": {split: n_questions[split] for split in SPLITS},
        "tokenizer": tokenizer,
        "shard_size": config.shard_size,
        "questions_per_context": config.questions_per_context,
        "lengths": {str(k): v for k, v in sorted(config.lengths.items())},
        "hops": {str(k): v for k, v in sorted(config.hops.items())},
    }
    manifest = complete(out, settings)
    if manifest is not None:
        return manifest, False
    count = counter(tokenizer)
    with new_folder(out) as folder:
        worlds = []
        for split in SPLITS:
            if not n_questions[split]:
                continue
            world = make_world(
                seed,
                split,
                n_questions[split],
                config,
                count=count,
                progress=partial(progress, split),
            )
            check_world(world)
            worlds.append(world)
        contexts = (
            (region.context.id, region.context.text, region.context.shards)
            for world in worlds
            for region in world.regions
        )
        data = DataFolder(folder)
        data.write_contexts(contexts, StoreInfo(tokenizer, config.shard_size))
        data.write_splits({world.split: world.samples for world in worlds})
        counts = {
            world.split: {
                "questions": len(world.questions),
                "contexts": len(world.regions),
                "tokens": sum(region.n_tokens for region in world.regions),
                "entities": sum(len(region.kinds) for region in world.regions),
            }
            for world in worlds
        }
        return data.finish(settings, counts), True
