"""Results and what they call, deepest first, however deep calls are nested. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from allranks.check.interpret.state import Result


def calls(result: Result) -> Iterator[Result]:
    """Yield what a result calls."""
    return (called.result for called in result.calls)


def deepest_first(
    start: Result, known: Collection[int], below: Callable[[Result], Iterable[Result]] = calls
) -> Iterator[Result]:
    """Yield ``start`` and all ``below`` it whose id is not ``known``, each after what is below it.

    A circle of calls is broken where it comes back to a result that is still waiting. Whoever asks keeps in ``known``
    what he was given.
    """
    if id(start) in known:
        return
    waiting = {id(start)}
    way = [(start, iter(below(start)))]
    while way:
        result, left = way[-1]
        deeper = next((one for one in left if id(one) not in known and id(one) not in waiting), None)
        if deeper is None:
            way.pop()
            yield result
        else:
            waiting.add(id(deeper))
            way.append((deeper, iter(below(deeper))))
