"""One file's text: bytes into text and tree, and what a rule may ask about them. Values in, values out."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from allranks.check.sources.code import code_of
from allranks.check.sources.nodes import children, walk
from allranks.findings import Place

Node = TypeVar("Node", bound=ast.AST)
T = TypeVar("T")
# Methods that put something into a list or set.
_FILLS = ("append", "extend", "add")
_STORING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension),
    *(ast.withitem, ast.Call),
)
_TESTS = ("tests/*", "test/*", "*/tests/*", "*/test/*", "test_*.py", "*/test_*.py", "*_test.py", "conftest.py")


MOST_STEPS = 100_000
# Statements of Python 3.12 (type parameters, f-strings in f-strings) and 3.14 (exceptions without parentheses,
# t-strings), in the line at which an older Python stops.
_NEWER = re.compile(
    r"\s*type\s+\w+\s*[=\[]|\s*(async\s+)?def\s+\w+\[|\s*class\s+\w+\[|\s*except\*?\s+[\w.]+\s*,\s*[\w.]+[^(]*:"
    r"|[^#]*\bf\w?([\"'])[^\"']*\{[^}\"']*\2|[^#]*(?<![\w\"'])(t|rt|tr)[\"']"
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a file has no tree, and where. ``newer``: Python after the version that runs allranks can read it, as far as
    the line shows. ``limit``: the fault is not the file's; the check does not read such."""

    reason: str
    line: int = 1
    column: int = 1
    newer: bool = False
    limit: bool = False


def decode(raw: bytes) -> str | Unreadable:
    """Return the text of a Python file: byte-order mark and coding line as PEP 263 has them, line ends as they are."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return codecs.decode(raw, encoding)
    except (SyntaxError, LookupError, TypeError) as error:  # of rot13 and the like, which is no encoding of text
        return Unreadable(f"encoding: {error}")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Unreadable(f"not {error.encoding}: byte 0x{raw[error.start]:02x}", line)


def parse(text: str) -> ast.Module | Unreadable:
    """Return the tree of ``text``, or why there is none. Warnings of the compiler are of no interest here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        line, column = max(error.lineno or 1, 1), max(error.offset or 1, 1)
        newer = _NEWER.match((split(text)[line - 1 : line] or [""])[0]) is not None
        reason = "needs a newer Python than the one that runs allranks" if newer else f"syntax error: {error.msg}"
        return Unreadable(reason, line, column, newer)
    except (RecursionError, MemoryError):
        return Unreadable("nested too deeply to be parsed")
    except ValueError as error:  # null bytes
        return Unreadable(f"not Python: {error}")


class Tangled(Exception):
    """More ways lead through a file to what a rule looks for than can be gone."""


class Steps:
    """The steps that a rule goes in a file, from a name or a call to what it stands for."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self) -> None:
        """Count one. Raises Tangled where there are too many."""
        self.taken += 1
        if self.taken > MOST_STEPS:
            raise Tangled(f"it takes more than {MOST_STEPS:,} steps from name to name")


@dataclass(frozen=True)
class File:
    """One parsed file, as a LocalRule sees it."""

    path: str
    text: str
    tree: ast.Module
    _parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _names: dict[ast.AST, str | None] = field(default_factory=dict)
    noted: dict[tuple[str, ast.AST], Any] = field(default_factory=dict)  # what rules found out and will ask again
    steps: Steps = field(default_factory=Steps)

    @cached_property
    def lines(self) -> list[str]:
        """Lines as Python's parser counts them: form feeds and separators of Unicode end none."""
        return split(self.text)

    @cached_property
    def code(self) -> list[str]:
        """The lines without what does nothing: comments, docstrings, imports of which nothing is used."""
        return code_of(self.nodes, self.lines, exports=self.path.endswith("__init__.py"))

    @cached_property
    def _code(self) -> str:
        return "\n".join(self.code)

    def says(self, *words: str) -> bool:
        """Return whether the code has one of these words."""
        return any(word in self.text and word in self._code for word in words)

    def code_in(self, node: ast.AST | None) -> str:
        """Return the code of the lines of ``node``; all of the file for None."""
        if node is None:
            return self._code
        first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
        return "\n".join(self.code[first - 1 : last])

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the file, level by level."""
        return walk(self.tree)

    @cached_property
    def kinds(self) -> dict[type[ast.AST], list[ast.AST]]:
        """All nodes of the file by their class."""
        found: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            found[node.__class__].append(node)
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        """Name in this file -> what it stands for, dotted; imports in functions too, relative ones with their dots."""
        found: dict[str, str] = {}
        imports = (*self.kinds.get(ast.Import, ()), *self.kinds.get(ast.ImportFrom, ()))
        for node in sorted(imports, key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    found[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                joint = "" if base.endswith(".") or not base else "."
                found.update({alias.asname or alias.name: f"{base}{joint}{alias.name}" for alias in node.names})
        return found

    def once(self, what: str, node: Node, find: Callable[[Node], T]) -> T:
        """Return what ``find`` returns for ``node``; it is asked once under each name and node."""
        key = (what, node)
        if key not in self.noted:
            self.noted[key] = find(node)
        found: T = self.noted[key]
        return found

    @cached_property
    def is_test(self) -> bool:
        """Whether this is a test, which saves and loads as no run does."""
        return is_test(self.path)

    @cached_property
    def bindings(self) -> dict[tuple[ast.AST, str], list[ast.expr]]:
        """(function, class or module, name) -> the expressions stored there; ``.x`` of a class is ``self.x``."""
        return bindings(self.tree)

    def qualified(self, node: ast.AST) -> str | None:
        """Return the dotted name that ``node`` stands for, through this file's imports; None if it is not a name."""
        if node not in self._names:
            self._names[node] = self._qualified(node)
        return self._names[node]

    def _qualified(self, node: ast.AST) -> str | None:
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.imports.get(node.id, node.id), *reversed(tail)])

    def parents(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what encloses ``node``, from the inside out."""
        if not self._parents:
            self._parents.update({c: p for p in self.nodes for c in children(p)})
        while (above := self._parents.get(node)) is not None:
            yield above
            node = above

    def symbol(self, node: ast.AST) -> str:
        """Return the qualified function or class that ``node`` stands in; the module at top level."""
        names = [
            above.name
            for above in self.parents(node)
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        return ".".join([module_name(self.path), *reversed(names)])

    def place(self, node: ast.AST) -> Place:
        """Return where ``node`` stands; its first line alone if it is a whole block."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end_column = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column)
        return place(self.path, self.lines, (line, column, end_line or line, end_column or column))


def bindings(tree: ast.Module) -> dict[tuple[ast.AST, str], list[ast.expr]]:
    """Return what is stored under which name in which scope; what is iterated over stands for the loop's variable."""
    found: dict[tuple[ast.AST, str], list[ast.expr]] = {}
    _gather(found, tree, (tree, tree))
    return found


def _gather(found: dict[tuple[ast.AST, str], list[ast.expr]], around: ast.AST, where: tuple[ast.AST, ast.AST]) -> None:
    waiting = list(children(around)[::-1])
    while waiting:
        node = waiting.pop()
        if isinstance(node, _STORING):
            for target, value in _stores(node):
                _bind(found, where, target, value)
        if isinstance(node, ast.ClassDef):
            _gather(found, node, (node, node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            _gather(found, node, (node, where[1]))
        elif below := children(node):
            waiting.extend(below[::-1])


def _stores(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.target, node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS and node.args:
        yield node.func.value, node.args[0]


def _bind(
    found: dict[tuple[ast.AST, str], list[ast.expr]], where: tuple[ast.AST, ast.AST], target: ast.expr, value: ast.expr
) -> None:
    scope, owner = where
    if isinstance(target, ast.Name):
        found.setdefault((scope, target.id), []).append(value)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        key = (owner, f".{target.attr}") if target.value.id == "self" else (scope, f"{target.value.id}.{target.attr}")
        found.setdefault(key, []).append(value)
    elif isinstance(target, ast.Tuple | ast.List):
        for arm in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            parts = arm.elts if isinstance(arm, ast.Tuple | ast.List) else []
            paired = parts if len(parts) == len(target.elts) else [arm] * len(target.elts)
            for one, part in zip(target.elts, paired, strict=True):
                _bind(found, where, one, part)


@lru_cache(10_000)
def is_test(path: str) -> bool:
    """Whether a path is that of tests: they show no faults of the program, and start processes in their own ways."""
    return any(fnmatch(path, pattern) for pattern in _TESTS)


def split(text: str) -> list[str]:
    """Return the lines of ``text`` as Python's parser counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def place(path: str, lines: list[str], span: tuple[int, int, int, int]) -> Place:
    """Return a span of the parser (columns in UTF-8 bytes, from 0) as a Place (columns in characters, from 1)."""
    line, column, end_line, end_column = span
    return Place(path, line, _characters(lines, line, column), end_line, _characters(lines, end_line, end_column))


def _characters(lines: list[str], line: int, column: int) -> int:
    text = lines[line - 1] if line <= len(lines) else ""
    return column + 1 if text.isascii() else len(text.encode()[:column].decode(errors="ignore")) + 1


def module_name(path: str) -> str:
    """Return the dotted module of a path: ``src/pkg/train.py`` -> ``src.pkg.train``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
