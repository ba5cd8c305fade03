"""Run ``allranks ckpt diff``: compare two checkpoints."""

from __future__ import annotations

import argparse
import json
from typing import Any

from allranks.checkpoint import summary
from allranks.checkpoint.compare import (
    ArrayDistance,
    CheckpointComparison,
    ComparedCheckpoint,
    LeafChange,
    ValueChange,
    compare_checkpoints,
    leaves_to_read,
)
from allranks.checkpoint.json_value import pack_json
from allranks.cli import screen
from allranks.cli.place import Place, load_manifest, parse_checkpoint, parse_place
from allranks.errors import NotThere

DESCRIPTION = """\
Report which leaves changed from checkpoint A to checkpoint B, and by how much. Their shardings may differ.
  allranks ckpt diff runs/a@1000 runs/b@1000
  allranks ckpt diff runs/a --steps 1000 2000"""
_LONGEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run, RUN@STEP, or the folder of a checkpoint")
    parser.add_argument("b", metavar="B", nargs="?", help="the checkpoint to compare with")
    parser.add_argument("--steps", type=int, nargs=2, metavar=("M", "N"), help="two steps of the run A")


def run(arguments: argparse.Namespace) -> int:
    (place_a, a), (place_b, b) = (load_manifest(at) for at in _places(arguments))
    total = sum(summary.leaf_bytes(side.leaves[path]) for path in leaves_to_read(a, b) for side in (a, b))
    with screen.waiting("compare", total) as bar:
        found = compare_checkpoints(
            ComparedCheckpoint(place_a.storage, a, place_a.folder),
            ComparedCheckpoint(place_b.storage, b, place_b.folder),
            report_progress=bar.advance,
        )
    if arguments.json:
        screen.show_json(_document(place_a, place_b, found))
    else:
        _show(place_a, place_b, found)
    return 0 if found.is_equal else 1


def _places(arguments: argparse.Namespace) -> tuple[Place, Place]:
    if arguments.steps and arguments.b is None:
        first, second = arguments.steps
        return parse_place(arguments.a, step=first), parse_place(arguments.a, step=second)
    if arguments.steps or arguments.b is None:
        raise NotThere("diff: expected two checkpoints: A B, or one run and --steps M N.")
    return parse_checkpoint(arguments.a), parse_checkpoint(arguments.b)


def _document(a: Place, b: Place, found: CheckpointComparison) -> dict[str, Any]:
    return {
        "a": str(a),
        "b": str(b),
        "equal": found.is_equal,
        "unchanged": found.unchanged,
        "leaves": [_leaf(change) for change in found.leaves],
        "values": [
            {"path": one.path, "before": _packed(one.before), "after": _packed(one.after)} for one in found.values
        ],
    }


def _packed(side: tuple[Any, ...]) -> Any:
    return {"absent": True} if not side else side[0]


def _leaf(change: LeafChange) -> dict[str, Any]:
    said: dict[str, Any] = {"path": change.path, "kind": change.kind, "before": change.before, "after": change.after}
    if (by := change.distance) is not None:
        said |= {
            "elements": by.elements,
            "changed": by.changed,
            "not_finite": by.unmeasured,
            "max_abs": by.largest,
            "relative_l2": by.relative,
        }
    return said


def _show(a: Place, b: Place, found: CheckpointComparison) -> None:
    screen.show(f"from {a}\nto   {b}")
    if found.is_equal:
        screen.show(f"equal to the bit: {screen.count(found.unchanged, 'leaf', 'leaves')} and all values.")
        return
    if found.leaves:
        screen.show("")
        screen.show(
            screen.table(
                ["leaf", "change", "max |b-a|", "relative L2", "differing"],
                [_row(change) for change in found.leaves],
                right=["max |b-a|", "relative L2", "differing"],
            )
        )
    _show_values(found.values)
    screen.show(f"\n{_summary(found)}")


def _row(change: LeafChange) -> list[str]:
    what = {
        "added": f"added {change.after}",
        "removed": f"removed {change.before}",
        "changed": "changed",
    }.get(change.kind, f"{change.kind} {change.before} -> {change.after}")
    return [change.path, what, *_numbers(change.distance)]


def _numbers(by: ArrayDistance | None) -> list[str]:
    if by is None:
        return ["", "", ""]
    share = f"{100 * by.changed / by.elements:.3g} %" if by.elements else ""
    odd = f" ({by.unmeasured:,} not finite)" if by.unmeasured else ""
    return [f"{by.largest:.4g}", f"{by.relative:.3g}", share + odd]


def _show_values(values: tuple[ValueChange, ...]) -> None:
    if values:
        screen.show("")
        rows = [[one.path, _value_text(one.before), _value_text(one.after)] for one in values]
        screen.show(screen.table(["value", "before", "after"], rows))


def _value_text(side: tuple[Any, ...]) -> str:
    if not side:
        return "(missing)"
    text = json.dumps(pack_json(side[0], value_name="value"))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _summary(found: CheckpointComparison) -> str:
    kinds = [change.kind for change in found.leaves]
    parts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    leaves = f"leaves: {', '.join([*parts, f'{found.unchanged} unchanged'])}"
    return f"{leaves}; {screen.count(len(found.values), 'value')} changed." if found.values else f"{leaves}."
