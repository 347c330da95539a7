"""The command line itself: help, errors, overrides around flags."""

import subprocess
import sys
from pathlib import Path

import pytest

from disco_rl import cli
from disco_rl.commands import doctor

ROOT = Path(__file__).resolve().parents[1]
# All that `--help` may load beside Python's own modules.
LIGHT = {"disco_rl"}


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)])
def test_help_loads_nothing_but_argparse(command: list[str]) -> None:
    code = (
        "import sys\n"
        "before = {m.partition('.')[0] for m in sys.modules}\n"  # site's own
        "from disco_rl.cli import main\n"
        "try:\n"
        f"    main({[*command, '--help']!r})\n"
        "except SystemExit as stop:\n"
        "    assert stop.code == 0\n"
        "loaded = {m.partition('.')[0] for m in sys.modules} - before\n"
        "print('LOADED', *sorted(loaded - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.rpartition("LOADED")[2].split()) <= LIGHT
    assert "usage: disco-rl" in done.stdout


def test_every_command_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    for name, module in cli.COMMANDS.items():
        assert name in shown and module.HELP in shown and module.__doc__


def test_overrides_may_stand_before_and_after_flags() -> None:
    args = cli.parse(
        [
            "ask",
            "a.txt",
            "Who?",
            "driver.window=99",
            "--model",
            "m",
            "worker.max_findings=1",
            "--json",
        ]
    )
    assert args.overrides == ["driver.window=99", "worker.max_findings=1"]
    assert (args.document, args.question, args.model, args.json) == ("a.txt", "Who?", "m", True)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nope"],
        ["train", "--no-such-flag"],
        ["export", "a", "b", "c"],
        ["ask", "a.txt", "Who?"],  # neither --model nor --endpoint
        ["ask", "a.txt", "Who?", "--model", "m", "--endpoint", "e"],
    ],
)
def test_bad_usage_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_mistyped_override_is_refused_with_the_nearest_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["train", "trainer.total_epoch=3"]) == 2
    said = capsys.readouterr().err
    assert "'trainer.total_epoch'" in said and "'trainer.total_epochs'" in said
    assert "Traceback" not in said


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: object) -> int:
        raise ValueError("a bug of someone else's")

    monkeypatch.setattr(doctor, "run", broken)
    with pytest.raises(ValueError, match="someone else"):
        cli.main(["doctor"])


def test_interruption_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", interrupted)
    assert cli.main(["doctor"]) == 130
