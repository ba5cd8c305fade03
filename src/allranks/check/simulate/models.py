"""Functions of Python and of libraries whose values are known: what they return for what they are given."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.check.simulate import arithmetic
from allranks.check.simulate.compiled import COMPILERS, compile_function, put_on_devices, shard_over_mesh
from allranks.check.simulate.given import Given
from allranks.check.simulate.parts import Model, Simulation
from allranks.check.simulate.state import Frame, place_of
from allranks.check.simulate.values import (
    ANYTHING,
    CLOCK,
    NEXT,
    NONE,
    ORDER,
    RANK,
    SHARE,
    ByRole,
    Class,
    Const,
    Function,
    Items,
    Library,
    Made,
    Object,
    Table,
    Text,
    Unknown,
    Value,
    by_role,
    lift,
    made_of,
    number,
    taint,
    truth,
    unknown,
)
from allranks.check.traces.nodes import Branch

# Functions


def _partial(_: Simulation, __: Frame, given: Given) -> Value:
    first = given.first
    if not isinstance(first, Function):
        return first if first is not None else ANYTHING
    made = first.with_receiver(first.receiver)
    made.bound = (*first.bound, *given.arguments[1:])
    made.named = (*first.named, *given.keywords)
    return made


def _first(_: Simulation, __: Frame, given: Given) -> Value:
    """Return the first argument: for functions that return what they are given, perhaps as another type."""
    return given.first if given.first is not None else ANYTHING


def _number(_: Simulation, __: Frame, given: Given) -> Value:
    def do(value: Value) -> Value:
        if isinstance(value, Const) and isinstance(value.value, str | int | float):
            try:
                return Const(int(value.value))
            except (ValueError, OverflowError):
                return ANYTHING
        return value if isinstance(value, Unknown) else unknown(value)

    return lift(do, given.first) if given.first is not None else Const(0)


def _text(_: Simulation, __: Frame, given: Given) -> Value:
    def do(value: Value) -> Value:
        return value if isinstance(value, Text) else arithmetic.text(value)

    return lift(do, given.first) if given.first is not None else Const("")


def _truth(_: Simulation, __: Frame, given: Given) -> Value:
    def do(value: Value) -> Value:
        letter = truth(value)[0]
        return Const(letter == "T") if letter in "TF" else Unknown(taint(value))

    return lift(do, given.first) if given.first is not None else Const(False)


def _array(_: Simulation, __: Frame, given: Given) -> Value:
    """Return an array of one number as that number, where roles have others; of all other arrays nothing is known."""
    first = given.first.items[0] if isinstance(given.first, Items) and len(given.first.items) == 1 else given.first
    return first if isinstance(first, ByRole) else unknown(*given.every)


def _any(_: Simulation, __: Frame, given: Given) -> Value:
    return Unknown(taint(given.first)) if isinstance(given.first, Unknown) else unknown(*given.every)


def _next(simulator: Simulation, _: Frame, given: Given) -> Value:
    return simulator.expressions.element(given.first) if given.first is not None else ANYTHING


def _nothing_known(_: Simulation, __: Frame, ___: Given) -> Value:
    """Return a value that says nothing of ranks: what kind of thing something is."""
    return ANYTHING


def _super(_: Simulation, frame: Frame, __: Given) -> Value:
    scope: Frame | None = frame
    while scope is not None and (scope.function is None or scope.function.owner is None):
        scope = scope.parent
    if scope is None or scope.function is None or scope.function.owner is None:
        return ANYTHING
    spec = scope.function.node.args
    first = next((one.arg for one in (*spec.posonlyargs, *spec.args)), "")
    return Made("super", about=scope.env.get(first), arguments=(("owner", scope.function.owner),))


def _getattr(simulator: Simulation, frame: Frame, given: Given) -> Value:
    name = given.argument(1)
    if given.first is None or not isinstance(name, Const) or not isinstance(name.value, str):
        return ANYTHING
    return simulator.members.attribute(frame, given.first, name.value, given.node)


def _setattr(simulator: Simulation, frame: Frame, given: Given) -> Value:
    if len(given.arguments) == 3:
        owner, name, value = given.arguments
        known = isinstance(owner, Unknown) and owner.name and taint(value) & RANK
        if isinstance(name, Const) and (isinstance(owner, Object) or known):
            holder = Library(f"<{owner.name}>") if isinstance(owner, Unknown) else owner
            simulator.heap.set(holder, str(name.value), value, frame.live)
    return NONE


def _hasattr(simulator: Simulation, _: Frame, given: Given) -> Value:
    """Return whether an object has an attribute, where some roles alone have stored it; else nothing is known."""
    name = given.argument(1)
    if isinstance(given.first, Object) and isinstance(name, Const):
        stored = simulator.heap.get(given.first, str(name.value))
        if isinstance(stored, ByRole):
            return by_role(Const(one != NONE) for one in stored.roles)
    return ANYTHING


def _isinstance(_: Simulation, __: Frame, given: Given) -> Value:
    if len(given.arguments) != 2:
        return ANYTHING
    value, kind = given.arguments
    kinds = kind.items if isinstance(kind, Items) else (kind,)

    def do(one: Value) -> Value:
        if isinstance(one, Object) and any(isinstance(cls, Class) for cls in kinds):
            return Const(any(cls in list(one.cls.lineage()) for cls in kinds))
        if isinstance(one, Library) and one.name.startswith("sys.std") and Library("str") in kinds:
            return Const(False)
        if isinstance(one, Made) and Library(one.cls) in kinds:
            return Const(True)
        return ANYTHING

    return lift(do, value)


def _len(_: Simulation, __: Frame, given: Given) -> Value:
    def do(value: Value) -> Value:
        return Const(len(value.items)) if isinstance(value, Items) else Unknown(made_of(taint(value)) & ~ORDER)

    return lift(do, given.first) if given.first is not None else ANYTHING


def _range(_: Simulation, __: Frame, given: Given) -> Value:
    share = len(given.arguments) > 1 and all(taint(one) & RANK for one in given.arguments[:2])
    found = unknown(*given.arguments).taint & ~NEXT  # where a job goes on
    return Made("range", found, about=SHARE if share else None)


def _enumerate(_: Simulation, __: Frame, given: Given) -> Value:
    return Made("enumerate", about=given.first) if given.first is not None else ANYTHING


def _zip(_: Simulation, __: Frame, given: Given) -> Value:
    return Made("zip", about=Items(given.arguments))


def _sorted(_: Simulation, __: Frame, given: Given) -> Value:
    if given.first is None or isinstance(given.first, Items):
        return given.first or ANYTHING
    return Unknown(taint(given.first) & ~ORDER)


def _container(kind: str) -> Model:
    def do(simulator: Simulation, _: Frame, given: Given) -> Value:
        if kind == "dict":
            made = unknown(*given.arguments)
            return made if made.taint else Table(given.keywords, open=bool(given.arguments))
        if given.first is None:
            return Items((), kind)
        if isinstance(given.first, Items):
            return Items(given.first.items, kind)
        found = taint(simulator.expressions.element(given.first)) | taint(given.first)
        return Unknown(found | (ORDER if kind == "set" else 0))

    return do


def _environment(simulator: Simulation, _: Frame, given: Given) -> Value:
    found = simulator.library.environment(given.first) if given.first is not None else None
    default = given.argument(1)
    return found if found is not None else default if isinstance(default, Unknown) else ANYTHING


def _join(_: Simulation, __: Frame, given: Given) -> Value:
    return lift(arithmetic.joined, *given.arguments) if given.arguments else ANYTHING


def _path(_: Simulation, __: Frame, given: Given) -> Value:
    def do(*parts: Value) -> Value:
        inside = arithmetic.joined(*parts) if parts else Const(".")
        return Made("pathlib.Path", taint(inside), inside.about if isinstance(inside, Made) else inside)

    return lift(do, *given.arguments) if given.arguments else do()


def _spawn(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Start a function in several processes: the first argument that it gets is its rank."""
    simulator.recording.sign(frame, "launch", "spawn", given.node)
    target = given.argument(0, "fn")
    if not isinstance(target, Function):
        return ANYTHING
    simulator.recording.sign(frame, "initialise", "spawn", given.node)
    parts = given.argument("args", 1)
    passed = parts.items if isinstance(parts, Items) else ()
    first = next((one.arg for one in target.node.args.args), "")  # with several nodes it is added to that of the node
    which = number("local" if "gpu" in first or "local" in first else "global")
    return simulator.calls.start(frame, target, Given(given.node, (which, *passed)))


def _thread(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Make a thread: what it runs is run where it is made."""
    target, parts = given.argument("target"), given.argument("args")
    if isinstance(target, Function | Library):
        passed = parts.items if isinstance(parts, Items) else ()
        simulator.calls.apply(frame, target, given.handed(passed, "args"))
    return Made("threading.Thread")


def _process(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Make a process, perhaps one of several: what it runs is run where it is made."""
    target, parts = given.argument("target"), given.argument("args")
    if isinstance(target, Function):
        items = parts.items if isinstance(parts, Items) else ()
        passed = tuple(Unknown() if isinstance(one, Unknown) else one for one in items)
        simulator.calls.start(frame, target, Given(given.node, passed))
    return Made("threading.Thread")


def _on_signal(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Run the handler of a signal. What it stores only this process knows: others may not have the signal yet."""
    handler = given.argument(1, "handler")
    if not isinstance(handler, Function):
        return ANYTHING
    scope, live, trace, frame.trace = handler.scope, frame.live, frame.trace, []
    before: list[tuple[dict[str, Value], dict[str, Value]]] = []
    while scope is not None:
        before.append((scope.env, dict(scope.env)))
        scope = scope.parent
    simulator.heap.push()
    simulator.calls.invoke(frame, handler, Given(given.node))
    stored = simulator.heap.pop()
    inside, frame.live, frame.trace = tuple(frame.trace), live, trace
    if handler.scope is not None:
        trace.append(Branch("UUUU", 0, place_of(given.node), "", inside, ()))
    else:
        simulator.results.by_node.pop(handler.node, None)  # nobody has called it
    for variables, old in before:
        changed = [name for name, value in old.items() if variables[name] != value]
        variables.update(
            {name: Unknown(CLOCK) if isinstance(old[name], Const | Unknown) else old[name] for name in changed}
        )
    for (owner, name), value in stored.items():
        if isinstance(value, Const | Unknown):
            simulator.heap.set(owner, name, Unknown(CLOCK), live)
    return ANYTHING


def _callback(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Call the function that is the first argument, with those that follow."""
    if not isinstance(given.first, Function):
        return ANYTHING
    return simulator.calls.invoke(frame, given.first, Given(given.node, given.arguments[1:], given.keywords))


def _map(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Call a function with an element of each of the other arguments."""
    if not isinstance(given.first, Function):
        return unknown(*given.every)
    element = simulator.expressions.element
    passed = tuple(element(one) for one in given.arguments[1:])
    return simulator.calls.invoke(frame, given.first, Given(given.node, passed))


def _default_table(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Return a dictionary whose values an object of the project is, for all keys."""
    made = simulator.calls.apply(frame, given.first, Given(given.node)) if isinstance(given.first, Class) else None
    return Made("<dict>", about=made) if isinstance(made, Object) else ANYTHING


def _descriptor(kind: str) -> Model:
    return lambda _, __, given: Made(kind, about=given.first)


def _prepare(_: Simulation, __: Frame, given: Given) -> Value:
    """Wrap models and loaders for Accelerate."""
    made = tuple(Made("accelerate.PreparedModel", about=one) for one in given.arguments)
    return made[0] if len(made) == 1 else Items(made)


def _partition(_: Simulation, __: Frame, given: Given) -> Value:
    return Made("jax.sharding.PartitionSpec", about=given.first)


def _import(simulator: Simulation, frame: Frame, given: Given) -> Value:
    """Import a module by its name: ``importlib.import_module("loop")``."""
    name = given.first
    return simulator.import_module(str(name.value), frame.module) if isinstance(name, Const) else ANYTHING


def _execute(simulator: Simulation, frame: Frame, _: Given) -> Value:
    """Run a text that may give the variables of a module other values: ``exec(open("configurator.py").read())``."""
    for name, value in list(simulator.heap.names(frame.module)) if frame.function is None else ():
        if isinstance(value, Const) and not name.startswith("__"):
            simulator.heap.set(frame.module, name, simulator.members.called(name) or Unknown(name=name))
    return NONE


MODELS: Mapping[str, Model] = {
    "exec": _execute,
    "importlib.import_module": _import,
    **dict.fromkeys(
        (
            *("functools.wraps", "functools.lru_cache", "functools.cache", "torch.compile", "torch.jit.script"),
            *("jax.checkpoint", "copy.copy", "copy.deepcopy", "tqdm.tqdm", "tqdm.auto.tqdm"),
            *("os.fspath", "os.path.abspath", "os.path.expanduser", "os.path.realpath", "os.path.normpath", "iter"),
            *("os.path.dirname", "os.path.basename", "reversed", "asyncio.run", "hydra.main"),
            "accelerate.utils.find_executable_batch_size",
        ),
        _first,
    ),
    **dict.fromkeys(COMPILERS, compile_function),
    "jax.device_put": put_on_devices,
    "jax.sharding.NamedSharding": shard_over_mesh,
    "jax.sharding.PartitionSpec": _partition,
    **dict.fromkeys(("map", "filter", "jax.tree.map", "jax.tree_map", "jax.tree_util.tree_map"), _map),
    **dict.fromkeys(("absl.app.run", "fire.Fire", "typer.run"), _callback),
    "threading.Thread": _thread,
    "signal.signal": _on_signal,
    **dict.fromkeys(("torch.tensor", "torch.as_tensor"), _array),
    "collections.defaultdict": _default_table,
    **dict.fromkeys(("multiprocessing.Process", "torch.multiprocessing.Process"), _process),
    **dict.fromkeys(
        ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes", "accelerate.notebook_launcher"),
        _spawn,
    ),
    **dict.fromkeys(("pathlib.Path", "pathlib.PurePath", "Path"), _path),
    **{kind: _container(kind) for kind in ("list", "tuple", "set", "dict")},
    **{kind: _descriptor(kind) for kind in ("staticmethod", "classmethod", "property")},
    **dict.fromkeys(("callable", "issubclass", "type"), _nothing_known),
    "hasattr": _hasattr,
    **dict.fromkeys(("any", "all"), _any),
    "next": _next,
    "accelerate.Accelerator.prepare": _prepare,
    "lightning.fabric.Fabric.setup_dataloaders": _prepare,
    "functools.partial": _partial,
    "tqdm.trange": _range,
    "int": _number,
    "float": _number,
    "bool": _truth,
    "str": _text,
    "super": _super,
    "getattr": _getattr,
    "setattr": _setattr,
    "isinstance": _isinstance,
    "torch.is_tensor": lambda *_: ANYTHING,
    "len": _len,
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "sorted": _sorted,
    "os.getenv": _environment,
    "os.environ.get": _environment,
    "os.path.join": _join,
}
