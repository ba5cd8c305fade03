"""One file's part of the work: kept, and done ahead by other processes."""

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
from allranks.check.reading import Cache, Memory, findings_in, keys_of, missing, summary_of
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
    summary, findings = summary_of(path, FILES[path], cache), findings_in(path, FILES[path], cache)
    assert (summary is None, [one.code for one in findings]) == (
        (False, []) if path in "a.py d.py" else (True, ["AR900"])
    )
    assert (summary_of(path, FILES[path], cache), findings_in(path, FILES[path], cache)) == (summary, findings)
    del cache[keys_of(path, FILES[path]).findings]
    assert findings_in(path, FILES[path], cache) == findings


def test_a_kept_file_is_not_read_again(monkeypatch) -> None:
    """The same text under another path is another file: findings name their path."""
    cache = Memory()
    summary_of("a.py", TEXT, cache)
    monkeypatch.setattr(reading, "lower", lambda _: pytest.fail("read again"))
    summary_of("a.py", TEXT, cache)
    findings_in("a.py", TEXT, cache)
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
@pytest.mark.parametrize("held", [0, 1 << 20])
def test_processes_of_their_own_find_the_same(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """Whether they keep what they have parsed until its findings are asked for, or parse it again."""
    monkeypatch.setattr(crew, "HELD", held)
    alone, ahead = Memory(), Memory()
    by_others = judge(MANY, Config(), cache=ahead, ahead=read_ahead)
    assert by_others == judge(MANY, Config(), cache=alone)
    assert set(ahead) == set(alone)


@pytest.mark.usefixtures("two_processes")
def test_what_is_under_way_is_waited_for_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summaries are there before the first finding is looked for."""
    cache = Memory()
    with read_ahead(MANY, cache) as arriving:
        monkeypatch.setattr(reading, "parse", lambda _: pytest.fail("read by the one who asks"))
        made = [summary_of(path, raw, arriving) for path, raw in MANY.items()]
        found = [findings_in(path, raw, arriving) for path, raw in MANY.items()]
    assert (made.count(None), sum(map(len, found))) == (20, 20)


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
def test_what_a_process_that_is_killed_was_to_make_is_made_by_the_one_who_asks() -> None:
    """Nothing is missing from what is found."""
    assert judge(MANY, Config(), ahead=killed) == judge(MANY, Config())


def test_few_files_are_read_by_the_one_who_asks() -> None:
    cache = Memory()
    with read_ahead(FILES, cache) as same:
        assert same is cache


@pytest.mark.usefixtures("two_processes")
def test_a_system_that_does_not_say_which_cores_are_ours_is_read_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no ``sched_getaffinity``."""
    monkeypatch.delattr(crew.os, "sched_getaffinity")
    monkeypatch.setattr(crew.os, "cpu_count", lambda: 2)
    with read_ahead(MANY, Memory()) as arriving:
        assert len(multiprocessing.active_children()) == 2
        assert [summary_of(path, raw, arriving) is None for path, raw in MANY.items()].count(True) == 20
