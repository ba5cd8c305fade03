"""Data files and arguments that hang, take all memory or end a process elsewhere: here each is one DataError."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import Dataset, SimulatedWorld
from allranks.data.plan import check_batch, divisors
from allranks.data.sources.compressed import _BlockCounter
from allranks.data.sources.patterns import parse_pattern
from allranks.data.sources.text import text
from allranks.errors import DataError

for needed in ("orjson", "pyarrow", "zstandard"):
    pytest.importorskip(needed)

import data_fuzz  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import pyarrow.parquet.encryption as encryption  # noqa: E402
import zstandard  # noqa: E402

from allranks.data.sources.detect import open_source  # noqa: E402
from allranks.data.sources.parquet_pages import chunk_memory  # noqa: E402
from allranks.data.sources.zstd import make_decompressor  # noqa: E402

MB = 1 << 20


# ---- inputs that hang


def header(size: bytes, *, kind: bytes = b"0", name: bytes = b"a.txt") -> bytes:
    """A header of a tar with these bytes for the size, and a right checksum."""
    head = bytearray(512)
    head[: len(name)], head[124 : 124 + len(size)], head[156:157], head[257:263] = name, size, kind, b"ustar\0"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


@pytest.mark.parametrize(
    "data",
    [
        *(
            header(size) * 4
            for size in (b"-0000001000\0", b"-1", b"+0000000010", b"0_1", b" 9", b"\xff" * 12, b"1" * 12)
        ),
        header(b"00000000014\0", kind=b"x") + b"12 size=-99\n".ljust(512, b"\0") + header(b"0") * 3,
        header(b"00000000014\0", kind=b"x") + b"12 size=1e3\n".ljust(512, b"\0") + header(b"0") * 3,
        header(b"00000000017\0", kind=b"x") + b"15 \xff\xfe=abcdefg\n".ljust(512, b"\0") + b"\1" * 512,
        header(b"00000000036\0", kind=b"x") + b"12 size=100\nwithout-a-blank===".ljust(512, b"\0"),
        header(b"40000000000\0", kind=b"L") + b"n" * 512,
        header(b"00000000005\0", kind=b"x") + b"99999999999999999999999999 a=b".ljust(512, b"\0"),
    ],
)
def test_a_number_in_a_tar_that_cannot_be_is_an_error(tmp_path: Path, data: bytes) -> None:
    """Negative sizes lead back to the header before, for ever."""
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.tar is not a complete tar: at byte [\d,]+, "):
        open_source("webdataset", tmp_path / "a.tar").index()


def test_a_pax_header_takes_linear_time_and_its_limit_can_be_raised(tmp_path: Path) -> None:
    """Of a megabyte of records; quadratic code copies 100 GB for it."""
    records = b"".join(b"%02d k%05d=a\n" % (12, row) for row in range(80_000))
    size = b"%011o\0" % len(records)
    content = header(b"00000000002\0") + b"ok".ljust(512, b"\0")
    data = header(size, kind=b"x") + records.ljust(-(-len(records) // 512) * 512, b"\0") + content
    (tmp_path / "a.tar").write_bytes(data)
    assert open_source("webdataset", tmp_path / "a.tar").index().samples == 1
    with pytest.raises(DataError, match=r"expected at most 1,000 \(max_header_bytes\)"):
        open_source("webdataset", tmp_path / "a.tar", max_header_bytes=1000, cache=str(tmp_path / "c")).index()


def test_a_pipe_is_named(tmp_path: Path) -> None:
    """Opening it would wait for a writer; of every source, and by a link."""
    os.mkfifo(tmp_path / "pipe")
    for kind, name in (("text", "a.txt"), ("parquet", "a.parquet"), ("webdataset", "a.tar"), ("folder", "a.bin")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).symlink_to("../pipe")
        with pytest.raises(DataError, match=rf"{name} matches, but it is a pipe"):
            open_source(kind, tmp_path / kind).index()


def test_links_to_folders_above_are_not_followed(tmp_path: Path) -> None:
    """Two links to `.` double the folders at every step; other links are followed, as before."""
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt"):
        (tmp_path / "data" / name).write_text("one\n")
    links = {"l1": ".", "l2": ".", "deep/up": "..", "other": "deep", "deep/out": "../../data"}
    for link, to in links.items():
        (tmp_path / "data" / link).symlink_to(to)
    for pattern in ("data", "data/**/*.txt"):
        found = text(tmp_path / pattern, cache=str(tmp_path / "cache")).index()
        assert [file.name for file in found.files] == ["a.txt", "deep/b.txt", "other/b.txt"]


def test_links_that_double_at_every_step_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allranks.data.sources.listing._MOST_LINKS", 100)
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        for link in "ab":
            (tmp_path / str(number) / link).symlink_to(f"../{number + 1}")
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "a.txt").write_text("one\n")
    with pytest.raises(DataError, match="is symbolic link number 101 to a folder: expected at most 100"):
        text(tmp_path / "0").index()


@pytest.mark.parametrize("pattern", ["{0..999999999}", "{a,b}" * 40, "{" * 100, "x\0y", "a" * 70_000, 5, [None], b"x"])
def test_a_pattern_that_cannot_be_is_an_error(pattern: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allranks.data.sources.patterns._MOST_NAMES", 10_000)
    with pytest.raises(DataError):
        parse_pattern(pattern)


def test_commas_without_a_closing_brace_take_linear_time() -> None:
    assert len(parse_pattern("{" + "a," * 30_000).patterns) == 1


NAN, INFINITE = float("nan"), float("inf")
DATA = Dataset.sequence(list(range(8)), compare=False)


@pytest.mark.parametrize("value", [0, -1, NAN, INFINITE, 1.5, "3", None, True, [2]])
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("global_batch", lambda value: DATA.batch(value)),
        ("block_bytes", lambda value: Dataset.jsonl("a.jsonl", block_bytes=value)),
        ("block_bytes", lambda value: Dataset.text("a.txt", block_bytes=value)),
        ("max_header_bytes", lambda value: Dataset.webdataset("a.tar", max_header_bytes=value)),
        ("length", lambda value: DATA.pack(value)),
        ("size", lambda value: DATA.batch(4).loader(rank=0, size=value)),
    ],
)
def test_a_number_that_must_be_above_zero_is_checked(name: str, use: Callable[[Any], Any], value: Any) -> None:
    if name == "size" and value is None:
        return
    with pytest.raises(DataError, match=rf"^{name}="):
        use(value)


@pytest.mark.parametrize("value", [-1, NAN, INFINITE, 1.5, "3", True, [2]])
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("prefetch", lambda value: DATA.batch(4).loader(rank=0, size=1, prefetch=value)),
        ("workers", lambda value: DATA.map(str, workers=value)),
        ("take", lambda value: DATA.take(value)),
        ("skip", lambda value: DATA.skip(value)),
        ("window", lambda value: DATA.batch(4, window=value)),
        ("streams", lambda value: DATA.batch(4, streams=value)),
        ("max_block_bytes", lambda value: Dataset.parquet("a.parquet", max_block_bytes=value)),
        ("max_block_bytes", lambda value: Dataset.arrow("a.arrow", max_block_bytes=value)),
        ("rank", lambda value: DATA.batch(4).loader(rank=value, size=1)),
        ("ahead", lambda value: next(DATA.batch(4).loader(rank=0, size=1).to_torch(ahead=value))),
    ],
)
def test_a_number_is_checked(name: str, use: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(DataError, match=rf"^{name}="):
        use(value)


def test_numbers_of_numpy_are_numbers() -> None:
    loader = DATA.take(np.int64(6)).batch(np.int32(3)).loader(rank=np.int8(0), size=np.uint8(1), prefetch=np.int64(2))
    assert len(loader) == 2


def test_divisors_of_large_numbers_are_found_at_once() -> None:
    """And a batch that no memory holds is refused."""
    assert [divisors(number) for number in (1, 12, 49)] == [[1], [1, 2, 3, 4, 6, 12], [1, 7, 49]]
    assert len(divisors(10**9)) == 100
    with pytest.raises(DataError, match=r"global_batch=1000000000: expected .* to 16,777,216"):
        check_batch(10**9, None, None)


def test_weights_and_seeds_that_are_no_numbers_are_errors() -> None:
    for weight in (NAN, INFINITE, 0, -1, "1", None):
        with pytest.raises(DataError, match="weights of a mixture"):
            Dataset.mix([(DATA, weight), (DATA, 1)]).batch(4).loader(rank=0, size=1)
    for seed in (NAN, 1.5, "1", None):
        with pytest.raises(DataError, match="seed="):
            Dataset.sequence([1], seed=seed)


# ---- inputs that end the process


ABORTS = Path(__file__).with_name("footer_abort.parquet")


def ends_the_process(data: bytes) -> bool:
    program = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "footer = pq.read_metadata(pa.BufferReader(sys.stdin.buffer.read()))\n"
        "for group in range(footer.num_row_groups):\n"
        "    for number in range(footer.num_columns):\n"
        "        footer.row_group(group).column(number)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=False)
    return done.returncode < 0


def test_a_footer_that_ends_pyarrow_is_an_error_on_all_ranks(tmp_path: Path) -> None:
    """Without us: the process is gone. Good files beside it, before and after, are indexed by the same children."""
    data = ABORTS.read_bytes()
    assert ends_the_process(data)
    for name in "abcd":
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / f"{name}.parquet")
    (tmp_path / "bad.parquet").write_bytes(data)
    errors = SimulatedWorld(3).run(lambda world: Dataset.parquet(tmp_path).batch(3).loader(world)).errors
    assert len(errors) == 3
    for error in errors.values():
        assert isinstance(error, DataError)
        assert "bad.parquet" in str(error)
        assert "was ended by SIGABRT" in str(error)
    (tmp_path / "bad.parquet").unlink()
    assert Dataset.parquet(tmp_path).batch(4).loader(rank=0, size=1)


class Keys(encryption.KmsClient):  # type: ignore[misc]
    """Keys that are not wrapped."""

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped)


def test_an_encrypted_file_is_named(tmp_path: Path) -> None:
    """With a plain footer too, for which pyarrow ends the process."""
    factory = encryption.CryptoFactory(lambda _: Keys())
    table = pa.table({"x": [1, 2], "y": ["a", "b"]})
    for plain, says in (
        (False, "its footer is encrypted.*Write the file without"),
        (True, "was ended by SIGABRT .*encrypted"),
    ):
        how = encryption.EncryptionConfiguration(footer_key="f", column_keys={"k": ["x"]}, plaintext_footer=plain)
        keys = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
        pq.write_table(table, tmp_path / "a.parquet", encryption_properties=keys)
        with pytest.raises(DataError, match=rf"a\.parquet.*{says}"):
            open_source("parquet", tmp_path / "a.parquet", columns=["y"]).index()


# ---- inputs that take all memory


def bombs(folder: Path, nbytes: int) -> list[tuple[str, str]]:
    """Write small files that need ``nbytes`` bytes in memory, and return their sources and names."""
    zeros, step = bytes(MB), nbytes // MB
    zstd, gz = zstandard.ZstdCompressor(level=1).compressobj(), zlib.compressobj(6, wbits=31)
    for name, packing in (("one.txt.zst", zstd), ("one.txt.gz", gz)):
        (folder / name).write_bytes(b"".join([*(packing.compress(zeros) for _ in range(step)), packing.flush()]))
    strings, numbers = pa.table({"t": ["x" * MB] * step}), pa.table({"t": np.zeros(nbytes // 8, np.int64)})
    pq.write_table(strings, folder / "dictionary.parquet", compression="zstd")
    pq.write_table(numbers, folder / "zeros.parquet", row_group_size=nbytes, compression="zstd")
    with pa.ipc.new_stream(
        folder / "zeros.arrow", numbers.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as file:
        file.write_table(numbers)
    texts = [("text", "one.txt.zst"), ("text", "one.txt.gz")]
    return [*texts, ("parquet", "dictionary.parquet"), ("parquet", "zeros.parquet"), ("arrow", "zeros.arrow")]


READ = """
import json, sys
from pathlib import Path
sys.path.insert(0, {here!r})
import data_fuzz
from allranks.data.sources.detect import open_source
from allranks.errors import DataError

before = data_fuzz.peak_mb()
for kind, name in json.loads(sys.argv[1]):
    try:
        source = open_source(kind, Path(sys.argv[2]) / name, cache=sys.argv[2] + "/cache", max_block_bytes={limit})
        data_fuzz.read_source(source)
        print("read", name)
    except DataError as error:
        print(data_fuzz.peak_mb() - before, error)
"""


def refusals(folder: Path, found: list[tuple[str, str]], limit: int | None) -> list[tuple[int, str]]:
    """Read files in a process of its own; return, for each, the peak of memory so far in MB, and the error."""
    program = READ.format(here=str(Path(__file__).parent), limit=limit)
    command = [sys.executable, "-c", program, json.dumps(found), str(folder)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    parts = [line.partition(" ") for line in lines]
    assert [name in error for (_, _, error), (_, name) in zip(parts, found, strict=True)] == [True] * len(found)
    return [(int(peak), error) for peak, _, error in parts]


def test_small_files_that_unpack_to_much_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    """60 MB with a limit of 4: the peak of the process stays below what one of the files needs."""
    for peak, error in refusals(tmp_path, bombs(tmp_path, 60 * MB), 4 * MB):
        assert "max_block_bytes=" in error
        assert peak < 55, error


@pytest.mark.soak
def test_the_limits_hold_without_an_option(tmp_path: Path) -> None:
    """A gigabyte each, and lines without an end over many frames."""
    found = bombs(tmp_path, 1 << 30)
    for suffix, packed in {"gz": gzip.compress(bytes(MB)), "zst": zstandard.compress(bytes(MB))}.items():
        (tmp_path / f"line.txt.{suffix}").write_bytes(packed * 1024)
        found.append(("text", f"line.txt.{suffix}"))
    for peak, error in refusals(tmp_path, found, None):
        assert "max_block_bytes=" in error or "a line has more than" in error
        assert peak < 512, error


def test_a_limit_can_be_raised(tmp_path: Path) -> None:
    """And lowered; what is below it is read."""
    data = b"".join(b'{"n": %d}\n' % row for row in range(20_000))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(data))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    pq.write_table(pa.table({"t": ["x" * 10_000] * 100}), tmp_path / "a.parquet", compression="zstd")
    for kind, name in (("jsonl", "a.jsonl.zst"), ("jsonl", "a.jsonl.gz"), ("parquet", "a.parquet")):
        make = partial(open_source, kind, tmp_path / name, cache=str(tmp_path / "c"))
        with pytest.raises(DataError, match=r"pass max_block_bytes=\.\.\. with a higher limit"):
            data_fuzz.read_source(make(max_block_bytes=200_000))
        data_fuzz.read_source(make(max_block_bytes=2_000_000))
        with pytest.raises(DataError, match=r"pass max_block_bytes=\.\.\. with a higher limit"):
            data_fuzz.read_source(make(max_block_bytes=200_000))  # by the cached index: when it is read


@pytest.mark.parametrize("content", [bytes(5 * MB), os.urandom(MB), b"", b"a", os.urandom(140_000) + bytes(400_000)])
@pytest.mark.parametrize("size", [1, 4096, 1 << 18])
def test_frames_of_zstd_are_unpacked_a_bounded_number_of_bytes_at_a_time(content: bytes, size: int) -> None:
    """The same bytes as at once, wherever the input is cut; what is behind the frame is left."""
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(content) + b"behind"
    if size == 1 and len(packed) > 100_000:
        packed = zstandard.compress(bytes(200_000)) + b"behind"
        content = bytes(200_000)
    frame, found, left = make_decompressor(), [], b""
    for at in range(0, len(packed), size):
        left += packed[at : at + size]
        while left and not frame.eof:
            found.append(frame.decompress(left, 1 << 18))
            left = frame.unconsumed_tail
    assert b"".join(found) == content
    assert max(map(len, found), default=0) <= (1 << 18) + (1 << 17)
    assert frame.eof
    assert b"behind".startswith(frame.unused_data) or b"behind".endswith(frame.unused_data)


def test_an_open_line_is_not_copied_for_every_piece() -> None:
    """Without a limit on time: the counter keeps two bytes of it."""
    counter = _BlockCounter(0, False, False)
    for _ in range(200):
        counter.count_lines(b"x" * 1000)
        assert len(counter._rest) <= 2
    counter.count_lines(b"\n\n\r\ny")
    counter.count_last_line()
    assert counter.rows == 2


def test_pages_tell_their_memory() -> None:
    """Those of real files; a dictionary counts as often as its values may occur."""
    for how in (
        {"compression": "zstd"},
        {"compression": "none", "data_page_version": "2.0"},
        {"use_dictionary": False},
    ):
        into = io.BytesIO()
        pq.write_table(pa.table({"t": ["word" * 100] * 5000, "n": list(range(5000))}), into, **how)
        footer = pq.read_metadata(into)
        for number, width in ((0, None), (1, 8)):
            chunk = footer.row_group(0).column(number)
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            data = into.getvalue()[begin : begin + chunk.total_compressed_size]
            memory = chunk_memory(data, num_values=chunk.num_values, value_bytes=width)
            assert memory.certain >= (chunk.total_uncompressed_size - 200 if width is None else 40_000)
            assert memory.most >= (5000 * 400 if width is None else 40_000)
            assert memory.most < 5_000_000


# ---- files and folders that change, and disks that refuse


@pytest.mark.parametrize("kind", ["a full disk", "a folder that cannot be written"])
def test_a_cache_that_cannot_be_written_is_a_warning(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28 if "full" in kind else 30, os.strerror(28 if "full" in kind else 30))

    monkeypatch.setattr("allranks.storage.local._write_small", refuse)
    assert text(tmp_path / "a.txt", cache=str(tmp_path / "cache")).index().samples == 2
    assert "the index is not kept" in caplog.text
    assert ("is full" if "full" in kind else "read-only") in caplog.text


class Changing(BaseHTTPRequestHandler):
    """A server whose answers differ: an endless body, other content of the same size, no ranges."""

    kind = ""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "8000")
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self) -> None:
        begin, end = (int(one) for one in self.headers.get("Range", "bytes=0-7999").removeprefix("bytes=").split("-"))
        endless = self.kind == "endless"
        self.send_response(200 if endless else 206)
        if not endless:
            self.send_header("Content-Length", str(end - begin + 1))
            self.send_header("Content-Range", f"bytes {begin}-{end}/8000")
        self.end_headers()
        line = b'{"n": 1}' if self.kind != "other" else b'{"n": 2}'
        data = (line + b" " * 91 + b"\n") * 80
        try:
            while endless:
                self.wfile.write(bytes(MB))
            self.wfile.write(data[begin : end + 1])
        except OSError:
            type(self).ended = True

    ended = False

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Changing.kind, Changing.ended = "", False
    serving = ThreadingHTTPServer(("127.0.0.1", 0), Changing)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_address[1]}/a.jsonl"
    serving.shutdown()
    serving.server_close()
    thread.join()


@pytest.mark.needs("datasets")
@pytest.mark.parametrize(("kind", "says"), [("endless", "where a range of it was"), ("other", "has changed since")])
def test_a_server_whose_answers_differ_is_an_error(
    server: str, kind: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the index and a read; a body without an end is left after the bytes that were requested."""
    from allranks.data.sources.jsonl import json_lines
    from allranks.data.sources.named import NamedFiles
    from allranks.data.sources.patterns import FilePatterns

    monkeypatch.setattr("allranks.data.sources.web._PAUSES_S", ())
    root, _, name = server.rpartition("/")
    source = NamedFiles(FilePatterns(root, ((name,),), server), json_lines(500), None)
    index = source.scan_files(source.list_files())
    assert index.samples == 80
    Changing.kind = kind
    with pytest.raises(DataError, match=says):
        source.open(index).read(0)
    deadline = time.monotonic() + 30
    while kind == "endless" and not Changing.ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Changing.ended == (kind == "endless")


@pytest.mark.parametrize("content", ["a pipe", "a folder", "zeros without end", "nothing"])
def test_a_cache_that_is_no_index_is_built_anew(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else can write beside shared data. A cache of a tebibyte is not read."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    source = text(tmp_path / "a.txt", cache=str(tmp_path / "cache"))
    assert source.index().samples == 2
    (cached,) = (tmp_path / "cache").iterdir()
    cached.unlink()
    if content == "a pipe":
        os.mkfifo(cached)
    elif content == "a folder":
        cached.mkdir()
    else:
        cached.touch()
        os.truncate(cached, 1 << 40 if content == "zeros without end" else 0)
    assert source.index().samples == 2
    assert "It is built anew" in caplog.text


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.txt").write_text("one\n")
    monkeypatch.setattr("allranks.storage.local.os.scandir", refuse)
    for kind in ("text", "folder"):
        with pytest.raises(DataError, match="no permission"):
            open_source(kind, tmp_path / "*.txt").index()


# ---- results of a map, and states


class Odd:
    """What a map may return by mistake: nothing of it works."""

    shape = (1,)
    dtype = "odd"

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise KeyError("odd")

    def __repr__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "result",
    [
        lambda _: Odd(),
        lambda _: {"a": Odd()},
        lambda row: {"a": 1 if row else Odd()},
        lambda row: {row: 1, "a": 2},
        lambda row: {"a": np.zeros(row + 1)},
        lambda row: {"a": [1] if row else 1},
        lambda row: None if row else 1,
    ],
)
def test_a_result_that_makes_no_column_is_named(result: Callable[[int], Any]) -> None:
    with pytest.raises(DataError, match="sample"):
        list(Dataset.sequence(list(range(4)), shuffle=False, compare=False).map(result).batch(4).loader(rank=0, size=1))


def test_a_filter_whose_result_is_neither_true_nor_false_is_named() -> None:
    data = Dataset.sequence(list(range(4)), shuffle=False, compare=False).filter(lambda _: np.zeros(2))
    with pytest.raises(DataError, match="raised ValueError for sample 0"):
        list(data.batch(4).loader(rank=0, size=1))


@pytest.mark.parametrize(
    "change",
    [
        {"part": 3},
        {"part": [1, 2, 3]},
        {"seen": [float("inf"), "1", 0]},
        {"seen": [1, "f" * 40, 0]},
        {"seen": [-1, "1", 0]},
        {"depth": 1 << 62},
        {"depth": float("inf")},
        {"epoch": float("nan")},
        {"of": [1]},
        {"of": None},
        {"carry": 3},
        {"carry": [[0]]},
        {"carry": [[0, {"depth": 1}]]},
        {"carry": [[0, [1 << 40, 0, [], 0]]]},
        {"carry": [[1 << 40, [0, 0, [], 0]]]},
        {"carry": [[0, [0, 0, [[10**30]], 0]]]},
        {"carry": [[0, [0, -5, [], -1]]]},
    ],
)
def test_a_state_that_cannot_be_is_an_error_on_all_ranks(change: dict[str, Any]) -> None:
    rows = [{"tokens": np.arange(5, dtype=np.int32)} for _ in range(40)]
    data = Dataset.sequence(rows, compare=False).pack(8).batch(4, streams=2)

    def resume(world: Any, state: Any) -> Any:
        loader = data.loader(world, state=state)
        for _ in zip(range(2), loader, strict=False):
            pass
        return loader.state().gathered()

    state = SimulatedWorld(2).run(lambda world: resume(world, None)).results[0]
    errors = SimulatedWorld(2).run(lambda world: resume(world, {**state, **change})).errors
    assert {rank: isinstance(error, DataError) for rank, error in errors.items()} == {0: True, 1: True}, errors


# ---- tar shards whose samples cannot be decoded


def test_a_sample_that_is_nested_too_deeply_is_masked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        for name, content in (("a.json", b"[" * 100_000), ("b.json", b"[1]"), ("c.cls", b"1" * 5000)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    source = open_source("webdataset", tmp_path / "a.tar", decode=True)
    deep, good, long = source.open(source.index()).read(0).take(np.arange(3))
    assert "a.json cannot be decoded" in deep.why
    assert good == {"__key__": "b", "json": [1]}
    assert "c.cls cannot be decoded" in long.why
