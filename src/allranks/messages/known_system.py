"""The known messages of the kernel, CUDA, Python and the scheduler."""

from __future__ import annotations

from allranks.messages.known import Known

_KERNEL, _SLURM, _CUDA, _PYTHON = "the kernel", "Slurm", "CUDA", "Python"

KNOWN = (
    Known(
        name="killed-for-memory",
        kind="cause",
        title="a process was killed because the host, or its cgroup, had no memory left",
        texts=("oom-kill", "oom_kill", "Out of memory: Killed process", "OOMKilled", "exceeded memory limit"),
        means="SIGKILL: the rank could report nothing. The other ranks then hang, or report broken connections.",
        do="Use more memory per host, or less of it: fewer loader workers, no complete data set in memory, no second "
        "copy of the weights on the host (loading, saving).",
        source=f"{_KERNEL}; {_SLURM}; Kubernetes",
        facts=r"Killed process (?P<process>\d+ \([^)]*\))",
        example="Out of memory: Killed process 4711 (python) total-vm:61234567kB, anon-rss:60012345kB",
    ),
    Known(
        name="killed",
        kind="cause",
        title="a process was killed from outside",
        texts=("killed by SIGKILL", "Signal 9 (SIGKILL) received"),
        means="A program does not send SIGKILL to itself: it was the kernel (no memory left), the scheduler, or a "
        "person.",
        do="dmesg | grep -i kill on that host. The table of allranks run shows the rank's peak memory.",
        source=f"allranks run; torch elastic, of {_KERNEL}",
        example="traceback : Signal 9 (SIGKILL) received by PID 4711",
    ),
    Known(
        name="terminated",
        kind="unclear",
        title="another process ended this one by SIGTERM",
        texts=("killed by SIGTERM", "Signal 15 (SIGTERM) received"),
        means="A scheduler or a launcher sends SIGTERM to the remaining ranks when one has failed, and to all at a "
        "time limit or a preemption.",
        do="Find a rank that has failed before, and read what the scheduler reports about the job.",
        source=f"allranks run; torch elastic, of {_SLURM}",
        example="traceback : Signal 15 (SIGTERM) received by PID 4711",
    ),
    Known(
        name="cuda-out-of-memory",
        kind="cause",
        title="a GPU has no memory left",
        texts=("CUDA out of memory", "OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY"),
        means="This rank fails; the others wait for it. If only some ranks fail, their batches are larger, or another "
        "process holds the GPU.",
        do="Use a smaller batch or more accumulation, activation checkpointing, sharded parameters. nvidia-smi shows "
        "other processes. Against fragmentation: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        source=f"torch; {_CUDA}",
        facts=r"Tried to allocate (?P<wanted>[\d.]+ \w+)",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.11 GiB",
    ),
    Known(
        name="cuda-fault",
        kind="cause",
        title="a kernel on the GPU failed",
        texts=("device-side assert triggered", "an illegal memory access was encountered"),
        means="Most often an index out of range (a label or token that the model does not have). The line in the "
        "traceback is a later one, because kernels run asynchronously.",
        do="CUDA_LAUNCH_BLOCKING=1 shows the right line. The same step on the CPU shows the right error.",
        source=_CUDA,
        example="RuntimeError: CUDA error: device-side assert triggered",
    ),
    Known(
        name="gpu-broken",
        kind="cause",
        title="the GPU or its link has a fault",
        texts=("NVRM: Xid", "uncorrectable ECC error", "GPU has fallen off the bus"),
        means="Hardware, or its driver.",
        do="Leave out this host, and report it to its administrator.",
        source="NVIDIA driver",
        facts=r"Xid \([^)]*\): (?P<xid>\d+)",
        example="NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
    ),
    Known(
        name="no-space",
        kind="cause",
        title="a disk is full",
        texts=("No space left on device", "Disk quota exceeded"),
        means="A checkpoint, a cache, a log or /tmp.",
        do="df -h and quota on the host that reports it. allranks ckpt gc removes what unfinished saves left.",
        source=_KERNEL,
        example="OSError: [Errno 28] No space left on device: 'runs/a/checkpoint-1000/rank-0.safetensors'",
    ),
    Known(
        name="too-many-files",
        kind="cause",
        title="a process cannot open more files",
        texts=("Too many open files",),
        means="DataLoader workers and connections to many ranks use descriptors.",
        do='Use ulimit -n 65536 and torch.multiprocessing.set_sharing_strategy("file_system").',
        source=_KERNEL,
        example="OSError: [Errno 24] Too many open files",
    ),
    Known(
        name="time-limit",
        kind="cause",
        title="the scheduler ended the job",
        texts=("DUE TO TIME LIMIT", "DUE TO PREEMPTION", "DUE TO NODE FAILURE"),
        means="What follows is a consequence.",
        do="Save before: SIGTERM is sent first (docs/preemption.md), and earlier with sbatch --signal=TERM@120. "
        "--requeue starts the job again.",
        source=_SLURM,
        facts=r"DUE TO (?P<why>[A-Z ]+)",
        example="slurmstepd: error: *** STEP 77.0 ON node-1 CANCELLED AT 2026-11-22T01:00:00 DUE TO TIME LIMIT ***",
    ),
    Known(
        name="connection-lost",
        kind="unclear",
        title="a connection broke",
        texts=("Connection reset by peer", "Connection aborted", "Connection refused", "Broken pipe"),
        means="The process on the other end has ended or does not exist: a peer, or a server of another service.",
        do="If another rank has failed, check that rank. Otherwise the traceback shows which connection it is.",
        source=_KERNEL,
        example="ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    Known(
        name="crashed",
        kind="cause",
        title="a C or C++ library crashed",
        texts=("Fatal Python error: Segmentation fault", "Fatal Python error: Bus error"),
        means="The Python stack below shows the caller. Bus error: no shared memory, or a mapped file was truncated.",
        do="Read the innermost lines of the stack. Versions that do not fit each other are the usual reason.",
        source=f"{_PYTHON}, faulthandler",
        example="Fatal Python error: Segmentation fault",
    ),
    Known(
        name="abort-called",
        kind="cause",
        title="the program itself called os.abort()",
        texts=("os.abort() was called",),
        means="The named line called it, not a library.",
        do="Check that line.",
        source="allranks run",
        example="rank 1 failed at train.py:88: killed by SIGABRT: os.abort() was called",
    ),
    Known(
        name="aborted",
        kind="unclear",
        title="a C++ library ended the process (SIGABRT)",
        texts=("Fatal Python error: Aborted", "terminate called", "killed by SIGABRT"),
        means="XLA, Gloo and NCCL end a process so, mostly because another rank has ended or made another call. The "
        "reason is in the lines before, or after what().",
        do="Read the line before. If it is about a peer, check the other ranks.",
        source=f"{_PYTHON}, faulthandler; the C++ library",
        example="terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    ),
)
