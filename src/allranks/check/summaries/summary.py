"""What is kept of one file: plain tuples that `marshal` writes and reads at memory speed.

Expressions are ``(tag, ...)``; a call and a branch carry their span, an attribute where its name ends:

    name id · const value · attr base name line end · call function arguments keywords span · op left right symbol ·
    not x · and xs · or xs · cmp left symbols rights · ifexp test a b span · text parts · seq elements ·
    dict keys values · sub base index · fn key · comp element generators · bind name value · yield value · star x ·
    many parts (whatever else: its parts are evaluated)

Statements are ``(tag, line, ...)``: expr, assert, assign, aug, return, raise, if, for, while, with, try, break,
continue, def, class, import, global. A body is kept as bytes of its own and read only when the function is
interpreted.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

Node: TypeAlias = tuple[Any, ...]
# Where the statements inside a statement stand in it.
_BLOCKS = {"if": (3, 5), "while": (3, 5), "for": (4, 6), "with": (3, 4)}


class FunctionFacts(NamedTuple):
    """``annotations``: parameter -> class; under ``return`` that of the result, if it cannot be None.
    ``words``: names that the body calls or reads, also from the environment. ``owner``: the class it belongs to.

    ``stored``: the attributes that it assigns, and for a module's body its variables; ``decorated``: where each of
    ``decorators`` stands, with its ``@``.
    """

    name: str
    owner: str
    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    variadic: tuple[str, str]
    defaults: tuple[tuple[str, Node], ...]
    annotations: tuple[tuple[str, Node], ...]
    decorators: tuple[Node, ...]
    span: tuple[int, int, int, int]
    words: tuple[str, ...]
    stored: tuple[str, ...]
    body: bytes
    decorated: tuple[tuple[int, int, int, int], ...] = ()


class ClassFacts(NamedTuple):
    """``methods``: name -> key of the function; ``body``: its other statements; ``stores``: attribute -> methods."""

    name: str
    bases: tuple[Node, ...]
    methods: tuple[tuple[str, str], ...]
    body: bytes
    decorators: tuple[Node, ...] = ()


class Summary(NamedTuple):
    """One file. Keys are qualified inside it (``Trainer.save``, ``main.<inner>``); the module's own body is ``""``."""

    functions: dict[str, FunctionFacts]
    classes: dict[str, ClassFacts]
    imports: tuple[tuple[str, str], ...]
    strings: tuple[str, ...] = ()

    def uses(self, package: str) -> bool:
        """Whether the file imports a package, or something of it."""
        return any(dotted.partition(".")[0] == package for dotted, _ in self.imports)


def dump(summary: Summary) -> bytes:
    """Return the summary as bytes."""
    functions = {key: tuple(facts) for key, facts in summary.functions.items()}
    classes = {key: tuple(facts) for key, facts in summary.classes.items()}
    return marshal.dumps((functions, classes, summary.imports, summary.strings))


def load(raw: bytes) -> Summary:
    """Return the summary that `dump` wrote. Raises ValueError, EOFError or TypeError for other bytes."""
    functions, classes, imports, strings = marshal.loads(raw)
    return Summary(
        {key: FunctionFacts(*facts) for key, facts in functions.items()},
        {key: ClassFacts(*facts) for key, facts in classes.items()},
        imports,
        strings,
    )


def body_of(facts: FunctionFacts | ClassFacts) -> tuple[Node, ...]:
    """Return the statements of a function or a class."""
    statements: tuple[Node, ...] = marshal.loads(facts.body)
    return statements


def calls_below(node: object) -> Iterator[Node]:
    """Yield the calls in statements or an expression."""
    if not isinstance(node, tuple):
        return
    if len(node) == 5 and node[0] == "call":
        yield node
    for part in node:
        yield from calls_below(part)


def blocks(statement: Node) -> tuple[tuple[Node, ...], ...]:
    """Return the statements inside a statement, block by block: none of those of a function or a class."""
    tag = statement[0]
    if tag == "try":
        return (statement[2], *(handler[2] for handler in statement[3]), *statement[4:6])
    first, last = _BLOCKS.get(tag, (0, 0))
    return statement[first:last]


def statements_in(body: Iterable[Node]) -> Iterator[Node]:
    """Yield the statements of a body and of the blocks in it."""
    for statement in body:
        yield statement
        for block in blocks(statement):
            yield from statements_in(block)


def nodes_in(body: Iterable[Node], *, without: tuple[str, ...] = ()) -> Iterator[Node]:
    """Yield the statements and expressions of a body, but those of the kinds ``without`` and what is in them."""
    waiting: list[Any] = [body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple) and not (node and node[0] in without):
            waiting.extend(node)
            if node and isinstance(node[0], str):
                yield node


def gives_itself(facts: FunctionFacts) -> bool:
    """Whether a method ends with the object that it is called on, so that calls can be strung together."""
    itself = ("name", *facts.positional[:1])
    return bool(facts.owner) and any(s[0] == "return" and s[2] == itself for s in body_of(facts)[-1:])
