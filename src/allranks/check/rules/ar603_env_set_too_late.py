"""AR603: an environment variable is set after it was read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from allranks.check.knowledge.tables import read
from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.earlier import earlier
from allranks.check.tree.syntax import name_of
from allranks.findings import Finding, Note
from allranks.names.variables import NAMES

_TABLE = read("backend.toml")
_JAX = (*_TABLE["jax_starters"], *_TABLE["jax_arrays"])
_READ = {
    variable: (frozenset(_JAX if row["by"] == "jax" else row["by"]), row["why"])
    for row in _TABLE["read"]
    for variable in row["variables"]
}
_STARTS_OTHERS = ("subprocess", "Popen", "spawn(", "init_method", "store=")


class EnvSetTooLate(LocalRule):
    """
    ## What it does
    Finds variables that are set below what reads them: `JAX_...` after `import jax`; `XLA_FLAGS` after the first use
    of a device; `CUDA_VISIBLE_DEVICES` after CUDA has started; `MASTER_ADDR` after `init_process_group`.

    ## Why is this bad
    They are read once. A value that is set later is ignored, without a message.

    ## What happens with N processes
    The timeout, the device or the network card is the default one. With `CUDA_VISIBLE_DEVICES`, all ranks of a host use
    the same GPU.

    ## Known problems
    Calls are followed within one file. A program that starts others may set the variable for them: it is not reported.

    ## Use instead
    Set it in the launch command (`allranks run` does), or in the first lines of the program above all imports.
    """

    code, name, severity, row = "AR603", "env-set-too-late", "error", "initialisation"
    cluster = "The setting is ignored on every rank, without a message."
    advice = "Set the variable before the import or call that reads it, best where the processes are launched."
    words = ("environ",)
    nodes = (ast.Assign, ast.Call)
    calls = ("os.environ.setdefault",)
    bad = (
        """\
import os
import jax

os.environ["JAX_ENABLE_X64"] = "1"  # <-- found
print(jax.devices())
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"  # <-- found
""",
    )
    good = (
        """\
import os

os.environ["JAX_ENABLE_X64"] = "1"
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
import jax

print(jax.devices())
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test and not file.says(*_STARTS_OTHERS)

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        name, why = _variable(node, file), ""
        reader: ast.AST | None = None
        if name in NAMES["JAX_"] and name not in _TABLE["jax_at_joining"] and not file.says(name.lower()):
            reader, why = _import_above(node, file), "JAX reads it when it is imported"
        elif (read_by := _READ.get(name) or _READ.get(f"{name.partition('_')[0]}_*")) is not None:
            calls, why = read_by
            reader = earlier(node, file, lambda at: name_of(at, file) in calls)
        if reader is not None and not (file.says("host_platform_device_count") and name.startswith("JAX_PLATFORM")):
            notes = [Note("read here", file.place(reader))]
            what = f"{name} is set too late: {why}, above"
            yield self.finding(file.place(node), file.symbol(node), what, notes=notes)


def _variable(node: ast.AST, file: File) -> str:
    """Return the variable that a statement sets, '' if none."""
    key: ast.AST | None = None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        key = target.slice if name_of(target.value, file) == "os.environ" else None
    elif isinstance(node, ast.Call) and name_of(node, file) == "os.environ.setdefault" and node.args:
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _import_above(node: ast.AST, file: File) -> ast.stmt | None:
    """Return the import of jax at the top of the module above ``node``, unless the same is set above it."""
    line = getattr(node, "lineno", 0)
    imports = (at for at in file.tree.body if isinstance(at, ast.Import | ast.ImportFrom) and at.lineno < line)
    said = file.lines[line - 1].strip()
    for at in imports:
        modules = [one.name for one in at.names] if isinstance(at, ast.Import) else [at.module or ""]
        if any(one.partition(".")[0] == "jax" for one in modules) and not getattr(at, "level", 0):
            return None if any(text.strip() == said for text in file.lines[: at.lineno]) else at
    return None
