"""docs/rehearse.md is true: its options, its settings, its workflow."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from allranks.cli import check, rehearse
from allranks.rehearse.config import Config, read
from allranks.report.forms import FORMS

PAGE = (Path(__file__).parents[2] / "docs" / "rehearse.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_option_is_in_the_table_and_no_other() -> None:
    options = {one for action in rehearse.parser()._actions for one in action.option_strings if one.startswith("--")}
    documented = set(re.findall(r"(?:^\| |, )`(--[a-z-]+)", section("Options"), re.MULTILINE))
    assert options - {"--help", "--ranks", "--devices"} <= documented
    assert documented <= options


def test_every_setting_is_in_the_table_and_the_example_is_read() -> None:
    names = {one.name.replace("_", "-") for one in fields(Config)}
    assert names <= set(re.findall(r"`([a-z-]+)`", section("Settings")))
    (text,) = re.findall(r"```toml\n(.*?)```", section("Settings"), re.DOTALL)
    config = read(tomllib.loads(text)["tool"]["allranks"]["rehearse"], "docs/rehearse.md", FORMS)
    assert (config.command, config.ranks, config.allow[0].code) == (("train.py",), 4, "AR310")


def test_the_workflow_is_yaml_and_its_commands_parse() -> None:
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", section("In CI"), re.DOTALL)
    (job,) = yaml.safe_load(text)["jobs"].values()
    commands = [shlex.split(step["run"], comments=True) for step in job["steps"] if "allranks" in step.get("run", "")]
    parsers = {"rehearse": rehearse.parser(), "check": check.parser()}
    ours = [words[1:] for words in commands if words[0] == "allranks"]
    assert [words[0] for words in ours] == ["rehearse", "check"]
    for name, *words in ours:
        parsers[name].parse_args(words)
