"""What preflight looks at: files, versions, names in what is installed, flags, values of users."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from allranks.errors import AllranksError
from allranks.launch.environment import rendezvous_flags
from allranks.readiness import code, values
from allranks.readiness.flags import known_flags, read_in_child
from allranks.readiness.name_search import contains_name


def test_the_programs_files_are_known_by_content_wherever_they_lie(tmp_path: Path) -> None:
    """Two copies have equal digests; hidden folders and environments are not the program's."""
    for copy in ("a", "b"):
        for file in ("train.py", "lib/model.py", ".git/hook.py", "venv/x.py"):
            (tmp_path / copy / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / copy / file).write_text(file)
        (tmp_path / copy / "venv" / "pyvenv.cfg").touch()
    one, other = (code.file_digests(code.files_under(tmp_path / copy / "train.py")) for copy in ("a", "b"))
    assert one == other
    assert sorted(one) == ["lib/model.py", "train.py"]
    (tmp_path / "b" / "lib" / "model.py").write_text("changed")
    assert code.file_digests(code.files_under(tmp_path / "b")) != one


def test_a_scripts_files_are_those_that_it_imports(tmp_path: Path) -> None:
    """Directly and through others, relative imports too; not what else is in its folder, or installed."""
    files = {
        "train.py": "import numpy, lib.model\nfrom tools import load",
        "lib/__init__.py": "",
        "lib/model.py": "from . import layers\nfrom .deep.more import x",
        "lib/layers.py": "def broken(:",
        "lib/deep/__init__.py": "",
        "lib/deep/more.py": "from ..model import y",
        "lib/unused.py": "",
        "tools.py": "",
        "other.py": "import train",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {path.relative_to(tmp_path).as_posix() for path in code.program_files(tmp_path / "train.py")}
    assert found == files.keys() - {"lib/unused.py", "other.py"}
    assert len(code.program_files(tmp_path)) == len(files)


def test_the_commit_is_that_of_git(tmp_path: Path) -> None:
    """In a repository, in a worktree of it, with packed references; "" outside. And it knows what has changed since."""

    def git(*words: str) -> str:
        base = ["git", "-C", str(tmp_path / "repo"), "-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run([*base, *words], check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "repo").mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    commit = git("rev-parse", "HEAD")
    (tmp_path / "repo" / "deep").mkdir()
    assert code.git_commit(tmp_path / "repo" / "deep") == commit
    assert code.git_commit(tmp_path / "side") == commit
    git("pack-refs", "--all")
    assert code.git_commit(tmp_path / "side") == commit
    assert code.git_commit(tmp_path) == ""
    files = [tmp_path / "repo" / name for name in ("old.py", "changed.py", "new.py")]
    for file in files[:2]:
        file.write_text("a")
    git("add", ".")
    git("commit", "-q", "-m", "y")
    assert code.changed_count(files[:2], tmp_path / "repo") == 0
    for file in files[1:]:
        file.write_text("b")
    assert code.changed_count(files, tmp_path / "repo") == 2
    assert code.changed_count(files, tmp_path) is None


def test_the_files_of_this_test_are_the_users_and_versions_are_known() -> None:
    assert Path(__file__) in code.loaded_files()
    assert not any("site-packages" in str(file) for file in code.loaded_files())
    assert {"python", "numpy", "allranks"} <= code.installed_versions().keys()


def test_a_name_is_looked_for_in_the_program(tmp_path: Path) -> None:
    """As a whole word."""
    (tmp_path / "train.py").write_text('GLOO_MINE_TOO = os.environ["GLOO_MINE"]')
    (tmp_path / "empty.py").touch()
    files = [tmp_path / "empty.py", tmp_path / "train.py"]
    assert contains_name("GLOO_MINE", files)
    assert contains_name("GLOO_MINE_TOO", files)
    assert not contains_name("GLOO_MIN", files)


@pytest.mark.needs("jax")
def test_names_that_jax_reads_are_found_in_its_files_and_the_seeds_is_not() -> None:
    assert contains_name("JAX_ENABLE_X64", [])
    assert not contains_name("XLA_RENDEZVOUS_WAIT_SECONDS", [])


@pytest.mark.needs("jax")
def test_a_child_says_what_xla_thinks_of_flags() -> None:
    """Unknown ones by name; a value it cannot read; a file that is not there; what it made of good ones."""
    assert read_in_child("--xla_foo=1").unknown == ("--xla_foo=1",)
    assert "cannot read the value 'abc'" in read_in_child("--xla_cpu_collective_timeout_seconds=abc").refused
    assert "does not begin with --" in read_in_child("xla_foo").refused
    one, same, other = (read_in_child(f"--xla_cpu_collective_timeout_seconds={n}") for n in (3, 3, 4))
    assert one.digest == same.digest != other.digest


@pytest.mark.needs("jax")
def test_only_flags_that_this_jaxlib_knows_are_set() -> None:
    flags = rendezvous_flags(60)
    assert set(known_flags((*flags, "--xla_of_tomorrow=1"))) <= set(flags)
    assert "--xla_cpu_collective_timeout_seconds=60" in known_flags(flags)


class Kind(enum.Enum):
    FAST = 1


@dataclasses.dataclass
class Config:
    kind: Kind
    path: Path
    rates: tuple[float, ...]
    names: frozenset[str]


def test_configurations_are_described_as_json_values() -> None:
    config = Namespace(model=Config(Kind.FAST, Path("a/b"), (0.1, 0.2), frozenset("xy")), act=abs, seed=np.int64(3))
    assert values.to_json_value(config, value_name="config") == {
        "model": {"kind": "Kind.FAST", "path": "a/b", "rates": [0.1, 0.2], "names": ["x", "y"]},
        "act": "abs",
        "seed": values.to_json_value(np.int64(3), value_name=""),
    }
    with pytest.raises(AllranksError, match=r"config.model: expected .* found a object"):
        values.to_json_value({"model": object()}, value_name="config")


@pytest.mark.needs("jax", "torch")
def test_keys_and_generators_are_taken_apart() -> None:
    """A key is one thing, of either kind; an array of keys, and a list, as many as it holds."""
    import jax
    import torch

    def count(value: object) -> tuple[int, int]:
        parts = values.element_digests(value, value_name="keys")
        return len(parts), len(set(parts))

    key, old = jax.random.key(0), jax.random.PRNGKey(0)
    assert count(key) == count(old) == (1, 1)
    assert count(jax.random.split(key, 8)) == count(jax.random.split(old, 8)) == (8, 8)
    assert count(jax.random.split(key, (2, 3))) == (6, 6)
    assert count([key, key]) == (2, 1)
    assert count([1, 2, 1]) == (3, 2)
    assert count(np.arange(4)) == (4, 4)
    same = [torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)]
    assert count(same) == (2, 1)
    assert count([np.random.default_rng(1), np.random.default_rng(2)]) == (2, 2)


@pytest.mark.needs("torch")
def test_shapes_of_a_tree() -> None:
    import torch

    tree = {"x": np.ones((4, 2)), "y": [torch.ones(4), 3]}
    assert sorted(values.array_shapes(tree).values()) == [(4,), (4, 2)]
