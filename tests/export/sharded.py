"""Run by torchrun-like ranks: saves a model's FSDP2 shards as verl does."""

import sys
from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.trainer.tiny import make_model, make_tokenizer


def main(folder: str, rank: int, world_size: int) -> None:
    # They meet at a file: a port, free when it was looked for, may be taken by now.
    meet = f"file://{folder}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("fsdp",))
    model = make_model(make_tokenizer(), seed=3)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    name = f"model_world_size_{world_size}_rank_{rank}.pt"
    torch.save(model.state_dict(), Path(folder) / name)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
