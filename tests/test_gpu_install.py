"""The GPU pins agree with pyproject.toml, and the Dockerfile installs by the same commands.

That the pins resolve is `make lock-check`, which asks a package index for metadata only; where uv
or the index isn't there, its test is skipped.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / "constraints" / "gpu.txt").read_text(encoding="utf-8")
TARGET = {"sys_platform": "linux", "python_version": "3.11", "platform_machine": "x86_64"}


def pins() -> dict[str, str]:
    """Version by canonical name."""
    lines = [line for line in LOCK.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (s.split("==") for s in lines)}


def project() -> dict[str, list[str]]:
    """Requirements by extra ("" for the core), and uv's overrides under "uv"."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = tables["project"]["optional-dependencies"]
    return {
        "": tables["project"]["dependencies"],
        "train": extras["train"],
        "gpu": extras["gpu"],
        "uv": tables["tool"]["uv"]["override-dependencies"],
    }


def overridden() -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in project()["uv"]}


@pytest.mark.parametrize("text", [text for part in project().values() for text in part])
def test_every_requirement_is_pinned_within_its_range(text: str) -> None:
    wanted = Requirement(text.replace("verl[sglang,cupy-cu130]", "verl"))
    if wanted.marker is not None and not wanted.marker.evaluate(TARGET):
        return
    version = pins().get(canonicalize_name(wanted.name))
    assert version is not None, f"{wanted.name} isn't pinned; run make lock"
    assert wanted.specifier.contains(version, prereleases=True), f"{wanted}: pinned at {version}"


def test_what_verl_asks_for_is_pinned() -> None:
    """verl's extras pin sglang, torch and cupy; only what uv overrides may differ."""
    from importlib.metadata import requires, version

    found = pins()
    if version("verl") != found["verl"]:
        pytest.skip(f"verl {version('verl')} is installed and {found['verl']} pinned")
    for text in requires("verl") or []:
        wanted = Requirement(text.replace("verl[verl-core]", "verl"))
        name = canonicalize_name(wanted.name)
        extras = ("sglang", "cupy-cu130")
        if not any(
            wanted.marker and wanted.marker.evaluate({**TARGET, "extra": name}) for name in extras
        ):
            continue
        assert name in found, f"{wanted.name} isn't pinned; run make lock"
        if name not in overridden():
            assert wanted.specifier.contains(found[name], prereleases=True), text


def test_pins_name_packages_only() -> None:
    """No address and no path: they are of whoever resolved."""
    for line in LOCK.splitlines():
        if not line.startswith("#"):
            assert re.fullmatch(r"[a-z0-9.-]+==[a-z0-9.+!]+", line), line
    assert len(pins()) > 200


def test_the_image_is_made_by_the_same_commands() -> None:
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "RUN make gpu" in docker
    for source in re.findall(r"^COPY (.+) \S+$", docker, re.M):
        for name in source.split():
            assert (ROOT / name).exists(), f"Dockerfile copies {name}"


def test_make_gpu_installs_the_pins() -> None:
    done = subprocess.run(
        ["make", "-n", "gpu", "lock", "lock-check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "pip sync --python .venv/bin/python constraints/gpu.txt" in done.stdout
    assert "--extra train --extra gpu" in done.stdout
    assert "UV_VENV_CLEAR=1 uv venv" in done.stdout  # uv refuses a .venv that is there


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_pins_resolve() -> None:
    beside = Path(sys.executable).with_name("uv")  # an environment's folder needn't be on PATH
    uv = str(beside) if beside.is_file() else shutil.which("uv")
    if uv is None:
        pytest.skip("uv isn't installed: pip install uv")
    done = subprocess.run(
        ["make", "lock-check", f"UV={uv}"], cwd=ROOT, capture_output=True, text=True
    )
    conflict = "No solution found" in done.stderr
    unknown = "was not found in the package registry" in done.stderr  # a mirror without it
    if done.returncode and (unknown or not conflict):
        pytest.skip(f"no package index that answers: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
