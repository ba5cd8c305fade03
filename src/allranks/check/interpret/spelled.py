"""Paths as text that is the same wherever one path is meant.

A path goes through variables and parameters, and is joined in many ways. Spelled, its variables are what was stored in
them, its parameters what the callers gave, and a join is a slash. What stays open stands in angle brackets with the
function it belongs to; an ellipsis in it says that it may change on the way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from allranks.check.interpret.state import Frame, Result
from allranks.check.summaries.project import Project
from allranks.check.summaries.render import render
from allranks.check.summaries.summary import FunctionFacts, Node, Summary

DEEPEST = 12
_SAME = frozenset(["str", "os.fspath", "Path", "pathlib.Path", "PurePath", "epath.Path", "os.path.abspath"])
_SAME |= frozenset(["os.path.realpath", "os.path.expanduser", "os.path.normpath", "os.path.expandvars", "open"])
_SELVES = frozenset(["resolve", "absolute", "as_posix", "expanduser", "joinpath", "strip", "rstrip"])
_JOIN = re.compile(r"^(os\.)?(path|osp|op|ospath)\.join$")
# The last part of a path, or a path without its ending; what stands in such a call is no folder.
_PART = re.compile(r"^(os\.)?(path|osp|op|ospath)\.(basename|splitext)$")
_CLOSED = str.maketrans("/<>", ":()")
_LEFT_OPEN = re.compile(r"<[^<>]*>")
# How the settings of a program are called, whoever holds them.
_SETTINGS = re.compile(r"^(args?|opts?|cfg|config|conf|hparams|settings|params|flags|FLAGS|options|configs)$")


class Scope(NamedTuple):
    """A function on the way to a path. ``call``: how it is called, in ``caller``; ``without``: variables that are being
    looked up."""

    result: Result
    call: Node | None = None
    caller: Scope | None = None
    without: frozenset[str] = frozenset()

    @property
    def reference(self) -> str:
        return self.result.reference

    @property
    def name(self) -> str:
        """The function as it stands in a path: without slashes."""
        return self.reference.replace("/", ":")


class Speller:
    """Spells paths of a project. ``modules``: path -> the frame of its body."""

    def __init__(self, project: Project, modules: Mapping[str, Frame]) -> None:
        self.project = project
        self.modules = modules

    def spelled(self, scope: Scope, node: Node, left: int = DEEPEST) -> str:
        """Return a path as it is spelled."""
        if left == 0:
            return "…"
        tag, left = node[0], left - 1
        if tag == "const":
            return str(node[1])
        if tag == "name":
            return self._name(scope, node[1], left)
        if tag == "attr":
            return self._attribute(scope, node, left)
        if tag == "text":
            return "".join(self.spelled(scope, part, left) for part in node[1])
        if tag == "op" and node[3] in ("/", "+"):
            parts = (self.spelled(scope, part, left) for part in node[1:3])
            return ("/" if node[3] == "/" else "").join(parts)
        if tag == "call" and (told := self._call(scope, node, left)) is not None:
            return told
        if tag == "sub" and node[2][0] == "const":
            return self._attribute(scope, ("attr", node[1], str(node[2][1])), left)
        if tag in ("or", "and", "ifexp"):
            return self.spelled(scope, node[1][-1] if tag != "ifexp" else node[2], left)
        return f"<{render(node).replace('/', ':')}@{scope.name}>"

    def _call(self, scope: Scope, node: Node, left: int) -> str | None:
        name = render(node[1])
        if _JOIN.search(name) or (name in ("Path", "pathlib.Path") and len(node[2]) > 1):
            return "/".join(self.spelled(scope, part, left) for part in node[2])
        if name in _SAME and node[2]:
            return self.spelled(scope, node[2][0], left)
        if name == "os.path.dirname" and node[2]:
            return f"{self.spelled(scope, node[2][0], left)}/.."
        if _PART.search(name) and node[2]:  # of the same path the same
            return f"<{name}({self.spelled(scope, node[2][0], left).translate(_CLOSED)})>"
        if node[1][0] == "attr" and node[1][2] in _SELVES:
            parts = (node[1][1], *(node[2] if node[1][2] == "joinpath" else ()))
            return "/".join(self.spelled(scope, part, left) for part in parts)
        made = next((called.result for called in scope.result.calls if called.node is node), None)
        if made is not None and made.gives is not None:
            return self.spelled(Scope(made, node, scope), made.gives, left)
        return None

    def _attribute(self, scope: Scope, node: Node, left: int) -> str:
        if node[2] == "parent":
            return f"{self.spelled(scope, node[1], left)}/.."
        base = node[1]
        name = base[1] if base[0] == "name" else base[2] if base[0] == "attr" else ""
        if _SETTINGS.match(name):
            return f"<settings{'…' * self._is_set(node[2])}>.{node[2]}"
        if name in ("self", "cls"):
            facts = self.project.function(scope.reference)
            owner, path = facts.owner if facts is not None else "", scope.reference.partition("::")[0]
            changes = "…" * self._is_set(node[2], path, owner)
            return f"<{scope.name.partition('::')[0]}::{owner}{changes}>.{node[2]}"
        return f"{self.spelled(scope, base, left)}.{node[2]}"

    def _is_set(self, attribute: str, path: str = "", owner: str = "") -> bool:
        """Whether functions set an attribute of the settings, or several methods that of their own class."""
        setters = self._setters.get(attribute, ())
        return setters.count((path, owner)) > 1 if owner else any(not method for _, method in setters)

    @cached_property
    def _setters(self) -> dict[str, list[tuple[str, str]]]:
        """Return by attribute the files and classes of the functions that set it."""
        setters: dict[str, list[tuple[str, str]]] = {}
        for path, summary in self.project.summaries.items():
            for key, facts in summary.functions.items():
                for attribute in facts.stored if key else ():
                    setters.setdefault(attribute, []).append((path, facts.owner))
        return setters

    def _name(self, scope: Scope, name: str, left: int) -> str:
        known = {} if name in scope.without else scope.result.stored
        stored = known.get(name)
        if stored is not None:
            return self.spelled(scope._replace(without=scope.without | {name}), stored, left)
        facts = self.project.function(scope.reference)
        if name in known or facts is None:
            return f"<{name}{'…' * (name in known)}@{scope.name}>"
        if scope.call is not None and scope.caller is not None:
            given = _given(facts, scope.call, name)
            if given is not None:
                return self.spelled(scope.caller, given, left)
        default = dict(facts.defaults).get(name) if scope.call is not None else None
        if default is not None and default[0] == "const" and isinstance(default[1], str):
            return default[1]
        path = scope.reference.partition("::")[0]
        module = self.modules[path].result if path in self.modules else scope.result
        if module is not scope.result and module.stored.get(name) is not None and not _is_given(facts, name):
            return self.spelled(Scope(module), module.stored[name] or ("name", name), left)
        summary = self.project.summaries[path]
        ours = _is_given(facts, name) or name not in summary.functions[""].stored
        if ours and not _is_given(facts, name) and (imported := _imported(path, summary, name)):
            return imported
        return f"<{name}@{scope.name if ours else path.replace('/', ':')}>"


def left_open(path: str, instead: str = "*") -> str:
    """Return a path without what is left open in it: the rank, the number of a part."""
    return _LEFT_OPEN.sub(instead, path)


def within(inner: str, outer: str) -> bool:
    """Say whether a path is put together from a folder's."""
    return inner.startswith(f"{outer}/") and ".." not in inner


def _given(facts: FunctionFacts, call: Node, name: str) -> Node | None:
    """Return what a call gives for a parameter."""
    found: Node
    for keyword, found in call[3]:
        if keyword == name:
            return found
    names = (
        facts.positional[1:] if facts.owner and ("name", "staticmethod") not in facts.decorators else facts.positional
    )
    at = names.index(name) if name in names else len(call[2])
    if at < len(call[2]) and all(part[0] != "star" for part in call[2][: at + 1]):
        found = call[2][at]
        return found
    return None


def _imported(path: str, summary: Summary, name: str) -> str:
    """Return what a file imports under a name, spelled alike in all functions, and in all files but what is named from
    the file's own package: alike in those that lie beside it."""
    for dotted, bound in summary.imports:
        if bound == name and dotted.startswith("."):
            return f"<{dotted}@{path.rpartition('/')[0].replace('/', ':')}>"
        if bound == name or (not bound and dotted.partition(".")[0] == name):
            first, dot, rest = (dotted if bound else name).partition(".")
            return f"<{first}>{dot}{rest}"
    return ""


def _is_given(facts: FunctionFacts, name: str) -> bool:
    return name in facts.positional or name in facts.keyword_only
