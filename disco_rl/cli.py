"""The command line, `disco-rl`. Each subcommand is a module of `disco_rl.commands`.

Nothing heavy is imported before a subcommand runs, so `--help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from disco_rl.commands import (
    ask,
    doctor,
    evaluate,
    export,
    plan,
    report,
    reward_check,
    serve,
    train,
)

COMMANDS: dict[str, Any] = {
    "train": train,
    "plan": plan,
    "reward-check": reward_check,
    "ask": ask,
    "eval": evaluate,
    "report": report,
    "serve": serve,
    "export": export,
    "doctor": doctor,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code: 0 done, 1 failed, 2 can't be done as asked."""
    args = parse(argv)
    try:
        return int(COMMANDS[args.command].run(args))
    except KeyboardInterrupt:
        print("disco-rl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141  # the reader, such as `head`, has gone
    except (ValueError, OSError, ModuleNotFoundError) as error:
        # What our own modules raise for a bad request; a bug still shows its traceback.
        if not _is_ours(error, args.command):
            raise
        print(f"disco-rl {args.command}: {error}", file=sys.stderr)
        return 2


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments; overrides may stand before and after flags, which argparse alone can't."""
    top = parser()
    args, rest = top.parse_known_args(argv)
    unknown = [word for word in rest if word.startswith("-")]
    if unknown or (rest and not hasattr(args, "overrides")):
        top.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        args.overrides = [*args.overrides, *rest]
    return args


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="disco-rl",
        description="Train a Driver that plans over contexts it never reads, and use it.",
    )
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = subparsers.add_parser(
            name,
            help=command.HELP,
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
    return top


def _is_ours(error: BaseException, command: str) -> bool:
    """Whether our code raised it to tell the user something; a run that broke isn't that."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    if command == "train" and module.startswith("disco_rl.trainer."):
        return False
    return module.startswith("disco_rl.") and module != "disco_rl.cli"


if __name__ == "__main__":
    sys.exit(main())
