"""What the parameters of a function hold in a call: what is given, defaults, and what names and annotations say."""

from __future__ import annotations

from allranks.check.interpret import collected
from allranks.check.interpret.calls import Caller
from allranks.check.interpret.given import Given
from allranks.check.interpret.logged import BEHIND, MADE, TRAINER
from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import ANYTHING, PRIVATE, Value, replace, tainted, uncounted, vague
from allranks.check.summaries.summary import FunctionFacts
from allranks.check.tables.receivers import HOOK_PARAMETERS, HOOKS, RECEIVERS


class Binder(Caller):
    """Binds what a call gives to the parameters of a function."""

    def parameters(self, module: Frame, facts: FunctionFacts, function: Value, given: Given | None) -> dict[str, Value]:
        """Return the parameters of a call; what is not given is its default, or unknown."""
        names = list(facts.positional)
        env: dict[str, Value] = {}
        values = (*function.bound, *(given.values if given else ()))
        if function.receiver is not None and facts.owner and names:
            env[names.pop(0)] = function.receiver.passed()
        elif function.receiver is not None and not facts.owner:  # what a decorator has made of a method
            values = (function.receiver, *values)
        env.update(zip(names, (v.passed() for v in values), strict=False))
        if facts.variadic[0]:
            rest, of_method = values[len(names) :], function.receiver is not None and not facts.owner
            each = of_method or any(v.private for v in rest)  # handed on, the file's name is still one of them
            made = Value() if of_method else tainted(*rest)
            env[facts.variadic[0]] = replace(made, elements=tuple(v.passed() for v in rest)) if each else made
        known_names = {*names, *facts.keyword_only}
        env |= {
            name: collected.named(given.keywords if given else (), known_names) for name in facts.variadic[1:] if name
        }
        if given is not None:
            env.update((name, v.passed()) for name, v in given.keywords if name in known_names)
            spread = any(name == "**" for name, _ in given.keywords)  # what is not named may be in there
            for name, default in () if spread else facts.defaults:
                if name not in env and default[0] in ("const", "attr", "name"):
                    env[name] = self.value(module, default)
        for name, default in facts.defaults if given is None else ():
            if name not in env and default[0] == "const" and (flags := self.value(module, default).flags & PRIVATE):
                env[name] = Value(flags=flags)  # a name with the rank in it: nobody would give one without
        for name in (*names, *facts.keyword_only):
            value, called = env.get(name, ANYTHING), self.apis.ranks["name"].named(name)
            value = value if called else uncounted((value,))[0]
            env[name] = self._unknown(module, facts, name) if value == ANYTHING or (called and vague(value)) else value
        return env

    def _unknown(self, module: Frame, facts: FunctionFacts, name: str) -> Value:
        query = self.apis.ranks["name"].named(name)
        if query is not None:
            return self.answer(module, query)
        kind = self.noted(module, facts, name)
        if kind == ANYTHING:
            hooked = HOOK_PARAMETERS.get(name, "") if facts.name in HOOKS else ""
            kind = Value(instance=hooked or RECEIVERS[name]) if hooked or name in RECEIVERS else ANYTHING
        return replace(kind, flags=MADE) if facts.name in BEHIND and kind.instance == TRAINER else kind

    def noted(self, module: Frame, facts: FunctionFacts, name: str) -> Value:
        """Return what an annotation says of a parameter, or of the result (``return``)."""
        for noted, annotation in facts.annotations:
            if noted == name and annotation[0] in ("name", "attr"):
                kind = self.value(module, annotation).reference
                if kind and kind[:1] != "@" and "." in kind:
                    return Value(instance=kind)
        return ANYTHING
