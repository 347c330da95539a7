"""Records the argument names of the SGLang that constraints/gpu.txt pins.

  python scripts/sglang_arguments.py

Downloads its wheel without what it needs (8 MB) and reads `srt/server_args.py` with `ast`:
importing it wants CUDA libraries. tests/trainer/test_sglang_arguments.py reads the list.
"""

import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "trainer" / "sglang_arguments.txt"


def pinned() -> str:
    """SGLang's version in constraints/gpu.txt."""
    lock = (ROOT / "constraints" / "gpu.txt").read_text(encoding="utf-8")
    found = re.search(r"^sglang==(\S+)$", lock, re.M)
    if found is None:
        raise SystemExit("constraints/gpu.txt pins no sglang; run make lock")
    return found.group(1)


def source(version: str, folder: Path) -> str:
    """Text of `server_args.py` in the wheel of `version`, downloaded to `folder`."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]
    pip = [sys.executable, "-m", "pip", "download", *options, f"--dest={folder}"]
    subprocess.run([*pip, f"sglang=={version}"], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as files:
        return files.read("sglang/srt/server_args.py").decode()


def names(text: str) -> list[str]:
    """Fields of the dataclass `ServerArgs`, and the flags that its parser adds, as `--flag`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == "ServerArgs":
            fields = (f.target for f in node.body if isinstance(f, ast.AnnAssign))
            found |= {target.id for target in fields if isinstance(target, ast.Name)}
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            words = (a.value for a in node.args if isinstance(a, ast.Constant))
            found |= {word for word in words if str(word).startswith("--")}
    if "model_path" not in found:
        raise SystemExit("no class ServerArgs with model_path: SGLang's layout is a new one")
    return sorted(found)


def main() -> None:
    version = pinned()
    with tempfile.TemporaryDirectory() as folder:
        listed = names(source(version, Path(folder)))
    LIST.write_text(f"# sglang=={version}\n" + "\n".join(listed) + "\n", encoding="utf-8")
    print(f"{len(listed)} names of sglang {version} in {LIST.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
