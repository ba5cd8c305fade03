"""The laws of values: what is joined, selected and lifted says no more than what it was made of."""

from __future__ import annotations

import ast
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.check.simulate import arithmetic
from allranks.check.simulate.given import Given
from allranks.check.simulate.joining import join, select
from allranks.check.simulate.values import (
    CLOCK,
    FALSE,
    FILES,
    NONE,
    RANK,
    TRUE,
    ByRole,
    Const,
    Text,
    Unknown,
    Value,
    by_role,
    is_first,
    lift,
    negate,
    number,
    of_role,
    roles_where,
    taint,
    truth,
    unknown,
)

plain = st.one_of(
    st.sampled_from([NONE, TRUE, FALSE, Const(0), Const(1), Const("a"), Const("")]),
    st.builds(Unknown, st.sampled_from([0, RANK, CLOCK, FILES])),
    st.builds(Text, st.sampled_from(["{}", "a{}"]), st.sampled_from([0, RANK])),
)
values = st.one_of(plain, st.tuples(plain, plain, plain, plain).map(by_role))
truths = st.text("TFUD", min_size=4, max_size=4)


@given(values)
def test_a_value_joined_with_itself_is_itself(value: Value) -> None:
    assert join(value, value) == value


@given(values, values)
def test_a_join_depends_on_what_both_depend_on(one: Value, other: Value) -> None:
    assert taint(join(one, other)) & ~RANK == (taint(one) | taint(other)) & ~RANK
    assert taint(join(one, other)) == taint(join(other, one))


@given(truths, values, values)
def test_a_role_has_the_side_that_its_condition_says(letters: str, then: Value, orelse: Value) -> None:
    made = select(letters, then, orelse, 0)
    for role, letter in enumerate(letters):
        if letter in "TF":
            assert of_role(made, role) == of_role(then if letter == "T" else orelse, role)


@given(truths)
def test_a_truth_denied_twice_is_itself(letters: str) -> None:
    assert negate(negate(letters)) == letters
    assert roles_where(letters, "T") == roles_where(negate(letters), "F")


@given(values)
def test_what_is_lifted_is_done_for_each_role(value: Value) -> None:
    made = lift(lambda one: one, value)
    for role in range(4):
        one = of_role(value, role)
        assert type(of_role(made, role)) is type(one)
        if not isinstance(one, Unknown):
            assert of_role(made, role) == one


def test_unknown_values_of_different_roles_may_differ() -> None:
    scores = ByRole((Unknown(), Text("{}"), Text("{}"), Text("{}")))
    assert truth(lift(lambda one: unknown(one), scores)) == "DDDD"
    assert truth(lift(lambda one: unknown(one), Unknown())) == "UUUU"


@pytest.mark.parametrize("kind", ["global", "local", "node", "group"])
def test_a_rank_is_zero_for_those_that_are_first(kind: str) -> None:
    assert truth(arithmetic.compare(ast.Eq(), number(kind), Const(0))) == truth(is_first(kind))
    assert truth(number(kind)) == negate(truth(is_first(kind)))


SIZE = Unknown(true=True, kind="size")


@pytest.mark.parametrize(
    ("op", "limit", "expected"),
    [
        (ast.Gt(), 1, "TTTT"),
        (ast.GtE(), 2, "TTTT"),
        (ast.Eq(), 1, "FFFF"),
        (ast.NotEq(), 1, "TTTT"),
        (ast.Lt(), 2, "FFFF"),
        (ast.LtE(), 1, "FFFF"),
        (ast.Gt(), 2, "UUUU"),
        (ast.Eq(), 2, "UUUU"),
    ],
)
def test_there_are_at_least_two_processes(op: ast.cmpop, limit: int, expected: str) -> None:
    assert truth(arithmetic.compare(op, SIZE, Const(limit))) == expected


@pytest.mark.parametrize(
    ("op", "limit", "expected"),
    [
        (ast.Eq(), 0, "TFFF"),
        (ast.NotEq(), 0, "FTTT"),
        (ast.Gt(), 0, "FTTT"),
        (ast.GtE(), 0, "TTTT"),
        (ast.Eq(), -1, "FFFF"),
        (ast.NotEq(), -1, "TTTT"),
        (ast.Eq(), 3, "FDDD"),
        (ast.Lt(), 1, "TFFF"),
        (ast.Is(), None, "FFFF"),
        (ast.IsNot(), None, "TTTT"),
    ],
)
def test_a_rank_is_compared_as_the_number_that_it_is(op: ast.cmpop, limit: int | None, expected: str) -> None:
    assert truth(arithmetic.compare(op, number("global"), Const(limit))) == expected


def test_a_rank_in_its_host_is_what_is_left_of_the_rank() -> None:
    assert arithmetic.binary(ast.Mod(), number("global"), SIZE) == number("local")
    assert arithmetic.binary(ast.FloorDiv(), number("global"), SIZE) == number("node")
    last = arithmetic.binary(ast.Sub(), SIZE, Const(1))
    assert truth(arithmetic.compare(ast.Eq(), number("global"), last)) == "FDDD"


@given(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod]))
def test_constants_are_computed(left: int, right: int, op: type[ast.operator]) -> None:
    name = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"}[op]
    made = arithmetic.binary(op(), Const(left), Const(right))
    if right or op not in (ast.FloorDiv, ast.Mod):
        assert made == Const(getattr(operator, name)(left, right))
    else:
        assert isinstance(made, Unknown)


def test_an_argument_is_found_by_position_or_keyword() -> None:
    call = ast.parse("f(a, b=1)", mode="eval").body
    given_there = Given(call, (Const("a"),), (("b", Const(1)),))
    assert given_there.argument(1, "b") == Const(1)
    assert given_there.has("b", 1)
    assert given_there.has(0, "any")
    assert not given_there.has("b", 2)
    assert [ast.unparse(e) for e in (given_there.expression(0), given_there.expression(1, "b")) if e] == ["a", "1"]
