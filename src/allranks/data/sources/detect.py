"""Import the module of a source by the source's name.

A missing library is reported only for the source that needs it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, cast

from allranks.data.base import Source
from allranks.errors import DataError

KINDS = (
    "jsonl",
    "text",
    "parquet",
    "arrow",
    "webdataset",
    "folder",
    "sequence",
    "huggingface",
    "tokens",
    "mds",
    "litdata",
    "tfrecord",
    "array_record",
    "lance",
)
_PACKAGES = {"datasets": "datasets", "fsspec": "fsspec", "array_record": "array_record", "lance": "pylance"}


def open_source(kind: str, data: Any, **options: Any) -> Source:
    """Return the source of this kind (``jsonl``, ``parquet``, ...) for a pattern of files or an object, with its
    options.

    Raises DataError for an unknown kind, and if the library that the kind needs is not installed.
    """
    if kind not in KINDS:
        raise DataError(f"there is no source {kind!r}.", remedy=f"There are {', '.join(KINDS)}.")
    return cast(Source, getattr(import_source_module(kind), kind)(data, **options))


def import_source_module(name: str) -> ModuleType:
    """Import and return one module of this folder. Raises DataError that names the library if one is missing."""
    try:
        return import_module(f"allranks.data.sources.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "allranks").partition(".")[0] == "allranks":
            raise
        missing = (error.name or "").partition(".")[0]
        what = _PACKAGES.get(missing, '"allranks[data]"')
        raise DataError(
            f"{name} needs {missing}, which is not installed.", remedy=f"Install it: pip install {what}"
        ) from error
