"""What a GPU run will need, from its config alone; what doesn't fit is refused, with a remedy.

  disco-rl plan experiment=qwen3_8b
  disco-rl plan experiment=qwen3_14b strategy=megatron plan.worker.gpus=16

Its rates and the shape of a trajectory are assumptions, stated in configs/plan.
"""

import argparse

HELP = "GPUs, memory, time, disk and cost of a run, before it starts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="key=value on configs/train.yaml")


def run(args: argparse.Namespace) -> int:
    """0 where the run fits, 1 where it doesn't."""
    from disco_rl.config import compose
    from disco_rl.planning.inputs import inputs
    from disco_rl.planning.report import lines, refused

    given = inputs(compose(args.overrides))
    for line in lines(given):
        print(line)
    problems = refused(given)
    for problem in problems:
        print(f"refused: {problem}")
    return 1 if problems else 0
