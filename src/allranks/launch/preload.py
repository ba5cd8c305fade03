"""Find out, from the source of a script, which modules to import before the ranks are forked, and what forbids that.

Only frameworks that are known to survive a fork right after their import are preloaded. The script's own modules are
read but never imported: they must run in each rank.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from allranks.program import makes_saver

# Leave no thread and initialise no device when they are imported; `keep.obstacle` checks it after the fact.
SAFE = frozenset(
    [
        "allranks",
        "numpy",
        "scipy",
        "ml_dtypes",
        "jax",
        "jaxlib",
        "equinox",
        "jaxtyping",
        "optax",
        "chex",
        "flax",
        "haiku",
        "einops",
        "torch",
        "lightning",
        "pytorch_lightning",
        "accelerate",
        "safetensors",
        "tqdm",
    ]
)
# Variables that a framework reads while it is imported: a script that sets one must import the framework itself.
READ_AT_IMPORT = ("JAX_", "JAXTYPING_", "EQX_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NPY_", "TORCH_", "PYTORCH_")
READ_LATER = ("JAX_COORDINATOR_", "JAX_PROCESS_", "JAX_NUM_PROCESSES")
FOLLOW_AT_MOST = 300
_COMPUTED = "environment variables by names that its text does not show"


@dataclass(frozen=True, slots=True)
class PreloadPlan:
    """What to import before the ranks are forked.

    - ``modules``: dotted names, in the order of the source.
    - ``obstacle``: why nothing may be imported; "" if it may.
    - ``makes_saver``: the source makes an object that saves at SIGTERM (`allranks.program`).
    """

    modules: tuple[str, ...]
    obstacle: str = ""
    makes_saver: bool = False


def plan_preload(source: str, *, name: str, find: Callable[[str], str | None], env: Mapping[str, str]) -> PreloadPlan:
    """Read a script and the modules of the user that it imports; return the plan.

    - ``source``, ``name``: the script's source and its dotted name ("__main__", "pkg.train").
    - ``find``: returns the source of a module of the user by its dotted name, or None for any other module.
    - ``env``: the environment that the ranks will have.
    """
    wanted: dict[str, None] = {}
    obstacles: list[str] = []
    saves = False
    seen = {name}
    queue = [(name, source)]
    while queue and len(seen) < FOLLOW_AT_MOST:
        here, text = queue.pop(0)
        saves = saves or makes_saver(text)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            obstacles.append(f"{_module_description(here)} is not valid Python")
            continue
        obstacles += (f"{_module_description(here)} sets {variable}" for variable in _environment_changes(tree, env))
        for module in _imported_modules(tree, package=here.rpartition(".")[0]):
            if module in seen:
                continue
            seen.add(module)
            if module.split(".")[0] in SAFE:
                wanted[module] = None
            elif (found := find(module)) is not None:
                queue.append((module, found))
    return PreloadPlan((), obstacles[0], saves) if obstacles else PreloadPlan(tuple(wanted), makes_saver=saves)


def _module_description(module: str) -> str:
    return "the script" if module == "__main__" else module


def _imported_modules(tree: ast.AST, *, package: str) -> Iterator[str]:
    """Yield every module that the source may import: for ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from _with_parents(module)
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")


def _with_parents(module: str) -> Iterator[str]:
    parts = module.split(".") if module else []
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def _environment_changes(tree: ast.AST, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a description of each change that the source makes in ``os.environ`` to a variable read at import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and _is_environ(target.value):
                    yield from _describe_change(target.slice, node.value, env, keeps=False)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _sets_by_call(node, node.func, env)


def _sets_by_call(node: ast.Call, func: ast.Attribute, env: Mapping[str, str]) -> Iterator[str]:
    if (
        func.attr in ("setdefault", "putenv")
        and len(node.args) == 2
        and (func.attr == "putenv" or _is_environ(func.value))
    ):
        yield from _describe_change(node.args[0], node.args[1], env, keeps=func.attr == "setdefault")
    elif func.attr == "update" and _is_environ(func.value):
        literal = [arg for arg in node.args if isinstance(arg, ast.Dict)]
        if len(literal) != len(node.args):
            yield _COMPUTED
        for dictionary in literal:
            for key, value in zip(dictionary.keys, dictionary.values, strict=True):
                yield from _describe_change(key, value, env, keeps=False)
        for keyword in node.keywords:
            yield from _describe_change(
                ast.Constant(keyword.arg) if keyword.arg else None, keyword.value, env, keeps=False
            )


def _describe_change(key: ast.expr | None, value: ast.expr, env: Mapping[str, str], *, keeps: bool) -> Iterator[str]:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        yield _COMPUTED
        return
    if not key.value.startswith(READ_AT_IMPORT) or key.value.startswith(READ_LATER):
        return
    same = isinstance(value, ast.Constant) and env.get(key.value) == value.value
    if not same and not (keeps and key.value in env):
        yield f"{key.value}, which a framework reads when it is imported"


def _is_environ(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )
