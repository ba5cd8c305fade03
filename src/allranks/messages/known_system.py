"""The known messages of the kernel, CUDA, Python and the scheduler."""

from __future__ import annotations

from allranks.messages.known import KnownMessage

_KERNEL, _SLURM, _CUDA, _PYTHON = "the kernel", "Slurm", "CUDA", "Python"

KNOWN = (
    KnownMessage(
        name="killed-for-memory",
        kind="cause",
        title="a process was killed because the host, or its cgroup, had no memory left",
        texts=("oom-kill", "oom_kill", "Out of memory: Killed process", "OOMKilled", "exceeded memory limit"),
        means="The kernel ended the process by SIGKILL, so the rank could report nothing. The other ranks then hang, "
        "or report broken connections.",
        do="Give the job more memory per host, or let it use less: fewer loader workers, no complete data set in "
        "memory, no second copy of the weights on the host when loading or saving.",
        source=f"{_KERNEL}; {_SLURM}; Kubernetes",
        facts=r"Killed process (?P<process>\d+ \([^)]*\))",
        example="Out of memory: Killed process 4711 (python) total-vm:61234567kB, anon-rss:60012345kB",
    ),
    KnownMessage(
        name="killed",
        kind="cause",
        title="a process was killed from outside",
        texts=("killed by SIGKILL", "Signal 9 (SIGKILL) received"),
        means="A program does not send SIGKILL to itself. The kernel (no memory left), the scheduler or a person sent "
        "it.",
        do="Run dmesg | grep -i kill on that host. The table of allranks run shows the peak memory of the rank.",
        source=f"allranks run; torch elastic, of {_KERNEL}",
        example="traceback : Signal 9 (SIGKILL) received by PID 4711",
    ),
    KnownMessage(
        name="host-lost",
        kind="cause",
        title="a host of the job is gone, and all its ranks with it",
        texts=("is lost: its launcher", "is lost: it is cut off"),
        means="The launcher there was killed (by the scheduler, or for lack of memory), or the host has no power or no "
        "network, or all of its processes are stopped. On the host itself, 'it is cut off' says that it reaches no "
        "other host.",
        do="Read the scheduler's report on that host (spot or preemption notice, node failure), then the kernel's log "
        "there (dmesg). If the network drops for a while and comes back: allranks run --host-timeout. "
        "--restarts goes on after a loss, --hosts MIN:MAX with fewer hosts.",
        source="allranks run",
        facts=r"host (?P<host>[^ ]+) is lost",
        timeout="allranks run --host-timeout (15 s)",
        example="first failure: rank 8 (host n09) failed: host n09 is lost: its launcher is silent for 15 s (no power, "
        "no network, or stopped)",
    ),
    KnownMessage(
        name="terminated",
        kind="unclear",
        title="another process ended this one by SIGTERM",
        texts=("killed by SIGTERM", "Signal 15 (SIGTERM) received"),
        means="A scheduler or a launcher sends SIGTERM to the remaining ranks when one rank has failed, and to all "
        "ranks at a time limit or a preemption.",
        do="Find a rank that has failed before, and read what the scheduler reports about the job.",
        source=f"allranks run; torch elastic, of {_SLURM}",
        example="traceback : Signal 15 (SIGTERM) received by PID 4711",
    ),
    KnownMessage(
        name="cuda-out-of-memory",
        kind="cause",
        title="a GPU has no memory left",
        texts=("CUDA out of memory", "OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY"),
        means="This rank fails, and the other ranks wait for it. If only some ranks fail, their batches are larger "
        "than those of other ranks, or another process uses their GPU.",
        do="Use a smaller batch or more accumulation, activation checkpointing, sharded parameters. nvidia-smi shows "
        "other processes. Against fragmentation: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        source=f"torch; {_CUDA}",
        facts=r"Tried to allocate (?P<wanted>[\d.]+ \w+)",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.11 GiB",
    ),
    KnownMessage(
        name="cuda-fault",
        kind="cause",
        title="a kernel on the GPU failed",
        texts=("device-side assert triggered", "an illegal memory access was encountered"),
        means="Most often an index is out of range (a label or token that the model does not have). The traceback "
        "shows a later line than the faulty one, because kernels run asynchronously.",
        do="Run with CUDA_LAUNCH_BLOCKING=1 to see the right line. Run the same step on the CPU to see the right "
        "error.",
        source=_CUDA,
        example="RuntimeError: CUDA error: device-side assert triggered",
    ),
    KnownMessage(
        name="gpu-broken",
        kind="cause",
        title="the GPU or its link has a fault",
        texts=("NVRM: Xid", "uncorrectable ECC error", "GPU has fallen off the bus"),
        means="The hardware or its driver has a fault.",
        do="Leave out this host, and report it to its administrator.",
        source="NVIDIA driver",
        facts=r"Xid \([^)]*\): (?P<xid>\d+)",
        example="NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
    ),
    KnownMessage(
        name="no-space",
        kind="cause",
        title="a disk is full",
        texts=("No space left on device", "Disk quota exceeded"),
        means="A checkpoint, a cache, a log or a file in /tmp has filled the disk.",
        do="Run df -h and quota on the host that reports the error. allranks ckpt gc removes what unfinished saves "
        "left.",
        source=_KERNEL,
        example="OSError: [Errno 28] No space left on device: 'runs/a/checkpoint-1000/rank-0.safetensors'",
    ),
    KnownMessage(
        name="too-many-files",
        kind="cause",
        title="a process cannot open more files",
        texts=("Too many open files",),
        means="DataLoader workers and connections to many ranks need file descriptors, and the limit of the process is"
        " reached.",
        do='Raise the limit with ulimit -n 65536, or call torch.multiprocessing.set_sharing_strategy("file_system").',
        source=_KERNEL,
        example="OSError: [Errno 24] Too many open files",
    ),
    KnownMessage(
        name="time-limit",
        kind="cause",
        title="the scheduler ended the job",
        texts=("DUE TO TIME LIMIT", "DUE TO PREEMPTION", "DUE TO NODE FAILURE"),
        means="The job has reached its time limit. Messages after this one are consequences.",
        do="Save before the time limit: Slurm sends SIGTERM first (docs/preemption.md), and earlier with sbatch "
        "--signal=TERM@120. --requeue starts the job again.",
        source=_SLURM,
        facts=r"DUE TO (?P<why>[A-Z ]+)",
        example="slurmstepd: error: *** STEP 77.0 ON node-1 CANCELLED AT 2026-11-22T01:00:00 DUE TO TIME LIMIT ***",
    ),
    KnownMessage(
        name="connection-lost",
        kind="unclear",
        title="a connection broke",
        texts=("Connection reset by peer", "Connection aborted", "Connection refused", "Broken pipe"),
        means="The process on the other end of the connection has ended or does not exist. It may be a peer, or a "
        "server of another service.",
        do="If another rank has failed, read the log of that rank. Otherwise the traceback shows which connection "
        "broke.",
        source=_KERNEL,
        example="ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    KnownMessage(
        name="crashed",
        kind="cause",
        title="a C or C++ library crashed",
        texts=("Fatal Python error: Segmentation fault", "Fatal Python error: Bus error"),
        means="The Python stack below this message shows which Python line called the library. Bus error: no shared "
        "memory was left, or a mapped file was truncated.",
        do="Read the innermost lines of the stack. The usual reason is that the versions of two libraries do not fit "
        "each other.",
        source=f"{_PYTHON}, faulthandler",
        example="Fatal Python error: Segmentation fault",
    ),
    KnownMessage(
        name="abort-called",
        kind="cause",
        title="the program itself called os.abort()",
        texts=("os.abort() was called",),
        means="The line that the message names called os.abort(), not a library.",
        do="Find out why the program calls os.abort() on that line.",
        source="allranks run",
        example="rank 1 failed at train.py:88: killed by SIGABRT: os.abort() was called",
    ),
    KnownMessage(
        name="aborted",
        kind="unclear",
        title="a C++ library ended the process (SIGABRT)",
        texts=("Fatal Python error: Aborted", "terminate called", "killed by SIGABRT"),
        means="XLA, Gloo and NCCL end a process by SIGABRT, most often because another rank has ended or made another "
        "call. The reason is in the lines before this message, or after what().",
        do="Read the lines before this message. If they are about a peer, check the other ranks.",
        source=f"{_PYTHON}, faulthandler; the C++ library",
        example="terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    ),
)
