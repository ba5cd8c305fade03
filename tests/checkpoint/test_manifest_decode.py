"""The manifest is read only if it is whole and sound: whatever else the bytes are, they are damaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.checkpoint.dtypes import DTYPES
from allranks.checkpoint.manifest import Manifest, Shard, ShardRun, StoredFile, StoredLeaf
from allranks.checkpoint.manifest_decode import decode_manifest
from allranks.checkpoint.manifest_encode import encode_manifest
from allranks.digest import hasher_by_name
from allranks.errors import Damaged, NewerFormat, NotJsonable
from allranks.extent import Extent

DIGEST = "0123456789abcdef" * 2
FILES = tuple(
    StoredFile(f"rank-0000{i}-of-00003.ab12cd34.safetensors", 4096 + 104, (4096, 4160, 4200), (DIGEST,) * 3)
    for i in range(3)
)
# A leaf in rows over all files, one whole in a file, one cut irregularly inside a file, keys, an empty and a 0-d one.
LEAVES = {
    "model/w": StoredLeaf((12, 4), "float32", "", (ShardRun(Shard(0, 4096, Extent((0, 0), (4, 4))), 3, 1, 0, (4, 0)),)),
    "model/größe": StoredLeaf((8,), "bfloat16", "", (ShardRun(Shard(1, 4160, Extent((0,), (8,)))),)),
    "l": StoredLeaf(
        (3, 3),
        "uint8",
        "",
        (
            ShardRun(Shard(2, 4160, Extent((0, 0), (2, 2)))),
            ShardRun(Shard(2, 4164, Extent((0, 2), (3, 1)))),
            ShardRun(Shard(2, 4167, Extent((2, 0), (1, 1))), 2, 0, 1, (0, 1)),
        ),
    ),
    "rng": StoredLeaf((2,), "uint32", "key<fry>", (ShardRun(Shard(0, 4160, Extent((0,), (2,)))),)),
    "empty": StoredLeaf((0, 5), "float64", "", ()),
    "scale": StoredLeaf((), "complex128", "", (ShardRun(Shard(1, 4176, Extent((), ()))),)),
}
SAMPLE = Manifest(
    step=1200,
    nonce=DIGEST,
    created="2025-11-03T12:00:00Z",
    world_size=3,
    integrity="xxh3-128",
    files=FILES,
    leaves=LEAVES,
    values={"opt/name": "adam", "opt/eps": 1e-8, "opt/clip": None, "opt/nesterov": True, "epoch": 3, "best": math.inf},
    extra={"data": [1, {"float": "nan"}, {"dict": {"a": [-math.inf, 1.5]}}, "é", {"float": -math.inf}], "n": 2**200},
    metrics={"loss": 0.5, "worst": math.inf},
    versions={"allranks": "0.1.0"},
)


def signed(body: bytes, integrity: str = "xxh3-128") -> bytes:
    """The body under a digest that is right, as by a writer with a bug, or by an attacker."""
    return f'{{"digest":"{hasher_by_name(integrity)(body)}",\n'.encode() + body


def rewritten(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The sample's JSON changed, and signed again."""
    document = json.loads(encode_manifest(SAMPLE))
    del document["digest"]
    change(document)
    return signed(json.dumps(document).encode()[1:])


def check(m: Manifest) -> None:
    """Assert what docs/format.md says of a sound manifest, element by element and byte by byte."""
    used = [np.zeros(file.bytes, int) for file in m.files]
    names = [file.name for file in m.files]
    assert len(set(names)) == len(names)
    for file in m.files:
        assert re.fullmatch(r"\w[\w.=+@-]*", file.name, re.ASCII)
        assert [*file.ends] == sorted(set(file.ends))
        assert all(end > 0 for end in file.ends)
        assert file.bytes == (file.ends[-1] if file.ends else 0)
        assert len(file.digests) == len(file.ends)
    for leaf in m.leaves.values():
        size = DTYPES[leaf.dtype].size
        held = np.zeros(leaf.shape if math.prod(leaf.shape) else 0, int)
        for shard in leaf.shards:
            assert 0 <= shard.file < len(m.files)
            assert all(
                a >= 0 and b <= n for a, b, n in zip(shard.extent.offset, shard.extent.end, leaf.shape, strict=True)
            )
            assert 0 <= shard.begin <= m.files[shard.file].bytes - shard.extent.size * size
            used[shard.file][shard.begin : shard.begin + shard.extent.size * size] += 1
            if held.size:
                held[shard.extent.slices] += 1
        assert (held == 1).all()
    assert all((count <= 1).all() for count in used)
    assert not m.leaves.keys() & m.values.keys()
    assert decode_manifest(encode_manifest(m), path="again") == m or "nan" in repr(m)


def outcome(data: bytes) -> Manifest | None:
    """What is read, None where it is refused as damaged, or as a newer version's; no other error may come."""
    try:
        return decode_manifest(data, path="checkpoint-1200/manifest.json")
    except (Damaged, NewerFormat):
        return None


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Both digests; infinities and a user's own {"float": ...} too."""
    for integrity, many in (("xxh3-128", 1), ("blake3", 2)):
        files = tuple(replace(file, digests=(DIGEST * many,) * 3) for file in FILES)
        manifest = replace(SAMPLE, integrity=integrity, files=files)
        assert decode_manifest(encode_manifest(manifest), path="x") == manifest
    check(SAMPLE)


@pytest.mark.parametrize("name", ["float", "dict"])
def test_a_single_value_or_metric_may_have_a_name_that_json_values_have_a_use_for(name: str) -> None:
    """These names stand for something inside of values only."""
    manifest = replace(
        SAMPLE, values={name: math.inf}, metrics={name: 0.5}, versions={name: "1"}, extra={name: {name: 1}}
    )
    assert decode_manifest(encode_manifest(manifest), path="x") == manifest


def test_a_person_can_read_it() -> None:
    """One leaf a line, one file a line, in standard JSON."""
    text = encode_manifest(SAMPLE).decode("ascii")
    lines = text.splitlines()
    assert re.fullmatch(r'\{"digest":"[0-9a-f]{32}",', lines[0])
    assert lines[1:4] == [
        '"format":"allranks.checkpoint","version":1,',
        f'"step":1200,"nonce":"{DIGEST}","created":"2025-11-03T12:00:00Z",',
        '"world":3,"integrity":"xxh3-128",',
    ]
    assert (
        '"model/w":{"dtype":"float32","shape":[12,4],"shards":[{"file":0,"offset":[0,0],"shape":[4,4],'
        '"bytes":[4096,4160],"count":3,"step":{"file":1,"bytes":0,"offset":[4,0]}}]},'
    ) in lines
    assert sum(line.startswith('{"name":') for line in lines) == 3
    json.loads(text, parse_constant=pytest.fail)


def test_every_flipped_bit_is_found() -> None:
    """In the digest, in the content, anywhere."""
    data = bytearray(encode_manifest(SAMPLE))
    for i in range(8 * len(data)):
        data[i // 8] ^= 1 << i % 8
        assert outcome(bytes(data)) is None
        data[i // 8] ^= 1 << i % 8


def test_every_truncation_is_found() -> None:
    """And whatever is appended."""
    data = encode_manifest(SAMPLE)
    assert all(outcome(data[:end]) is None for end in range(len(data)))
    assert all(outcome(data + more) is None for more in (b" ", b"\n", b"}", b"\0", data))


def test_a_flipped_bit_under_a_right_digest_is_refused_or_sound() -> None:
    """Two bits of every byte: the digest is not all that stands between a wrong manifest and its reader."""
    body = bytearray(encode_manifest(SAMPLE).split(b"\n", 1)[1])
    sound = 0
    for at in range(len(body)):
        for bit in (at % 8, (at + 3) % 8):
            body[at] ^= 1 << bit
            found = outcome(signed(bytes(body)))
            if found is not None:
                check(found)
                sound += 1
            body[at] ^= 1 << bit
    assert sound


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 8, 12, 64, 4096, 4160, 2**31, 2**63 - 1, 2**63, -(2**63), 10**40, 0.5])
    | st.sampled_from(["", "..", "a/b", "/etc/passwd", "nan", "float32", "manifest.json", "\0", DIGEST]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["float", "dict", "file"]), inner),
    max_leaves=4,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in places(inner)]


def mutate(data: st.DataObject, document: dict[str, Any]) -> None:
    """Replace, remove, double, nudge or exchange something somewhere."""
    all_places = places(document)
    holder, key = data.draw(st.sampled_from(all_places))
    how = data.draw(st.sampled_from(["replace", "remove", "double", "nudge", "exchange"]))
    if how == "replace":
        holder[key] = data.draw(ANY)
    elif how == "remove":
        del holder[key]
    elif how == "double" and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif how == "nudge" and type(holder[key]) is int:
        holder[key] += data.draw(st.sampled_from([-4, -1, 1, 4, 64]))
    elif how == "exchange":
        other, there = data.draw(st.sampled_from(all_places))
        taken = json.dumps(holder[key])
        holder[key] = json.loads(json.dumps(other[there]))
        if there in other if isinstance(other, dict) else there < len(other):
            other[there] = json.loads(taken)


@settings(deadline=None)
@given(st.data())
def test_a_changed_document_under_a_right_digest_is_refused_or_sound(data: st.DataObject) -> None:
    """What a broken or hostile writer may write: one or several changes anywhere."""

    def change(document: dict[str, Any]) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            mutate(data, document)

    found = outcome(rewritten(change))
    if found is not None:
        check(found)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:0123456789eE.-+nul tr\\u\n', max_size=200).map(str.encode))
def test_any_bytes_under_a_right_digest_are_refused(body: bytes) -> None:
    assert outcome(signed(body)) is None
    assert outcome(body) is None


def leaf(document: dict[str, Any]) -> dict[str, Any]:
    return document["leaves"]["model/w"]


def shard(document: dict[str, Any]) -> dict[str, Any]:
    return leaf(document)["shards"][0]


def first(document: dict[str, Any]) -> dict[str, Any]:
    return document["files"][0]


def by_rank(document: dict[str, Any], values: dict[str, Any]) -> None:
    document.update(version=4, ties={}, rank_values=values)


FAULTS: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("its version is True", lambda d: d.update(version=True)),
    ("its format is 'orbax'", lambda d: d.update(format="orbax")),
    ("the manifest has the keys", lambda d: d.update(more=1)),
    ("its 'integrity' is 'blake3': expected 'xxh3-128'", lambda d: d.update(integrity="blake3")),
    ("step is -1", lambda d: d.update(step=-1)),
    ("step is 9223372036854775808", lambda d: d.update(step=2**63)),
    ("step is 1.0", lambda d: d.update(step=1.0)),
    ("nonce is 'X'", lambda d: d.update(nonce="X")),
    ("created is 'yesterday'", lambda d: d.update(created="yesterday")),
    ("created is '2025-11-03T12:00:00'", lambda d: d.update(created="2025-11-03T12:00:00")),
    ("world is 0", lambda d: d.update(world=0)),
    *[
        ("the name of file 0 is", lambda d, name=name: first(d).update(name=name))
        for name in ("", ".", "..", "../x", "/x", "a/b", "a\\b", "a\n", "\0", ".x", "x" * 256, "é", 3)
    ],
    ("two files have the same name", lambda d: first(d).update(name=FILES[1].name)),
    ("the chunks of file 0 end at byte 4200: expected 4201", lambda d: first(d).update(bytes=4201)),
    ("the length of a chunk of file 0 is 0", lambda d: first(d)["chunks"].insert(0, [0, DIGEST])),
    ("the length of a chunk of file 0 is -1", lambda d: first(d)["chunks"].insert(0, [-1, DIGEST])),
    ("a chunk of file 0 is", lambda d: first(d)["chunks"][0].__setitem__(1, DIGEST.upper())),
    ("its dtype is 'Float'", lambda d: leaf(d).update(dtype="Float")),
    ("its kind is 'key<", lambda d: leaf(d).update(kind="key<\n>")),
    ("less than 2\\*\\*63 bytes", lambda d: leaf(d).update(shape=[2**40, 2**40])),
    ("33 dimensions", lambda d: leaf(d).update(shape=[1] * 33)),
    ("in file 3, of 3", lambda d: shard(d).update(file=3)),
    ("in file 4, of 3", lambda d: shard(d)["step"].update(file=2)),
    ("exceeds the leaf's shape", lambda d: shard(d)["step"].update(offset=[5, 0])),
    ("exceeds the leaf's shape", lambda d: shard(d).update(offset=[0, 1])),
    ("expected 2 dimensions, as its leaf", lambda d: shard(d).update(offset=[0])),
    ("a step has 1 dimensions", lambda d: shard(d)["step"].update(offset=[4])),
    ("has the bytes \\[4096, 4161\\]", lambda d: shard(d).update(bytes=[4096, 4161])),
    ("a row has 1000000000 shards", lambda d: shard(d).update(count=10**9)),
    ("a count is 1", lambda d: shard(d).update(count=1)),
    ("they overlap", lambda d: shard(d)["step"].update(offset=[0, 0])),
    ("expected 48 elements, found 32", lambda d: shard(d).update(count=2)),
    ("which has 4200", lambda d: shard(d).update(bytes=[4150, 4214])),
    ("a row of shards exceeds its file", lambda d: shard(d)["step"].update(bytes=-4000)),
    ("byte 4160 of file 0 is in more than one shard", lambda d: shard(d).update(bytes=[4097, 4161])),
    ("file 0 has 1 frames: expected", lambda d: (by_rank(d, {}), d.update(version=5), first(d).update(zstd=[9]))),
    ("the frames of file 0 is \\[0\\]", lambda d: (by_rank(d, {}), d.update(version=5), first(d).update(zstd=[0]))),
    ("file 0 has the keys", lambda d: (by_rank(d, {}), first(d).update(zstd=[9]))),
    ("occurs twice", lambda d: d["values"].update({"model/w": 1})),
    ("occurs twice", lambda d: by_rank(d, {"model/w": [1, 2, 3]})),
    ("occurs twice", lambda d: by_rank(d, {"epoch": [1, 2, 3]})),
    ("value 'x' is \\[1, 2\\]: expected a list of 3, one for each rank", lambda d: by_rank(d, {"x": [1, 2]})),
    ("value 'x' is \\[\\]", lambda d: by_rank(d, {"x": [1, 2, []]})),
    ("value 'x' is \\[\\]", lambda d: d["values"].update(x=[])),
    ("value 'x' cannot be decoded", lambda d: d["values"].update(x={"float": "1"})),
    ("extra cannot be decoded", lambda d: d.update(extra={"dict": {"a": 1}})),
    ("metric 'm' is 'low'", lambda d: d["metrics"].update(m="low")),
    ("metric 'm' is True", lambda d: d["metrics"].update(m=True)),
    ("version 'v' is 1", lambda d: d["versions"].update(v=1)),
    ("half of a surrogate pair", lambda d: d.update(extra="\ud800")),
]


def test_values_of_each_rank_come_back() -> None:
    rows = {"lr": [0.1, math.inf, None], "name": ["a", "b", "c"]}
    sample = replace(SAMPLE, values={**SAMPLE.values, **rows}, rank_values=frozenset(rows))
    assert decode_manifest(encode_manifest(sample), path="") == sample


NEWER: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    (
        "has version 2 of the format, which this allranks cannot read: expected one of 1, 3, 4 and 5",
        lambda d: d.update(version=2),
    ),
    ("has version 7 of the format", lambda d: (d.update(version=7, more=1), d.pop("leaves"))),
    (
        "leaf 'model/w', and this allranks does not know its dtype 'float3_e1m1'",
        lambda d: leaf(d).update(dtype="float3_e1m1"),
    ),
]


@pytest.mark.parametrize(("says", "change"), NEWER)
def test_what_a_newer_allranks_wrote_is_not_called_damaged(
    says: str, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(NewerFormat, match=f"{says}.*Install a newer allranks"):
        decode_manifest(rewritten(change), path="checkpoint-1200/manifest.json")


def test_a_newer_version_may_have_a_digest_of_its_own() -> None:
    body = encode_manifest(SAMPLE).split(b"\n", 1)[1].replace(b'"version":1', b'"version":2')
    with pytest.raises(NewerFormat):
        decode_manifest(b'{"digest":"' + b"0" * 40 + b'",\n' + body, path="m")
    with pytest.raises(Damaged, match="digest of its content"):  # a flipped bit makes no newer version
        decode_manifest(b'{"digest":"' + b"0" * 32 + b'",\n' + body, path="m")


@pytest.mark.parametrize(("says", "change"), FAULTS)
def test_a_fault_is_refused_and_named(says: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Each by itself, under a digest that is right."""
    with pytest.raises(Damaged, match=says):
        decode_manifest(rewritten(change), path="x")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'"a":' + b"[" * 100_000, "nested too deeply"),
        (b'"a":' + b'{"a":' * 100_000, "nested too deeply"),
        (b'"a":1,"a":2}', "the key 'a' occurs twice"),
        (b'"extra":NaN}', "NaN is not JSON"),
        (b'"extra":-Infinity}', "-Infinity is not JSON"),
        (b'"extra":' + b"9" * 5000 + b"}", "not JSON"),
        (b'"extra":"\xff"}', "not JSON"),
        (b'"extra":1}}', "not JSON"),
    ],
)
def test_bad_json_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(Damaged, match=says):
        decode_manifest(signed(body), path="x")


@pytest.mark.parametrize(
    ("extra", "sound"),
    [(b"1e308", True), (b"1e999", False), *[(b"[" * n + b"]" * n, n <= 100) for n in (100, 101, 300)]],
)
def test_numbers_that_are_none_and_deep_values_are_refused(extra: bytes, sound: bool) -> None:
    """A float that Python reads as infinite; nesting that the reader of JSON still takes."""
    body = rewritten(lambda d: d.update(extra="HERE")).split(b"\n", 1)[1].replace(b'"HERE"', extra)
    assert (outcome(signed(body)) is not None) == sound


@pytest.mark.parametrize("extra", [{1: 2}, {"a": b"x"}, np.float32(1), {"a": {1, 2}}, "\ud800", [1 << 20_000]])
def test_what_is_not_json_is_not_written(extra: Any) -> None:
    """And the place is named."""
    with pytest.raises(NotJsonable, match="extra"):
        encode_manifest(replace(SAMPLE, extra=extra))


def test_a_hundred_levels_are_written_and_no_more() -> None:
    deep: list[Any] = []
    for _ in range(99):
        deep = [deep]
    assert decode_manifest(encode_manifest(replace(SAMPLE, extra=deep)), path="x").extra == deep
    with pytest.raises(NotJsonable, match="nested"):
        encode_manifest(replace(SAMPLE, extra=[deep]))


def test_the_error_says_which_leaf() -> None:
    with pytest.raises(Damaged) as caught:
        decode_manifest(rewritten(lambda d: shard(d).update(count=2)), path="checkpoint-3/manifest.json")
    assert (caught.value.path, caught.value.leaf) == ("checkpoint-3/manifest.json", "model/w")


def test_rows_in_opposite_directions_that_meet_are_found() -> None:
    """Shards of two leaves that share bytes in the middle file alone."""
    up = ShardRun(Shard(0, 4096, Extent((0,), (8,))), 3, 1, 8, (8,))
    for begin, sound in ((4104, True), (4100, False), (4103, False)):
        down = ShardRun(Shard(2, begin, Extent((0,), (8,))), 3, -1, 8, (8,))
        leaves = {"a": StoredLeaf((24,), "uint8", "", (up,)), "b": StoredLeaf((24,), "uint8", "", (down,))}
        assert (outcome(encode_manifest(replace(SAMPLE, leaves=leaves))) is not None) == sound
