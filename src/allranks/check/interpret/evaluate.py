"""Expressions: what is known of their values. Calls are left to the class above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from allranks.check.interpret import collected, rounds, spread
from allranks.check.interpret.asked import by_mesh, imported, is_no_text, says_alone
from allranks.check.interpret.compare import compared, left_over
from allranks.check.interpret.naming import alike, counted, cut, is_local, is_sample, named_in, takes_rank
from allranks.check.interpret.state import Frame
from allranks.check.interpret.truth import FALSE, TRUE, both, negate, roles_where
from allranks.check.interpret.values import (
    ANYTHING,
    DEALT,
    EVEN,
    MANY,
    MOST_ELEMENTS,
    NO_CONSTANT,
    NONE,
    ONE_OF,
    OWN,
    PRIVATE,
    PROCESS,
    RANKS,
    Value,
    also,
    boolean,
    chosen,
    known,
    rank,
    replace,
    still_open,
    tainted,
)
from allranks.check.summaries.render import absorbed, condition, denied, render
from allranks.check.summaries.summary import Node
from allranks.check.tables.apis import Apis
from allranks.check.tables.gates import PRIVATE_PATHS
from allranks.check.tables.items import key_of_name

_PERHAPS = frozenset({"perhaps"})
MOST = 24  # so many classes or functions may be picked from
# The flags of a dictionary of classes or functions, and of what is picked from it.
_CHOICE = frozenset({"choice"})
_JOINING = frozenset({"initialise", "launch"})

T = TypeVar("T")


class Evaluator:
    """Evaluates expressions in a frame."""

    apis: Apis

    def value(self, frame: Frame, node: Node) -> Value:
        """Return what is known of an expression; what it calls is on the frame's record."""
        return self._BY_TAG[node[0]](self, frame, node)

    def call(self, frame: Frame, node: Node) -> Value:
        raise NotImplementedError

    def attribute(self, frame: Frame, base: Value, name: str, node: Node) -> Value:
        raise NotImplementedError

    def global_name(self, frame: Frame, name: str) -> Value:
        raise NotImplementedError

    def environment(self, frame: Frame, name: object) -> Value | None:
        raise NotImplementedError

    def entry(self, frame: Frame, base: Value, key: str) -> Value | None:
        raise NotImplementedError

    def disk(self, path: str) -> frozenset[str]:
        raise NotImplementedError

    def keep(self, owner: str, name: str, value: Value) -> None:
        raise NotImplementedError

    def store(self, frame: Frame, target: Node, value: Value) -> None:
        raise NotImplementedError

    def keyed(self, frame: Frame, name: object, value: Value, node: Node) -> None:
        raise NotImplementedError

    def lookup(self, frame: Frame, name: str) -> Value:
        """Return the value of a name: local, of an enclosing function, of the module, built in."""
        if name not in frame.shared:
            scope: Frame | None = frame
            while scope is not None:
                if (found := scope.env.get(name)) is not None:
                    return found if scope is frame else still_open(found)
                scope = scope.parent
        return still_open(self.global_name(frame, name))

    def under(self, frame: Frame, truth: str, test: Value, node: Node, asked: tuple[Node, Any]) -> Value:
        """Evaluate ``node`` where ``truth``, that of a test, holds; meetings in it hang on a branch. ``asked``: the
        test as it stands, and where."""
        if truth == FALSE:
            return ANYTHING
        before = (frame.mask, frame.may, frame.nodes)
        inside: list[Any] = []
        frame.nodes = inside
        frame.mask &= roles_where(truth, "TUP")
        frame.may &= roles_where(truth, "TUPWD")
        value = self.where(frame, test, lambda: self.value(frame, node))
        frame.mask, frame.may, frame.nodes = before
        if inside:
            frame.nodes.append(("branch", truth, test.taint, tuple(inside), (), asked[1], render(asked[0]), ""))
        return value

    def where(self, frame: Frame, test: Value, do: Callable[[], T]) -> T:
        """Do what is done under a condition. Who asks whether there are several processes is ready to be alone: what
        he does then is no evidence of others, unless it joins them."""
        if not test.flags & MANY:
            return do()
        evidence, calls = set(frame.result.evidence), len(frame.result.calls)
        made = do()
        frame.result.evidence &= evidence | _JOINING
        frame.result.calls[calls:] = [call._replace(ready=True) for call in frame.result.calls[calls:]]
        return made

    def _name(self, frame: Frame, node: Node) -> Value:
        return imported(node[1], self.lookup(frame, node[1]))

    def _const(self, _: Frame, node: Node) -> Value:
        constant = node[1]
        if constant is None:
            return NONE
        if not isinstance(constant, str):
            return known(constant)
        if constant.startswith(PRIVATE_PATHS) or takes_rank(constant):
            return Value(constant=constant, flags=OWN)
        return Value(constant=constant, flags=disk) if (disk := self.disk(constant)) else known(constant)

    def _attr(self, frame: Frame, node: Node) -> Value:
        base = node[1]
        if base[0] == "name" and (found := frame.env.get(f"{base[1]}.{node[2]}")) not in (None, ANYTHING):
            return found
        return self.attribute(frame, self.value(frame, base), node[2], node)

    def _op(self, frame: Frame, node: Node) -> Value:
        left, right = self.value(frame, node[1]), self.value(frame, node[2])
        if (computed := spread.operated(frame, left, node[3], right, node)) is not None:
            return computed
        if node[3] == "%" and isinstance(left.constant, str):  # a name that is filled in
            parts = node[2][1] if node[2][0] == "seq" else (node[2],)
            filled = [*map(alike, parts, right.elements or (right,))]
            right = replace(tainted(*filled), flags=frozenset().union(*(part.flags for part in filled)))
        elif node[3] == "%":
            return left_over(left, right)
        if isinstance(left.constant, str) and isinstance(right.constant, str) and node[3] == "+":
            return Value(constant=left.constant + right.constant, flags=left.flags)
        if node[3] == "+" and (is_local(left, right, node[2]) or is_local(right, left, node[1])):
            return rank("global")
        made = tainted(left, right)
        flags = left.flags | right.flags | counted(left, right, node[3])
        path = "pathlib.Path" in (left.instance, right.instance) and node[3] == "/"
        return replace(made, flags=flags, instance="pathlib.Path" if path else "") if flags or path else made

    def _not(self, frame: Frame, node: Node) -> Value:
        inside = self.value(frame, node[1])
        made = replace(boolean(negate(inside.true()), inside.taint), flags=inside.flags & MANY)
        return replace(made, text=denied(inside.text)) if inside.text and node[1][0] in ("and", "or") else made

    def _and(self, frame: Frame, node: Node) -> Value:
        return self._sequence_of_truths(frame, node, conjunction=True)

    def _or(self, frame: Frame, node: Node) -> Value:
        return self._sequence_of_truths(frame, absorbed(node), conjunction=False)

    def _sequence_of_truths(self, frame: Frame, node: Node, *, conjunction: bool) -> Value:
        first, *others = node[1]
        result = self.value(frame, first)
        left_open = [] if _by_rank_alone(result) else [first]
        several = [first] if result.flags & MANY else []
        for at, other in enumerate(others, 1):
            truth = result.true() if conjunction else negate(result.true())
            asked = first if at == 1 else (node[0], node[1][:at])
            right = self.under(frame, truth, result, other, (asked, node[2]))
            many = (result.flags | right.flags) & MANY
            left_open += [] if _by_rank_alone(right) else [other]
            several += [other] if right.flags & MANY else []
            if conjunction:
                both_true = both(result.true(), right.true()) if truth != FALSE else FALSE
                result = replace(boolean(both_true, result.taint | right.taint), flags=many)
            elif result.true() == FALSE or result.constant is None:
                result = also(right, result.taint)
            elif at == 1 and (placed := by_mesh(first, other, right)) is not None:
                result = placed
            elif result.number and (right == result or right.constant in (0, None)):
                continue  # the rank, or what stands for it in a process alone
            elif result == ANYTHING and right.private and not right.number and not right.truth:
                result = Value(flags=_PERHAPS)  # what is given, if something is, has not to be this process' own
            elif truth != FALSE:
                plain = right.reference or right.instance or (right.number and result == ANYTHING)
                merged = result.otherwise(right)
                result = replace(right, taint=merged.taint) if plain else replace(merged, flags=many)
        if result.ranked:  # that there are several is so for each of them
            left_open = [part for part in left_open if part not in several]
        if not 0 < len(left_open) <= len(others):
            return result
        text = condition(left_open[0] if len(left_open) == 1 else (node[0], tuple(left_open), node[2]))
        return replace(result, text=text)

    def _cmp(self, frame: Frame, node: Node) -> Value:
        left = self.value(frame, node[1])
        truth, taint = TRUE, left.taint
        if len(node[3]) == 1:
            sides = (node[1], node[3][0])
            right = self.value(frame, sides[1])
            told = says_alone(self.apis, sides, left, node[2][0], right)
            if told is not None:
                return Value(constant=told, flags=MANY)
            if (listed := is_no_text(node[1], node[2][0], right)) is not None:
                return Value(constant=listed)
            if (computed := spread.compared(frame, left, node[2][0], right, node)) is not None:
                return computed
            return compared(left, node[2][0], right)
        for symbol, part in zip(node[2], node[3], strict=True):
            right = self.value(frame, part)
            one = compared(left, symbol, right)
            truth, taint = both(truth, one.true()), taint | one.taint
            left = right
        return boolean(truth, taint)

    def _ifexp(self, frame: Frame, node: Node) -> Value:
        test = self.value(frame, node[1])
        truth = test.true()
        one = self.under(frame, truth, test, node[2], (node[1], node[4]))
        other = self.under(frame, negate(truth), test, node[3], (node[1], node[4]))
        return also(chosen(truth, one, other, test.taint), test.taint)

    def _text(self, frame: Frame, node: Node) -> Value:
        parts = [alike(part, self.value(frame, part)) for part in node[1]]
        made = tainted(*parts)
        flags = frozenset().union(*(part.flags for part in parts)) if parts else frozenset()
        texts = [part.constant for part in parts if isinstance(part.constant, str)]
        constant = "".join(texts) if texts and len(texts) == len(parts) else NO_CONSTANT
        return replace(made, constant=constant, text=render(node), flags=flags)

    def _seq(self, frame: Frame, node: Node) -> Value:
        found: list[Value] = []
        for part in node[1]:
            inside = self.value(frame, part[1]) if part[0] == "star" else None
            found += [self.value(frame, part)] if inside is None else inside.elements or [tainted(inside)]
        elements = tuple(found)
        made = tainted(*elements)
        flags = spread.is_spread(elements)
        return Value(made.taint, elements=elements[:MOST_ELEMENTS], truth=TRUE if elements else FALSE, flags=flags)

    def _dict(self, frame: Frame, node: Node) -> Value:
        keys, values = [[self.value(frame, part) for part in parts] for parts in (node[1], node[2])]
        made = tainted(*keys, *values)
        for key, value, part in zip(keys, values, node[2], strict=False) if len(keys) == len(values) else ():
            self.keyed(frame, key.constant, value, part)
            if isinstance(key.constant, str) and value.says_who:
                self.keep("*", key.constant, value)
        if 1 < len(values) <= MOST and not made.taint and all("::" in value.reference for value in values):
            return Value(elements=tuple(values), flags=_CHOICE)
        pairs = list(zip(keys, values, strict=False))
        held = spread.entries(pairs) or collected.collection(pairs, made.taint, collected.DICT)
        return held or (replace(made, flags=frozenset({"dict"})) if made.taint else ANYTHING)

    def _sub(self, frame: Frame, node: Node) -> Value:
        base, index = self.value(frame, node[1]), self.value(frame, node[2])
        if base.reference == "os.environ":
            found = self.environment(frame, index.constant)
            return found if found is not None else ANYTHING
        if _is_class(base.reference):  # DistributedSampler[int]
            return base
        if base.flags & _CHOICE:
            return Value(elements=base.elements, flags=ONE_OF)
        if (found := spread.item(frame, base, node, index)) is not None:
            return found
        if (found := cut(base, node[2]) or collected.at(base, index, sliced=node[2][0] == "many")) is not None:
            return found
        at, elements = index.constant, base.elements if not base.flags & ONE_OF else None
        if elements is not None and isinstance(at, int) and -len(elements) <= at < len(elements):
            return elements[at]
        if base.flags & {"spread", "agreed"}:
            return base
        if key_of_name(at) and is_sample(frame, node[1]):
            return Value(base.taint, flags=OWN)
        if isinstance(at, str) and (found := self.entry(frame, base, at)) is not None:
            return found
        if "dict" in base.flags:
            return ANYTHING
        own = (EVEN if rounds.is_even(node[1]) else DEALT) if index.ranked else frozenset()
        flags = base.flags & (PRIVATE | DEALT) | own
        return replace(tainted(base, index), flags=flags) if flags else tainted(base, index)

    def _many(self, frame: Frame, node: Node) -> Value:
        return tainted(*(self.value(frame, part) for part in node[1]))

    def _fn(self, frame: Frame, node: Node) -> Value:
        return Value(reference=f"{frame.path}::{node[1]}", scope=frame)

    def _comp(self, frame: Frame, node: Node) -> Value:
        taint, flags = 0, frozenset[str]()
        before = (frame.mask, frame.may, frame.nodes)
        inside: list[Any] = []
        for target, source, conditions in node[2]:
            iterated = self.value(frame, source)
            frame.nodes = inside
            self.store(frame, target, collected.through(frame, source, iterated) or spread.each(iterated))
            rounds.count(frame, target, source, self.apis.ranks["name"].named)
            taint |= iterated.taint
            flags |= iterated.flags & DEALT
            for asked in conditions:
                test = self.value(frame, asked)
                taint |= test.taint & RANKS
                flags |= DEALT if test.ranked else frozenset()
                frame.mask &= roles_where(test.true(), "TUP")
                frame.may &= roles_where(test.true(), "TUPWD")
        made = [self.value(frame, element) for element in node[1]]
        flags |= spread.is_spread(made[-1:]) or made[-1].flags & (spread.TOLD | OWN)
        for element in made:
            taint |= element.taint & (RANKS | PROCESS)
        frame.mask, frame.may, frame.nodes = before
        if inside:
            frame.nodes.append(("loop", "UUUU", taint, tuple(inside), (0, 0, 0, 0), ()))
        elif len(node[2]) == len(made) == 1 and (ranks := self._ranks(frame, node, iterated)) is not None:
            return ranks
        of = flags | collected.DICT if len(made) > 1 else flags
        return collected.collection([(ANYTHING, made[-1])], taint, of) or Value(taint, none=FALSE, flags=flags)

    def _ranks(self, frame: Frame, node: Node, iterated: Value) -> Value | None:
        """Return what is made of a few constants, if there are ranks: ``(int(os.environ[k]) for k in NAMES)``."""
        (target, _, conditions), element = node[2][0], node[1][0]
        given = iterated.elements or ()
        if conditions or not 0 < len(given) < MOST_ELEMENTS or not all(map(_is_plain, given)):
            return None
        made = []
        for one in given:
            self.store(frame, target, one)
            made.append(self.value(frame, element))
        return Value(tainted(*made).taint, elements=tuple(made)) if any(one.number for one in made) else None

    def _bind(self, frame: Frame, node: Node) -> Value:
        value = self.value(frame, node[2])
        self.store(frame, ("name", node[1]), value)
        return value

    def _yield(self, frame: Frame, node: Node) -> Value:
        value = self.value(frame, node[1])
        frame.yielded.append((value, frame.may, frame.implicit))
        frame.result.yields = True
        frame.nodes.append(("yield",))
        return ANYTHING

    def _star(self, frame: Frame, node: Node) -> Value:
        inside = self.value(frame, node[1])
        return inside if inside.elements is not None else tainted(inside)

    def _typed(self, frame: Frame, node: Node) -> Value:
        kind = self.value(frame, node[1])
        return Value(instance=kind.reference) if kind.reference else ANYTHING

    _BY_TAG: ClassVar[dict[str, Callable[[Any, Frame, Node], Value]]] = {
        "name": _name,
        "const": _const,
        "attr": _attr,
        "call": lambda self, frame, node: named_in(frame, node, self.call(frame, node)),
        "op": _op,
        "not": _not,
        "and": _and,
        "or": _or,
        "cmp": _cmp,
        "ifexp": _ifexp,
        "text": _text,
        "seq": _seq,
        "dict": _dict,
        "sub": _sub,
        "many": _many,
        "fn": _fn,
        "comp": _comp,
        "bind": _bind,
        "yield": _yield,
        "star": _star,
        "typed": _typed,
    }


def _is_class(reference: str) -> bool:
    last = reference.rpartition(".")[2]
    return "." in reference and last[:1].isupper() and not last.isupper()


def _is_plain(value: Value) -> bool:
    """Whether it is a constant, or a tuple of these."""
    return all(one.constant is not NO_CONSTANT for one in value.elements or (value,))


def _by_rank_alone(value: Value) -> bool:
    """Whether the rank settles a truth, for each of the four."""
    return value.ranked and set(value.true()) == {"T", "F"}
