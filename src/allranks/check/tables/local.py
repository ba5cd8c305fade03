"""What differs from process to process without being a rank: files that exist, clocks, names of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["exists", "listing", "clock", "random", "identity", "temporary", "memory", "lock", "turn"]


@dataclass(frozen=True, slots=True)
class LocalQuery:
    """A call whose result belongs to this process: ``exists`` and ``listing`` of files, ``clock``, unseeded ``random``
    numbers, ``identity`` (pid, host name, uuid: a path made of it is this process' own), ``temporary`` paths, files in
    ``memory``; or a context that lets processes in one by one: a ``lock``, or a ``turn`` (rank 0 first, then the rest).
    """

    pattern: str
    kind: Kind


LOCAL: tuple[LocalQuery, ...] = (
    *(LocalQuery(f"os.path.{name}", "exists") for name in ("exists", "isfile", "isdir", "lexists", "islink")),
    LocalQuery("os.access", "exists"),
    *(LocalQuery(f"pathlib.Path.{name}", "exists") for name in ("exists", "is_file", "is_dir")),
    *(LocalQuery(f"*.{name}", "exists") for name in ("exists", "is_file", "is_dir")),
    *(LocalQuery(name, "listing") for name in ("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob")),
    *(LocalQuery(f"pathlib.Path.{name}", "listing") for name in ("iterdir", "glob", "rglob")),
    *(LocalQuery(f"*.{name}", "listing") for name in ("iterdir", "rglob")),
    *(LocalQuery(f"time.{name}", "clock") for name in ("time", "perf_counter", "monotonic", "time_ns", "strftime")),
    *(LocalQuery(f"datetime.datetime.{name}", "clock") for name in ("now", "utcnow", "today")),
    *(LocalQuery(f"psutil.{name}", "clock") for name in ("virtual_memory", "cpu_percent", "disk_usage")),
    LocalQuery("shutil.disk_usage", "clock"),
    *(LocalQuery(f"random.{name}", "random") for name in ("random", "randint", "choice", "uniform")),
    *(LocalQuery(name, "identity") for name in ("os.getpid", "socket.gethostname", "platform.node", "os.uname")),
    *(LocalQuery(f"uuid.uuid{n}", "identity") for n in (1, 4)),
    *(LocalQuery(f"tempfile.{n}", "temporary") for n in ("mkdtemp", "mkstemp", "gettempdir", "TemporaryDirectory")),
    *(
        LocalQuery(f"tempfile.{n}", "temporary")
        for n in ("NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile")
    ),
    *(LocalQuery(name, "memory") for name in ("io.BytesIO", "io.StringIO", "BytesIO", "StringIO")),
    *(
        LocalQuery(name, "lock")
        for name in ("filelock.FileLock", "filelock.SoftFileLock", "fasteners.InterProcessLock")
    ),
    *(LocalQuery(f"*.{n}", "turn") for n in ("main_process_first", "local_main_process_first", "rank_zero_first")),
)
