"""Find the options of a training script in its source: argparse, click, typer, dataclasses, plain global variables.

Nothing of the script is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a script.

    - ``flag``: as it is written on the command line (``--batch-size``, ``model.depth``); "" for a positional argument.
    - ``default``: its value, or UNKNOWN. ``choices``: the values that are allowed, or ().
    - ``form``: how a value follows: ``--x 1`` (" "), ``--x=1`` ("="), or not at all ("" for a switch).
    - ``off``: the flag that turns a switch off, or "".
    """

    name: str
    flag: str
    line: int
    default: Any = UNKNOWN
    choices: tuple[Any, ...] = ()
    is_required: bool = False
    form: str = " "
    off: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The options of a script, the library that reads them, and the configuration files that it names."""

    options: tuple[Option, ...]
    readers: tuple[str, ...]
    files: tuple[str, ...] = ()


# Libraries that derive options from the fields of a dataclass, and what is between the words of such an option.
_OF_FIELDS = {
    "HfArgumentParser": "_",
    "tyro": "-",
    "simple_parsing": "_",
    "draccus": "_",
    "pyrallis": "_",
    "jsonargparse": "_",
    "chz": "_",
}


def options_in(text: str) -> Found:
    """Return the options in the source text of a file; none if it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Found((), ())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | _imported(tree)
    options = [*_of_calls(calls), *_of_functions(tree)]
    readers = ["argparse"] if any(_last(call.func) == "add_argument" for call in calls) else []
    readers += [name for name in ("click", "typer") if name in names]
    for reader, between in _OF_FIELDS.items():
        if reader in names:
            readers.append(reader)
            options += _of_dataclasses(tree, between)
            break
    if "configurator.py" in text:
        readers.append("configurator.py")
        options += _of_globals(tree)
    files = [value for option in options if isinstance(value := option.default, str) and value.endswith(_CONFIGS)]
    hydra = next((call for call in calls if _name(call.func) == "hydra.main"), None)
    if hydra is not None:
        readers.append("hydra")
        files += [f"{_text(hydra, 'config_path', 0) or '.'}/{_text(hydra, 'config_name', 1) or 'config'}"]
    if any(_last(call.func) == "LightningCLI" for call in calls):
        readers.append("LightningCLI")
    return Found(tuple(options), tuple(readers), tuple(dict.fromkeys(files)))


_CONFIGS = (".yaml", ".yml", ".json", ".toml")


def _of_calls(calls: list[ast.Call]) -> Iterator[Option]:
    """Yield the options that calls of add_argument and click.option define."""
    for call in calls:
        if _last(call.func) not in ("add_argument", "option", "argument"):
            continue
        words = [word for one in call.args if isinstance(word := _value(one), str)]
        given = {one.arg: one.value for one in call.keywords if one.arg}
        flags = [part for word in words for part in word.split("/") if part.startswith("-")]
        if not words or (_last(call.func) != "add_argument" and "click" not in _name(call.func) and not flags):
            continue
        flag = next((one for one in flags if one.startswith("--")), flags[0] if flags else "")
        off = next((one for one in flags if one.startswith("--no-")), "")
        action = _value(given["action"]) if "action" in given else None
        if isinstance(given.get("action"), ast.Attribute) and _last(given["action"]) == "BooleanOptionalAction":
            off = f"--no-{flag.lstrip('-')}"
        is_switch = (
            bool(off) or action in ("store_true", "store_false", "count") or _value(given.get("is_flag")) is True
        )
        yield Option(
            _plain(flag or words[0]),
            flag,
            call.lineno,
            _value(given.get("default"), None if flag else UNKNOWN),
            _choices(given.get("choices")),
            _value(given.get("required")) is True or (not flag and "nargs" not in given and "default" not in given),
            "" if is_switch else " ",
            off,
        )


def _choices(node: ast.expr | None) -> tuple[Any, ...]:
    value = _value(node, ())
    return tuple(value) if isinstance(value, list | tuple | set) else ()


def _of_functions(tree: ast.AST) -> Iterator[Option]:
    """Yield the options that typer derives from a function's arguments."""
    run = {
        _last(call.args[0])
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _name(call.func) == "typer.run" and call.args
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = {_last(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}
        if node.name not in run and not (
            "command" in decorators and any("app" in _name(one) for one in node.decorator_list)
        ):
            continue
        arguments, defaults = node.args.args, node.args.defaults
        for argument, default in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
            if isinstance(default, ast.Call):
                default = default.args[0] if default.args else default
            value = _value(default)
            flag = "--" + argument.arg.replace("_", "-")
            off = "--no-" + flag[2:] if isinstance(value, bool) else ""
            yield Option(argument.arg, flag, argument.lineno, value, form="" if off else " ", off=off)


def _of_dataclasses(tree: ast.AST, between: str) -> Iterator[Option]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("dataclass" in _name(one) for one in node.decorator_list):
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    name = one.target.id
                    value = _field(one.value)
                    yield Option(
                        name, "--" + name.replace("_", between), one.lineno, value, is_required=one.value is None
                    )


def _field(node: ast.expr | None) -> Any:
    """Return the default value of a field of a dataclass."""
    if isinstance(node, ast.Call) and _last(node.func) == "field":
        node = next((one.value for one in node.keywords if one.arg == "default"), None)
    return _value(node)


def _of_globals(tree: ast.Module) -> Iterator[Option]:
    """Yield the global variables with a plain value, which nanoGPT's configurator.py takes as ``--name=value``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, _value(node.value)
            if not name.startswith("_") and isinstance(value, bool | int | float | str):
                yield Option(name, f"--{name}", node.lineno, value, form="=")


def _imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            found |= {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()
    return found


def _value(node: ast.expr | None, missing: Any = UNKNOWN) -> Any:
    """Return the value of a literal, also of simple arithmetic (``5 * 8``), or UNKNOWN."""
    if node is None:
        return missing
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        pass
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _value(node.left), _value(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
    return UNKNOWN


def _text(call: ast.Call, keyword: str, position: int) -> str:
    node = next((one.value for one in call.keywords if one.arg == keyword), None)
    if node is None and len(call.args) > position:
        node = call.args[position]
    value = _value(node)
    return value if isinstance(value, str) else ""


def _name(node: ast.AST) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_").replace(".", "_")
