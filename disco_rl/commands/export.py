"""Write a training checkpoint as a Hugging Face folder, with a logit check against the actor.

disco-rl export runs/embedded exports/driver                    the newest checkpoint
disco-rl export runs/embedded/global_step_100 exports/driver    a given one
"""

import argparse

HELP = "write a checkpoint as a Hugging Face folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="run, global_step_N or actor folder"
    )
    parser.add_argument("out", metavar="OUT", help="folder to write")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of the weights")
    parser.add_argument(
        "--tolerance", type=float, help="largest logit difference, as a share of the largest logit"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT where it isn't empty")


def run(args: argparse.Namespace) -> int:
    from disco_rl.export.export import export

    done = export(
        args.checkpoint, args.out, dtype=args.dtype, tolerance=args.tolerance, force=args.force
    )
    step = "" if done.step is None else f" of step {done.step}"
    print(f"{done.folder}: {done.parameters:,} parameters{step}, {args.dtype}")
    print(
        f"logit check: largest difference {done.difference:.3g} "
        f"(largest logit {done.largest_logit:.3g}, {done.n_tokens} tokens)"
    )
    return 0
