"""Calls of libraries: what they return."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from functools import partial

from allranks.check.knowledge.tables import Effect, RankQuery
from allranks.check.simulate import arithmetic
from allranks.check.simulate.compiled import compute_eagerly
from allranks.check.simulate.given import Given
from allranks.check.simulate.methods import METHODS
from allranks.check.simulate.models import MODELS
from allranks.check.simulate.parts import Simulation
from allranks.check.simulate.state import Frame, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    DATA,
    FALSE,
    NONE,
    Const,
    Either,
    Function,
    Items,
    Library,
    Made,
    Object,
    Table,
    Text,
    Unknown,
    Value,
    number,
    options,
    taint,
    truth,
    unknown,
)
from allranks.check.traces.nodes import Branch, Call, Enter, Node

_MODEL = re.compile(r"\.(pth?|pth\.tar|ckpt|onnx|h5|keras|safetensors|bin|zip)$")
_IMAGE = re.compile(r"\.(png|jpe?g|gif|webp|bmp|tiff?)$", re.IGNORECASE)
_GATED = re.compile(r"(?i)hub|snapshot|master|rank|main|zero|chief|once|dist")  # a function that chooses who acts
# They return what they are called on.
_SELVES = frozenset(
    ["to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "compile", "detach"]
)
_SUBMITS = frozenset(["submit", "apply_async", "call_soon"])  # they call the first argument with the others
_PATHS = frozenset(["with_suffix", "with_name", "with_stem", "resolve", "absolute", "expanduser", "relative_to"])
_SHELLS = frozenset(
    [
        *("os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.Popen"),
        *("subprocess.check_output", "subprocess.getoutput", "subprocess.getstatusoutput"),
    ]
)
_ENDS = frozenset(["sys.exit", "exit", "quit", "os._exit", "os.abort"])
# Classes of which an unknown method is none of those that the tables have for any receiver.
_PLAIN = ("logging.", "re.", "argparse.", "numpy.", "pandas.", "queue.", "collections.", "datetime.")


WORLD = Made("<world>")  # whose attribute "joined" is false before a program joins the others


class Libraries:
    """Knows what libraries do."""

    def __init__(self, simulator: Simulation) -> None:
        self.simulator = simulator
        self.knowledge = simulator.knowledge
        self.recording = simulator.recording
        self._asked = {name.rpartition(".")[2] for name in self.knowledge.collectives["store"]}

    # Functions

    def call(self, frame: Frame, name: str, given: Given) -> Value:
        """Call a function or class of a library by its name."""
        name = self.knowledge.documented(name)
        if name in _ENDS:
            self.simulator.statements.end(frame, given.node, Const(1) if name == "os.abort" else given.first)
            return NONE
        if name in self.simulator.watched:
            self.recording.note(frame, name, "watched", given)
        if (model := MODELS.get(name)) is not None:
            return model(self.simulator, frame, given)
        is_effect = name in self.knowledge.effects
        if not is_effect and (computed := compute_eagerly(self.simulator, frame, name, given)) is not None:
            return computed
        if name in _SHELLS:
            return self._shell(frame, name, given)
        collective = self.knowledge.collectives["call"].get(name) or self.knowledge.collectives["context"].get(name)
        if collective is not None:
            self.recording.signs(frame, name, given.node)
            made = self.recording.record_collective(frame, collective, given)
            result = self._result(frame, name, given, made)
            if collective.op == "init_process_group":
                self._join(frame, given)
            return result
        found = self._known(frame, name, given)
        if found is not None:
            return found
        gate = self.knowledge.rank("decorator", name)
        if gate is not None and gate.which and isinstance(given.first, Function):
            gated = given.first.with_receiver(given.first.receiver)
            gated.only = 0b0011 if gate.kind == "local" else 0b0001
            return gated
        self.recording.signs(frame, name, given.node)
        if name in self.knowledge.signs["wrap_in_place"]:
            wrapped = self._result(frame, name, given, None)
            self._change_in_place(frame, given, wrapped)
            return wrapped
        return self._by_name(frame, name, given)

    def _join(self, frame: Frame, given: Given) -> None:
        """Let the number with which a process joins the others be its rank."""
        number_given = given.expression("rank")
        if isinstance(number_given, ast.Name) and isinstance(given.argument("rank"), Unknown):
            self.simulator.statements.store(frame, number_given, number("global"))

    def _shell(self, frame: Frame, name: str, given: Given) -> Value:
        """Run a command of a shell."""
        words = given.argument(0, "args")
        parts = words.items if isinstance(words, Items) else (words,) if words is not None else ()
        kind = self.knowledge.command(" ".join(map(arithmetic.shape_of, parts)))
        if kind:
            own = Unknown(unknown(*parts).taint)
            call = self.recording.note(frame, name, kind, given, Effect(name, kind, (0,)))
            call.where = own
            call.target = self.simulator.expressions.source(given.node)
        return unknown(*given.every)

    def _change_in_place(self, frame: Frame, given: Given, wrapped: Value) -> None:
        """Let a model that was given be the wrapped one from here on."""
        model, target = given.first, given.expression(0)
        if isinstance(model, Object):
            self.simulator.heap.set(model, "<wrapped>", wrapped, frame.live)
        elif isinstance(target, ast.Name | ast.Attribute):
            self.simulator.statements.store(frame, target, wrapped)

    def _known(self, frame: Frame, name: str, given: Given) -> Value | None:
        """Call what the tables have as a collective, a query for the rank, an effect, or something local; None for all
        else."""
        collective = self.knowledge.collectives["call"].get(name)
        if collective is not None:
            return self.recording.record_collective(frame, collective, given)
        query = self.knowledge.rank("call", name)
        if query is not None:
            return self._query(frame, query, name, given)
        effect = self.knowledge.effects.get(name)
        if effect is not None:
            return self.recording.act(frame, effect, name, given)
        kind = self.knowledge.local.get(name)
        return self.recording.local(frame, kind, name, given) if kind is not None else None

    def _query(self, frame: Frame, query: RankQuery, name: str, given: Given) -> Value:
        if name == "torch.distributed.is_initialized" and self.simulator.heap.get(WORLD, "joined") == FALSE:
            return FALSE
        self.recording.sign(frame, "size" if query.kind in ("size", "many", "node") else "rank", name, given.node)
        group = given.argument(0, "group")
        if name == "torch.distributed.get_rank" and group is not None and group != NONE:
            return number("group")
        return self.simulator.members.rank(query)

    def _by_name(self, frame: Frame, name: str, given: Given) -> Value:
        """Call a function that no table has: its name may say what it does."""
        package, _, last = name.rpartition(".")
        if package and package.partition(".")[0] not in self.knowledge.careful:
            kind = self.knowledge.named("effect", last)
            if kind is not None and not _GATED.search(last):
                return self.recording.act(frame, Effect(name, kind, (0,)), name, given)
        if package and last[:1].isupper() and given.has("download", True):  # a data set
            return self.recording.act(frame, Effect(name, "download", (0, "root")), name, given)
        query = self.knowledge.rank_called(last) if package else None
        if query is not None:
            return self._query(frame, query, name, given)
        if package and self.knowledge.named("joins", last):
            self.recording.sign(frame, "initialise", name, given.node)
        return self._result(frame, name, given, None)

    def _call_back(self, frame: Frame, given: Given) -> None:
        """Call the functions that a library is given: those inside functions, and the commands of a program."""
        begins = frame.function is None and frame.module.path == self.simulator.program
        for one in given.every:
            for part in one.items if isinstance(one, Items) and begins else (one,):
                if isinstance(part, Function) and not isinstance(part.node, ast.Lambda) and (begins or part.scope):
                    asked = ast.Compare(ast.Name("command"), [ast.Eq()], [ast.Constant(part.name)])
                    command = Branch("UUUU", 0, place_of(given.node), "", (), ())
                    do = partial(self.simulator.calls.invoke, frame, part, Given(given.node))
                    self.simulator.expressions.on_branch(frame, command, asked, do)

    def _result(self, frame: Frame, name: str, given: Given, made: Value | None) -> Value:
        self._call_back(frame, given)
        classes = self.knowledge.classes
        if (parts := classes["tuples"].get(name)) is not None:
            return Items(tuple(_part(part) for part in parts))
        cls = classes["returns"].get(name)
        if cls is None and (name.rpartition(".")[2][:1].isupper() or name in self.knowledge.signs["wrap"]):
            cls = name
        if cls is not None:
            found = unknown(*given.every).taint & DATA
            return Made(cls, found, given.first, frame.path, given.line, given.keywords)
        return made if made is not None else unknown(*given.every)

    def call_unknown(self, frame: Frame, name: str, given: Given) -> Value:
        """Call something of which only the name is known. It may fill the empty lists that it is given."""
        for at, one in enumerate(given.arguments):
            target = given.expression(at)
            if one in (Items((), "list"), Table(())) and isinstance(target, ast.Name):
                self.simulator.statements.change(frame, target, ANYTHING)
        query = self.knowledge.rank_called(name)
        if query is not None:
            return self.simulator.members.rank(query)
        if self.knowledge.named("joins", name):
            self.recording.sign(frame, "initialise", name, given.node)
        if self.knowledge.named("agrees", name):
            return ANYTHING
        return Made("lock") if self.knowledge.named("context", name) else unknown(*given.every)

    # Methods

    def method(self, frame: Frame, name: str, given: Given) -> Value:
        """Call a method of ``given.receiver`` that the project does not define."""
        base = given.receiver if given.receiver is not None else ANYTHING
        if isinstance(base, Made) and self._is_single(base):
            return unknown(*given.every)
        for owner in self.simulator.members.classes(base):
            if (found := self._method_of(frame, owner, name, given)) is not None:
                return found
        if (computed := compute_eagerly(self.simulator, frame, name, given)) is not None:
            return computed
        if (model := METHODS.get(name)) is not None and (made := model(self.simulator, frame, given)) is not None:
            return made
        if not isinstance(base, Const | Text | Table | Items):
            found = self._method_of_any(frame, name, base, given)
            if found is not None:
                return found
        if name in _SELVES:
            return base
        if name in _SUBMITS and isinstance(given.first, Function | Library):
            return self.simulator.calls.apply(frame, given.first, given.handed(given.arguments[1:], 1))
        self._call_back(frame, given)
        if name == "split_between_processes" or name.startswith("on_"):  # hooks decide alike, whatever they are given
            return Unknown(DATA) if name[0] == "s" else unknown(base)
        if self.knowledge.named("agrees", name) and not isinstance(base, Const | Text):
            return ANYTHING
        query = self.knowledge.rank_called(name) if isinstance(base, Unknown | Made | Object) else None
        return self._query(frame, query, name, given) if query is not None else unknown(base, *given.every)

    def _is_single(self, made: Made) -> bool:
        """Whether an object that may work in several processes was told to work in one."""
        name, one = self.knowledge.classes["single"].get(made.cls, ("", None))
        return name != "" and dict(made.arguments).get(name) == Const(one)

    def _method_of(self, frame: Frame, owner: str, name: str, given: Given) -> Value | None:
        """Call a method of an object of a library's class; None if the tables do not have it."""
        dotted = self.knowledge.documented(f"{owner}.{name}")
        if dotted in self.knowledge.signs["gated"] and dotted not in self.knowledge.collectives["call"]:
            return ANYTHING
        found = self._known(frame, dotted, given)
        if (model := MODELS.get(dotted)) is not None:
            return model(self.simulator, frame, given)
        if found is not None:
            return found
        if dotted in self.simulator.watched:
            self.recording.note(frame, dotted, "watched", given)
        return self._of_path(name, given) if owner == "pathlib.Path" else None

    @staticmethod
    def _of_path(name: str, given: Given) -> Value | None:
        base = given.receiver
        if not isinstance(base, Made) or name not in (*_PATHS, "joinpath"):
            return None
        if name == "joinpath":
            return arithmetic.joined(base, *given.arguments)
        return Made("pathlib.Path", taint(base) | unknown(*given.arguments).taint, base.about)

    def _method_of_any(self, frame: Frame, name: str, base: Value, given: Given) -> Value | None:
        """Call a method of something unknown, if its name says what it does; None if not."""
        if isinstance(base, Made) and base.cls.startswith(_PLAIN):
            return None
        dotted = f"*.{name}"
        if (found := self._known(frame, dotted, given)) is not None:
            return found
        effect = _by_file(name, given)
        if effect is None and name == "dump" and given.owner is not None:
            last = ast.unparse(given.owner).rpartition(".")[2]
            effect = Effect("*.dump", "file", (0,)) if self.knowledge.named("settings", last) else None
        return self.recording.act(frame, effect, dotted, given) if effect is not None else None

    def inherit(self, frame: Frame, bases: Iterable[str], given: Given) -> None:
        """Make an object of a class of the project whose constructor is a library's."""
        for base in bases:
            name = self.knowledge.documented(base)
            effect = self.knowledge.effects.get(name)
            if effect is not None and effect.kind != "checkpoint":  # what a class of theirs writes, it says itself
                self.recording.act(frame, effect, name, given)
            self.recording.signs(frame, name, given.node)

    # What else the simulation asks

    def stored(self, frame: Frame, base: Value, target: ast.Attribute, value: Value) -> None:
        """Note an attribute with which a trainer is asked to stop, where it becomes true."""
        for owner in (*self.simulator.members.classes(base), "*") if target.attr in self._asked else ():
            entry = self.knowledge.collectives["store"].get(f"{owner}.{target.attr}")
            if entry is not None:
                ask = partial(self.recording.record_collective, frame, entry, Given(target))
                self.simulator.expressions.under(frame, truth(value), value, target, ask)

    def environment(self, key: Value) -> Value | None:
        """Return a variable of the environment that holds a rank or a size; None for all others."""
        if not isinstance(key, Const) or not isinstance(key.value, str):
            return None
        query = self.knowledge.rank("environment", key.value)
        return self.simulator.members.rank(query) if query is not None else None

    def loads(self, cls: str) -> bool:
        """Return whether an object of a class gives a process its own rows of the data."""
        return cls in self.knowledge.signs["loaders"]

    def rounds(self, iterated: Value) -> int:
        """Return what the number of rounds of a loop over a value depends on."""
        if isinstance(iterated, Made):
            if iterated.cls in ("enumerate", "zip") and iterated.about is not None:
                return self.rounds(iterated.about)
            return DATA if self.loads(iterated.cls) else taint(iterated)
        return 0 if isinstance(iterated, Items | Either) else taint(iterated)

    def orders(self, value: Value, node: ast.expr, trace: Sequence[Node]) -> bool:
        """Return whether a context lets one process in at a time, or forgives that another was first. ``trace``: what
        is called where it is entered."""
        if any(isinstance(one, Made) and one.cls in ("lock", "turn") for one in options(value)):
            return True
        written = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        last = written.rpartition(".")[2]
        if last == "suppress" or self.knowledge.named("context", last):
            return True
        return any(isinstance(one, Enter) and _takes_turns(one) for one in trace)


def _part(part: str) -> Value:
    """Return a part of a tuple that a call returns."""
    if part == "<rank>":
        return number("global")
    return Unknown(true=True, kind="size") if part == "<world size>" else Made(part) if part else ANYTHING


def _by_file(name: str, given: Given) -> Effect | None:
    """Return what ``something.save("model.pt")`` does, as the name of the file says; None if it says nothing."""
    shape = arithmetic.shape_of(given.first) if given.first is not None else ""
    if name == "save" and _IMAGE.search(shape):
        return Effect("*.save", "file", (0,))
    if name == "save" and _MODEL.search(shape):
        return Effect("*.save", "checkpoint", (0,))
    return None


def _takes_turns(entered: Enter) -> bool:
    """Whether some roles wait in a context where others do not."""
    for node in entered.result.trace:
        if isinstance(node, Branch) and "T" in node.letters and "F" in node.letters:
            inside = (*node.then, *node.orelse)
            if any((isinstance(one, Call) and one.kind == "collective") or isinstance(one, Enter) for one in inside):
                return True
    return False
