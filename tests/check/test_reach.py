"""Which files a file imports."""

from __future__ import annotations

import pytest

from allranks.check.sources.reach import candidates


@pytest.mark.parametrize(
    ("path", "text", "reaches"),
    [
        ("train.py", "import util\n", "util.py"),
        ("a/train.py", "import os, util as u  # why\n", "a/util.py"),
        ("a/train.py", "from pkg.deep import f, g as h\n", "pkg/deep.py"),
        ("a/train.py", "from pkg import (\n    deep,  # one\n    other,\n)\n", "pkg/other.py"),
        ("train.py", "from lib.net import Net\n", "src/lib/net.py"),
        ("train.py", "from lib.net import Net\n", "lib/__init__.py"),
        ("a/b/train.py", "from . import util\n", "a/b/util.py"),
        ("a/b/train.py", "from ..core import run\n", "a/core.py"),
        ("a/b/train.py", "from ..core import run\n", "a/__init__.py"),
        ("train.py", "def f():\n    import util\n", "util.py"),
    ],
)
def test_an_import_leads_to_its_file(path: str, text: str, reaches: str) -> None:
    """Beside the file, from the root, below src; modules and what stands in packages; in functions too."""
    assert reaches in set(candidates(path, text.encode()))


def test_nothing_outside_the_root_is_reached() -> None:
    """Nor is anything of a file that is no Python."""
    assert not any(found.startswith("..") for found in candidates("a.py", b"from ...x import y\nfrom .. import z\n"))
    assert list(candidates("a.py", bytes(range(256)))) == []
