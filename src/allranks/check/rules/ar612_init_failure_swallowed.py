"""AR612: a process that could not join the others goes on alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import catches_all, leaves, name_of, own, raises, speaks_of, tail_of
from allranks.findings import Finding

_JOINS = (
    *("jax.distributed.initialize", "torch.distributed.init_process_group", "deepspeed.init_distributed"),
    "allranks.init",
)
# What a failure is handed over by: `result.set_return_code(ReturnCode.INIT_FAILURE)`.
_TOLD = re.compile(r"(?i)(return|exit|error|status)_?code|fail")
_SAYS = {"print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log"}


class InitFailureSwallowed(LocalRule):
    """
    ## What it does
    Finds `jax.distributed.initialize()` or `init_process_group()` in a `try` whose handler catches any exception and
    lets the program continue. A handler that leaves the function and sets an error code is not reported.

    ## Why is this bad
    The program should run as a single process if there are no others. But it also does so if the others exist and could
    not be reached: a wrong address, a port in use, a timeout.

    ## What happens with N processes
    The process that failed trains separately as rank 0, and overwrites the checkpoints of the job. The others wait for
    it until they time out. Or all fail, and N programs train in the same directory.

    ## Known problems
    A handler that decides by the text of the exception is not recognised if it does not raise.

    No fault of this kind has been seen in real code yet.

    ## Use instead
    Check whether there are others (`"RANK" in os.environ`, a setting), join only then, and let a failure end the
    process. `allranks.init()` does this.
    """

    code, name, severity, row = "AR612", "init-failure-swallowed", "error", "initialisation"
    cluster = "A process that could not join trains separately as rank 0, beside the job and over its files."
    advice = "Check first whether there are other processes, and let a failure to join them end this one."
    words = ("init",)
    nodes = (ast.Try, ast.TryStar)
    bad = (
        Example(
            {
                "train.py": """\
import jax

try:
    jax.distributed.initialize()
except Exception as error:
    print("single host", error)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist


def join():
    try:
        dist.init_process_group("nccl")
        return True
    except:
        return False
"""
            },
            at=(8,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import jax

try:
    jax.distributed.initialize()
except RuntimeError as error:
    print("initialised before", error)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist

try:
    dist.init_process_group("nccl")
except Exception as error:
    print("rank could not join", error)
    raise
"""
            }
        ),
        Example(
            {
                "bench.py": """\
import torch.distributed as dist


class Bench:
    def prepare(self):
        try:
            dist.init_process_group("nccl")
        except Exception as error:
            self.result.set_return_code(Code.INIT_FAILURE)
            return False
        return True
"""
            }
        ),
        # Another way to join.
        Example(
            {
                "train.py": """\
import torch.distributed as dist

try:
    dist.init_process_group("nccl")
except Exception:
    dist.init_process_group("gloo")
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Try | ast.TryStar):
            return
        joins = next((at for s in node.body for at in _calls(s) if name_of(at, file) in _JOINS), None)
        if joins is None:
            return
        for handler in node.handlers:
            if not catches_all(handler):
                continue
            if not (raises(handler) or _tries_again(handler, file) or _hands_over(handler)):
                word = name_of(joins, file)
                yield self.local(
                    file,
                    handler,
                    f"a failure of {word} is caught and ignored: this process continues as a single process",
                )
            return


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (at for at in [statement, *own(statement)] if isinstance(at, ast.Call))


def _hands_over(handler: ast.ExceptHandler) -> bool:
    """The handler leaves, and more than says that it failed: whoever called can stop."""
    calls = (at for s in handler.body for at in _calls(s) if tail_of(at) not in _SAYS)
    return leaves(handler.body) and any(speaks_of(at, _TOLD) for at in calls)


def _tries_again(handler: ast.ExceptHandler, file: File) -> bool:
    """The handler joins in another way, or stands in a loop of attempts."""
    if any(name_of(at, file) in _JOINS or tail_of(at).startswith("init") for s in handler.body for at in _calls(s)):
        return True
    loops = any(isinstance(p, ast.While | ast.For) for p in file.parents(handler))
    return loops and not leaves(handler.body)
