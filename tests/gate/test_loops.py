"""Which variable of a program counts its steps, read from its source."""

from __future__ import annotations

import textwrap

import pytest

from allranks.gate.lockstep import position
from allranks.gate.lockstep.loops import loops_of_source


@pytest.mark.parametrize(
    ("header", "counter", "targets"),
    [
        ("for k in range(5):", "k", ("k",)),
        ("for i, batch in enumerate(loader):", "i", ("i", "batch")),
        ("for i, (x, y) in enumerate(tqdm(loader), 1):", "i", ("i", "x", "y")),
        ("for k in tqdm.tqdm(range(3), disable=True):", "k", ("k",)),
        ("for k in trange(3):", "k", ("k",)),
        ("for k, x in zip(range(3), data):", "k", ("k", "x")),
        ("for x, y in loader:", "", ("x", "y")),
        ("for k in my_indices:", "", ("k",)),
        ("for k in sorted(range(3), key=cost):", "", ("k",)),
    ],
)
def test_a_for_loop_has_a_counter_if_its_iterator_counts(header: str, counter: str, targets: tuple[str, ...]) -> None:
    (placed,) = loops_of_source(f"{header}\n    step()\n")
    assert (placed.loop.counter, placed.loop.targets) == (counter, targets)


@pytest.mark.parametrize(
    ("body", "counter"),
    [("step()\n    k += 1", "k"), ("if fine:\n        k += 1", ""), ("k += 2", ""), ("n += 1", "")],
)
def test_a_while_loop_has_one_if_every_turn_adds_one_to_it(body: str, counter: str) -> None:
    (placed,) = loops_of_source(f"while k < 5:\n    {body}\n")
    assert placed.loop.counter == counter


def test_loops_belong_to_their_function_and_hold_their_bodies_only() -> None:
    source = """
        for epoch in range(3):
            def step():
                for x in range(2):
                    make_call()
            step()
        else:
            make_call()
    """
    outer, inner = loops_of_source(textwrap.dedent(source).strip())
    assert (outer.function, outer.first, outer.last) == (0, 2, 5)
    assert (inner.function, inner.first, inner.last) == (2, 4, 4)


def test_a_position_names_the_loops_that_run_outermost_first() -> None:
    found = []

    def step() -> None:
        for micro in range(2):
            found.append(position.read_loop_counts(position.get_ident()))
            del micro

    for epoch in range(3):
        for name in ("a", "b"):
            step()
            del name
        del epoch
    assert [dict(one.loops).values() for one in found][-1]
    keys = [[key.split(" ")[0] for key, _ in one.loops] for one in found]
    assert keys[0] == ["epoch", "micro"]
    assert [count for _, count in found[-1].loops] == [2, 1]


@pytest.mark.parametrize(
    ("iterated", "collection"),
    [
        ("grads", "grads"),
        ("self.grads.items()", "self.grads"),
        ("set(names)", "names"),
        ("{'b', 'a'}", "{'b', 'a'}"),
        ("grads.values()", "grads"),
        ("sorted(grads)", ""),
        ("read(path)", ""),
        ("enumerate(grads)", ""),
    ],
)
def test_a_loop_knows_its_collection(iterated: str, collection: str) -> None:
    assert loops_of_source(f"for name in {iterated}:\n    step()\n")[0].loop.over == collection
    assert loops_of_source(f"[step(name) for name in {iterated}]")[0].loop.over == collection


def test_elements_are_named_alike_whatever_their_order() -> None:
    """By strings, a dict's values by their keys; elements without a name, and lists, are not compared."""
    grads = {"b": object(), "a": object()}
    other, names = dict(sorted(grads.items())), list(grads)
    for name in grads:
        (label,) = position.read_loop_elements(position.get_ident(), all_collections=False)
        assert label.element == repr(name)
    for value in other.values():
        (named,) = position.read_loop_elements(position.get_ident(), all_collections=False)
        assert other[named.element.strip("'")] is value
        assert named.elements == label.elements
    for name in names:
        assert position.read_loop_elements(position.get_ident(), all_collections=False) == []
        assert [one.element for one in position.read_loop_elements(position.get_ident(), all_collections=True)] == [
            repr(name)
        ]
