"""AR404: a checkpoint is saved in the background, and nobody waits for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import values
from allranks.check.tree.syntax import arguments, class_of, keyword
from allranks.findings import Finding, Note

_SAVERS = frozenset(
    [
        "torch.distributed.checkpoint.async_save",
        "torch.distributed.checkpoint.state_dict_saver.async_save",
        "jax.experimental.array_serialization.async_save",
    ]
)
_MANAGERS = ("AsyncCheckpointer", "CheckpointManager", "StandardCheckpointer")
# Savers that say in their name that they work in the background, whosever they are.
_ASYNC = re.compile(r"^(Global)?Async\w*(Checkpointer|CheckpointManager)$")
_NOBODY = "nothing in the program waits for"
_MOST = 5
_WAITS = ("wait_until_finished", "close", "check_for_errors", "result", "wait", "add_done_callback", "exception")


class AsyncSaveNotAwaited(LocalRule):
    """
    ## What it does
    Finds a background save that the program does not wait for:

    - a future that is lost (`dcp.async_save(...)` as a statement), or whose result the file never uses
    - an Orbax saver that is made in a function or kept in a class (`self._saver`) and never waited for, or that has no
      name (`StandardCheckpointer().save(...)`)
    - a saver that is passed on or kept in an object, in a program that never calls `wait_until_finished()` and never
      closes it

    ## Why is this bad
    The save continues after the call. If the program ends or saves again before it has finished, the last checkpoint is
    incomplete. If the save fails, there is no error.

    ## What happens with N processes
    Each process writes its shards at its own pace. Processes that end early leave a checkpoint that only some ranks
    have finished.

    ## Known problems
    A future that is passed to another file counts as awaited there; a saver, if anything in the program waits.
    Confidence is low if a saver is passed on, and no wait is seen: its owner may wait.

    ## Use instead
    Keep the future; call `result()` before the next save and before the end. With Orbax, `wait_until_finished()` or
    `close()`.

    ## Fix safety
    There is no automatic fix: where to wait is a question of speed.
    """

    code, name, severity, row = "AR404", "async-save-not-awaited", "error", "checkpoint save"
    cluster = "The job can end while some ranks still write: the last checkpoint is incomplete, without an error."
    advice = "Keep the future and call result() before the next save and before the end; Orbax: wait_until_finished()."
    words = ("async_save", "Async", *_MANAGERS)
    nodes = (ast.Call,)
    bad = (
        Example(
            {
                "train.py": """\
import orbax.checkpoint as ocp

def save(state, path):
    ocp.StandardCheckpointer().save(path, state)
""",
            },
            at=(4,),
        ),
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

def main(state, path, config):
    saver = ocp.StandardCheckpointer()
    saver.save(path, state)
    options = ocp.CheckpointManagerOptions(max_to_keep=3, enable_async_checkpointing=config.in_background)
    manager = ocp.CheckpointManager(path, options=options)
    manager.save(0, state)
""",
            },
            at=(4, 7),
        ),
        Example(
            {
                "saving.py": """\
import orbax.checkpoint as ocp


class Saver:
    def __init__(self):
        self._saver = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
        self._other = ocp.StandardCheckpointer()

    def __call__(self, path, state):
        self._saver.save(path, args=ocp.args.PyTreeSave(state))
        self._other.save(path, state)

    def finish(self):
        self._other.wait_until_finished()
""",
                "train.py": """\
from saving import Saver

saver = Saver()
saver("/last", {})
saver.finish()
""",
            },
            at=(6,),
        ),
        Example(
            {
                "main.py": """\
import trainer
from orbax.checkpoint import AsyncCheckpointer, CheckpointManager, PyTreeCheckpointHandler


class Keeper:
    def __init__(self, path):
        self.manager = CheckpointManager(path)

    def save(self, step, state):
        self.manager.save(step, state)


def main():
    saver = AsyncCheckpointer(PyTreeCheckpointHandler())
    trainer.fit(saver, Keeper("/checkpoints"))
""",
                "trainer.py": """\
def fit(saver, keeper):
    saver.save("/last", {})
    keeper.save(0, {})
""",
            },
            at=(7, 14),
        ),
    )
    good = (
        Example(
            {
                "main.py": """\
import trainer
from orbax.checkpoint import AsyncCheckpointer, Checkpointer, CheckpointManager, PyTreeCheckpointHandler


def main(path):
    trainer.fit(AsyncCheckpointer(PyTreeCheckpointHandler()), CheckpointManager(path, Checkpointer(None)))
""",
                "trainer.py": """\
def fit(saver, keeper):
    saver.save("/last", {})
    keeper.save(0, {})
    saver.wait_until_finished()
""",
            }
        ),
        # It saves before it goes on.
        Example(
            {
                "main.py": """\
from orbax.checkpoint import CheckpointManager, CheckpointManagerOptions, PyTreeCheckpointer


class Keeper:
    def __init__(self, path):
        self.manager = CheckpointManager(path, PyTreeCheckpointer(), CheckpointManagerOptions(max_to_keep=3))
        self.other = CheckpointManager(path, options=CheckpointManagerOptions(enable_async_checkpointing=False))

    def save(self, step, state):
        self.manager.save(step, state)
        self.other.save(step, state)


def main(path, state):
    at_once = CheckpointManagerOptions(enable_async_checkpointing=False)
    manager = CheckpointManager(path, options=at_once)
    manager.save(0, state)
    saver = CheckpointManager(path, {"state": PyTreeCheckpointer()})
    saver.save(0, state)
""",
            }
        ),
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

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.Call)
        name = file.qualified(node.func) or ""
        above = next(file.parents(node), None)
        if name in _SAVERS:
            if isinstance(above, ast.Expr):
                yield self.local(file, node, "the future of a background save is lost")
            elif isinstance(above, ast.Assign) and not _waited(above.targets[0], file.tree):
                yield self.local(
                    file, node, f"nothing waits for {ast.unparse(above.targets[0])}, the future of a background save"
                )
        elif name.startswith("orbax.") and name.endswith(_MANAGERS) and _saves_unnamed(node, file):
            yield self.local(
                file, node, f"nothing can wait for this {name.rpartition('.')[2]}: it is kept in no variable"
            )
            return
        elif name.startswith("orbax.") and name.endswith(_MANAGERS) and isinstance(above, ast.Assign):
            target = above.targets[0]
            scope = next((p for p in file.parents(node) if isinstance(p, ast.FunctionDef)), file.tree)
            alone = isinstance(target, ast.Name) and _saves(target.id, scope) and not _waited(target, scope)
            background = name.endswith("StandardCheckpointer") or _is_kept_async(node, name, file)
            if background and (alone or _is_kept_alone(target, node, file)):
                yield self.local(file, node, f"{ast.unparse(target)} saves in the background and is never waited for")
                return
        if _is_kept_async(node, name, file) and not isinstance(above, ast.withitem):
            yield self._unawaited(node, name, file)

    def stands(self, finding: Finding, program: Program) -> bool:
        return not finding.message.startswith(_NOBODY) or not program.facts.awaits_saves

    def _unawaited(self, node: ast.Call, name: str, file: File) -> Finding:
        """Return a finding at a saver, with where it is handed on to others."""
        scope = next((p for p in file.parents(node) if isinstance(p, ast.FunctionDef)), file.tree)
        above = next(file.parents(node), None)
        kept = ast.unparse(above.targets[0]) if isinstance(above, ast.Assign) else ""
        given = (value for call in walk(scope) if isinstance(call, ast.Call) for value in arguments(call))
        handed = [value for value in given if kept and ast.unparse(value) == kept]
        return self.finding(
            file.place(node),
            file.symbol(node),
            f"{_NOBODY} this {name.rpartition('.')[2]}, which saves in the background",
            notes=[Note("passed on here", file.place(value)) for value in handed[:_MOST]],
            confidence="low",
        )


def _is_kept_alone(target: ast.expr, made: ast.Call, file: File) -> bool:
    """Whether it is kept in an attribute that nobody but its class asks for, by its name; which saves with it, waits
    nowhere and gives it to nobody."""
    owner = class_of(made, file)
    if owner is None or not isinstance(target, ast.Attribute) or not ast.unparse(target).startswith("self._"):
        return False
    name = ast.unparse(target)
    uses = [at for at in walk(owner) if isinstance(at, ast.Attribute) and ast.unparse(at) == name]
    above = [next(file.parents(at)) for at in uses if isinstance(at.ctx, ast.Load)]
    methods = {at.attr if isinstance(at, ast.Attribute) else "" for at in above}
    return "save" in methods and methods.isdisjoint({"", "__exit__", *_WAITS})


def _saves_unnamed(made: ast.Call, file: File) -> bool:
    """``StandardCheckpointer().save(path, state)``, but for managers that were told not to work in the background."""
    method = next(file.parents(made), None)
    return isinstance(method, ast.Attribute) and method.attr == "save" and not _gives_up_async(made, file)


def _is_kept_async(call: ast.Call, name: str, file: File) -> bool:
    """A saver that works in the background: by its name, or Orbax's manager that is given no other saver."""
    last = name.rpartition(".")[2]
    if _ASYNC.match(last):
        return True
    if not name.startswith("orbax.") or last != "CheckpointManager":
        return False
    if _gives_up_async(call, file):
        return False
    savers = keyword(call, "checkpointers") or (call.args[1] if len(call.args) > 1 else None)
    return savers is None or "Async" in ast.unparse(savers)


def _gives_up_async(call: ast.Call, file: File) -> bool:
    """It is told not to, or its options stand elsewhere and may tell it."""
    options = keyword(call, "options") or (call.args[2] if len(call.args) > 2 else None)
    stored = values(options, file) if isinstance(options, ast.Name | ast.Attribute) else []
    options = stored[0] if len(stored) == 1 else options
    if options is None or not isinstance(options, ast.Call):
        return options is not None
    told = keyword(options, "enable_async_checkpointing")
    return any(word.arg is None for word in options.keywords) or (isinstance(told, ast.Constant) and not told.value)


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
