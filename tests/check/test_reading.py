"""One file's part of the work: kept, and done ahead by other processes."""

from __future__ import annotations

import ast

import pytest

from allranks.check import crew, reading
from allranks.check.cache import Memory
from allranks.check.config import Config
from allranks.check.crew import read_ahead
from allranks.check.judge import judge
from allranks.check.reading import examined, missing
from allranks.check.sources.source import File
from allranks.check.tree.origins import passed
from allranks.check.tree.syntax import calls_of

TEXT = (
    b"import os\n\n\nclass A:\n    def f(self, x=1, *, y: int = 2):\n        return [os.getpid() for _ in range(x)]\n"
)
FILES = {"a.py": TEXT, "b.py": b"x = (\n", "c.py": b"\xff", "d.py": b'x = "\\d"\n'}


@pytest.mark.parametrize("path", FILES)
def test_what_is_kept_of_a_file_is_what_was_found_in_it(path: str) -> None:
    """Its summary and its findings, for one that cannot be read too; a warning of the compiler is none of ours."""
    cache = Memory()
    first = examined(path, FILES[path], cache)
    assert examined(path, FILES[path], cache) == first == examined(path, FILES[path])


def test_a_kept_file_is_not_read_again(monkeypatch) -> None:
    """The same text under another path is another file: findings name their path."""
    cache = Memory()
    examined("a.py", TEXT, cache)
    monkeypatch.setattr(reading, "lower", lambda _: pytest.fail("read again"))
    examined("a.py", TEXT, cache)
    assert [path for path, _ in missing({"a.py": TEXT, "e.py": TEXT}, cache)] == ["e.py"]


def test_calls_are_found_by_name_whoever_asked_for_calls_first() -> None:
    """What is passed for a parameter is looked up in the same index as the calls that rules are about."""
    text = "from torch.distributed import init_process_group as join\n\ndef f(x):\n    return x\n\njoin(f(1))\n"
    file = File("a.py", text, ast.parse(text))
    (returned,) = (node.value for node in file.nodes if isinstance(node, ast.Return))
    assert [ast.unparse(one) for one in passed(returned, file)] == ["1"]
    assert [ast.unparse(one) for one in calls_of(file)["init_process_group"]] == ["join(f(1))"]


def test_processes_of_their_own_find_the_same(monkeypatch) -> None:
    """With many files; few are left to the one that asks."""
    files = {f"m{n}.py": text for n in range(3) for text in [FILES[list(FILES)[n]]]}
    alone, ahead = Memory(), Memory()
    read_ahead(files, ahead)
    assert ahead == {}
    monkeypatch.setattr(crew, "ENOUGH", 1)
    monkeypatch.setattr(crew.os, "sched_getaffinity", lambda _: {0, 1})
    read_ahead(files, ahead)
    assert judge(files, Config(), cache=alone) == judge(files, Config(), cache=ahead, ahead=read_ahead)
    assert set(alone) == set(ahead)
