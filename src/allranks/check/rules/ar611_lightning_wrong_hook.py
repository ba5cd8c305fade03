"""AR611: a hook of Lightning runs on one process, or on all, and the code in it wants the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.syntax import bases_of, class_of, function_of, is_constant, keyword, tail_of
from allranks.findings import Finding

_MODULES = ("LightningDataModule", "LightningModule")


class LightningWrongHook(LocalRule):
    """
    ## What it does
    Finds, in a Lightning module or data module, attributes that are set in `prepare_data` alone, and data sets with
    `download=True` in `setup` or `__init__`.

    ## Why is this bad
    `prepare_data` runs on one process per node. `setup` and `__init__` run on all.

    ## What happens with N processes
    An attribute of `prepare_data` is missing on the other ranks (AttributeError there, and the first rank waits), or
    has the value of `__init__`. A download in `setup` runs in all processes at once, into the same files.

    ## Known problems
    Only classes whose base is called `LightningDataModule` or `LightningModule` are looked at.

    ## Use instead
    Download in `prepare_data` and keep nothing. Open the data and set attributes in `setup`.
    """

    code, name, severity, row = "AR611", "lightning-wrong-hook", "error", "data"
    cluster = "prepare_data runs on one process of a node, setup and __init__ on all."
    instead_of = ("AR106",)
    advice = "Download in prepare_data, set attributes in setup."
    words = _MODULES
    nodes = (ast.Assign, ast.Call)
    bad = (
        """\
# file: data.py
from lightning.pytorch import LightningDataModule
from torchvision.datasets import MNIST


class Data(LightningDataModule):
    def prepare_data(self):
        self.rows = list(range(100))  # <-- found

    def setup(self, stage):
        self.digits = MNIST("data", download=True)  # <-- found

    def train_dataloader(self):
        return self.rows
""",
    )
    good = (
        """\
# file: data.py
from lightning.pytorch import LightningDataModule
from torchvision.datasets import MNIST


class Data(LightningDataModule):
    def prepare_data(self):
        MNIST("data", download=True)

    def setup(self, stage):
        self.rows = MNIST("data")

    def train_dataloader(self):
        return self.rows
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        function, owner = function_of(node, file), class_of(node, file)
        if owner is None or not any(base.rpartition(".")[2] in _MODULES for base in bases_of(owner, file)):
            return
        if function is None or function not in owner.body:
            return
        elif isinstance(node, ast.Assign) and function.name == "prepare_data":
            targets = [part for whole in node.targets for part in getattr(whole, "elts", [whole])]
            missing = next((at for at in targets if _is_missing(at, owner, function)), None)
            if missing is not None:
                told = f"{ast.unparse(missing)} is set in prepare_data, which runs on one process of a node"
                yield self.local(file, node, told)
        elif isinstance(node, ast.Call) and function.name in ("setup", "__init__") and _downloads(node):
            yield self.local(file, node, f"{tail_of(node)} downloads in {function.name}, which all processes run")


def _downloads(call: ast.Call) -> bool:
    return is_constant(keyword(call, "download"), True)


def _is_missing(target: ast.expr, owner: ast.ClassDef, alone: ast.AST) -> bool:
    """Whether other methods use an attribute that only ``alone`` fills: none asks whether it is there."""
    if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
        return False
    nodes = [at for method in owner.body if method is not alone for at in walk(method)]
    uses = [at for at in nodes if isinstance(at, ast.Attribute) and at.attr == target.attr]
    empty = {
        id(one)
        for at in nodes
        if isinstance(at, ast.Assign) and ast.unparse(at.value) in ("None", "0", "[]", "{}", "dict()", "list()")
        for one in at.targets
    }
    stored = [at for at in uses if isinstance(at.ctx, ast.Store)]
    asks = (at.test for at in nodes if isinstance(at, ast.If | ast.IfExp | ast.Assert))
    asked = any(f"self.{target.attr}" in ast.unparse(test) for test in asks)
    again = any(isinstance(at, ast.Call) and tail_of(at) == "prepare_data" for at in nodes)
    return len(uses) > len(stored) and all(id(at) in empty for at in stored) and not asked and not again
