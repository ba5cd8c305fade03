"""Damage checkpoint files at random, from a seed, and load them. Mutations are plain: no coverage guides them.

``python tests/security/reader_fuzz.py FIRST LAST`` runs the inputs with these numbers. It prints, as JSON, how many
inputs of each kind were loaded or refused, and each input that raised something else or took too long.

Formats with a checksum get it again after the mutation, or nearly every input would be refused at the checksum.
"""

from __future__ import annotations

import io
import json
import pickletools
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import allranks.loading.load
from allranks.checkpoint import fence, holds, inventory, manifest_decode
from allranks.digest import hasher_by_name
from allranks.errors import AllranksError
from allranks.storage.local import LocalStorage
from allranks.world.detect import single_world

CORPUS = Path(__file__).with_name("corpus")
Files = dict[str, bytes]
SECONDS = 10.0

INTEGERS = [0, 1, -1, 2, 127, 255, 256, 65535, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
TEXTS = ["", "..", "../x", "/etc/passwd", "a/b", "\0", "w", "é" * 40, "x" * 5000, "\ud800", "None", "float32", "F32"]


class TooSlow(BaseException):
    """Raised in an input that takes more than SECONDS."""


def corpus() -> dict[str, Files]:
    """Return the files of each valid checkpoint, by its name."""
    return {
        folder.name: {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        for folder in sorted(CORPUS.iterdir())
    }


# Mutations of bytes.


def mutate_bytes(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    raw = bytearray(data)
    at = draw.randrange(len(raw) + 1)
    size = min(draw.choice([1, 2, 4, 8, 16, 64, 300]), len(raw) - at)
    match draw.randrange(8):
        case 0 if at < len(raw):
            raw[at] ^= 1 << draw.randrange(8)
        case 1 if at < len(raw):
            raw[at] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
        case 2:
            del raw[at : at + size]
        case 3:
            raw[at:at] = raw[at : at + size] * draw.choice([1, 1, 2, 50])
        case 4:
            raw[at:at] = draw.randbytes(size)
        case 5:
            del raw[at:]
        case 6:
            width = draw.choice([1, 2, 4, 8])
            value = draw.choice(INTEGERS) % (1 << 8 * width)
            raw[at : at + width] = value.to_bytes(width, draw.choice(["little", "big"]))
        case _:
            other = draw.choice(others)
            begin = draw.randrange(len(other) + 1)
            raw[at : at + size] = other[begin : begin + size]
    return bytes(raw)


# Mutations of JSON.


def odd_value(draw: random.Random) -> Any:
    deep: Any = 0
    for _ in range(draw.choice([1, 3, 150, 3000])):
        deep = [deep]
    return draw.choice(
        [
            *(None, True, False, [], {}, 1.5, -0.0, 1e308, float("nan"), deep, [0] * 1000, 10**4000, {"a": {"b": []}}),
            *(draw.choice(INTEGERS), draw.choice(TEXTS), [draw.choice(INTEGERS)] * draw.choice([1, 2, 33, 70])),
        ]
    )


def mutate_json(node: Any, draw: random.Random) -> Any:
    """Return a JSON value with one part replaced, removed, repeated or renamed."""
    if isinstance(node, list | dict) and node and draw.random() < 0.85:
        key = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
        copy: Any = dict(node) if isinstance(node, dict) else list(node)
        match draw.randrange(10):
            case 0:
                del copy[key]
            case 1 if isinstance(copy, list):
                copy.insert(key, copy[key])
            case 2 if isinstance(copy, dict):
                copy[draw.choice(TEXTS)] = copy[key]
            case 3 if isinstance(copy, dict):
                copy[draw.choice(TEXTS)] = copy.pop(key)
            case _:
                copy[key] = mutate_json(copy[key], draw)
        return copy
    if type(node) is int and draw.random() < 0.5:
        return node + draw.choice([1, -1, 8, -8, 4096, 1 << 40])
    return odd_value(draw)


def json_text(node: Any, draw: random.Random) -> bytes:
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(node, separators=(",", ":"), ensure_ascii=draw.random() < 0.5)
    except RecursionError:
        text = "[" * 5000 + "]" * 5000
    finally:
        sys.set_int_max_str_digits(4300)
    return text.encode(errors="surrogatepass")


def changed_json(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    if draw.random() < 0.15:
        return mutate_bytes(data, draw, others)
    node = json.loads(data)
    for _ in range(draw.choice([1, 1, 2, 3])):
        node = mutate_json(node, draw)
    return json_text(node, draw)


# Mutations of pickles: whole operations.

_DAG = b"Nq\xc8" + b"".join(
    b"0h" + bytes([199 + k]) + b"h" + bytes([199 + k]) + b"\x86q" + bytes([200 + k]) for k in range(1, 50)
)
SNIPPETS = [
    *(
        b"b",
        b"R",
        b"0",
        b"2",
        b"(",
        b"t",
        b"N",
        b"\x88",
        b"}",
        b"]",
        b")",
        b"a",
        b"e",
        b"s",
        b"u",
        b"Q",
        b"\x85",
        b"\x87",
    ),
    *(
        b"\x8f",
        b"\x90",
        b"\x91",
        b"\x93",
        b"\x81",
        b"\x92",
        b"h\x00",
        b"h\x01",
        b"q\x00",
        b"j\x00\x00\x00\x7f",
        b"K\x05",
    ),
    *(
        b"J\xff\xff\xff\xff",
        b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
        b"\x8b\x00\x10\x00\x00" + b"\x7f" * 4096,
        b"I1\n",
        b"L9L\n",
    ),
    *(
        b"X\x01\x00\x00\x00w",
        b"X\x04\x00\x00\x00data",
        b"cos\nsystem\n",
        b"ccollections\nOrderedDict\n",
        b"ctorch\nSize\n",
    ),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch\nFloatStorage\n"),
    *(
        b"ccollections\nOrderedDict\n)R",
        b"}b",
        b"]b",
        b"(lb",
        b"NNsb",
        _DAG,
        _DAG + b"Q",
        _DAG + b"Ns",
        b"(" + _DAG + b"\x91",
    ),
    *(
        b"cbuiltins\nset\n(lR",
        b"\x94",
        b"V\\ud800\n",
        b"S'x'\n",
        b"F1e400\n",
        b"G\x7f\xf0\0\0\0\0\0\0",
        b"P0\n",
        b"\x97",
        b"\x82\x01",
    ),
]


def mutate_pickle(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    if draw.random() < 0.25:
        return mutate_bytes(data, draw, others)
    try:
        begins = [at for _, _, at in pickletools.genops(data)]
    except Exception:  # an earlier mutation has broken it
        return mutate_bytes(data, draw, others)
    parts = [data[begin:end] for begin, end in zip(begins, [*begins[1:], len(data)], strict=True)]
    at = draw.randrange(len(parts))
    match draw.randrange(5):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, draw.choice(parts))
        case 2:
            parts[at] = draw.choice(SNIPPETS)
        case 3:
            other = draw.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        case _:
            parts.insert(at, draw.choice(SNIPPETS))
    return b"".join(parts)


def mutate_archive(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    """Change a record and write the archive again, with its CRCs; or change the bytes of the archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            records = {entry.filename: file.read(entry) for entry in file.infolist()}
    except Exception:  # an earlier mutation has broken it
        return mutate_bytes(data, draw, others)
    if draw.random() < 0.3 or not records:
        return mutate_bytes(data, draw, others)
    pickles = [name for name in records if name.endswith("data.pkl")]
    name = pickles[0] if pickles and draw.random() < 0.8 else draw.choice(list(records))
    if name in pickles:
        records[name] = mutate_pickle(records[name], draw, others)
    elif draw.random() < 0.5:
        records[name] = mutate_bytes(records[name], draw, others)
    else:
        records[draw.choice(TEXTS[:7]).replace("\0", "0") or "e"] = records.pop(name)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", draw.choice([zipfile.ZIP_STORED] * 9 + [zipfile.ZIP_DEFLATED])) as file:
        for one, content in records.items():
            file.writestr(one, content)
    return out.getvalue()


def mutate_safetensors(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    size = struct.unpack("<Q", data[:8])[0] if len(data) > 8 else 0
    if draw.random() < 0.2 or not 2 <= size <= len(data) - 8:
        return mutate_bytes(data, draw, others)
    try:
        text = changed_json(data[8 : 8 + size], draw, others)
    except (ValueError, RecursionError):  # an earlier mutation has broken it
        return mutate_bytes(data, draw, others)
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def mutate_manifest(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    """Change the content of a manifest, and give it its digest again."""
    _head, _, body = data.partition(b"\n")
    if draw.random() < 0.1 or not body:
        return mutate_bytes(data, draw, others)
    try:
        text = changed_json(b"{" + body, draw, others)[1:]
    except (ValueError, RecursionError):  # an earlier mutation has broken it
        return mutate_bytes(data, draw, others)
    return b'{"digest":"' + hasher_by_name("xxh3-128")(memoryview(text)).encode() + b'",\n' + text


def mutate_any_json(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    try:
        return changed_json(data, draw, others)
    except (ValueError, RecursionError):  # an earlier mutation has broken it
        return mutate_bytes(data, draw, others)


MUTATIONS: list[tuple[str, Callable[[bytes, random.Random, list[bytes]], bytes]]] = [
    ("manifest.json", mutate_manifest),
    (".json", mutate_any_json),
    ("_METADATA", mutate_any_json),
    (".zarray", mutate_any_json),
    (".metadata", mutate_pickle),
    (".pt", mutate_archive),
    (".ckpt", mutate_archive),
    (".safetensors", mutate_safetensors),
]


def make_input(number: int, seeds: dict[str, Files]) -> tuple[str, Files]:
    """Return the kind of the input with this number, and its files. The same on every machine."""
    draw = random.Random(number)
    kind = list(seeds)[number % len(seeds)]
    files = dict(seeds[kind])
    others = [data for one in seeds.values() for data in one.values()]
    name = draw.choice(list(files))
    mutate = next((function for ending, function in MUTATIONS if name.endswith(ending)), mutate_bytes)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        files[name] = mutate(files[name], draw, others)
    return kind, files


# Readers.


def read(folder: Path, kind: str) -> None:
    """Read a checkpoint in every way that does not need a template. Raises only AllranksError."""
    path = next((one for one in folder.iterdir() if kind == "flax"), folder)
    try:
        str(allranks.load(path, world=single_world(), dequantize=kind in ("fp8", "bnb4"), strict=False))
    finally:
        if kind.startswith("native"):
            storage = LocalStorage(folder)
            for step in inventory.survey_folders(storage):
                if step.manifest is not None:
                    inventory.leaves_in_byte_range(step.manifest, 0, 0, 1 << 20)
            for entry in storage.list("checkpoint-3"):
                if entry.name == "manifest.json":
                    manifest_decode.named_files(storage.get("checkpoint-3/manifest.json"))
        if kind == "run":
            holds.held_steps(LocalStorage(folder))
            if (found := fence.newest_fence(LocalStorage(folder))) is not None:
                fence.describe_owner(found)
                fence.owner_is_alive_here(found, fence.this_process(), found.place)


def run_input(folder: Path, kind: str, files: Files) -> str:
    """Write the files of an input and read them; return "loaded", or the name of the error."""

    def stop(*_: object) -> None:
        raise TooSlow

    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        read(folder, kind)
    except AllranksError as error:
        return type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return "loaded"


def run_inputs(first: int, last: int, seeds: dict[str, Files]) -> dict[str, Any]:
    """Run the inputs from ``first`` to ``last``; return the outcomes by kind, the faults, the seconds and the memory.

    The memory is the growth of this process, in MiB.
    """
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in seeds}
    faults: list[dict[str, Any]] = []
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    began, size = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest, count = 0.0, 0
    with tempfile.TemporaryDirectory(prefix="reader-fuzz-", dir=place) as folder:
        for number in range(first, last):
            kind, files = make_input(number, seeds)
            at = time.monotonic()
            try:
                outcomes[kind][run_input(Path(folder, "in"), kind, files)] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                outcomes[kind]["FAULT"] += 1
                faults.append({"number": number, "kind": kind, "error": f"{type(error).__name__}: {error!s:.300}"})
            count += 1
            slowest = max(slowest, time.monotonic() - at)
    return {
        "count": count,
        "outcomes": {kind: dict(found) for kind, found in outcomes.items()},
        "faults": faults,
        "seconds": round(time.monotonic() - began, 1),
        "slowest": round(slowest, 3),
        "mebibytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size) >> 10,
    }


if __name__ == "__main__":
    allranks.loading.load.log = lambda *_, **__: None  # type: ignore[assignment]
    print(json.dumps(run_inputs(int(sys.argv[1]), int(sys.argv[2]), corpus())))
