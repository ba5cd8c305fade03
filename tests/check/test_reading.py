"""What local rules find in one file: kept, and found ahead by other processes."""

from __future__ import annotations

import ast
import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from allranks.check import crew, reading
from allranks.check.config import Config
from allranks.check.crew import read_ahead
from allranks.check.judge import judge
from allranks.check.reading import Cache, Memory, findings_in, key_of, missing, parsed
from allranks.check.sources.source import File
from allranks.check.tree.origins import passed
from allranks.check.tree.syntax import calls_of

TEXT = (
    b"import os\n\n\nclass A:\n    def f(self, x=1, *, y: int = 2):\n        return [os.getpid() for _ in range(x)]\n"
)
FILES = {"a.py": TEXT, "b.py": b"x = (\n", "c.py": b"\xff", "d.py": b'x = "\\d"\n'}


@pytest.mark.parametrize("path", FILES)
def test_what_is_kept_of_a_file_is_what_was_found_in_it(path: str) -> None:
    """Also of one that cannot be read; a warning of the compiler is no finding."""
    cache, read = Memory(), parsed(path, FILES[path])
    findings = findings_in(read, cache)
    assert [one.code for one in findings] == ([] if path in ("a.py", "d.py") else ["AR900"])
    assert (read.file is None) == bool(findings)
    assert findings_in(read, cache) == findings
    del cache[key_of(path, FILES[path])]
    assert findings_in(read, cache) == findings


def test_a_kept_file_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text under another path is another file: findings name their path."""
    cache, read = Memory(), parsed("a.py", TEXT)
    findings_in(read, cache)
    monkeypatch.setattr(reading, "_local", lambda _: pytest.fail("looked at again"))
    assert findings_in(read, cache) == []
    assert [path for path, _ in missing({"a.py": TEXT, "e.py": TEXT}, cache)] == ["e.py"]


def test_calls_are_found_by_name_whoever_asked_for_calls_first() -> None:
    """What is passed for a parameter is looked up in the same index as the calls that rules are about."""
    text = "from torch.distributed import init_process_group as join\n\ndef f(x):\n    return x\n\njoin(f(1))\n"
    file = File("a.py", text, ast.parse(text))
    (returned,) = (node.value for node in file.nodes if isinstance(node, ast.Return))
    assert [ast.unparse(one) for one in passed(returned, file)] == ["1"]
    assert [ast.unparse(one) for one in calls_of(file)["init_process_group"]] == ["join(f(1))"]


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "ENOUGH", 1)
    monkeypatch.setattr(crew.os, "sched_getaffinity", lambda _: {0, 1})


MANY: Mapping[str, bytes] = {f"m{n}.py": FILES[list(FILES)[n % 3]] for n in range(30)}


@pytest.mark.usefixtures("two_processes")
def test_other_processes_find_the_same() -> None:
    """And the same is kept."""
    here, ahead = Memory(), Memory()
    by_others = judge(MANY, Config(), cache=ahead, ahead=read_ahead)
    assert by_others == judge(MANY, Config(), cache=here)
    assert set(ahead) == set(here)


@pytest.mark.usefixtures("two_processes")
def test_what_other_processes_look_at_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that asks looks at no file itself."""
    with read_ahead(MANY, Memory()) as arriving:
        monkeypatch.setattr(reading, "_local", lambda _: pytest.fail("looked at here"))
        found = [findings_in(parsed(path, raw), arriving) for path, raw in MANY.items()]
    assert sum(map(len, found)) == 20


@contextmanager
def killed(sources: Mapping[str, bytes], cache: Cache) -> Iterator[Cache]:
    with read_ahead(sources, cache) as arriving:
        workers = multiprocessing.active_children()
        assert len(workers) >= 2
        for worker in workers:
            worker.kill()
            worker.join()
        yield arriving


@pytest.mark.usefixtures("two_processes")
def test_what_a_killed_process_had_to_find_is_found_here() -> None:
    """Nothing is missing from what is found."""
    assert judge(MANY, Config(), ahead=killed) == judge(MANY, Config())


def test_few_files_need_no_other_process() -> None:
    cache = Memory()
    with read_ahead(FILES, cache) as same:
        assert same is cache


@pytest.mark.usefixtures("two_processes")
def test_a_system_without_sched_getaffinity_has_other_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no ``sched_getaffinity``."""
    monkeypatch.delattr(crew.os, "sched_getaffinity")
    monkeypatch.setattr(crew.os, "cpu_count", lambda: 2)
    with read_ahead(MANY, Memory()) as arriving:
        assert len(multiprocessing.active_children()) == 2
        assert sum(len(findings_in(parsed(path, raw), arriving)) for path, raw in MANY.items()) == 20
