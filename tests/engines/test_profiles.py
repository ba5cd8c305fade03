"""Profiles of engines: where they are found, and what a wrong one leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.cli.engine_profile import profile_of
from allranks.cli.main import main
from allranks.engines.kind import KINDS
from allranks.engines.profile import described
from allranks.settings import ConfigWrong


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder as the working folder, and a home without profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def write(folder: Path, table: str, name: str = "big") -> None:
    (folder / "pyproject.toml").write_text(f"[tool.allranks.engines.{name}]\n{table}\n")


def test_the_profile_of_the_project_comes_before_that_of_the_user(folder: Path) -> None:
    user = folder.parent / "config" / "allranks" / "engines.toml"
    user.parent.mkdir(parents=True)
    user.write_text('[big]\nkind = "slurm"\npartition = "user"\n[mine]\nkind = "slurm"\ncpus-per-task = 3\n')
    assert profile_of("big", folder).options.partition == "user"
    assert profile_of("mine", folder).options.cpus_per_task == 3
    write(folder, 'kind = "slurm"\npartition = "project"')
    assert profile_of("big", folder).options.partition == "project"
    assert profile_of("mine", folder).where == str(user)


def test_a_kind_is_a_profile_without_options(folder: Path) -> None:
    assert profile_of("slurm", folder).options.partition == ""


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('kind = "slurm"\npartitoin = "gpu"', "has no option 'partitoin'. Is 'partition' meant?"),
        ('kind = "slurm"\npartition = 3', "profile 'big': partition: expected a text, found 3."),
        ('kind = "slurm"\nrequeue = true', "profile 'big': requeue: expected a whole number, found True."),
        ('kind = "slurm"\nexclusive = "yes"', "profile 'big': exclusive: expected true or false, found 'yes'."),
        (
            'kind = "slurm"\nsetup = "a b"',
            "profile 'big': setup: expected a list of texts, found 'a b'.",
        ),
        ('kind = "slurm"\nenv = { A = 1 }', "profile 'big': env: expected a table of texts, found {'A': 1}."),
        ('kind = "kubernetes"\nimage = "a"\npod-spec = "a"', "pod-spec: expected a table, found 'a'."),
        ('kind = "kubernetes"', "profile 'big': image is missing: the container image, with allranks in it."),
        ('kind = "kubernetes"\nimage = "a"\nform = "job"', "form: expected one of jobset, trainjob, found 'job'."),
        ('kind = "slrm"', "profile 'big': kind: expected one of slurm"),
        ('partition = "gpu"', 'Add kind = "slurm"'),
    ],
)
def test_a_wrong_profile_is_refused_with_its_file(folder: Path, table: str, says: str) -> None:
    write(folder, table)
    with pytest.raises(ConfigWrong) as error:
        profile_of("big", folder)
    assert says in str(error.value)
    assert str(folder / "pyproject.toml") in str(error.value)


def test_an_unknown_profile_is_answered_with_those_that_there_are(folder: Path) -> None:
    write(folder, 'kind = "slurm"')
    with pytest.raises(ConfigWrong, match=r"no engine 'bigg': .* Did you mean 'big'\?"):
        profile_of("bigg", folder)
    with pytest.raises(ConfigWrong, match=r"Profiles: big\. Kinds: .*slurm"):
        profile_of("nowhere", folder)


def test_a_file_that_is_no_toml_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[tool.allranks.engines.big\n")
    assert main(["submit", "--on", "big", "-n", "2", "train.py"]) == 2
    assert f"{folder / 'pyproject.toml'} is not valid TOML" in capsys.readouterr().err


def test_the_page_has_each_kind_as_the_help_describes_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    assert main(["submit", "--help"]) == 0
    help_text = capsys.readouterr().out
    for kind in KINDS.values():
        row = f"| `{kind.name}` | {kind.starts} | {kind.stop} | {kind.output} | {kind.tested} ({kind.on}) |"
        assert row in page
        assert f"{kind.name:<{max(map(len, KINDS))}}  {kind.tested} ({kind.on})" in help_text


@pytest.mark.parametrize("name", KINDS)
def test_the_help_of_a_kind_lists_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", f"--on={name}", "--help"]) == 0
    out = capsys.readouterr().out
    assert f"{name}: {KINDS[name].tested}" in out
    assert all(option in out for option, _ in described(KINDS[name].profile))
