"""Build checkpoint files that attack their reader: pickles, archives, and manifests with their digest."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from allranks.digest import hasher_by_name

NATIVE = Path(__file__).with_name("corpus") / "native"
HEAD = b"\x80\x02"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tuple_of(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def list_of(*parts: bytes) -> bytes:
    return b"](" + b"".join(parts) + b"e"


def storage(count: int, key: str = "0") -> bytes:
    return tuple_of(text("storage"), b"ctorch\nFloatStorage\n", text(key), text("cpu"), number(count)) + b"Q"


def tensor(
    of: bytes | None = None, offset: bytes = number(0), shape: bytes | None = None, stride: bytes | None = None
) -> bytes:
    parts = (of or storage(3), offset, shape or tuple_of(number(3)), stride or tuple_of(number(1)), b"I00\n", b"N")
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + tuple_of(*parts) + b"R"


def changed(*state: bytes) -> bytes:
    """Return a tensor whose fields a pickle sets after it was made."""
    return tensor() + list_of(*state) + b"b"


def shared(kind: bytes, levels: int) -> bytes:
    """Return an object of few operations that contains itself 2**levels times: a tuple or a list of two equal parts."""
    found = b"Nq\x00"
    for k in range(1, levels):
        found += b"0h" + bytes([k - 1]) + b"h" + bytes([k - 1]) + kind + b"q" + bytes([k])
    return found


TUPLES = shared(b"\x86", 60)


def pt(pickled: bytes, data: bytes = b"\0\0\x80?" * 3) -> bytes:
    """Return an archive of torch.save for {"w": the pickled object}, and a record that no tensor may reach."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a/secretbefore", b"SECR" * 8)
        file.writestr("a/data.pkl", pickled)
        file.writestr("a/data/0", data)
    return out.getvalue()


def leaf(pickled: bytes) -> bytes:
    return HEAD + b"}(" + text("w") + pickled + b"u."


def _states() -> Iterator[tuple[str, bytes, str]]:
    dtype, one, three = text("float32"), tuple_of(number(1)), tuple_of(number(3))
    for name, state in {
        "offset before the record": (storage(3), dtype, number(-10), three, one),
        "offset far before": (storage(3), dtype, number(-(10**12)), three, one),
        "negative stride": (storage(3), dtype, number(2), three, tuple_of(number(-5))),
        "another dtype": (storage(3), text("bool"), number(0), three, one),
        "a text for a storage": (text("x"), dtype, number(0), three, one),
        "a dict for a storage": (b"ccollections\nOrderedDict\n)R", dtype, number(0), three, one),
        "a text for an offset": (storage(3), dtype, text("y"), three, one),
        "a text in the shape": (storage(3), dtype, number(0), tuple_of(text("a")), one),
        "a list for the shape": (storage(3), dtype, number(0), list_of(number(3)), list_of(number(1))),
        "a huge shape": (storage(3), dtype, number(0), tuple_of(number(1 << 62)), tuple_of(number(0))),
        "a negative shape": (storage(3), dtype, number(0), tuple_of(number(-3), number(-1)), tuple_of(one, one)),
    }.items():
        yield f"BUILD: {name}", changed(*state), "it changes a StridedTensor after it was made"


# By name: the pickled value of the leaf, and what the error says.
TORCH: dict[str, tuple[bytes, str]] = {
    **{name: (value, says) for name, value, says in _states()},
    "BUILD of a storage": (tensor(storage(3) + b"}b"), "it changes a StorageRecord after it was made"),
    "BUILD of a function": (b"ctorch._utils\n_rebuild_tensor_v2\n}b", "it changes a function that it names"),
    "shared tuples as a key": (b"}" + TUPLES + b"Ns", "a key of a dict is a tuple of 2 parts"),
    "shared tuples in a set": (b"\x8f(" + TUPLES + b"\x90", "the file has no array"),
    "shared tuples in a frozenset": (b"(" + TUPLES + b"\x91", "the file has no array"),
    "shared tuples as the keys of pairs": (
        b"ccollections\nOrderedDict\n" + tuple_of(list_of(tuple_of(TUPLES, b"N"))) + b"R",
        "a key of a dict is a tuple of 2 parts",
    ),
    "shared tuples as a persistent id": (TUPLES + b"Q", "it refers to a tuple of 2 parts, which is not a storage"),
    "shared tuples as an offset": (tensor(offset=TUPLES), r"strides \(tuple, 3, 1\)"),
    "shared tuples as a leaf": (TUPLES, "it has too many leaves"),
    "a list that contains itself": (b"]q\x00h\x00a", "nested too deeply"),
    "100,000 dimensions": (
        tensor(shape=tuple_of(*[number(1)] * 100_000), stride=tuple_of(*[number(1)] * 100_000)),
        "a tensor has 100,000 dimensions: expected at most 64",
    ),
    "a huge tensor of stride 0": (
        tensor(shape=tuple_of(number(1 << 40)), stride=tuple_of(number(0))),
        "has the strides",
    ),
    "a shape of a megabyte": (
        tensor(shape=tuple_of(b"\x8b\x00\x00\x10\x00" + b"\x7f" * (1 << 20))),
        "a number has 1,048,576 bytes: expected at most",
    ),
    "a record elsewhere": (tensor(storage(3, "../../../etc/passwd")), "the record data/../../../etc/passwd is missing"),
    "a name of a megabyte": (b"}" + text("n" * (1 << 20)) + list_of(*[b"N"] * 1000) + b"s", "has 1,048,57. characters"),
    "a function that calls itself": (
        b"ctorch._tensor\n_rebuild_from_type_v2\nq\x01(h\x01N]q\x02(h\x01Nh\x02NeNtR",
        "the file has no array",
    ),
    "a code of extensions": (b"\x82\x01", "the operation EXT1 is no operation of a checkpoint"),
    "a class that replaces the items of a dict": (
        b"ccollections\nOrderedDict\n)R}" + text("items") + b"Nsb",
        "the file has no array",
    ),
}


def manifest_with(old: bytes, new: bytes) -> bytes:
    """Return the manifest of a valid checkpoint with a part replaced, and a digest that fits."""
    body = (NATIVE / "checkpoint-3" / "manifest.json").read_bytes().split(b"\n", 1)[1]
    assert old in body, old
    body = body.replace(old, new)
    return b'{"digest":"' + hasher_by_name("xxh3-128")(memoryview(body)).encode() + b'",\n' + body


_NAME = next(NATIVE.rglob("rank-*")).name.encode()
_EXTRA, _VALUES, _CHUNKS = b'{"k":["v",1]}', b'"lr":0.1', b'"bytes":4140,"chunks":[[4096,'
_M = b'"m":{"dtype":"int16","shape":[2,3],"shards":[{"file":0,"offset":[0,0],"shape":[2,3],"bytes":[4128,4140]}]}'

_NAMED = "the name of file 0 is"
# By name: what is replaced in a valid manifest, by what, and what the error says.
MANIFESTS: dict[str, tuple[bytes, bytes, str]] = {
    "a file above": (_NAME, b"../../../../etc/passwd", _NAMED),
    "an absolute file": (_NAME, b"/etc/passwd", _NAMED),
    "two dots": (_NAME, b"..", _NAMED),
    "a NUL": (_NAME, b"a\\u0000b", _NAMED),
    "a line feed": (_NAME, b"a\\nb", _NAMED),
    "a wide slash": (_NAME, "a\uff0fb".encode(), _NAMED),
    "a key twice": (b'"values":{', b'"values":{},"values":{', "the key 'values' occurs twice"),
    "a key twice of 60,000": (
        _VALUES,
        _VALUES + b"," + b",".join(b'"k%d":1' % k for k in range(60_000)) + b',"k59999":1',
        "the key 'k59999' occurs twice",
    ),
    "NaN": (b'"loss":1.0', b'"loss":NaN', "NaN is not JSON"),
    "a number of 5,000 digits": (b'"world":1', b'"world":' + b"9" * 5000, "it is not JSON"),
    "1e400": (_EXTRA, b'{"k":1e400}', "a number is too large"),
    "depth 90,000": (_EXTRA, b'{"k":' + b"[" * 90_000 + b"]" * 90_000 + b"}", "nested too deeply"),
    "half a surrogate": (_EXTRA, b'{"k":"\\ud800"}', "half of a surrogate pair"),
    "a huge chunk": (
        _CHUNKS,
        b'"bytes":9000000000004140,"chunks":[[9000000000004096,',
        "has a chunk of 9,000,000,000,004,096 bytes: expected at most",
    ),
    "90 million shards": (
        b'"bytes":[4128,4140]}',
        b'"bytes":[4128,4140],"count":90000000,"step":{"file":0,"bytes":0,"offset":[0,0]}}',
        "do not hold each element exactly once",
    ),
    "two shards over each other": (_M, _M + b"," + _M.replace(b'"m"', b'"v"'), "is in more than one shard"),
    "true for a number": (b'"world":1', b'"world":true', "world is True"),
    "a shape of 10^12": (
        _M,
        _M.replace(b"[2,3]", b"[1000000000000,1]").replace(b"[4128,4140]", b"[4128,2000000004128]"),
        "of file 0, which has 4140 bytes",
    ),
}
