"""What verl and our launch files tell SGLang are arguments of the pinned SGLang.

Its names were read from the wheel's source by scripts/sglang_arguments.py.
"""

import ast
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from disco_rl.config import compose
from tests import scripts

ROOT = Path(__file__).resolve().parents[2]
HEADER, *NAMES = Path(__file__).with_name("sglang_arguments.txt").read_text().splitlines()


def passed_by_verl() -> set[str]:
    """Keys that verl's rollout server gives to SGLang's ServerArgs."""
    spec = find_spec("verl")
    assert spec is not None and spec.origin is not None
    server = Path(spec.origin).parent / "workers/rollout/sglang_rollout/async_sglang_server.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(server.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if (
            isinstance(target, ast.Name)
            and target.id == "args"
            and isinstance(node.value, ast.Dict)
        ):
            found |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "args":
            found |= {ast.literal_eval(target.slice)}
    return found


def test_the_list_is_of_the_pinned_version() -> None:
    lock = (ROOT / "constraints" / "gpu.txt").read_text(encoding="utf-8")
    assert HEADER.removeprefix("# ") in lock.splitlines(), "run scripts/sglang_arguments.py"
    assert len(NAMES) > 500 and sorted(set(NAMES)) == NAMES


@pytest.mark.slow
def test_the_list_is_what_the_wheels_source_says(tmp_path: Path) -> None:
    reader = scripts.load("sglang_arguments")
    try:
        text = reader.source(reader.pinned(), tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"SGLang's wheel can't be downloaded here: {error}")
    assert reader.names(text) == NAMES


def test_the_reader_finds_fields_and_flags() -> None:
    source = (
        "@dataclass\nclass ServerArgs:\n    model_path: str\n    tp_size: int = 1\n"
        "    def add(parser):\n        parser.add_argument('--model-path', '-m', type=str)\n"
        "class Other:\n    hidden: int\n"
    )
    found = scripts.load("sglang_arguments").names(source)
    assert found == ["--model-path", "model_path", "tp_size"]
    with pytest.raises(SystemExit, match="layout is a new one"):
        scripts.load("sglang_arguments").names("class ServerArgs: ...")


def test_verl_passes_arguments_that_there_are() -> None:
    passed = passed_by_verl()
    assert {"model_path", "mem_fraction_static", "tp_size"} <= passed
    # decode's parallelism is passed to disaggregated servers only, which we don't start.
    assert passed - set(NAMES) <= {"disaggregation_decode_tp"}


@pytest.mark.parametrize("name", ["qwen3_8b", "qwen3_14b"])
def test_what_an_experiment_adds_is_there(name: str) -> None:
    rollout = compose([f"experiment={name}"]).actor_rollout_ref.rollout
    assert set(rollout.engine_kwargs.sglang or {}) <= set(NAMES)


@pytest.mark.parametrize("file", ["scripts/launch/serve.sh", "scripts/launch/kuberay.yaml"])
def test_launch_files_use_flags_that_there_are(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".yaml"):
        containers = [
            container
            for document in yaml.safe_load_all(text)
            if document["kind"] in ("Deployment", "StatefulSet")
            for container in document["spec"]["template"]["spec"]["containers"]
        ]
        text = " ".join(word for container in containers for word in container["args"])
    else:
        text = text[text.index("sglang.launch_server") :]
    flags = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", text))
    assert "--model-path" in flags and flags <= set(NAMES), flags - set(NAMES)
