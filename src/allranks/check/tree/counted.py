"""What a loop over data adds up, collects, or tells an object that counts, and where a number is made of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from allranks.check.sources.nodes import walk
from allranks.check.sources.source import File
from allranks.check.tree.origins import function_called, values
from allranks.check.tree.syntax import Function, arguments, class_of, name_of, nodes_in, own, places_in, tail_of

MEANS = re.compile(r"(?i)mean|average|accuracy|score|metric|wer|cer|bleu|rouge|iou|auc|f1|compute|calc|summar")
_METER = re.compile(r"^(Running)?(Average|Avg)(Value)?Meter$|^Averager?$")
_GIVEN = ("avg", "global_avg")
_PUTS = ("append", "extend", "update", "add")
# Objects that are told predictions one batch after the other, by the names of their classes.
_COUNTER = re.compile(r"Metrics?$|Meter$|^Confusion|^ConfMat|(Accuracy|IoU|IOU|mIoU|Score|Evaluator)$")
_TELLS = ("update", "add", "add_batch", "append", "__call__", "process", "accumulate")
_KEEPS = re.compile(r"^_*(reset|clear|init|to|cuda|cpu|eval|train|update|add|add_batch|append|process|state_dict)(_|$)")
# What is given to these is reckoned or shown.
_LIBRARIES = ("torch", "numpy", "math", "statistics", "pandas", "wandb", "json", "sklearn", "scipy", "jax", "logging")
# Their metrics bring the parts of all processes together when they are asked, or have a rule of their own.
_TOGETHER = frozenset(
    [
        *(
            "torchmetrics",
            "lightning",
            "ignite",
            "monai",
            "evaluate",
            "datasets",
            "torcheval",
            "allennlp",
            "accelerate",
        ),
        *("mmengine", "mmcv", "mmeval", "fairseq", "catalyst", "composer", "detectron2", "keras", "tensorflow", "clu"),
        *(
            "flax",
            "tensorflow_datasets",
            "speechbrain",
            "nemo",
            "transformers",
            "fastai",
            "mmdet",
            "mmseg",
            "ultralytics",
        ),
    ]
)


def gathered(loop: ast.For, file: File) -> Iterator[str]:
    """Yield the names under which a loop adds up or collects what it computes; also in methods that it calls."""
    inner = nodes_in(loop.body)
    yield from _put_in(inner, file)
    below = (function_called(at, file) for at in inner if isinstance(at, ast.Call))
    for method in dict.fromkeys(one for one in below if one is not None):
        yield from (name for name in _put_in(own(method), file) if name.startswith("self."))


def _put_in(nodes: Sequence[ast.AST], file: File) -> Iterator[str]:
    for at in nodes:
        if isinstance(at, ast.AugAssign) and isinstance(at.op, ast.Add) and not isinstance(at.value, ast.Constant):
            yield from _base(at.target)
        elif isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr in _PUTS and at.args:
            if at.func.attr != "update" or _is_meter(at.func.value, file):
                yield from _base(at.func.value)
        elif isinstance(at, ast.Assign) and isinstance(at.value, ast.BinOp) and isinstance(at.value.op, ast.Add):
            kept = places_in(at.targets[0])
            if kept & places_in(at.value.left):
                yield from _base(at.targets[0])


def _base(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name | ast.Attribute):
        yield ast.unparse(node)


def _is_meter(node: ast.expr, file: File) -> bool:
    made = [at for at in values(node, file) if isinstance(at, ast.Call)]
    own_ones = file.once("meters", file.tree, _meters)
    return any(_METER.search(tail_of(at)) or tail_of(at) in own_ones for at in made)


def _meters(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Return the classes of a file that make a mean of what they have added up, with the names of what gives it."""
    classes = [at for at in tree.body if isinstance(at, ast.ClassDef)]
    means = {
        one.name: frozenset(m.name for m in one.body if isinstance(m, ast.FunctionDef) and _divides(m))
        for one in classes
    }
    return {name: given for name, given in means.items() if given}


def _divides(method: ast.FunctionDef) -> bool:
    """``return self.sum / max(self.n, 1)``"""
    given = (at.value for at in own(method) if isinstance(at, ast.Return))
    quotients = (one for one in given if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div))
    return any(ast.unparse(one.left).startswith("self.") for one in quotients)


def number_of(loop: ast.For, function: Function, file: File) -> ast.AST | None:
    """Return the first number that is made of what a loop has added up: behind it, in a method that is called there,
    or in the loop, if it is used behind it."""
    names = set(gathered(loop, file))
    if not names:
        return None
    behind = _behind(loop, function)
    names |= _made_of(names, behind)
    given = frozenset(_GIVEN).union(*file.once("meters", file.tree, _meters).values())
    found = next((at for at in behind if _is_mean(at, names, given)), None)
    return found or _running(loop, behind, names) or _in_methods(behind, names, file)


def made_of(names: Iterable[str], loop: ast.For, function: Function) -> set[str]:
    """Return names that a loop fills, and those of what is made of them behind it."""
    return _made_of(set(names), _behind(loop, function))


def means_of(names: set[str], loop: ast.For, function: Function) -> Iterator[ast.AST]:
    """Yield the numbers that are made of these behind a loop."""
    return (at for at in _behind(loop, function) if _is_mean(at, names))


def handed_on(loop: ast.For, function: Function, file: File) -> Iterator[ast.Call]:
    """Yield the calls behind a loop of functions of other files of the project, as far as this one tells, that are
    given what the loop has added up or collected."""
    names = made_of(gathered(loop, file), loop, function)
    for at in _behind(loop, function):
        if isinstance(at, ast.Call) and any(not names.isdisjoint(places_in(one)) for one in arguments(at)):
            root = file.qualified(at.func) or ""
            if root.partition(".")[0] not in _LIBRARIES and "." in root and function_called(at, file) is None:
                yield at


def _behind(loop: ast.For, function: Function) -> list[ast.AST]:
    end = loop.end_lineno or 0
    return [at for at in own(function) if getattr(at, "lineno", getattr(getattr(at, "iter", at), "lineno", 0)) > end]


def _made_of(names: set[str], nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names of what is made of ``names``."""
    known = set(names)
    for at in nodes:
        targets = at.targets if isinstance(at, ast.Assign) else []
        made = at.value if isinstance(at, ast.Assign) else None
        if isinstance(at, ast.For | ast.comprehension):
            targets, made = [at.target], at.iter
        if made is not None and known & places_in(made):
            known |= {place for target in targets for place in places_in(target)}
    return known


def _running(loop: ast.For, behind: Sequence[ast.AST], names: set[str]) -> ast.AST | None:
    """Return the mean of what there was so far that the loop keeps under a name, if that is used behind it."""
    inner = nodes_in(loop.body)
    used = {at.id for at in behind if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Load)}
    for at in inner:
        kept = {t.id for t in at.targets if isinstance(t, ast.Name)} if isinstance(at, ast.Assign) else set()
        if kept & used and isinstance(at, ast.Assign):
            known = names | _made_of(names, [one for one in walk(at.value) if isinstance(one, ast.comprehension)])
            if (mean := next((one for one in walk(at.value) if _is_mean(one, known)), None)) is not None:
                return mean
    return None


def _in_methods(behind: Sequence[ast.AST], names: set[str], file: File) -> ast.AST | None:
    """Return the number that a method which is called behind the loop makes of what an object keeps."""
    kept = {name for name in names if name.startswith("self.")}
    below = (function_called(at, file) for at in behind if isinstance(at, ast.Call)) if kept else ()
    for method in dict.fromkeys(one for one in below if one is not None):
        known = _made_of(kept, own(method))
        if (mean := next((at for at in own(method) if _is_mean(at, known)), None)) is not None:
            return mean
    return None


def _is_mean(at: ast.AST, names: set[str], given: Collection[str] = _GIVEN) -> bool:
    """``given``: the names under which meters give their mean."""
    if isinstance(at, ast.BinOp | ast.AugAssign) and isinstance(at.op, ast.Div):
        one = at.left if isinstance(at, ast.BinOp) else at.target
        return not names.isdisjoint(places_in(one))
    if isinstance(at, ast.Attribute) and at.attr in given:
        return not names.isdisjoint(places_in(at.value))
    if isinstance(at, ast.Call) and MEANS.search(tail_of(at)):
        return not names.isdisjoint(places_in(at))
    return False


def counted_by(loop: ast.For, function: Function, file: File) -> tuple[ast.Call, str] | None:
    """Return where an object that the loop tells its predictions is asked for its number, and its class."""
    inner = nodes_in(loop.body)
    told = (at.func for at in inner if isinstance(at, ast.Call) and at.args and isinstance(at.func, ast.Attribute))
    objects = {ast.unparse(one.value): one for one in told if one.attr in _TELLS}
    kinds = {name: kind for name, one in objects.items() if (kind := _kind_of(one, file))}
    if not kinds:
        return None
    behind = _behind(loop, function)
    below = (function_called(at, file) for at in behind if isinstance(at, ast.Call))
    nodes = [*behind, *(at for one in dict.fromkeys(below) if one is not None for at in own(one))]
    asked = [at for at in nodes if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute)]
    found = ((at, kinds.get(ast.unparse(at.func.value))) for at in asked if not _KEEPS.search(tail_of(at)))  # type: ignore[attr-defined]
    return next(((at, kind) for at, kind in found if kind is not None), None)


def _kind_of(told: ast.Attribute, file: File) -> str:
    """Return the class of an object that counts, of the project or of a library that knows no processes; of an object
    that nobody here makes, the only class of the file that is told so."""
    made = [at for at in values(told.value, file) if not (isinstance(at, ast.Constant) and at.value is None)]
    if not made and isinstance(told.value, ast.Name):
        owners = {class_of(method, file) for method in methods_called(told.attr, file)}
        names = [owner.name for owner in owners if owner is not None]
        return names[0] if len(names) == 1 and _COUNTER.search(names[0]) else ""
    if not made or not all(isinstance(at, ast.Call) and _COUNTER.search(tail_of(at)) for at in made):
        return ""
    roots = {name_of(at, file).partition(".")[0] for at in made}
    return "" if roots & _TOGETHER or _METER.search(tail_of(made[0])) else tail_of(made[0])


def methods_called(name: str, file: File) -> list[ast.FunctionDef]:
    """Return the methods of this name in the classes of a file."""
    classes = [at for at in file.tree.body if isinstance(at, ast.ClassDef)]
    return [at for one in classes for at in one.body if isinstance(at, ast.FunctionDef) and at.name == name]
