"""The code of a file: its lines without comments, docstrings, and imports of which nothing is used."""

from __future__ import annotations

from allranks.check.sources.source import File, Unreadable, parse

TEXT = '''"""Calls set_epoch.
# No code."""
import os
import sys  # of the system
from loaders import (loader,
  Sampler)
name = "é # 1"  # gone
shown = f"#{name}"
text = """
# kept
"""
def main():
    "DistributedSampler"
    return loader # é
print(os)
'''
CODE = '''

import os

from loaders import (loader,
         )
name = "é # 1"
shown = f"#{name}"
text = """
# kept
"""
def main():

    return loader
print(os)
'''


def code(text: str, path: str = "train.py") -> list[str]:
    tree = parse(text)
    assert not isinstance(tree, Unreadable)
    return [line.rstrip() for line in File(path, text, tree).code]


def test_what_does_nothing_is_left_out_and_every_line_stays_where_it_is() -> None:
    assert code(TEXT) == CODE.split("\n")


def test_a_package_gives_others_what_it_imports() -> None:
    assert code("from loaders import Sampler\n", "data/__init__.py") == ["from loaders import Sampler", ""]
