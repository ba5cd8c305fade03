"""Finding and reading the files of a project."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from allranks.check.sources.files import Walk, read
from allranks.check.sources.globs import gitignore, matches


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x = 1\n")


def found(root: Path, *given: str, **options) -> list[str]:
    return Walk(root, **options).find([root / one for one in given or (".",)])[0]


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("tests", "tests/a.py", True),
        ("tests", "src/tests/b/a.py", True),
        ("tests", "src/mytests/a.py", False),
        ("/tests", "src/tests/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/**/a.py", "src/a.py", True),
        ("src/**/a.py", "src/b/c/a.py", True),
        ("**/b/**", "a/b/c.py", True),
        ("test_?.py", "x/test_1.py", True),
        ("test_[0-9].py", "test_x.py", False),
        ("test_[!0-9].py", "test_x.py", True),
        ("*.egg-info", "a.egg-info/b.py", True),
        ("a.py", "aXpy", False),
        ("a[.py", "a[.py", True),
    ],
)
def test_globs_are_those_of_gitignore(glob: str, path: str, fits: bool) -> None:
    assert matches([glob], path) is fits


def test_folders_of_tools_and_what_git_ignores_are_left_out(tmp_path: Path) -> None:
    """.gitignore files of all levels count; what is given itself is taken in spite of them."""
    make(tmp_path, "a.py", "pkg/b.py", "pkg/c.ipynb", "pkg/d.txt", ".venv/e.py", "build/f.py", "pkg/__pycache__/g.py")
    make(tmp_path, "gen/h.py", "gen/keep.py", "pkg/gen/i.py", "pkg/local/j.py")
    (tmp_path / ".gitignore").write_text("# made\ngen/*\n!keep.py\n\n/local\n")
    (tmp_path / "pkg" / ".gitignore").write_text("!gen/\nlocal/\n")
    assert found(tmp_path) == ["a.py", "gen/keep.py", "pkg/b.py", "pkg/c.ipynb", "pkg/gen/i.py"]
    assert found(tmp_path, "pkg") == ["pkg/b.py", "pkg/c.ipynb", "pkg/gen/i.py"]
    assert found(tmp_path, "build", "gen/h.py", "pkg/local/j.py") == ["build/f.py", "gen/h.py", "pkg/local/j.py"]
    assert "gen/h.py" in found(tmp_path, respect_gitignore=False)
    assert found(tmp_path, exclude=("pkg", "gen")) == ["a.py", ".venv/e.py", "build/f.py"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_gitignore_reader_agrees_with_git(tmp_path: Path) -> None:
    """On patterns of every kind."""
    lines = "*.log\n!keep.log\n/top\nmid/dle\ndeep/**\n**/any\na/**/z\nfold/\n\\#x\nq?r\n[ab]c\n  \ntrail  \n"
    paths = ["x.log", "keep.log", "d/x.log", "top", "d/top", "mid/dle", "d/mid/dle", "deep/a/b", "d/any", "any", "a/z"]
    paths += ["a/b/c/z", "fold/x", "d/fold/x", "fold2", "#x", "qar", "q/r", "ac", "cc", "d/bc", "trail", "none"]
    (tmp_path / ".gitignore").write_text(lines)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    asked = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=tmp_path,
        input="\n".join(paths),
        text=True,
        capture_output=True,
        check=False,
    )
    rules = gitignore(lines)

    def ignored(path: str) -> bool:
        parts = path.split("/")
        above = any(rules.verdict("/".join(parts[:n]), folder=True) for n in range(1, len(parts)))
        return above or bool(rules.verdict(path, folder=False))

    assert [path for path in paths if ignored(path)] == asked.stdout.split()


def test_links_do_not_lead_in_circles(tmp_path: Path) -> None:
    """Links to folders are not followed; a second name of a file is left out, a file from elsewhere is taken."""
    root = tmp_path / "project"
    make(tmp_path, "foreign.py", "project/a.py", "project/sub/b.py")
    os.symlink("..", root / "sub" / "loop")
    os.symlink("../a.py", root / "sub" / "again.py")
    os.symlink("../foreign.py", root / "foreign.py")
    os.symlink("nowhere.py", root / "dangling.py")
    assert found(root) == ["a.py", "foreign.py", "sub/b.py"]
    assert found(root, "sub", "sub/b.py", ".") == ["sub/b.py", "a.py", "foreign.py"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """And the rest is read. (A folder in a file's place stands for all that the system refuses: root may read all.)"""
    make(tmp_path, "a.py")
    (tmp_path / "b.py").mkdir()
    files, failed = read(tmp_path, ["a.py", "b.py", "gone.py"])
    assert files == {"a.py": b"x = 1\n"}
    assert failed == {
        "b.py": "cannot be read: Is a directory",
        "gone.py": "cannot be read: No such file or directory",
    }
    assert Walk(tmp_path).find([tmp_path / "gone"]) == ([], {"gone": "there is no such file or folder"})


def test_a_pipe_called_like_a_module_is_not_opened(tmp_path: Path) -> None:
    """It would wait for a writer."""
    os.mkfifo(tmp_path / "a.py")
    assert found(tmp_path) == []
    assert Walk(tmp_path).find([tmp_path / "a.py"]) == ([], {"a.py": "is no file, and no folder"})
