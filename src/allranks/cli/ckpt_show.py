"""Run ``allranks ckpt show``: show a checkpoint."""

from __future__ import annotations

import argparse
import json
from fnmatch import fnmatchcase
from typing import Any

from allranks.checkpoint import summary
from allranks.checkpoint.json_value import pack_json
from allranks.checkpoint.manifest import Manifest, StoredLeaf
from allranks.cli import screen
from allranks.cli.place import Place, add_place, load_manifest, parse_checkpoint
from allranks.errors import NotThere
from allranks.failure import one_line

DESCRIPTION = "Show a checkpoint: when and by whom it was saved, its leaves with their shardings, and its values."
_LONGEST = 400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument(
        "--leaf", metavar="GLOB", default="*", help="show only leaves and values with such paths: 'opt/*'"
    )


def run(arguments: argparse.Namespace) -> int:
    at, manifest = load_manifest(parse_checkpoint(arguments.run, step=arguments.step))
    leaves = {path: leaf for path, leaf in manifest.leaves.items() if fnmatchcase(path, arguments.leaf)}
    values = {path: value for path, value in manifest.values.items() if fnmatchcase(path, arguments.leaf)}
    if arguments.leaf != "*" and not leaves and not values:
        raise NotThere(f"{at} has no leaf that matches {arguments.leaf!r}: it has {len(manifest.leaves)} leaves.")
    if arguments.json:
        facts_of_all = _document(at, manifest)
        screen.show_json({**facts_of_all, "leaves": {p: _leaf(x) for p, x in leaves.items()}, "values": values})
    else:
        _show(at, manifest, leaves, values)
    return 0


def _document(at: Place, manifest: Manifest) -> dict[str, Any]:
    return {
        "path": str(at),
        "step": manifest.step,
        "created": manifest.created,
        "ranks": manifest.world_size,
        "bytes": summary.checkpoint_bytes(manifest),
        "integrity": manifest.integrity,
        "nonce": manifest.nonce,
        "versions": dict(manifest.versions),
        "metrics": dict(manifest.metrics),
        "extra": manifest.extra,
        "files": [{"name": file.name, "bytes": file.size} for file in manifest.files],
    }


def _leaf(leaf: StoredLeaf) -> dict[str, Any]:
    return {
        "dtype": leaf.dtype,
        "kind": leaf.kind or None,
        "shape": list(leaf.shape),
        "bytes": summary.leaf_bytes(leaf),
        "cut": summary.describe_sharding(leaf),
        "files": summary.count_files(leaf),
    }


def _show(at: Place, manifest: Manifest, leaves: dict[str, StoredLeaf], values: dict[str, Any]) -> None:
    screen.show(one_line(str(at)), style="bold")
    for name, text in _summary_lines(manifest):
        screen.show(f"  {name:<10} {one_line(text)}")
    screen.show("")
    columns = ["leaf", "dtype", "shape", "size", "cut", "files"]
    rows = [
        [
            path,
            leaf.kind or leaf.dtype,
            " x ".join(map(str, leaf.shape)) or "()",
            screen.size(summary.leaf_bytes(leaf)),
            summary.describe_sharding(leaf),
            str(summary.count_files(leaf)),
        ]
        for path, leaf in leaves.items()
    ]
    if rows:
        screen.show(screen.table(columns, rows, right=["size", "files"]))
    _show_values(values)


def _summary_lines(manifest: Manifest) -> list[tuple[str, str]]:
    size, many = screen.size(summary.checkpoint_bytes(manifest)), screen.count(len(manifest.files), "file")
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    metrics = ", ".join(f"{name} {value:.6g}" for name, value in manifest.metrics.items())
    extra = "" if manifest.extra is None else json.dumps(pack_json(manifest.extra, value_name="extra"))
    if len(extra) > _LONGEST:
        extra = f"{extra[:_LONGEST]} ... ({len(extra):,} characters; --json shows all)"
    said = [
        ("created", f"{manifest.created[:19].replace('T', ' ')} UTC"),
        ("saved by", screen.count(manifest.world_size, "rank")),
        ("size", f"{size} in {many}"),
        ("integrity", manifest.integrity),
        ("nonce", manifest.nonce),
        ("versions", versions),
        ("metrics", metrics),
        ("extra", extra),
    ]
    return [(name, what) for name, what in said if what]


def _show_values(values: dict[str, Any]) -> None:
    if values:
        screen.show("")
        screen.show(
            screen.table(
                ["value", ""], [[path, json.dumps(pack_json(it, value_name=path))] for path, it in values.items()]
            )
        )
