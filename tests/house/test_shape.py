"""Laws about how code is cut: short ways up to a base class, files that earn their place, no decision by words."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from test_house import FILES, FRAMEWORKS, ROOT, imports, name, part, tree_of

TESTS = Path(__file__).parents[1]
DEEPEST, SMALL = 2, 60
OLD: set[str] = set()
# Files of under 60 lines that one other imports, no test of their own and no adapter: why they are files.
REASONS = {
    "check/rules/ar901_unused_suppression.py": "one file for each rule",
    "check/rules/ar902_invalid_suppression.py": "one file for each rule",
    "data/rows.py": "public: global_batch's side of a framework",
    "guard/start.py": "the entrance for the agent",
    "topology.py": "ground: stands below what uses it",
}
# Where a library has one type for many errors, and only its words tell them apart.
BY_WORDS = {"storage/object.py", "checkpoint/preemption.py"}
# Files outside of storage/deletion.py that delete, and what: never a file that somebody else may have put there.
DELETES = {
    "check/cache.py": "its entries, under names of their own",
    "check/results/pages.py": "pages of rules that are no more",
    "checkpoint/memory/hosts.py": "an empty folder of this user",
    "cli/check_run.py": "the file that it has just written",
    "doctor/disk_probe.py": "the folder that it has just created",
    "doctor/shared_disk_probe.py": "the folder that it has just created",
    "hang/endpoint.py": "sockets, in a folder of this user only",
    "launch/control_socket.py": "the folder that it has created",
    "rehearse/watch/server.py": "its socket",
    "rehearse/watch/undo.py": "what a watched program has made",
    "storage/local.py": "the file that it has just created",
    "storage/new_file.py": "the file that it has just created",
    "world/files.py": "keys, in the folder of the job's store",
}
_DELETING = {"unlink", "rmdir", "rmtree", "removedirs"}
_ERRORS = {"error", "e", "exc", "exception", "cause"}


def bases() -> Mapping[str, list[str]]:
    """The classes of ours, by the classes of ours that they are made from; errors without the one above them all."""
    found = {}
    for path in FILES:
        if part(path) not in OLD:
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ClassDef):
                    names = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
                    found[node.name] = [base for base in names if base != "AllranksError"]
    return found


def depth(kind: str, above: Mapping[str, list[str]]) -> int:
    return max((1 + depth(base, above) for base in above[kind] if base in above and base != kind), default=0)


def test_no_class_stands_on_more_than_two_others() -> None:
    found = bases()
    assert len(found) > 500
    assert {kind for kind in found if depth(kind, found) > DEEPEST} == set()
    assert depth("C", {"A": [], "B": ["A"], "C": ["B", "Z"]}) == 2


def test_small_files_with_one_user_have_a_reason() -> None:
    """A test of their own, a framework or a format beside others of its kind, or one that is written down."""
    modules = {"allranks." + name(p).removesuffix(".py").replace("/", "."): p for p in FILES if p.stem != "__init__"}
    users: dict[str, set[str]] = {module: set() for module in modules}
    for path in FILES:
        for module, _ in imports(tree_of(path), of=path):
            if modules.get(module, path) is not path:
                users[module].add(name(path))
    tested = "\n".join(path.read_text() for path in TESTS.rglob("*.py"))
    found = set()
    small = {module for module, path in modules.items() if path.read_text().count("\n") < SMALL}
    for module in small & {module for module, files in users.items() if len(files) == 1}:
        path = modules[module]
        folder, _, own = module.rpartition(".")
        is_tested = f"from {module} import" in tested or f"from {folder} import {own}" in tested
        beside = {other.name for other in path.parent.iterdir()} if name(path).count("/") > 1 else set()
        is_one_of_many = bool(beside & {"base.py", "detect.py"})
        is_adapter = path.name in {*FRAMEWORKS.values(), "detect.py"} or is_one_of_many
        if not (is_tested or is_adapter) and part(path) not in {*OLD, "cli"}:
            found.add(name(path))
    assert found == {file for file in REASONS if (ROOT / file).exists()} == set(REASONS)


def decides_by_words(tree: ast.AST) -> list[int]:
    """Return the lines that look for words in the text of an error."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        for over in node.comparators
        if isinstance(over, ast.Call) and ast.unparse(over.func) in ("str", "repr", "message_of", "text_of")
        if over.args and isinstance(over.args[0], ast.Name) and over.args[0].id in _ERRORS
    ]


def test_nothing_is_decided_by_the_words_of_an_error() -> None:
    assert decides_by_words(ast.parse("if 'timed out' in str(error): pass")) == [1]
    found = {name(path) for path in FILES if decides_by_words(tree_of(path))}
    assert found == BY_WORDS


def deletes(tree: ast.AST) -> bool:
    """Return whether a file deletes files by their paths."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(ast.unparse(call) == "os.remove" or ast.unparse(call).rpartition(".")[2] in _DELETING for call in calls)


def test_only_one_module_deletes_what_others_may_have_put_there() -> None:
    assert deletes(ast.parse("shutil.rmtree(out)"))
    assert deletes(ast.parse("path.unlink()"))
    found = {name(path) for path in FILES if deletes(tree_of(path))} - {"storage/deletion.py"}
    assert found == DELETES.keys()
