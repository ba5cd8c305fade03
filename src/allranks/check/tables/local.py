"""What differs from process to process without being a rank: files that exist, clocks, names of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from allranks.check.tables.arrays import MAKERS

Kind: TypeAlias = Literal[
    "exists", "listing", "progress", "clock", "random", "identity", "temporary", "memory", "lock", "turn", "spread"
]


@dataclass(frozen=True, slots=True)
class LocalQuery:
    """A call whose result belongs to this process: ``exists`` and ``listing`` of files, ``progress`` of what runs
    beside the program, ``clock``, unseeded ``random`` numbers, ``identity`` (pid, host name, uuid: a path made of it
    is this process' own), ``temporary`` paths, files in
    ``memory``; an array that is ``spread`` over the processes; or a context that lets processes in one by one: a
    ``lock``, or a ``turn`` (rank 0 first, then the rest).
    """

    pattern: str
    kind: Kind


def _of(kind: Kind, owner: str, words: str) -> list[LocalQuery]:
    return [LocalQuery(f"{owner}.{word}" if owner else word, kind) for word in words.split()]


# Functions that lock a file from there on, until it is closed.
LOCKING = ("fcntl.flock", "fcntl.lockf", "portalocker.lock", "msvcrt.locking")
LOCAL: tuple[LocalQuery, ...] = (
    *_of("spread", "", " ".join(MAKERS)),
    *_of("exists", "os.path", "exists isfile isdir lexists islink ismount getmtime getsize"),
    *_of("exists", "os", "access stat"),
    *_of("exists", "pathlib.Path", "exists is_file is_dir is_symlink stat"),
    *_of("exists", "*", "exists is_file is_dir"),
    *_of("exists", "tensorflow.io.gfile", "exists isdir"),
    *_of("listing", "", "os.listdir os.scandir os.walk glob.glob glob.iglob"),
    *_of("listing", "pathlib.Path", "iterdir glob rglob"),
    *_of("listing", "*", "iterdir rglob"),
    *_of("listing", "tensorflow.io.gfile", "listdir glob walk"),
    *_of("listing", "transformers.trainer_utils", "get_last_checkpoint"),
    *_of("progress", "*", "done is_alive"),
    *_of("clock", "time", "time perf_counter monotonic time_ns strftime ctime localtime gmtime"),
    *_of("clock", "datetime.datetime", "now utcnow today"),  # a date is the same on all but at midnight
    *_of("clock", "psutil", "virtual_memory cpu_percent disk_usage"),
    *_of("clock", "shutil", "disk_usage"),
    *_of("clock", "torch.cuda", "memory_allocated max_memory_allocated memory_reserved mem_get_info"),
    *_of("random", "random", "random randint choice uniform sample randrange getrandbits"),
    *_of("random", "numpy.random", "rand randint random choice permutation randn uniform normal"),
    *_of("random", "os", "urandom"),
    *_of("random", "secrets", "randbelow"),
    *_of("identity", "", "os.getpid socket.gethostname socket.getfqdn platform.node os.uname threading.get_ident"),
    *_of("identity", "uuid", "uuid1 uuid4"),
    *_of("identity", "secrets", "token_hex token_urlsafe token_bytes"),
    *_of("identity", "shortuuid", "uuid"),
    *_of("temporary", "tempfile", "mkdtemp mkstemp mktemp gettempdir TemporaryDirectory NamedTemporaryFile"),
    *_of("temporary", "tempfile", "TemporaryFile SpooledTemporaryFile"),
    *_of("memory", "", "io.BytesIO io.StringIO BytesIO StringIO"),
    *_of("lock", "", "filelock.FileLock filelock.SoftFileLock fasteners.InterProcessLock portalocker.Lock"),
    *_of("lock", "*", "FileLock SoftFileLock file_lock filelock soft_file_lock lock_file acquire_file_lock"),
    *_of("lock", "", " ".join(LOCKING)),
    *_of("turn", "*", "main_process_first local_main_process_first rank_zero_first zero_first local_rank_zero_first"),
    *_of("turn", "*", "rank0_first rank_0_first main_first master_first master_process_first"),
    *_of("turn", "*", "torch_distributed_zero_first run_local_rank_zero_first"),
    *_of("turn", "composer.utils.dist", "run_local_rank_zero_first local_rank_zero_download_and_wait"),
)
