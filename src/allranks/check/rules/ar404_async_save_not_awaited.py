"""AR404: a checkpoint is saved in the background, and nobody waits for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.nodes import walk
from allranks.check.rule import Example, LocalRule
from allranks.check.source import File
from allranks.findings import Finding

_SAVERS = frozenset(
    [
        "torch.distributed.checkpoint.async_save",
        "torch.distributed.checkpoint.state_dict_saver.async_save",
        "jax.experimental.array_serialization.async_save",
    ]
)
_MANAGERS = ("AsyncCheckpointer", "CheckpointManager", "StandardCheckpointer")
_WAITS = ("wait_until_finished", "close", "check_for_errors", "result", "wait", "add_done_callback", "exception")


class AsyncSaveNotAwaited(LocalRule):
    """
    ## What it does
    Finds a background save whose future is dropped (`dcp.async_save(...)` as a statement), or kept and never asked
    for its result in the file; and an Orbax saver that is made in a function and never waited for there.

    ## Why is this bad
    The save goes on after the call. If the program ends or saves again meanwhile, the last checkpoint is not
    complete; if it fails, nobody is told.

    ## What happens with N processes
    Each process writes its shards at its own pace. Those that end early leave a checkpoint that some ranks finished and
    others did not.

    ## Known problems
    A future or saver that is given to another file is taken to be awaited there.

    No fault of this kind has been seen in real code yet; a future that is dropped tells nobody whether the save is
    done.

    ## Use instead
    Keep the future; call `result()` before the next save and before the end. With Orbax, `wait_until_finished()` or
    `close()`.

    ## Fix safety
    There is no automatic fix: where to wait is a question of speed.
    """

    code, name, severity, row = "AR404", "async-save-not-awaited", "error", "checkpoint save"
    cluster = "The job can end while some ranks still write: the last checkpoint is not whole, and no error is seen."
    advice = "Keep the future and call result() before the next save and before the end; Orbax: wait_until_finished()."
    words = ("async_save", *_MANAGERS)
    nodes = (ast.Call,)
    bad = (
        Example(
            {
                "train.py": """\
import torch.distributed.checkpoint as dcp

def save(state, path):
    dcp.async_save(state, checkpoint_id=path)
""",
            },
            at=(4,),
        ),
        Example(
            {
                "train.py": """\
import orbax.checkpoint as ocp

def main(state, path):
    saver = ocp.StandardCheckpointer()
    saver.save(path, state)
""",
            },
            at=(4,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import orbax.checkpoint as ocp
import torch.distributed.checkpoint as dcp

def save(state, path, before):
    if before is not None:
        before.result()
    return dcp.async_save(state, checkpoint_id=path)

def main(state, path):
    future = save(state, path, None)
    future.result()
    with ocp.CheckpointManager(path) as manager:
        manager.save(0, args=ocp.args.StandardSave(state))
    saver = ocp.StandardCheckpointer()
    saver.save(path, state)
    saver.wait_until_finished()
""",
            },
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.Call)
        if file.is_test:
            return
        name = file.qualified(node.func) or ""
        above = next(file.parents(node), None)
        if name in _SAVERS:
            if isinstance(above, ast.Expr):
                yield self.local(file, node, "the future of a background save is dropped")
            elif isinstance(above, ast.Assign) and not _waited(above.targets[0], file.tree):
                yield self.local(file, node, f"nobody asks {ast.unparse(above.targets[0])} whether the save is done")
        elif name.startswith("orbax.") and name.endswith(_MANAGERS) and isinstance(above, ast.Assign):
            target = above.targets[0]
            scope = next((p for p in file.parents(node) if isinstance(p, ast.FunctionDef)), file.tree)
            if isinstance(target, ast.Name) and _saves(target.id, scope) and not _waited(target, scope):
                yield self.local(file, node, f"{target.id} saves in the background and is never waited for")


def _methods(name: str, scope: ast.AST) -> set[str]:
    return {part.attr for part in walk(scope) if isinstance(part, ast.Attribute) and (ast.unparse(part.value) == name)}


def _saves(name: str, scope: ast.AST) -> bool:
    return "save" in _methods(name, scope)


def _waited(target: ast.expr, scope: ast.AST) -> bool:
    """Whether ``target`` is waited for, or given to somebody who may do it."""
    name = ast.unparse(target)
    return bool(_methods(name, scope) & set(_WAITS)) or (isinstance(target, ast.Name) and _handed_on(name, scope))


def _handed_on(name: str, scope: ast.AST) -> bool:
    for part in walk(scope):
        values: list[ast.expr | None] = []
        if isinstance(part, ast.Call):
            values = [*part.args, *(k.value for k in part.keywords)]
        elif isinstance(part, ast.Return | ast.Yield | ast.Assign):
            values = [part.value]
        elif isinstance(part, ast.withitem):
            values = [part.context_expr]
        elif isinstance(part, ast.Tuple | ast.List):
            values = list(part.elts)
        if any(
            isinstance(value, ast.Name) and value.id == name and isinstance(value.ctx, ast.Load) for value in values
        ):
            return True
    return False
