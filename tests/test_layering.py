"""Who may import whom (design.md, Layout), read from the source and proved in a fresh process."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "verl", "ray", "transformers", "datasets", "tensordict", "wandb"}

# Package of disco_rl -> the ones it may import when it is imported.
MAY_IMPORT = {
    "core": set(),
    "prompts": set(),
    "config": set(),
    "data": {"core"},
    "engine": {"core", "prompts"},
    "rewards": {"core", "engine"},
    "clients": {"core", "engine"},
    "evaluation": {"core", "engine", "rewards", "prompts", "data", "clients", "config"},
    "trainer": {"core", "engine", "rewards", "prompts", "data", "config", "run_folder"},
    "run_folder": {"config"},
    "export": {"config", "run_folder"},
    "serve": set(),
    "planning": set(),
    "commands": {"core", "engine", "rewards", "export", "config", "run_folder", "planning"},
    "cli": {"commands"},
}
# Imports that go up, inside a function: chat Workers and model judges talk through a client.
UPWARD = {("engine", "clients"), ("rewards", "clients")}
# The only homes of heavy packages, and of those that import them inside functions only.
HEAVY_HOME = "trainer"
HEAVY_LAZY = {
    "commands/cluster_checks.py",  # doctor asks the installed torch about its GPUs
    "export",
    "evaluation",
    "engine/workers/dense.py",
}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Imported modules, and whether at import time (not in a function, nor for types only)."""

    def walk(node: ast.AST, now: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, now) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{path}: relative import; the project spells them out"
                yield child.module or "", now
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from walk(child, False)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            else:
                yield from walk(child, now)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), True)


def part(module: str) -> str | None:
    """`disco_rl.core.plan` -> `core`; None for another project's module or the bare package."""
    names = module.split(".")
    return names[1] if names[0] == "disco_rl" and len(names) > 1 else None


def home(path: Path) -> str:
    inside = path.relative_to(ROOT / "disco_rl")
    return inside.parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", sources("disco_rl"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_imports_go_down_only(path: Path) -> None:
    me = home(path)
    if me == "__init__":
        assert not list(imports(path))
        return
    assert me in MAY_IMPORT, f"disco_rl/{me} is new: say in MAY_IMPORT what it may import"
    for module, now in imports(path):
        assert module.split(".")[0] != "data_pipeline", f"{path} imports {module}"
        other = part(module)
        if other in (None, me):
            continue
        if now:
            assert other in MAY_IMPORT[me], f"{path}: {me} imports {module}"
        elif me in ("core", "engine", "rewards", "clients", "data", "prompts"):
            assert other in MAY_IMPORT[me] or (me, other) in UPWARD, (
                f"{path}: {me} imports {module}"
            )
        else:
            assert other in MAY_IMPORT, f"{path} imports {module}, which isn't a package"


@pytest.mark.parametrize(
    "path", sources("disco_rl"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_heavy_packages_stay_at_home(path: Path) -> None:
    me, inside = home(path), path.relative_to(ROOT / "disco_rl").as_posix()
    if me == HEAVY_HOME:
        return
    for module, now in imports(path):
        if module.split(".")[0] in HEAVY:
            assert not now, f"{path} imports {module} as soon as it is imported"
            assert me in HEAVY_LAZY or inside in HEAVY_LAZY, f"{path} imports {module}"


@pytest.mark.parametrize("path", sources("data_pipeline"), ids=lambda path: path.name)
def test_the_data_pipeline_stays_below_training(path: Path) -> None:
    for module, _ in imports(path):
        assert part(module) not in ("trainer", "evaluation", "rewards", "export", "commands", "cli")


@pytest.mark.parametrize(
    "modules",
    [
        "disco_rl.core, disco_rl.core.plan_parser, disco_rl.core.history, disco_rl.core.records",
        "disco_rl.engine.episode, disco_rl.engine.pool, disco_rl.engine.workers",
        "disco_rl.rewards",
        "disco_rl.prompts, disco_rl.clients, disco_rl.data, disco_rl.config, disco_rl.cli",
    ],
)
def test_importing_them_brings_nothing_heavy(modules: str) -> None:
    code = f"import sys, {modules}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
