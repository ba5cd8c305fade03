"""AR611: a hook of Lightning runs on one process, or on all, and the code in it wants the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import bases_of, class_of, function_of, is_constant, keyword, tail_of
from allranks.findings import Finding

_ON_ALL = ("setup", "__init__")
_MODULES = ("LightningDataModule", "LightningModule")


class LightningWrongHook(LocalRule):
    """
    ## What it does
    Finds attributes that are set in `prepare_data`, and data sets with `download=True` in `setup` or `__init__`, of a
    Lightning module or data module.

    ## Why is this bad
    `prepare_data` runs on one process of each node alone; `setup` and `__init__` run on all.

    ## What happens with N processes
    An attribute of `prepare_data` is missing on the other ranks: AttributeError there, and the first rank waits. A
    download in `setup` is done by all processes at once, into the same files.

    ## Known problems
    A base class that is not named `LightningDataModule` or `LightningModule` here is not recognised.

    ## Use instead
    Download in `prepare_data` and keep nothing; open the data and set attributes in `setup`.
    """

    code, name, severity, row = "AR611", "lightning-wrong-hook", "error", "data"
    cluster = "prepare_data runs on one process of a node, setup and __init__ on all."
    instead_of = ("AR106",)
    advice = "Download in prepare_data, set attributes in setup."
    words = _MODULES
    nodes = (ast.Assign, ast.AnnAssign, ast.Call)
    bad = (
        Example(
            {
                "data.py": """\
import lightning as L
from torchvision.datasets import MNIST


class Data(L.LightningDataModule):
    def prepare_data(self):
        self.train = MNIST("data", download=True)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "data.py": """\
import pytorch_lightning as pl
from torchvision.datasets import MNIST


class Data(pl.LightningDataModule):
    def setup(self, stage):
        self.train = MNIST("data", download=True)
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "data.py": """\
import lightning as L
from torchvision.datasets import MNIST


class Data(L.LightningDataModule):
    def prepare_data(self):
        MNIST("data", download=True)

    def setup(self, stage):
        self.train = MNIST("data", download=False)
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        function, owner = function_of(node, file), class_of(node, file)
        if function is None or owner is None or function not in owner.body or not _is_lightning(owner, file):
            return
        if isinstance(node, ast.Assign | ast.AnnAssign) and function.name == "prepare_data":
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if _is_missing(target, owner, function):
                    told = f"{ast.unparse(target)} is set in prepare_data, which runs on one process of a node"
                    yield self.local(file, node, told)
        elif function.name in _ON_ALL and isinstance(node, ast.Call) and is_constant(keyword(node, "download"), True):
            yield self.local(file, node, f"{tail_of(node)} downloads in {function.name}, which all processes run")


def _is_lightning(owner: ast.ClassDef, file: File) -> bool:
    return any(base.rpartition(".")[2] in _MODULES for base in bases_of(owner, file))


def _is_missing(target: ast.expr, owner: ast.ClassDef, function: ast.AST) -> bool:
    """``target`` is an attribute that no other method sets: it is missing where prepare_data did not run."""
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.value.id != "self":
        return False
    others = (at for s in owner.body if s is not function for at in walk(s))
    return not any(
        isinstance(at, ast.Attribute) and at.attr == target.attr and isinstance(at.ctx, ast.Store) for at in others
    )
