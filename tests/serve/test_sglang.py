"""SGLang's commands, against the flags of 0.5.23 as read from its source.

The recorded list is what `python -m disco_rl.serve.sglang_flags SITE_PACKAGES/sglang` prints. Where
SGLang is installed, its own source is read instead.
"""

from pathlib import Path
from typing import Any

import pytest

from disco_rl.serve import commands, sglang_flags
from disco_rl.serve.commands import ServeConfig, servers

RECORDED = Path(__file__).with_name("sglang_0_5_23.txt")
PINNED = Path(__file__).parents[1] / "trainer" / "sglang_arguments.txt"  # in constraints/gpu.txt


def flags() -> dict[str, bool]:
    package = sglang_flags.installed()
    if package is not None:
        return sglang_flags.read_flags(package)
    lines = [line.split() for line in RECORDED.read_text().splitlines()]
    return {line[0]: len(line) > 1 for line in lines}


def built(**config: Any) -> list[commands.Server]:
    return servers(ServeConfig(model_path="org/model", **config), "small")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"replicas": 2, "tensor_parallel": 4},
        {"host_cache_gb": 64},
        {"flags": {"mem_fraction_static": 0.85, "disable-overlap-schedule": True}},
    ],
)
def test_every_flag_is_one_of_sglangs(config: dict[str, Any]) -> None:
    for server in built(**config):
        sglang_flags.check(server.command[3:], flags())
        given = {word for word in server.command[3:] if word.startswith("--")}
        assert given <= set(PINNED.read_text().splitlines())


def test_replicas_have_their_own_gpus_and_ports() -> None:
    one, two = built(replicas=2, tensor_parallel=2, gpus=[4, 5, 6, 7], port=9000)
    assert (one.url, two.url) == ("http://127.0.0.1:9000/v1", "http://127.0.0.1:9001/v1")
    assert one.environment == {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert two.environment == {"CUDA_VISIBLE_DEVICES": "6,7"}
    words = " ".join(two.command)
    assert "--model-path org/model --served-model-name small" in words
    assert "--port 9001" in words and "--tp-size 2" in words and "--enable-cache-report" in words


def test_a_server_at_every_address_is_printed_by_name_and_probed_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    (server,) = built(host="0.0.0.0")
    assert "--host 0.0.0.0" in " ".join(server.command)
    assert (server.url, server.local) == ("http://node7:8101/v1", "http://127.0.0.1:8101/v1")
    (server,) = built(host="10.0.0.7")
    assert server.url == server.local == "http://10.0.0.7:8101/v1"


@pytest.mark.parametrize("gpus", [[0], [0, 0]])
def test_too_few_gpus_are_refused(gpus: list[int]) -> None:
    with pytest.raises(ValueError, match=r"serve\.gpus"):
        built(replicas=2, gpus=gpus)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--mem-fraction-statik", "0.8"], r"did you mean --mem-fraction-static\?"),
        (["--enable-cache-report", "yes"], "takes no value"),
        (["--tp-size"], "takes a value"),
        (["--tp-size", "--port", "1"], "--tp-size takes a value"),
    ],
)
def test_a_wrong_flag_is_refused_by_name(arguments: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        sglang_flags.check(arguments, flags())


def test_a_wrong_flag_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "p.add_argument('--model-path')\n")
    monkeypatch.setattr(sglang_flags, "installed", lambda: tmp_path)
    with pytest.raises(ValueError, match="no flag --served-model-name"):
        built()


def package(folder: Path, server_args: str, fields: str = "") -> None:
    (folder / "srt" / "arg_groups" / "fields").mkdir(parents=True)
    (folder / "srt" / "server_args.py").write_text(server_args)
    (folder / "srt" / "arg_groups" / "fields" / "a.py").write_text(fields)


def test_both_of_its_layouts_are_read(tmp_path: Path) -> None:
    calls = """
parser.add_argument("--model-path", "--model", type=str, required=True)
parser.add_argument("--enable-metrics", action="store_true")
parser.add_argument("--old", action=DeprecatedStoreTrueAction)
"""
    fields = """
class Serving:
    port: A[int, "The port."] = 1
    fast_mode: A[bool, Arg(help="Fast.", aliases=["--fast"])] = False
    tp_size: A[int, Arg(help="Size.", cli_name="--tensor-parallel-size")] = 1
    hidden: A[int, Arg(no_cli=True)] = 0
    plain: int = 0
"""
    package(tmp_path, calls, fields)
    assert sglang_flags.read_flags(tmp_path) == {
        "--model-path": True,
        "--model": True,
        "--enable-metrics": False,
        "--old": False,
        "--port": True,
        "--fast-mode": False,
        "--fast": False,
        "--tensor-parallel-size": True,
    }


def test_a_layout_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    package(tmp_path, "nothing = 1\n")
    with pytest.raises(ValueError, match="its layout is a new one"):
        sglang_flags.read_flags(tmp_path)
