"""What is known of a value."""

from __future__ import annotations

from dataclasses import fields

from allranks.check.interpret.values import Value, replace


def test_no_field_is_forgotten() -> None:
    """A value with another field is another one, and has all the rest of the old one."""
    plain = Value()
    for field in fields(Value):
        other = replace(plain, **{field.name: "other"})
        assert other != plain
        assert replace(other) == other
        assert getattr(other, field.name) == "other"
