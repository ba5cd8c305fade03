"""Run ``allranks ckpt export``: write a checkpoint in another format."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from allranks.checkpoint import summary
from allranks.checkpoint.chunk_reader import ChunkReader
from allranks.checkpoint.convert import FORMATS, ConversionOptions, convert_checkpoint
from allranks.checkpoint.export import CONFIG, FLOATS, ExportPlan, plan_export, select_leaves, write_export
from allranks.checkpoint.manifest import Manifest
from allranks.cli import screen
from allranks.cli.export_place import export_place, fill
from allranks.cli.leftovers import remove_leftovers
from allranks.cli.local_path import local_path
from allranks.cli.place import Place, add_place, load_manifest, parse_checkpoint
from allranks.errors import AllranksError, NotThere

DESCRIPTION = """\
Write a checkpoint's arrays into the folder OUT in the format of Hugging Face's from_pretrained: model.safetensors, or
model-0000i-of-0000N.safetensors with an index, and config.json. Or, with --to, in another library's format: pt (OUT is
a file for torch.load), dcp (a folder of torch.distributed.checkpoint) or orbax. Every byte is verified.
  allranks ckpt export runs/a out --prefix model --strip-prefix --dtype bf16
  allranks ckpt export runs/a s3://bucket/model.pt --to pt"""
_SAFETENSORS = "safetensors"
_SHORT = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]i?)?B?", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser)
    parser.add_argument("out", metavar="OUT", type=export_place, help="the target: a path, or s3://, gs://, az://")
    parser.add_argument("--to", choices=[_SAFETENSORS, *FORMATS], default=_SAFETENSORS, help="the format")
    parser.add_argument(
        "--prefix", default="", metavar="PATH", help="export only leaves below this path, such as model"
    )
    parser.add_argument("--strip-prefix", action="store_true", help="remove that prefix from the tensors' names")
    parser.add_argument("--max-shard-size", type=_size, metavar="SIZE", help="the most bytes of one file (default 5GB)")
    parser.add_argument("--dtype", type=_dtype, metavar="D", help=f"cast floats: {', '.join(_SHORT)}")
    parser.add_argument(
        "--config", type=local_path, metavar="FILE", help="the config.json to write (default: extra['config'])"
    )
    parser.add_argument("--force", action="store_true", help="replace a model that is in OUT")


def run(arguments: argparse.Namespace) -> int:
    remove_leftovers()
    at, manifest = load_manifest(parse_checkpoint(arguments.run, step=arguments.step))
    if arguments.to != _SAFETENSORS:
        return _convert(at, manifest, arguments)
    config = _config(arguments.config, manifest)
    planned = plan_export(
        manifest,
        prefix=arguments.prefix.strip("/."),
        strips_prefix=arguments.strip_prefix,
        dtype=arguments.dtype,
        max_file_bytes=arguments.max_shard_size or _size("5GB"),
    )
    total = sum(summary.leaf_bytes(manifest.leaves[tensor.path]) for file in planned.files for tensor in file.tensors)
    with screen.waiting("export", total) as bar:
        written = fill(
            arguments.out,
            lambda out: write_export(
                lambda told: ChunkReader(at.storage, manifest, cast=True, folder=at.folder, progress=told),
                planned,
                out,
                config=config,
                replace_existing=arguments.force,
                report_progress=bar.advance,
            ),
            force=arguments.force,
        )
    if arguments.json:
        screen.show_json(
            {
                "from": str(at),
                "files": list(written),
                "tensors": sum(len(file.tensors) for file in planned.files),
                "bytes": planned.bytes,
                "config": config is not None,
            }
        )
    else:
        _show(planned, written, has_config=config is not None)
    return 0


def _convert(at: Place, manifest: Manifest, arguments: argparse.Namespace) -> int:
    """Write the checkpoint in another library's format; return the exit code."""
    for option in ("dtype", "max_shard_size", "config"):
        if getattr(arguments, option) is not None:
            name = option.replace("_", "-")
            raise AllranksError(
                f"--{name} works with --to {_SAFETENSORS} only: --to {arguments.to} writes the arrays "
                "as they were saved."
            )
    how = ConversionOptions(arguments.to, arguments.prefix.strip("/."), arguments.strip_prefix, arguments.force)
    total = sum(summary.leaf_bytes(manifest.leaves[path]) for path in select_leaves(manifest, how.prefix))
    nbytes = 0

    def write(out: Path) -> tuple[Path, ...]:
        nonlocal nbytes
        nbytes = convert_checkpoint(
            ChunkReader(at.storage, manifest, folder=at.folder, progress=bar.advance), manifest, out, how
        )
        return (out,)

    with screen.waiting("export", total) as bar:
        written = fill(arguments.out, write, force=arguments.force)
    if arguments.json:
        screen.show_json({"from": str(at), "to": arguments.to, "files": list(written), "bytes": nbytes})
    else:
        print(f"{screen.size(nbytes)}, every byte verified:")
        for path in written:
            print(f"  {path}")
    return 0


def _show(planned: ExportPlan, written: tuple[str, ...], *, has_config: bool) -> None:
    tensors = sum(len(file.tensors) for file in planned.files)
    print(f"{screen.count(tensors, 'tensor')}, {screen.size(planned.bytes)}, every byte verified:")
    for path in written:
        print(f"  {path}")
    if not has_config:
        print(f"No {CONFIG} was written: pass one with --config, or save it as extra={{'config': {{...}}}}.")


def _config(path: Path | None, manifest: Manifest) -> bytes | None:
    """Return the content of config.json: of the given file, or else ``extra["config"]`` of the checkpoint, or None."""
    if path is not None:
        try:
            data = path.read_bytes()
            json.loads(data)
        except (OSError, ValueError) as error:
            raise NotThere(f"--config {path}: expected a readable JSON file: {error}.") from error
        return data
    extra = manifest.extra
    config = extra.get("config") if isinstance(extra, dict) else None
    return json.dumps(config, indent=2).encode() if isinstance(config, dict) else None


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    unit = (found[2] or "").lower() if found else ""
    power = " kmgt".index(unit[0]) if unit else 0
    nbytes = int(float(found[1]) * (1024 if unit.endswith("i") else 1000) ** power) if found else 0
    if nbytes < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: expected one such as 5GB or 500MiB")
    return nbytes


def _dtype(text: str) -> str:
    name = _SHORT.get(text, text)
    if name not in FLOATS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a dtype to cast to: expected one of {', '.join(_SHORT)}")
    return name
