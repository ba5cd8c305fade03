"""Describe the types of columns as JSON, in a form that does not depend on the version of Arrow."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from allranks.digest import digest, show
from allranks.errors import DataError

JSON = "json"  # a text, of which others make what it says
# A type: its name, {field: type} of a struct, [type] of a list, [type, length] of one of fixed length.
Word = str | dict[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """The columns of a data set and their types; ``text`` is JSON: {column: word}."""

    text: str

    @classmethod
    def from_schema(cls, schema: pa.Schema) -> ColumnTypes:
        """Return the types of the columns in a schema."""
        return cls(json.dumps({field.name: type_word(field.type) for field in schema}))

    @property
    def by_name(self) -> dict[str, Word]:
        found: dict[str, Word] = json.loads(self.text)
        return found

    @property
    def digest(self) -> str:
        """A digest of the types, as 16 hexadecimal digits."""
        return show(digest(self.text))[:16]

    def contains_type(self, name: str) -> bool:
        """Return whether one of the types has this name, or contains a type with this name."""
        return _contains_name(self.by_name, name)

    def to_schema(self) -> pa.Schema:
        """Return the Arrow schema with these types. Raises ValueError for a type that only Arrow files have."""
        return pa.schema({name: _arrow_type(one) for name, one in self.by_name.items()})

    def check_schema(self, schema: pa.Schema, path: str, *, column_names: Collection[str] | None = None) -> None:
        """Raise DataError if a file's schema has other columns or types.

        With ``column_names``, check only these columns.
        """
        found = {
            field.name: type_word(field.type) for field in schema if column_names is None or field.name in column_names
        }
        expected = self.by_name
        wrong = [
            f"{name}: {_type_text(expected, name)} by its features, {_type_text(found, name)} in the file"
            for name in sorted({*expected, *found})
            if name not in expected or name not in found or not _is_convertible(found[name], expected[name])
        ]
        if wrong:
            raise DataError(
                f"{path}: the columns differ from those of the data set: {'; '.join(wrong)}.",
                path=path,
                remedy="datasets would cast them, or fill them with None, which the plan does not do. Leave features "
                "out, write the files again with one schema, or read the stream: "
                "allranks.shard(datasets.load_dataset(..., streaming=True), world).",
            )


def type_word(kind: pa.DataType) -> Word:
    """Return the name of an Arrow type in our JSON.

    Types with equal Python values (string, large_string) have one name.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return JSON if kind.extension_name == "arrow.json" else type_word(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return type_word(kind.value_type)
    if pa.types.is_struct(kind):
        return {field.name: type_word(field.type) for field in kind}
    if pa.types.is_fixed_size_list(kind):
        return [type_word(kind.value_type), kind.list_size]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [type_word(kind.value_type)]
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    return "binary" if pa.types.is_large_binary(kind) else str(kind)


def _contains_name(one: Word | int, name: str) -> bool:
    inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return one == name or any(_contains_name(each, name) for each in inside)


def _is_convertible(found: Word, expected: Word) -> bool:
    """Return whether each value of the found type is also a value of the expected type. A null fits every type."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_is_convertible(found[name], expected[name]) for name in found)
    if isinstance(found, list) and isinstance(expected, list):
        return found[1:] == expected[1:] and _is_convertible(found[0], expected[0])
    return found in ("null", expected)


def _arrow_type(one: Word) -> pa.DataType:
    if isinstance(one, str):
        return pa.type_for_alias(one)
    if isinstance(one, dict):
        return pa.struct({name: _arrow_type(each) for name, each in one.items()})
    return pa.list_(_arrow_type(one[0]), *one[1:])


def _type_text(of: Mapping[str, Word], name: str) -> str:
    return json.dumps(of[name]).replace('"', "") if name in of else "no column"
