"""The profiles of examples/clusters are valid, and the commands of its page are accepted with them."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from allranks.cli.engine_profile import profile_of, tables
from allranks.cli.main import main
from allranks.engines.kind import KINDS

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
COMMANDS = re.findall(r"^\| \[`(\w+)/`\].*?`allranks (submit .*?)`", (CLUSTERS / "README.md").read_text(), re.M)
NEEDS = {"kubernetes": "kubernetes", "skypilot": "sky", "ray": "ray"}


def test_every_kind_has_an_example() -> None:
    assert {kind for kind, _ in COMMANDS} == set(KINDS)


@pytest.mark.parametrize(("kind", "command"), COMMANDS)
def test_the_command_of_an_example_is_accepted(
    kind: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for path in (CLUSTERS / kind / "pyproject.toml", CLUSTERS / "train.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert {profile_of(name, tmp_path).kind.name for name in tables(tmp_path)} == {kind}
    if kind in NEEDS and find_spec(NEEDS[kind]) is None:
        pytest.skip(f"{NEEDS[kind]} is not installed")
    words = [word.replace("auto", "8") for word in shlex.split(command)]
    assert main([*words[:1], "--dry-run", *words[1:]]) == 0
    assert "train.py" in capsys.readouterr().out
