"""What is known of a value: the same on every rank, rank-dependent, or different from process to process."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any

from allranks.check.interpret.truth import BY_RANK, FALSE, FIRST, TRUE, UNKNOWN, both, decides, negate, stronger
from allranks.check.interpret.truth import either as first_true
from allranks.check.tables.data import BARE, WRAPPERS

# What a value depends on. PROCESS: what this process alone finds (a file exists); CLOCK; IDENTITY: pid, host, uuid,
# temporary names, so that a path made of it is this process' own. STATE: what was stored under a guard on the rank.
# ALONE: a number that no other process has: drawn without a common seed, or the part of a sum that another one has.
# ASKED: whether the processes are joined yet, so that whoever asks before takes himself for rank 0.
RANK, LOCAL_RANK, NODE, GROUP, PROCESS, CLOCK, IDENTITY, STATE, ASKED = 1, 2, 4, 8, 16, 32, 64, 128, 256
ALONE = 512
RANKS = RANK | LOCAL_RANK | NODE | GROUP
OF_ONE = PROCESS | CLOCK | ALONE  # what a process knows that its rank does not say
TAINT = {"global": RANK, "local": LOCAL_RANK, "node": NODE, "group": GROUP}


# The flag of a truth that holds because there are several processes.
MANY = frozenset({"many"})
# What a number of processes is an instance of.
SIZE = "<world size>"
OF_HOST = frozenset({"gpus of host"})  # the flag of a number that is that of the GPUs of this host
# Flags of what belongs to one process.
PRIVATE = frozenset({"memory", "temporary", "lock", "own"})
OWN = frozenset({"own"})  # the flag of a name that this process alone has
SUMMED = frozenset({"summed"})  # the flag of a sum with a rank in it


class Missing(Enum):
    """The constant of a value that is none."""

    CONSTANT = 0


NO_CONSTANT = Missing.CONSTANT


@dataclass(slots=True, unsafe_hash=True)  # never changed, but not frozen: to make one would take five times as long
class Value:
    """``taint``: what it depends on, a sum of the bits above; 0 is uniform. ``constant``: what it is, if known.

    ``truth`` (see `truth`) is empty if nothing more is known than the taint; ``none`` says likewise whether it is None.
    ``number``: a rank, its truth says where it is not 0. ``reference``: the function, class or module that it is
    (``torch.save``; ``train.py::Trainer.save`` in the project); ``instance``: the class that it is an instance of.
    ``receiver``: of a bound method. ``scope``: the frame that a nested function sees. ``gate``: a function that runs
    only where this is true, or an object whose methods do. ``elements`` of a tuple or list. ``bound``: first
    arguments, given by functools.partial; what is in a collection (`collected`). ``told``: the same by keyword.
    ``handle``: the place of the call that opened this file. ``flags``: ``memory``, ``temporary``, ``lock``, ``turn``,
    ``dict``, ``agreed``; ``own``: a name, or what holds names, that the rank or this process is part of; ``part``: what
    this process was dealt of something; of a path, whose disk it is on: ``shared`` by all nodes, or each ``node``'s
    own; ``perhaps``: nobody knows whether it is what is worked on; ``named``: a folder of a run that is called after
    the clock, or what is in it; ``choice``: a dictionary of classes or functions, ``one of``: what is picked from it,
    or by a condition; they are its ``elements``, each with a ``gate`` if the rank picks. How an array of JAX lies is
    told in `spread`.
    """

    taint: int = 0
    constant: Any = NO_CONSTANT
    truth: str = ""
    none: str = ""
    number: bool = False
    reference: str = ""
    instance: str = ""
    receiver: Value | None = None
    scope: Any = None
    gate: str = ""
    elements: tuple[Value, ...] | None = None
    bound: tuple[Value, ...] = ()
    told: tuple[tuple[str, Value], ...] = ()
    handle: tuple[int, int, int, int] | None = None
    flags: frozenset[str] = frozenset()
    text: str = ""

    def __eq__(self, other: object) -> bool:
        """As `dataclass` has it, but most are told apart by a field or two: it is asked of half of all values."""
        if self is other:
            return True
        if not isinstance(other, Value):
            return NotImplemented
        return (
            self.taint == other.taint
            and self.instance == other.instance
            and self.reference == other.reference
            and self.truth == other.truth
            and (self.constant is other.constant or bool(self.constant == other.constant))
            and (self.none, self.number, self.gate, self.handle, self.flags, self.text)
            == (other.none, other.number, other.gate, other.handle, other.flags, other.text)
            and (self.receiver, self.scope, self.elements, self.bound, self.told)
            == (other.receiver, other.scope, other.elements, other.bound, other.told)
        )

    @property
    def uniform(self) -> bool:
        return not self.taint

    @property
    def private(self) -> bool:
        """Whether, as a path, it is this process' own."""
        return bool(self.taint & (RANKS | IDENTITY)) or not PRIVATE.isdisjoint(self.flags)

    @property
    def names_own(self) -> bool:
        """Whether it is a name that is this process' own, or a tuple with such a name in it."""
        return self.private or any(part.private and not part.number for part in self.elements or ())

    @property
    def ranked(self) -> bool:
        """Whether it differs from rank to rank."""
        return bool(self.taint & RANKS)

    @property
    def says_who(self) -> bool:
        """Whether it says which rank this is: a rank, or a truth that is certain for each of them."""
        return self.ranked and set(self.truth) == {"T", "F"}

    def true(self) -> str:
        """Return its truth for the four roles."""
        if "text" in self.flags and self.number:
            return TRUE
        if self.truth:
            return self.truth
        if self.constant is not NO_CONSTANT:
            return TRUE if self.constant else FALSE
        if self.instance == SIZE:
            return TRUE
        return BY_RANK if self.taint & RANKS else UNKNOWN

    def otherwise(self, other: Value) -> Value:
        """Return what ``self or other`` is: ``size or 1`` is something, and need not be 1."""
        truth, taint = first_true(self.true(), other.true()), self.taint | other.taint
        something = truth == TRUE and not isinstance(other.constant, bool)
        return Value(taint, truth=TRUE, none=FALSE) if something else boolean(truth, taint)

    def is_none(self) -> str:
        """Return where it is None."""
        if self.none:
            return self.none
        if self.constant is not NO_CONSTANT:
            return TRUE if self.constant is None else FALSE
        if self.instance or self.reference or self.elements is not None or self.number or self.truth in (TRUE,):
            return FALSE
        return UNKNOWN

    def passed(self) -> Value:
        """Return it as a parameter sees it: without what tells one call from another and matters to none."""
        wordy = isinstance(self.constant, str) and (len(self.constant) > 24 or " " in self.constant)
        if self.handle is None and not self.text and not wordy:
            return self
        constant = NO_CONSTANT if wordy else self.constant
        return replace(self, handle=None, text="", constant=constant, none=FALSE if wordy else self.none)


def replace(value: Value, **changes: Any) -> Value:
    """Return a value with other fields: as `dataclasses.replace`, in a quarter of its time."""
    made = Value(
        taint=value.taint,
        constant=value.constant,
        truth=value.truth,
        none=value.none,
        number=value.number,
        reference=value.reference,
        instance=value.instance,
        receiver=value.receiver,
        scope=value.scope,
        gate=value.gate,
        elements=value.elements,
        bound=value.bound,
        told=value.told,
        handle=value.handle,
        flags=value.flags,
        text=value.text,
    )
    for name, changed in changes.items():
        setattr(made, name, changed)
    return made


ANYTHING = Value()
NONE = Value(constant=None)
AGREED = Value(flags=frozenset({"agreed"}))
ONE_OF = frozenset({"one of"})  # the flag of what is one of its elements: which, a setting says, to all ranks alike
# Classes of objects that do nothing, in the place of those that other ranks have.
_STANDS_IN = re.compile(r"(?i)^_?no_?op|dummy|null|silent|stub|black_?hole")
MOST_OPTIONS = 6
MOST_ELEMENTS = 8  # so many of a list are kept
TEXT = frozenset({"text"})  # the flag of a rank as its variable holds it: "0" is true
# What a loop counts: whatever it is called, it is no rank of this process.
COUNTER = Value(none=FALSE, flags=frozenset({"counted"}))
DEALT = frozenset({"dealt"})  # the flag of a list that is longer on some ranks than on others
EVEN = frozenset({"even"})  # the flag of a list that is as long on all ranks


@lru_cache(10_000, typed=True)
def known(constant: Hashable) -> Value:
    return Value(constant=constant)


def rank(kind: str) -> Value:
    """Return the rank of this process: ``global``, ``local``, ``node`` or in its sub-``group``."""
    return Value(TAINT[kind], truth=negate(FIRST[kind]), none=FALSE, number=True)


def boolean(truth: str, taint: int = 0) -> Value:
    """Return a truth; one that is the same for all and certain is a constant."""
    if truth in (TRUE, FALSE):
        return Value(taint, constant=truth == TRUE)
    return Value(taint, truth=truth, none=FALSE)


def also(value: Value, taint: int) -> Value:
    """Return a rank or a truth that depends on whether the processes are joined, if ``taint`` says so."""
    tells = value.ranked or value.truth or isinstance(value.constant, bool)
    return replace(value, taint=value.taint | ASKED) if taint & ASKED & ~value.taint and tells else value


def tainted(*values: Value) -> Value:
    """Return a value of which nothing is known but that it was made of these."""
    taint = 0
    for value in values:
        taint |= value.taint
    return Value(taint) if taint else ANYTHING


def chosen(truth: str, one: Value, other: Value, taint: int = 0) -> Value:
    """Return ``one`` where ``truth`` holds and ``other`` where it does not; ``taint`` is the condition's."""
    if one is other or one == other or truth == TRUE:
        return one
    if truth == FALSE:
        return other
    if any("agreed" in value.flags for value in (one, other)) and not any(
        v.instance or v.reference for v in (one, other)
    ):
        return AGREED
    if truth == UNKNOWN:
        for asking, plain in ((one, other), (other, one)):
            if asking.ranked and asking.truth and (plain.constant is None or isinstance(plain.constant, int)):
                return asking  # what it is where there are several processes; the constant is for one alone
    if set(truth) == {"T", "F"} and (picked := _parted(one, other, truth)):
        return Value(one.taint | other.taint, elements=picked, flags=ONE_OF)
    if one.instance and other.instance and set(truth) == {"T", "F"}:
        for kept, idle, there in ((one, other, truth), (other, one, negate(truth))):
            if _STANDS_IN.search(idle.instance.rpartition("::")[2]):
                return replace(kept, gate=there)
    if truth == UNKNOWN and (either := _either(one, other)):
        return Value(one.taint | other.taint, elements=either, flags=ONE_OF)
    has_say = one.ranked or other.ranked or decides(one.true()) or decides(other.true())
    told = truth if _are_truths(one, other) else truth.replace("P", "U")  # which file is there, all find alike
    trues = _letters(told, one.true(), other.true(), ranked=has_say)
    nones = _letters(truth.replace("P", "U"), one.is_none(), other.is_none(), ranked=has_say)
    parted = taint if set(truth) != {"U"} else 0
    better = one if one.reference or one.instance or one.elements is not None else other
    if one.instance and other.instance and one.instance != other.instance:
        # Where there are several processes the model is wrapped; then what it is unwrapped to.
        wrapped = [v for kinds in ({BARE}, WRAPPERS) for v in (one, other) if v.instance in kinds]
        better = wrapped[0] if wrapped else replace(better, instance="", flags=frozenset())
    if one.reference and other.reference and one.reference != other.reference:
        better = replace(better, reference="", scope=None, receiver=None, gate="")
    alike = one.constant == other.constant and type(one.constant) is type(other.constant)
    if alike and one.constant is not NO_CONSTANT:
        return replace(better, taint=one.taint | other.taint)
    elements = None
    if one.elements is not None and other.elements is not None and len(one.elements) == len(other.elements):
        elements = tuple(chosen(truth, a, b, taint) for a, b in zip(one.elements, other.elements, strict=True))
    return replace(
        better,
        taint=one.taint | other.taint | parted,
        constant=NO_CONSTANT,
        truth=trues,
        none=nones,
        number=one.number and other.number,
        elements=elements,
        flags=_flags(one, other),
        gate=one.gate or other.gate,
    )


def roughly(value: Value) -> Value:
    """Return the little of a value that tells the calls of a function apart which is called in many ways: that it is
    None or not, true or false, or this process' own."""
    if value.constant is None or isinstance(value.constant, bool):
        return known(value.constant)
    if plainly(value):
        return Value(none=FALSE)
    if value.private:
        return Value(value.taint & (RANKS | IDENTITY), none=value.none, flags=value.flags & PRIVATE)
    return ANYTHING


def barely(value: Value) -> Value:
    """Return of a value whether it is None, where that is known."""
    return known(None) if value.constant is None else Value(none=FALSE) if plainly(value) else ANYTHING


def uncounted(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return what another process, or another object, is made with: there what is counted here may well be its rank."""
    return tuple(ANYTHING if value.flags - MANY == COUNTER.flags else value for value in values)


def plainly(value: Value) -> bool:
    """Whether a value is a constant, whatever ranks there are."""
    return value.constant is not NO_CONSTANT and not value.taint


def still_open(value: Value) -> Value:
    """Return a list that was empty where it was made: elsewhere, something may have been put in it."""
    return replace(value, truth=UNKNOWN) if value.elements == () and value.truth == FALSE else value


def vague(value: Value) -> bool:
    """Whether nothing is known of a number but what it was made of: a rank, if it is called one."""
    told = value.ranked or value.reference or value.instance or value.truth or value.elements is not None
    return value.constant is NO_CONSTANT and not told and not value.flags & COUNTER.flags


def says_less(value: Value) -> bool:
    """Whether so little is known of an attribute that its name says more."""
    plain = is_some_int(value)  # which one, its name may tell
    told = value.taint or value.instance or value.flags & OWN or value.elements is not None
    return bool(replace(value, none="") == ANYTHING or plain or (value.truth == UNKNOWN and not told))


def is_some_int(value: Value) -> bool:
    """Whether no more is known than that it is an int, a bool, or another class of Python's own, as annotations say."""
    return bool(value.instance) and "." not in value.instance and not value.flags & OF_HOST


def options(value: Value) -> tuple[Value, ...]:
    """Return what a value may be, of which a setting picks one; itself, if there is no choice."""
    return value.elements or () if value.flags & ONE_OF else (value,)


def _either(one: Value, other: Value) -> tuple[Value, ...]:
    """Return what may be called, or which object it may be, if both are the project's own; none of too many."""
    either = (*options(one), *options(other))
    named = all("::" in v.reference or ("::" in v.instance and not v.truth) for v in either)
    kinds = dict.fromkeys(v.passed() for v in either) if named else {}
    return tuple(kinds) if len({v.reference or v.instance for v in kinds}) > 1 and len(kinds) <= MOST_OPTIONS else ()


def _parted(one: Value, other: Value, truth: str) -> tuple[Value, ...]:
    """Return two functions or objects of the project's own, each as the ranks have it for which it is picked."""
    names = [value.reference or value.instance for value in (one, other)]
    plain = not (one.truth or other.truth or (one.flags | other.flags) & ONE_OF)
    if not plain or names[0] == names[1] or not all("::" in name for name in names):
        return ()
    return tuple(replace(v, gate=both(v.gate or TRUE, on)) for v, on in ((one, truth), (other, negate(truth))))


_DEVICES = ("cuda", "cpu", "mps")
_LYING = frozenset({"parts", "rows", "array", "keyed"})


def _flags(one: Value, other: Value) -> frozenset[str]:
    """Return the flags of what may be either: the current GPU, unless one of two has a number."""
    flags = one.flags | other.flags
    if flags & OF_HOST and not one.flags & other.flags & OF_HOST:
        flags -= OF_HOST
    if "spread" in one.flags & other.flags:  # how it lies, both must say
        flags -= _LYING - (one.flags & other.flags)
    devices = [v.constant in _DEVICES or "gpu" in v.flags or "host" in v.flags for v in (one, other)]
    if "gpu" in flags or "cuda" in (one.constant, other.constant):
        return flags | {"gpu"} if all(devices) else flags - {"gpu"}
    return flags


def _are_truths(one: Value, other: Value) -> bool:
    return all(bool(v.truth) or isinstance(v.constant, bool) for v in (one, other))


@cache
def _letters(truth: str, one: str, other: str, *, ranked: bool) -> str:
    letters = []
    for which, a, b in zip(truth, one, other, strict=True):
        if which in "TF":
            letters.append(a if which == "T" else b)
        elif a == b:
            letters.append(a)
        else:
            letter = stronger(a, b) if which == "U" else stronger(stronger(a, b), which)
            letters.append("W" if letter == "U" and ranked else letter)
    return "".join(letters)


def join(one: Value, other: Value) -> Value:
    """Return what is known of a value that may be either of two, on every rank alike."""
    return chosen(UNKNOWN, one, other)
