"""What the simulation says of the four roles is what the ranks do when the program really runs."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from role_programs import blocks, program, run, simulate

from allranks.check.traces.compare import compare
from allranks.check.traces.walk import walk

WRITES = tuple(f'open("{name}", "w")' for name in "abcde")
MEETS = ("dist.barrier()", "dist.all_reduce(0)", "x = 1")
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


CALLS = ("helper0()", "helper1()")


@given(blocks(leaves=WRITES, exits=True), blocks(leaves=WRITES), blocks(leaves=(*WRITES, *CALLS), exits=True))
@QUICK
def test_each_role_reaches_what_its_rank_calls(one: list[str], other: list[str], body: list[str]) -> None:
    text = program(one, other, body)
    reached: dict[str, int] = {}
    for reach in walk(simulate({"train.py": text}, "train.py")):
        if reach.call.kind == "file":
            name = f"open {reach.call.target[1:-1]}"
            assert reach.certain == reach.may, f"{name} is not certain in\n{text}"
            reached[name] = reached.get(name, 0) | reach.may
    for role in range(4):
        told = {name for name, roles in reached.items() if roles >> role & 1}
        assert told == set(run(text, role)) - {"(", ")"}, f"role {role} in\n{text}"


@given(blocks(leaves=MEETS, exits=True), blocks(leaves=MEETS), blocks(leaves=(*MEETS, *CALLS), exits=True))
@QUICK
def test_a_divergence_is_found_where_ranks_call_different_collectives(
    one: list[str], other: list[str], body: list[str]
) -> None:
    text = program(one, other, body)
    met = {tuple(run(text, role)) for role in range(4)}
    found = compare(simulate({"train.py": text}, "train.py"))
    assert bool(found) == (len(met) > 1), f"{met} {[(d.cause, d.branch.text) for d in found]} in\n{text}"
