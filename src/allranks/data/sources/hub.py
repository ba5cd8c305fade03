"""Find the files, the format and the features of a Hugging Face data set, from its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import datasets  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]

from allranks.data.sources.typed_lines import parse_json_table
from allranks.data.sources.types import JSON, ColumnTypes
from allranks.errors import DataError

FORMATS = ("parquet", "json", "text", "arrow")
# Options that do not change the samples; and those whose effect is looked at by itself.
_HARMLESS = {"name", "version", "data_dir", "data_files", "description", "batch_size", "chunksize", "block_size"} | {
    *("use_threads", "fragment_scan_options", "on_mixed_types", "parse_agent_traces"),
    *("columns", "features"),
}
_TEXT = ColumnTypes.from_schema(pa.schema({"text": pa.string()}))


@dataclass(frozen=True, slots=True)
class ResolvedDataset:
    """The files of a split, in their order, as absolute paths or addresses (on the hub: with the commit).

    ``columns`` are the requested columns; None for all.
    """

    format: str
    files: tuple[str, ...]
    types: ColumnTypes
    columns: tuple[str, ...] | None


def resolve_dataset(path: str, split: str | None, options: Mapping[str, Any]) -> ResolvedDataset:
    """Find the files of a data set as ``load_dataset(path, split=split, streaming=True, **options)`` does.

    Only what ``datasets`` needs for this is downloaded: the list of files, and the head of the first file. Raises
    DataError, with the reason, if the plan cannot give the same samples.
    """
    try:
        builder = datasets.load_dataset_builder(path, **options)
    except Exception as error:  # of many libraries
        raise DataError(
            f"datasets does not know {path!r}: {type(error).__name__}: {error}.",
            path=path,
            remedy="Check the name, the options, the network, and HF_TOKEN for what is not public.",
        ) from error
    form, config = builder.name, builder.config
    if form not in FORMATS or not type(builder).__module__.startswith("datasets."):
        raise _use_stream_error(
            path, f"it is of {form!r}, of which the plan knows no files: it reads {', '.join(FORMATS)}"
        )
    files = {str(name): tuple(map(str, found)) for name, found in config.data_files.items()}
    split = _choose_split(path, split, tuple(files))
    if not files[split]:
        raise DataError(f"{path!r}: no file matches its data_files.", path=path, remedy="Check the path on this host.")
    _refuse_options(path, config)
    features = _streamed_features(path, builder, split)
    columns = getattr(config, "columns", None)
    return ResolvedDataset(
        form, files[split], _column_types(path, form, features), None if columns is None else tuple(columns)
    )


def _choose_split(path: str, split: str | None, names: Sequence[str]) -> str:
    if split is None and len(names) == 1:
        return names[0]
    if split is None or str(split) not in names:
        found = "no split was named" if split is None else f"there is no split {str(split)!r}"
        raise DataError(
            f"{path!r}: {found}; there are {', '.join(map(repr, names))}.",
            path=path,
            remedy="Set split=... to one of them; for several make a mixture, for a part use .skip and .take.",
        )
    return str(split)


def _refuse_options(path: str, config: Any) -> None:
    plain = type(config)()
    said = [
        f"{one.name}={getattr(config, one.name)!r}"
        for one in fields(config)
        if one.name not in _HARMLESS and _is_not_default(getattr(config, one.name), getattr(plain, one.name))
    ]
    if said:
        raise _use_stream_error(path, f"it is read with {', '.join(said)}, which the plan does not do")


def _is_not_default(said: Any, default: Any) -> bool:
    return type(said) is not type(default) or bool(said != default)  # of Arrow's expressions, != is one more


def _streamed_features(path: str, builder: Any, split: str) -> Any:
    try:
        return builder.as_streaming_dataset(split=split).features
    except Exception as error:  # of many libraries: it reads the first file
        raise DataError(
            f"datasets cannot say what features {path!r} has: {type(error).__name__}: {error}.",
            path=path,
            remedy="Check whether the first file of the data set is complete: load_dataset(..., streaming=True) "
            "fails in the same way.",
        ) from error


def _column_types(path: str, form: str, features: Any) -> ColumnTypes:
    if form == "text" and features is None:
        return _TEXT
    if features is None:
        raise _use_stream_error(path, "it has no features: its files are no JSON lines")
    schema = features.arrow_schema
    types = ColumnTypes.from_schema(schema)
    if form == "text" and types != _TEXT:
        raise _use_stream_error(path, f"its features are {types.text}, and lines of text are {_TEXT.text}")
    if types.contains_type(JSON) or (form == "json" and not _is_of_json(types, schema)):
        raise _use_stream_error(path, f"its features hold what is made of the values behind reading them: {features}")
    return types


def _is_of_json(types: ColumnTypes, schema: Any) -> bool:
    """Return whether JSON lines can be read with these types, without converting the values afterwards."""
    try:
        parse_json_table(b"{}", types.to_schema())
        return bool(types.to_schema().equals(schema))
    except (ValueError, pa.ArrowNotImplementedError):
        return False


def _use_stream_error(path: str, why: str) -> DataError:
    return DataError(
        f"{path!r} cannot be read by the plan: {why}.",
        path=path,
        remedy="Read it as a stream, allranks.shard(datasets.load_dataset(..., streaming=True), world): its guarantees "
        "say what that cannot keep. Or load it without streaming=True and give the Dataset, which keeps all of them.",
    )
