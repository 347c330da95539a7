"""What README shows can be typed: every target, script, flag and override in it exists.

`make train` and `make test` are run by CI and by hand; commands whose inputs `make train` leaves
are run here where those inputs are.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from disco_rl import cli
from disco_rl.config import compose

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.M | re.S)


def commands(*languages: str) -> list[str]:
    """Command lines of the fenced blocks, continuations joined, comments dropped."""
    lines = []
    for language, text in BLOCKS:
        if language in languages:
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    lines.append(shlex.join(words))
    return lines


SHOWN = commands("bash", "sh", "console")
TARGETS = [c for c in commands("", "bash", "sh", "console") if c.startswith("make ")]


def test_readme_shows_the_two_commands() -> None:
    assert {"make train", "make test"} <= {" ".join(c.split()[:2]) for c in TARGETS}
    assert any(c.startswith("disco-rl ask") for c in SHOWN)


@pytest.mark.parametrize("command", TARGETS)
def test_make_targets_exist(command: str) -> None:
    words = [w for w in shlex.split(command)[1:] if "=" not in w]
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in SHOWN if c.startswith("disco-rl ")])
def test_flags_and_overrides_are_known(command: str) -> None:
    args = cli.parse(shlex.split(command)[1:])
    assert args.command == shlex.split(command)[1]
    if args.command in ("train", "plan", "doctor"):
        compose(args.overrides)
    elif args.command == "eval":
        compose(args.overrides, name="eval")
    elif args.command == "ask":
        flags = [f"worker={args.worker}"] if args.worker else []
        compose([*flags, *args.overrides], name="ask")


@pytest.mark.parametrize("command", [c for c in SHOWN if not c.startswith(("disco-rl ", "make "))])
def test_other_commands_name_what_exists(command: str) -> None:
    words = shlex.split(command)
    assert words[0] in ("python", "pip", "uv", "git", "cd"), f"unknown program in {command!r}"
    if words[0] != "python":
        return
    if words[1] == "-m":
        found = ROOT / words[2].replace(".", "/")
        assert found.is_dir() or found.with_suffix(".py").is_file(), command
    else:
        assert (ROOT / words[1]).is_file(), command


@pytest.mark.parametrize("command", [c for c in SHOWN if c.startswith("disco-rl ask ")])
def test_ask_runs_where_its_inputs_are(command: str) -> None:
    args = cli.parse(shlex.split(command)[1:])
    needed = [p for p in (args.document, args.model) if p]
    missing = [p for p in needed if not (ROOT / p).exists()]
    if missing or args.endpoint:
        pytest.skip(f"{missing or args.endpoint} isn't here; `make train` leaves the model")
    words = [sys.executable, "-m", "disco_rl.cli", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr  # 1: it ran, and the Driver found no answer
    if args.json:
        assert json.loads(done.stdout)["stages"]
    else:
        assert "Answer:" in done.stdout


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http|#)([^)#]+)\)", README))
def test_links_point_at_files(path: str) -> None:
    assert (ROOT / path).exists(), f"README links to {path}"
