"""``allranks check`` as a user calls it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.cli import check

BAD = "import os\n\nx = 1  # allranks: ignore[AR900] nothing is wrong here\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".home"))
    (tmp_path / "pyproject.toml").write_text("[tool.allranks.check]\n")
    (tmp_path / "train.py").write_text(BAD)
    return tmp_path


def told(capsys) -> str:
    return capsys.readouterr().out


def test_findings_are_shown_and_decide_the_exit_code(capsys) -> None:
    """1 for a warning; 0 when only errors count, when nothing counts, and when nothing is found."""
    assert check.main([]) == 1
    out = told(capsys)
    assert "warning[AR901] [*]" in out
    assert " --> train.py:3:8\n" in out
    assert check.main(["--fail-on", "error"]) == 0
    assert check.main(["--exit-zero"]) == 0
    assert check.main(["--ignore", "ar9"]) == 0
    assert "No findings in 1 file, 3 lines." in told(capsys)
    assert check.main(["--ignore", "AR9", "--extend-select", "AR900,AR901"]) == 1


def test_modules_may_import_each_other_in_a_long_row(project: Path, capsys) -> None:
    """What is needed of the last one is followed to it: once what stood between was given up."""
    limit = sys.getrecursionlimit()
    for at in range(80):
        below = f"m{at + 1}"
        (project / f"m{at}.py").write_text(
            f"import {below}\n\nclass Config({below}.Config):\n    size = {below}.Config().size + 1\n"
        )
    (project / "m80.py").write_text("class Config:\n    size = 1\n")
    (project / "train.py").write_text(
        "import torch.distributed as dist\nfrom m0 import Config\n\ndist.broadcast(Config().size, 0)\n"
    )
    check.main(["--select", "AR903"])
    assert "No findings in 82 files" in told(capsys)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--select", "AQ1"], "no rule's code is or begins with 'AQ1'"),
        (["--select", "AR999"], "AR999"),
        (["nowhere"], "nowhere: no such file or folder"),
        (["--baseline", "none.json"], "none.json"),
        (["--rehearsal", "none.json"], "--rehearsal none.json cannot be read"),
        (["--rehearsal", "train.py"], "--rehearsal train.py is not JSON"),
        (["--entry", "nosuch.py"], "the entry nosuch.py is not among the files that are read"),
        (["--select", ""], "no rule is selected"),
        (["--output-file", "nowhere/r.json"], "nowhere/r.json cannot be written"),
        (["--output-file", "."], ". cannot be written"),
        (
            ["--statistics", "--output-format", "html"],
            "--statistics: expected the form full, concise or json, found html",
        ),
    ],
)
def test_what_cannot_be_done_is_said_and_is_2(capsys, words: list[str], says: str) -> None:
    assert check.main(words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "[tool.allranks.chek]\n",
        "[tool.allranks.check]\nselct = []\n",
        "[tool.allranks.check\n",
        "[tool]\nallranks = 3\n",
    ],
)
def test_a_configuration_that_is_wrong_is_2(project: Path, capsys, text: str) -> None:
    """Its file is named. (A [tool.allranks] that is no table is not about the check.)"""
    (project / "pyproject.toml").write_text(text)
    assert check.main([]) == (1 if "= 3" in text else 2)
    assert "= 3" in text or "pyproject.toml" in capsys.readouterr().err


def test_the_configuration_of_the_project_is_obeyed(project: Path, capsys) -> None:
    """From any folder of it; paths are shown from where one is, globs are from the root."""
    (project / "sub").mkdir()
    (project / "sub" / "b.py").write_text(BAD)
    (project / "pyproject.toml").write_text('[tool.allranks.check]\nper-file-ignores = {"train.py" = ["AR9"]}\n')
    os.chdir(project / "sub")
    assert check.main(["..", "--output-format", "concise"]) == 1
    assert told(capsys).splitlines()[0].startswith("b.py:3:8: AR901")
    assert check.main(["..", "--show-settings"]) == 0
    assert f"root = {str(project)!r}" in told(capsys)


def test_a_second_run_is_read_from_the_cache(project: Path, capsys, monkeypatch) -> None:
    """The engine is not asked again; another text, or other settings, are judged anew. --no-cache leaves no folder."""
    assert check.main(["--no-cache"]) == 1
    assert not (project / ".allranks_cache").exists()
    assert check.main([]) == 1
    cold = told(capsys)
    monkeypatch.setattr("allranks.check.judge.check", lambda *_, **__: pytest.fail("the engine was asked"))
    assert check.main([]) == 1
    assert cold.endswith(told(capsys))
    with pytest.raises(pytest.fail.Exception):
        check.main(["--assume", "multi-host"])
    (project / "train.py").write_text("x = 2\n")
    with pytest.raises(pytest.fail.Exception):
        check.main([])


def test_a_damaged_cache_is_told_and_passed_over(project: Path, capsys) -> None:
    check.main([])
    (run,) = (project / ".allranks_cache").glob("*/run-*")
    run.write_bytes(b"nonsense")
    capsys.readouterr()
    assert check.main([]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_fixes_are_made_or_shown(project: Path, capsys) -> None:
    """--diff writes nothing and is 1 while there is something to do; --fix leaves the file's mode as it was."""
    (project / "train.py").chmod(0o755)
    assert check.main(["--diff"]) == 1
    shown = capsys.readouterr()
    assert "-x = 1  # allranks: ignore[AR900] nothing is wrong here\n+x = 1\n" in shown.out
    assert shown.err == "Would make 1 fix in 1 file.\n"
    assert (project / "train.py").read_text() == BAD
    assert check.main(["--fix"]) == 0
    assert (project / "train.py").read_text() == "import os\n\nx = 1\n"
    assert (project / "train.py").stat().st_mode & 0o777 == 0o755
    assert check.main(["--diff"]) == 0
    assert [path.name for path in project.glob("*.py*")] == ["train.py"]


def test_a_baseline_hides_what_it_knows(project: Path, capsys) -> None:
    """Also after the lines have moved; what is new is shown."""
    assert check.main(["--write-baseline"]) == 0
    assert told(capsys) == "Wrote 1 finding to allranks-baseline.json.\n"
    (project / "train.py").write_text("\n\n" + BAD)
    assert check.main(["--baseline", "allranks-baseline.json"]) == 0
    assert "1 finding known to the baseline, not shown." in told(capsys)
    (project / "pyproject.toml").write_text('[tool.allranks.check]\nbaseline = "allranks-baseline.json"\n')
    (project / "train.py").write_text(BAD + "y = 2  # allranks: ignore[AR900]\n")
    (project / "sub").mkdir()
    os.chdir(project / "sub")
    assert check.main(["..", "--output-format", "concise"]) == 1
    assert told(capsys).count("AR901") == 1


def test_a_baseline_of_some_rules_or_files_leaves_the_others_alone(project: Path, capsys) -> None:
    """What a run had no part in is not forgotten; what it looked for and did not find is."""
    (project / "other.py").write_text("(")
    assert check.main(["--write-baseline"]) == 0
    assert check.main(["--write-baseline", "--select", "AR900"]) == 0
    assert check.main(["--write-baseline", "train.py"]) == 0
    said = told(capsys).splitlines()
    assert said[0] == "Wrote 2 findings to allranks-baseline.json."
    assert said[1:] == ["Wrote 1 finding to allranks-baseline.json, and left 1 other alone."] * 2
    assert check.main(["--baseline", "allranks-baseline.json"]) == 0
    (project / "other.py").write_text("x = 1\n")
    assert check.main(["--write-baseline"]) == 0
    codes = [entry["code"] for entry in json.loads(Path("allranks-baseline.json").read_text())["findings"]]
    assert codes == ["AR901"]


def test_paths_for_a_forge_start_from_its_repository(project: Path, capsys) -> None:
    """GitHub places an annotation by the path in the repository, wherever the command ran."""
    (project / ".git").mkdir()
    (project / "sub").mkdir()
    os.chdir(project / "sub")
    assert check.main(["..", "--output-format", "github"]) == 1
    assert ",file=train.py," in told(capsys)


def test_a_program_of_one_process_is_told_how_to_ask_more(project: Path, capsys) -> None:
    (project / "train.py").write_text("x = 1\n")
    assert check.main([]) == 0
    assert "--assume multi-host asks" in capsys.readouterr().err
    assert check.main(["--assume", "multi-host"]) == 0
    assert "--assume" not in capsys.readouterr().err


def test_an_empty_folder_is_told(project: Path, capsys) -> None:
    (project / "train.py").unlink()
    assert check.main([]) == 0
    assert "no Python file, notebook or script here" in capsys.readouterr().err


def test_standard_input_stands_for_a_file(capsys, monkeypatch) -> None:
    """As editors use it: findings with --stdin-filename's path; with --fix the mended text comes back."""

    class Piped:
        buffer = io.BytesIO(BAD.encode())

    monkeypatch.setattr(sys, "stdin", Piped)
    assert check.main(["-", "--stdin-filename", "sub/new.py", "--output-format", "concise"]) == 1
    assert told(capsys).startswith(f"sub{os.sep}new.py:3:8: AR901")
    Piped.buffer = io.BytesIO(BAD.encode())
    with pytest.raises(SystemExit) as usage:
        check.main(["train.py", "--stdin-filename", "x.py"])
    assert usage.value.code == 2


def test_a_report_goes_into_a_file(project: Path, capsys) -> None:
    """In any form, without colour; nothing is left on the terminal."""
    assert check.main(["--output-format", "json", "--output-file", "r.json"]) == 1
    assert told(capsys) == ""
    document = json.loads((project / "r.json").read_text())
    assert document["findings"][0]["fingerprint"]
    assert document["version"]


def test_statistics_count_by_rule(project: Path, capsys) -> None:
    (project / "bad.py").write_text("(")
    check.main(["--statistics"])
    assert told(capsys).splitlines()[2:4] == [
        "    1  AR900       unreadable-file",
        "    1  AR901  [*]  unused-suppression",
    ]


def test_notebooks_and_broken_files_do_not_stop_the_rest(project: Path, capsys) -> None:
    """Each is named with its cell, or with why it cannot be read."""
    cells = [{"cell_type": "markdown", "source": []}, {"cell_type": "code", "source": BAD}]
    (project / "tour.ipynb").write_text(json.dumps({"cells": cells}))
    (project / "a.py").write_bytes(b"\xff\xfe")
    (project / "b.ipynb").write_text("no")
    (project / "c.py").write_text("x = (\n")
    assert check.main(["--output-format", "concise"]) == 1
    lines = told(capsys).splitlines()
    assert [line.split(": ")[0] for line in lines[:5]] == [
        "a.py:1:1",
        "b.ipynb:1:1",
        "c.py:1:5",
        "tour.ipynb:cell 2:3:8",
        "train.py:3:8",
    ]


def test_show_files_names_what_would_be_read(project: Path, capsys) -> None:
    (project / ".gitignore").write_text("gen/\n")
    (project / "gen").mkdir()
    (project / "gen" / "a.py").write_text("")
    assert check.main(["--show-files"]) == 0
    assert told(capsys) == "train.py\n"


def test_the_command_needs_no_framework_and_a_warm_run_no_engine() -> None:
    """What a warm run imports is light: no rule, no framework, no rich."""
    code = (
        "import sys; from allranks.cli.main import main; main(['check'])\n"
        "print(*sorted(m for m in sys.modules if m in ('jax', 'torch', 'numpy', 'rich', 'importlib.metadata')\n"
        "      or m.startswith('allranks.check.rules')), file=sys.stderr)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert runs[1].stderr.strip() == ""
    assert "allranks.check.rules" in runs[0].stderr


def test_a_single_file_is_followed_into_what_it_imports(project: Path, capsys) -> None:
    """Findings are those of the file itself; what it calls elsewhere is known."""
    (project / "train.py").write_text("from pkg.util import f\n\nf()\n" + BAD)
    (project / "pkg").mkdir()
    (project / "pkg" / "util.py").write_text("from . import deep\n\nx = (\n")
    (project / "pkg" / "deep.py").write_text(BAD)
    (project / "other.py").write_text(BAD)
    assert check.main(["train.py", "--output-format", "concise"]) == 1
    lines = told(capsys).splitlines()
    assert lines[0].startswith("train.py:6:8: AR901")
    assert lines[1] == "Found 1 warning in 3 files, 12 lines."
    assert check.main(["train.py", "--show-files"]) == 0
    assert told(capsys) == "train.py\n"


LEAF = "import torch\n\n\ndef save(model, path):\n    torch.save(model.state_dict(), path)\n"
CALLER = (
    "import torch.distributed as dist\nfrom lib.util import save\n\ndist.init_process_group('gloo')\nsave(None, 'm')\n"
)


@pytest.mark.parametrize("path", ["lib/util.py", "lib"])
def test_who_imports_a_part_of_a_project_is_read_too(path: str, project: Path, capsys, monkeypatch) -> None:
    """Only the caller shows that several processes save; its own findings are not those of the part."""
    (project / "lib").mkdir()
    (project / "lib" / "util.py").write_text(LEAF)
    (project / "middle.py").write_text("from lib import util\n")
    (project / "train.py").write_text(
        CALLER.replace("from lib.util import save", "from middle import util\nsave = util.save")
    )
    (project / "apart.py").write_text(BAD)
    command = [path, "--output-format", "concise", "--select", "AR101,AR9"]
    assert check.main(command) == 1
    assert told(capsys).splitlines()[:2] == [
        "lib/util.py:5:5: AR101 every rank writes the checkpoint path",
        "Found 1 error in 3 files, 12 lines.",
    ]
    monkeypatch.setattr("allranks.cli.check_project.MANY", 2)
    assert check.main(command) == 0
    assert "so files that import the named ones were not looked for" in capsys.readouterr().err


def test_around_a_part_of_a_folder_that_is_no_project_nothing_is_looked_for(project: Path, capsys) -> None:
    (project / "pyproject.toml").unlink()
    (project / "lib").mkdir()
    (project / "lib" / "util.py").write_text(LEAF)
    (project / "train.py").write_text(CALLER)
    command = ["--select", "AR101", "--output-format", "concise"]
    assert check.main(["lib/util.py", *command]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["No findings in 1 file, 5 lines."]
    assert "no pyproject.toml or .git here, so files that import the named ones were not looked for" in printed.err
    assert check.main(command) == 1


def test_a_fault_of_ours_is_not_taken_for_one_of_the_code(monkeypatch, capsys) -> None:
    """Exit code 2, with the traceback."""

    def broken(*_: object, **__: object) -> None:
        raise IndexError("of ours")

    monkeypatch.setattr("allranks.check.judge.check", broken)
    assert check.main([]) == 2
    assert "IndexError: of ours" in capsys.readouterr().err
