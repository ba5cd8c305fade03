"""Code of strangers does not stop `allranks check`: a hostile file costs seconds, and the others are checked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allranks.check import budget, reading
from allranks.check.engine import Settings, check
from allranks.check.sources import globs

HONEST = "import torch.distributed as dist\n\nif dist.get_rank() == 0:\n    dist.barrier()\n"
LIMIT_S = 300  # of a busy machine; before the patterns were linear, one of these files took more than that


def repeated(word: str, size: int = 100_000) -> str:
    return word * (size // len(word))


LAUNCHES = {
    f"launch{number}.{ending}": text
    for number, word in enumerate(["torchrun ", "srun ", "launch", "python ", "python launch", "/", "a="])
    for ending, text in {
        "sh": repeated(word),
        "md": "torchrun x.py\n" + repeated(word),
        "py": f"import os\nos.system('{repeated(word)}')\n",
    }.items()
} | {
    "variables.sh": "torchrun x.py\n" + "".join(f"A{i}=1\n" for i in range(20_000)),
    "programs.sh": "torchrun x.py\n" + "".join(f"X=a{i}.py\n" for i in range(5_000)) + "$X\n" * 5_000,
}


def found(folder: Path, files: dict[str, str]) -> list[str]:
    """Return the findings, a line each, of `allranks check` on hostile files and one honest file."""
    (folder / "pyproject.toml").write_text("")
    for name, text in {"honest.py": HONEST, **files}.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "allranks", "check", ".", "--no-cache", "--output-format", "concise"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert any(line.startswith("honest.py:4:5: AR201") for line in ended.stdout.splitlines()), ended.stdout
    return ended.stdout.splitlines()


def test_repeated_words_of_launchers_take_linear_time(tmp_path: Path) -> None:
    found(tmp_path, LAUNCHES)


def test_comments_scripts_and_notebooks_take_linear_time(tmp_path: Path) -> None:
    words = ["#", "#noqa:", "# allranks: ignore[", "export ", "--export=", "from a import (\n"]
    files = {
        f"words{number}.py": f'"""\n#{repeated(word)}"""\n#{repeated(word)}\n' for number, word in enumerate(words[:5])
    }
    files |= {f"words{number}.sh": f"NCCL_X=1 python train.py\n{repeated(word)}" for number, word in enumerate(words)}
    files |= {"imports.py": f'"""\n{repeated(words[-1])}"""\n'}
    files |= {"blanks.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": " " * 100_000}]})}
    found(tmp_path, files)


def test_one_bad_file_is_one_finding(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    files = {
        "calls.py": f"x = a{'()' * 3_000}\n",
        "cases.py": "match x:\n" + "".join(f"    case {number}:\n        pass\n" for number in range(3_000)),
        "elifs.py": "if x: pass\n" + "".join(f"elif x == {number}: pass\n" for number in range(900)),
        "minus.py": f"x = {'-' * 50_000}1\n",
        "parentheses.py": f"x = {'(' * 5_000}{')' * 5_000}\n",
        "a::b.py": HONEST,
        "lists.ipynb": '{"cells": ' + "[" * 100_000,
    }
    lines = found(tmp_path, files)
    for name in (*files, "loop.py"):
        codes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
        assert codes in (["AR900"], ["AR903"]), (name, lines)  # it cannot be read, or not followed


def test_what_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that does not end in a file, and a program that cannot be followed with one file: the rest is checked."""
    check({"honest.py": HONEST.encode()}, Settings())  # what is read once is read
    monkeypatch.setattr(budget, "LEAST_S", 0.5)
    monkeypatch.setattr(budget, "PER_1000_LINES_S", 0.0)
    monkeypatch.setattr(reading, "LEAST_OF_RULE_S", 0.05)
    barriers = "import torch.distributed as dist\n\nr = dist.get_rank()\n" + "if r == 1: dist.barrier()\n" * 1_500
    calls = "import torch.distributed as dist\n" + "".join(f"def f{n}(): dist.barrier()\n" for n in range(3_000))
    calls += "if dist.get_rank() == 0:\n" + "".join(f"    f{n}()\n" for n in range(3_000))
    sources = {"barriers.py": barriers, "calls.py": calls, "honest.py": HONEST}
    outcome = check({path: text.encode() for path, text in sources.items()}, Settings())
    assert {(one.code, one.place.line) for one in outcome.findings if one.place.path == "honest.py"} == {("AR201", 4)}
    given_up = {(one.place.path, one.code) for one in outcome.findings if "s of the processor" in one.message}
    assert given_up == {("barriers.py", "AR903"), ("calls.py", "AR903")}


@pytest.mark.soak
@pytest.mark.parametrize("lines", [3_000])
def test_statements_without_end_take_a_minute_at_most(tmp_path: Path, lines: int) -> None:
    head = "import torch.distributed as dist\n\nr = dist.get_rank()\n"
    files = {
        "ifs.py": head + "".join(f"if r == {n}: dist.barrier()\n" for n in range(lines)),
        "whiles.py": head + "while r: dist.barrier()\n" * lines,
        "tries.py": head + "try: dist.barrier()\nexcept Exception: pass\n" * lines,
    }
    found(tmp_path, files)


def test_sarif_holds_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / os.fsdecode(b"\xff\x1b.py")).write_text("x = (\n")
    (tmp_path / "honest.py").write_text(HONEST)
    report = tmp_path / "report.sarif"
    command = [sys.executable, "-m", "allranks", "check", ".", "--output-format", "sarif", "--output-file", str(report)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 1, ended.stderr
    results = json.loads(report.read_text())["runs"][0]["results"]
    assert sorted(result["ruleId"] for result in results) == ["AR201", "AR900"]


PARTS = ["a", "b", "/", "*", "**", "?", "[ab]", "[!a]", "**/", "/**"]
MEANS = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "[!a]": "(?!/)[^a]"}


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7), st.lists(st.text("ab", min_size=1), min_size=1))
def test_a_glob_matches_what_a_slow_pattern_matches(parts: list[str], names: list[str]) -> None:
    glob, path = "".join(parts), "/".join(names)
    assume(glob.strip("/") and "***" not in glob)
    words = "".join(MEANS.get(one, one) for one in globs._TOKEN.findall(glob.strip("/")))
    prefix = "" if "/" in glob.rstrip("/") else "(?:.*/)?"
    expected = re.fullmatch(f"{prefix}{words}(?:/.*)?", path) is not None
    assert (globs.pattern(glob).fullmatch(path) is not None) == expected


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*a" * 60 + "b", "a" * 250),
        ("**/a" * 60 + "/b", "a/" * 120 + "a"),
        ("**a" * 60 + "b", "a" * 3000),
        ("a/**" * 60 + "/b", "a/" * 200 + "a"),
        ("*" * 5000 + "b", "a" * 250),
        ("[" * 5000, "a" * 250),
    ],
)
def test_a_glob_takes_linear_time(glob: str, path: str) -> None:
    assert globs.pattern(glob).fullmatch(path) is None


def test_a_hostile_gitignore_excludes_what_it_can_and_costs_little(tmp_path: Path) -> None:
    """Ranges that end before they begin, patterns of many wildcards, a pipe, a device, and one of 10 MB."""
    lines = [
        "[z-a]",
        "[--a]x",
        "[[:alpha:]",
        "[]",
        "[!]",
        "!",
        "/",
        "\\",
        "*a" * 60 + "b",
        "**/a" * 60 + "/b",
        "left_out.py",
    ]
    names = ["left_out.py", f"{'a' * 200}.py", "pipe/x.py", "device/x.py", "large/x.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(HONEST)
    os.mkfifo(tmp_path / "pipe" / ".gitignore")
    (tmp_path / "device" / ".gitignore").symlink_to("/dev/zero")
    (tmp_path / "large" / ".gitignore").write_text("x.py\n" * 2_000_000)
    findings = found(tmp_path, {".gitignore": "\n".join(lines)})
    assert {line.split(":")[0] for line in findings if "AR201" in line} == {"honest.py", *names[1:]}
    (said,) = [line for line in findings if line.startswith("large/.gitignore:")]
    assert "larger than 100 kB, so it excludes nothing" in said
