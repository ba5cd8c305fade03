"""Instrument a program's source: the values that its branches depend on, and the exceptions that it catches.

A branch is instrumented if it decides about training: it leaves a loop, saves, makes a step, or changes the learning
rate. Each operand of its condition is passed through a function that returns it unchanged. So are the arguments of what
the condition was computed by: ``is_best = loss < best``, or ``stopper(loss)`` before ``if stopper.early_stop``.
Each handler of exceptions begins with a call that reports the exception. No line number changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

# Names in the instrumented program: of the functions that get an operand, the condition's value, and an exception, and
# of the one that is called before a value is computed anew.
OPERAND, CONDITION, CAUGHT = "__allranks_operand__", "__allranks_condition__", "__allranks_caught__"
RESET = "__allranks_reset__"
_SAVES = ("save", "dump", "checkpoint")
_STEPS = ("step", "backward", "all_reduce", "all_gather", "barrier", "broadcast", "reduce", "scatter", "gather")
_ENDS = ("exit", "_exit", "abort", "kill", "raise_signal")
_BROAD = ("Exception", "BaseException", "RuntimeError", "")
_COMPILED = ("jit", "pmap", "compile", "shard_map", "vmap", "grad", "remat", "checkpoint", "script")

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True, slots=True)
class Site:
    """A branch or a handler of exceptions.

    - ``controls``: what a branch decides about ("leave", "save", "step", "rate"); for a handler, "ends" if it ends the
      program or raises again, and "broad" if it catches any exception.
    - ``within``: the first and the last line of the loop that a branch is in, or of the statements that a handler is
      for; () if there is none.
    """

    line: int
    controls: tuple[str, ...]
    within: tuple[int, ...] = ()
    in_loop: bool = False


@dataclass(slots=True)
class _Scope:
    node: Scope
    branches: list[tuple[int, ast.If | ast.While]] = field(default_factory=list)


def instrumented(source: str | bytes, file: str, first: int = 0) -> tuple[ast.Module, list[Site]]:
    """Return the instrumented program and its sites, which are numbered from ``first``.

    Raises SyntaxError as ``ast.parse`` does.
    """
    tree = ast.parse(source, file)
    sites: list[Site] = []
    for scope in list(_scopes(tree)):
        _instrument(scope, sites, first)
    return ast.fix_missing_locations(tree), sites


def _scopes(tree: ast.Module) -> Iterator[_Scope]:
    """Yield the module and its functions, without those that a framework compiles."""
    yield _Scope(tree)
    modules = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Module") for base in node.bases)
        for inner in node.body
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_model = id(node) in modules and node.name in ("forward", "__call__")
        is_compiled = any(word in ast.unparse(one) for one in node.decorator_list for word in _COMPILED)
        if not is_model and not is_compiled:
            yield _Scope(node)


def _instrument(scope: _Scope, sites: list[Site], first: int) -> None:
    statements = list(_statements(scope.node))
    loops = [node for node in statements if isinstance(node, _LOOPS)]
    handlers: list[tuple[int, ast.ExceptHandler]] = []
    for node in statements:
        inner = [loop for loop in loops if loop.lineno < node.lineno <= (loop.end_lineno or 0)]
        within = _span(inner[-1]) if inner else ()
        if isinstance(node, ast.If | ast.While):
            within = _span(node) if isinstance(node, ast.While) else within
            if controls := _controls(node):
                scope.branches.append((first + len(sites), node))
                sites.append(Site(node.lineno, controls, within, bool(within)))
        elif isinstance(node, ast.Try):
            for handler in node.handlers:
                handlers.append((first + len(sites), handler))
                last = node.body[-1].end_lineno or node.lineno
                controls = _handled(handler)
                sites.append(Site(handler.lineno, controls, (node.body[0].lineno, last), bool(inner)))
    conditions = [(number, node, node.test) for number, node in scope.branches]
    for number, node, test in conditions:
        _feed(number, node, test, statements)
    for number, node, _ in conditions:
        node.test = _call(CONDITION, number, _wrapped(node.test, number), node.test)
    for number, handler in handlers:
        report = ast.Expr(_call(CAUGHT, number, None, handler))
        handler.body.insert(0, ast.copy_location(report, handler))


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope in the order of its lines, without those of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, _FUNCTIONS):
            yield from _statements(child)


def _span(node: ast.stmt) -> tuple[int, ...]:
    return node.lineno, node.end_lineno or node.lineno


def _controls(node: ast.If | ast.While) -> tuple[str, ...]:
    """Return what a branch decides about."""
    found = set()
    if isinstance(node, ast.While):
        return () if isinstance(node.test, ast.Constant) else ("leave",)
    for inner, is_nested in _inside(node):
        if isinstance(inner, ast.Return) or (isinstance(inner, ast.Break | ast.Continue) and not is_nested):
            found.add("leave")
        elif isinstance(inner, ast.Call):
            name = _name(inner.func)
            found |= {"save"} if any(word in name.lower() for word in _SAVES) else set()
            found |= {"step"} if name in _STEPS else set()
        elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store):
            found |= {"rate"} if isinstance(inner.slice, ast.Constant) and inner.slice.value == "lr" else set()
    return tuple(sorted(found))


def _inside(node: ast.AST, *, is_nested: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes in a branch, and whether each is in a loop inside it."""
    for child in ast.iter_child_nodes(node):
        if child is getattr(node, "test", None) or isinstance(child, _FUNCTIONS):
            continue
        yield child, is_nested
        yield from _inside(child, is_nested=is_nested or isinstance(child, _LOOPS))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _handled(handler: ast.ExceptHandler) -> tuple[str, ...]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind).rpartition(".")[2] if kind else "" for kind in kinds}
    calls = [one.value for one in handler.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)]
    ends = any(isinstance(one, ast.Raise) for one in handler.body) or any(
        _name(call.func) in _ENDS and not _is_exit_0(call) for call in calls
    )
    return (*(["ends"] if ends else []), *(["broad"] if names & set(_BROAD) else []))


def _is_exit_0(call: ast.Call) -> bool:
    return not call.args or (isinstance(call.args[0], ast.Constant) and call.args[0].value in (0, None))


def _feed(number: int, branch: ast.If | ast.While, test: ast.expr, statements: Sequence[ast.stmt]) -> None:
    """Instrument the statements that a branch's condition was computed by."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    owners = {ast.unparse(node.value) for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    for name in sorted(names):
        assigned = [one for one in statements if isinstance(one, ast.Assign | ast.AnnAssign) and name in _targets(one)]
        earlier = [one for one in assigned if one.lineno < branch.lineno] or assigned
        _feed_from(number, branch, earlier, statements)
    for one in statements:
        if isinstance(one, ast.If) and one is not branch and names & _set_in(one) and one.lineno < branch.lineno:
            one.test = _wrapped(one.test, number)
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and one.lineno < branch.lineno:
            function = one.value.func
            owner = function.value if isinstance(function, ast.Attribute) else function
            if ast.unparse(owner) in owners:
                one.value = _wrapped(one.value, number)


def _feed_from(
    number: int,
    branch: ast.If | ast.While,
    assigned: Sequence[ast.Assign | ast.AnnAssign],
    statements: Sequence[ast.stmt],
) -> None:
    """Instrument the last assignment of a name before a branch.

    If it is made in another branch only, then also the one before it: what that has computed is forgotten if the last
    one is made.
    """
    last, before = assigned[-1:], assigned[-2:-1]
    for one in last:
        if one.value is None:
            return
        one.value = _wrapped(one.value, number)
        if before and before[0].value is not None and _is_in_other_branch(one, branch, statements):
            before[0].value = _wrapped(before[0].value, number)
            reset = _call(RESET, number, None, one.value)
            one.value = ast.copy_location(ast.IfExp(reset, one.value, ast.copy_location(ast.Constant(None), one)), one)


def _is_in_other_branch(one: ast.stmt, branch: ast.stmt, statements: Sequence[ast.stmt]) -> bool:
    """Return whether a statement is in an ``if`` that ends before a branch."""
    return any(
        isinstance(other, ast.If) and other.lineno < one.lineno <= (other.end_lineno or 0) < branch.lineno
        for other in statements
    )


def _targets(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {one.id for one in targets if isinstance(one, ast.Name)}


def _set_in(branch: ast.If) -> set[str]:
    """Return the names of counters and flags that a branch sets."""
    inner = [node for node, _ in _inside(branch) if isinstance(node, ast.Assign | ast.AugAssign)]
    counted = [
        node for node in inner if isinstance(node.value, ast.Constant | ast.UnaryOp) or isinstance(node, ast.AugAssign)
    ]
    return {name for node in counted for name in _targets(node)}


# For how many branches one expression is instrumented.
_MOST_LAYERS = 8


def _wrapped(node: ast.expr, number: int) -> ast.expr:
    """Return an expression whose operands pass through the function for operands."""
    if isinstance(node, ast.Compare):
        node.left = _wrapped(node.left, number)
        node.comparators = [_wrapped(one, number) for one in node.comparators]
    elif isinstance(node, ast.BoolOp):
        node.values = [_wrapped(one, number) for one in node.values]
    elif isinstance(node, ast.UnaryOp):
        node.operand = _wrapped(node.operand, number)
    elif isinstance(node, ast.BinOp):
        node.left, node.right = _wrapped(node.left, number), _wrapped(node.right, number)
    elif isinstance(node, ast.Call):
        if _name(node.func) == CONDITION:
            return node
        if layers := _layers(node):
            is_enough = number in layers or len(layers) >= _MOST_LAYERS
            return node if is_enough else _call(OPERAND, number, node, node)
        node.args = [one if isinstance(one, ast.Starred | ast.Compare) else _wrapped(one, number) for one in node.args]
        if isinstance(node.func, ast.Attribute):
            node.func.value = _wrapped(node.func.value, number)
        return _call(OPERAND, number, node, node)
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return _call(OPERAND, number, node, node)
    return node


def _layers(node: ast.expr) -> list[object]:
    """Return for which branches an expression is instrumented already, from the outside in."""
    found: list[object] = []
    while isinstance(node, ast.Call) and _name(node.func) == OPERAND:
        number, node = node.args
        found.append(number.value if isinstance(number, ast.Constant) else None)
    return found


def _call(function: str, number: int, value: ast.expr | None, at: ast.AST) -> ast.Call:
    arguments: list[ast.expr] = [ast.Constant(number), *([value] if value is not None else [])]
    call = ast.Call(ast.Name(function, ast.Load()), arguments, [])
    for node in (call, call.func, call.args[0]):
        ast.copy_location(node, at)
    return call
