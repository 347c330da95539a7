"""Composition: groups by their plain names, mistyped overrides, secrets."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from disco_rl.config import (
    HIDDEN,
    ConfigError,
    compose,
    configs_dir,
    flat_keys,
    hide_secrets,
    missing_keys,
    nearest,
    refuse_secrets,
    to_yaml,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A primary config with a group at its own place and one mounted elsewhere."""
    files = {
        "main.yaml": (
            "defaults:\n- _self_\n- worker: slow\n- reward@disco.reward: gated\n"
            "driver: {window: 1024, max_stages: 3}\nlogger: [console]\nout: ???\n"
        ),
        "worker/slow.yaml": "kind: slow\ntop_k: 3\n",
        "worker/fast.yaml": "kind: fast\n",
        "reward/gated.yaml": "gate_floor: 0.1\n",
        "reward/paper.yaml": "gate_floor: null\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_overrides_apply_and_groups_go_by_plain_names(folder: Path) -> None:
    config = compose(
        ["driver.window=99", "reward=paper", "worker=fast", "+new.key=1"],
        name="main",
        directory=folder,
    )
    assert config.driver.window == 99
    assert config.disco.reward.gate_floor is None
    assert config.worker == {"kind": "fast"}
    assert config.new.key == 1
    assert missing_keys(config) == ["out"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("driver.windwo=9", "did you mean 'driver.window'"),
        ("window=9", "did you mean 'driver.window'"),
        ("drvier.max_stages=9", "did you mean 'driver.max_stages'"),
        ("wroker=fast", "did you mean 'worker'"),
        ("worker=fats", r"no option 'fats'; known: \['fast', 'slow'\]; did you mean worker=fast"),
        ("reward=papr", "did you mean reward=paper"),
        ("disco.reward.gate=1", "did you mean 'disco.reward.gate_floor'"),
        ("~driver.depth", "there is no key 'driver.depth'"),
        ("zzz=1", r"there is no key 'zzz'; \+zzz=... adds a new one"),
        ("nonsense", "isn't of the form key=value"),
        ("logger=[a", "isn't of the form key=value"),
    ],
)
def test_a_mistyped_override_names_the_nearest(folder: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(["driver.window=5", override], name="main", directory=folder)


def test_an_unknown_primary_config_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"known: \['main'\]"):
        compose(name="mian", directory=folder)


def test_our_configs_are_found() -> None:
    assert (configs_dir() / "train.yaml").is_file()


def test_flat_keys_and_nearest() -> None:
    config = OmegaConf.create({"a": {"lr": 1, "b": {"c": 2}}, "critic": {"lr": 1}, "x": "${a.lr}"})
    keys = flat_keys(config)
    assert keys == ["a", "a.lr", "a.b", "a.b.c", "critic", "critic.lr", "x"]
    assert nearest("lr", keys) == "a.lr"
    assert nearest("qqqq", keys) is None


def test_secrets_are_hidden() -> None:
    config = {
        "worker": {"api_key": "sk-123", "max_tokens": 5, "api_key_env": "OPENAI_API_KEY"},
        "hf_token": "hf_1",
        "list": [{"password": "p"}],
        "url": "http://user:pw@host/v1",
        "empty_key": None,
        "eos_token": "",
    }
    hidden = hide_secrets(config)
    assert hidden["worker"] == {
        "api_key": HIDDEN,
        "max_tokens": 5,
        "api_key_env": "OPENAI_API_KEY",  # a variable's name, not what it holds
    }
    assert hidden["hf_token"] == HIDDEN and hidden["list"] == [{"password": HIDDEN}]
    assert hidden["url"] == f"http://{HIDDEN}@host/v1"
    assert hidden["empty_key"] is None and hidden["eos_token"] == ""
    shown = to_yaml(OmegaConf.create(config))
    for secret in ("sk-123", "hf_1", "pw@", "user:"):
        assert secret not in shown


@pytest.mark.parametrize(
    "config",
    [
        {"worker": {"api_key": "sk-123"}},
        {"a": {"access_token": "t"}},
        {"b": [{"password": "p"}]},
        {"url": "https://user:pw@host"},
    ],
)
def test_a_secret_in_the_config_is_refused_without_printing_it(config: dict) -> None:
    with pytest.raises(ConfigError) as error:
        refuse_secrets(OmegaConf.create(config))
    assert "sk-123" not in str(error.value) and "pw@" not in str(error.value)


def test_no_secret_no_refusal() -> None:
    given = {"api_key_env": "KEY", "max_tokens": 3, "api_key": None, "token": "<pad>"}
    config = OmegaConf.create(given)
    refuse_secrets(config)
    assert OmegaConf.to_container(config) == given
