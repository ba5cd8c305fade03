"""The known messages of torch: its process groups over NCCL, its store, DDP, torchrun, and the DataLoader."""

from __future__ import annotations

from allranks.messages.known import KnownMessage
from allranks.messages.known_gloo import ABSENT, FIND_IT, GROUP_TIMEOUT

_NCCL = "torch, ProcessGroupNCCL.cpp"
_STORE = "torch, c10d TCPStore"

KNOWN = (
    KnownMessage(
        name="nccl-timeout",
        kind="waiting",
        title="a collective on GPUs did not end in time",
        texts=("Watchdog caught collective operation timeout",),
        means=ABSENT + " SeqNum, OpType and NumelIn differ between ranks that are in different collectives.",
        do=FIND_IT + " Compare SeqNum and OpType over the ranks; TORCH_FR_BUFFER_SIZE keeps more of them.",
        timeout=GROUP_TIMEOUT,
        source=_NCCL,
        facts=r"SeqNum=(?P<sequence>\d+), OpType=(?P<op>\w+)(?:, NumelIn=(?P<elements>\d+))?.*ran for "
        r"(?P<milliseconds>\d+)",
        example="[rank1]:[E626 06:24:44 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, Timeout(ms)=600000) ran "
        "for 600020 milliseconds before timing out.",
    ),
    KnownMessage(
        name="nccl-watchdog-stuck",
        kind="waiting",
        title="the NCCL watchdog of torch hangs",
        texts=("watchdog got stuck for", "Heartbeat monitor timed out"),
        means="A call into CUDA or NCCL does not return, or another thread holds the GIL in such a call. Most often "
        "the watchdog hangs because a collective did not end before: search for an earlier watchdog message.",
        do="Find the rank whose messages come first. To see Python stacks, run allranks doctor --stacks or py-spy.",
        timeout="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC (480; 600 in older versions); TORCH_NCCL_ENABLE_MONITORING=0",
        source=_NCCL,
        facts=r"stuck for (?P<seconds>\d+) seconds",
        example="[rank7]:[E626 ProcessGroupNCCL.cpp:1743] [PG ID 0 Rank 7] ProcessGroupNCCL's watchdog got stuck for "
        "480 seconds without making progress in monitoring enqueued collectives.",
    ),
    KnownMessage(
        name="nccl-taken-down",
        kind="consequence",
        title="torch ends the process after a failed NCCL operation",
        texts=("Some NCCL operations have failed or timed out", "we are taking the entire process down"),
        means="The watchdog message above this one names the collective that failed.",
        do="Read the first watchdog message of all ranks.",
        timeout="TORCH_NCCL_ASYNC_ERROR_HANDLING",
        source=_NCCL,
        example="[Rank 4] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
        "kernels, subsequent GPU operations might run on corrupted/incomplete data.",
    ),
    KnownMessage(
        name="nccl-peer-gone",
        kind="consequence",
        title="NCCL lost a peer",
        texts=(
            "ncclRemoteError",
            "Connection closed by remote peer",
            "remote process exited or there was a network error",
        ),
        means="A process on the other end has ended, or its network has failed.",
        do="Find the rank whose log ends first.",
        source="NCCL",
        example="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely.",
    ),
    KnownMessage(
        name="nccl-duplicate-gpu",
        kind="cause",
        title="two ranks use the same GPU",
        texts=("Duplicate GPU detected",),
        means="Several ranks use the default device instead of their own.",
        do="Call torch.cuda.set_device(local_rank) before the process group is made, and start as many ranks as GPUs.",
        source="NCCL",
        facts=r"rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA device (?P<device>\w+)",
        example="Duplicate GPU detected : rank 3 and rank 0 both on CUDA device f000",
    ),
    KnownMessage(
        name="nccl-no-interface",
        kind="cause",
        title="NCCL found no network interface",
        texts=("no socket interface found",),
        means="NCCL_SOCKET_IFNAME names an interface that this host does not have.",
        do="Unset NCCL_SOCKET_IFNAME, or set it to an interface that `ip addr` shows on every host.",
        source="NCCL",
        example="Bootstrap : no socket interface found",
    ),
    KnownMessage(
        name="nccl-system",
        kind="cause",
        title="a system call or the network under NCCL failed",
        texts=("ncclSystemError", "ncclUnhandledCudaError"),
        means="The fault is in the network, in shared memory (/dev/shm too small in a container), or in the GPU "
        "itself.",
        do="Run again with NCCL_DEBUG=WARN to see which call failed. Raise --shm-size in containers. dmesg shows GPU "
        "errors (Xid).",
        source="NCCL",
        example="ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    ),
    KnownMessage(
        name="nccl-other",
        kind="unclear",
        title="an operation of NCCL failed",
        texts=(
            "ncclInternalError",
            "ncclInvalidUsage",
            "NCCL error in:",
            "NCCL communicator was aborted",
            "DistBackendError",
        ),
        means="The line below this message is the last error that NCCL saw. If a peer has ended, this line says little"
        " more than that.",
        do="Find the rank whose log ends first. Run again with NCCL_DEBUG=WARN to see more.",
        source="NCCL",
        example="torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:"
        "94, internal error - please report this issue to the NCCL developers",
    ),
    KnownMessage(
        name="torch-detail-mismatch",
        kind="cause",
        title="the ranks are in different collectives",
        texts=("Detected mismatch between collectives on ranks",),
        means="TORCH_DISTRIBUTED_DEBUG=DETAIL compared the collectives of the ranks: the message shows both sides. "
        "DETAIL does not find a different reduce operation, nor another order of equal shapes.",
        do="Search for a collective that only some ranks reach (if rank == 0), and for data whose shape differs "
        "between ranks. allranks.lockstep also compares reductions and order, and names the lines.",
        source="torch, ProcessGroupWrapper.cpp",
        facts=r"OpType=(?P<op>\w+), TensorShape=(?P<shape>\[[^\]]*\]).*?OpType=(?P<other_op>\w+), "
        r"TensorShape=(?P<other_shape>\[[^\]]*\])",
        example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4096], TensorDtypes=Float), but Rank 1 "
        "is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4]",
    ),
    KnownMessage(
        name="torch-monitored-barrier",
        kind="waiting",
        title="ranks did not reach a monitored barrier",
        texts=("failed to pass monitoredBarrier", "timed out in monitoredBarrier after"),
        means="The message names them, on rank 0 only. " + ABSENT,
        do=FIND_IT,
        timeout="torch.distributed.monitored_barrier(timeout=)",
        source="torch, ProcessGroupGloo.cpp",
        facts=r"(?P<missing>Ranks? [\d, ]+) failed to pass monitoredBarrier in (?P<milliseconds>\d+)",
        example="[rank0]: RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms",
    ),
    KnownMessage(
        name="ddp-unused-parameters",
        kind="cause",
        title="DDP waits for gradients that were not computed",
        texts=("Expected to have finished reduction in the prior iteration",),
        means="Some parameters are not part of the loss, perhaps only on some ranks (because of a branch that depends "
        "on the data).",
        do="Use every parameter on every rank, or pass find_unused_parameters=True to DistributedDataParallel.",
        source="torch, reducer.cpp",
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
        "This error indicates that your module has parameters that were not used in producing loss.",
    ),
    KnownMessage(
        name="ddp-different-models",
        kind="cause",
        title="the ranks built different models",
        texts=("DDP expects same model across all ranks", "appears not to match sizes of the same param in process 0"),
        means="A configuration, a vocabulary or a number of classes differs between ranks.",
        do="Use allranks.preflight(world, same={'config': config}). Read such values on rank 0 and broadcast them.",
        source="torch, reducer.cpp",
        example="RuntimeError: [1]: params[0] in this process with sizes [8, 4] appears not to match sizes of the same "
        "param in process 0.",
    ),
    KnownMessage(
        name="store-unreachable",
        kind="waiting",
        title="rank 0's store cannot be reached",
        texts=("The client socket has timed out after", "The client socket has failed to connect to"),
        means="Rank 0 has not started, has failed, or listens at another address; or a firewall blocks the connection.",
        do="Read rank 0's log first. MASTER_ADDR and MASTER_PORT must be equal on all ranks and reachable.",
        timeout="init_process_group(timeout=); allranks.init(timeout=300)",
        source=_STORE,
        facts=r"connect to \(?\[?(?P<host>[^,\]]+)\]?[,:] ?(?P<port>\d+)",
        example="[W socket.cpp:759] [c10d] The client socket has failed to connect to [node-1]:29500 (errno: 111 - "
        "Connection refused).",
    ),
    KnownMessage(
        name="store-not-all-came",
        kind="waiting",
        title="not all ranks reached the store",
        texts=("seconds waiting for clients.", "RendezvousTimeoutError"),
        means="Fewer processes started than WORLD_SIZE says (or fewer hosts than --nnodes says), or some processes "
        "failed before they reached the store.",
        do="Count the processes that started, and read the logs that end early.",
        timeout="init_process_group(timeout=); torchrun --rdzv-conf timeout=",
        source=_STORE,
        facts=r"(?P<joined>\d+/\d+) clients joined",
        example="torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
    ),
    KnownMessage(
        name="store-wait",
        kind="waiting",
        title="a key was not set in the store",
        texts=(
            "wait timeout after",
            "barrier timeout after",
            "Timeout waiting for key",
            "Socket Timeout",
            "retrieving ncclUniqueId from",
        ),
        means="A rank waits for a value of another rank, most often while a process group is made: all ranks must "
        "call new_group, in the same order.",
        do="Search for a new_group, a barrier or an object collective that only some ranks reach.",
        timeout="init_process_group(timeout=)",
        source=_STORE,
        facts=r"after (?P<milliseconds>\d+)ms, keys: (?P<keys>\S+)",
        example="torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/1",
    ),
    KnownMessage(
        name="store-gone",
        kind="consequence",
        title="rank 0, which serves the store, has ended",
        texts=(
            "failed on SocketImpl",
            'Failed to check the "should dump" flag on TCPStore',
            "got 0 bytes. Connection was likely closed",
            "sent 0 bytes. Connection was likely closed",
            "recvValue failed",
            "DistNetworkError",
        ),
        means="Rank 0 (or torchrun's agent) has ended, perhaps without an error and too early.",
        do="Read the end of rank 0's log. If rank 0 finishes before the other ranks, make it wait for them: with a "
        "barrier, or with destroy_process_group() on all ranks.",
        source=_STORE,
        example="[W TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=3, addr=[localhost]:48166): Broken pipe",
    ),
    KnownMessage(
        name="port-in-use",
        kind="cause",
        title="the port is in use",
        texts=("EADDRINUSE", "Address already in use", "has failed to listen on any local network address"),
        means="Another job, or a process that an earlier job left behind, listens at MASTER_PORT.",
        do="`ss -ltnp` shows the process. Choose another port, or use allranks run, which chooses free ones.",
        source=_STORE,
        facts=r"port: (?P<port>\d+)",
        example="RuntimeError: The server socket has failed to listen on any local network address. port: 29500, "
        "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    KnownMessage(
        name="torch-no-launcher",
        kind="cause",
        title="the variables of a launcher are missing",
        texts=("expected, but not set",),
        means="init_process_group reads the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and at least one "
        "of them is not set.",
        do="Start the program with allranks run -n N or torchrun. Under srun, call allranks.init(), which reads "
        "Slurm's variables.",
        source="torch/distributed/rendezvous.py",
        facts=r"variable (?P<variable>\w+)",
        example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
        "expected, but not set",
    ),
    KnownMessage(
        name="torchrun-summary",
        kind="consequence",
        title="torchrun's summary of a failed job",
        texts=("ChildFailedError", "Root Cause (first observed failure)"),
        means="Some rank has failed. torchrun shows the failure that it saw first, without a traceback unless the "
        "program uses @record.",
        do="Read the traceback of the named rank, above this summary. Exit code -9 means that the rank was killed, "
        "most often for lack of memory.",
        source="torch elastic",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ),
    KnownMessage(
        name="torchrun-exit",
        kind="cause",
        title="torchrun saw a rank fail",
        texts=("failed (exitcode:",),
        means="Exit code -9 is SIGKILL (most often by the kernel, for lack of memory), -6 is SIGABRT (by C++ code), "
        "-11 is a crash, and 1 is an exception.",
        do="Read the last lines of that rank. For -9, read dmesg, and use less memory (fewer workers, a smaller "
        "batch).",
        source="torch elastic",
        facts=r"exitcode: (?P<exit_code>-?\d+)\) local_rank: (?P<local_rank>\d+)",
        example="E1122 api.py:1003] failed (exitcode: -9) local_rank: 1 (pid: 812) of binary: /usr/bin/python",
    ),
    KnownMessage(
        name="torchrun-stops-others",
        kind="consequence",
        title="torchrun stops the other ranks",
        texts=("closing signal SIG",),
        means="Some rank has failed, or torchrun itself received a signal.",
        do="Find the failed rank above.",
        source="torch elastic",
        example="W1122 api.py:1029] Sending process 813 closing signal SIGTERM",
    ),
    KnownMessage(
        name="torch-not-destroyed",
        kind="harmless",
        title="the process group was not destroyed",
        texts=("destroy_process_group() was not called",),
        means="The program ended without destroy_process_group(). Resources of NCCL may leak; the results of the "
        "program are right.",
        do="Call torch.distributed.destroy_process_group() at the end, on all ranks.",
        source=_NCCL,
        example="[rank0]:[W ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before "
        "program exit, which can leak resources.",
    ),
    KnownMessage(
        name="loader-worker-terminated",
        kind="unclear",
        title="a worker of the DataLoader was ended by SIGTERM",
        texts=(") is killed by signal: Terminated",),
        means="Another process ended the worker, not a lack of memory. A scheduler sends SIGTERM to every process at a"
        " time limit or a preemption.",
        do="Use an allranks.Checkpointer: then workers live until the rank has saved. Otherwise read what the "
        "scheduler reports.",
        source="torch, DataLoader",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Terminated. ",
    ),
    KnownMessage(
        name="loader-worker-killed",
        kind="cause",
        title="a worker of the DataLoader was killed",
        texts=(") is killed by signal:",),
        means="If the message says Killed, there was no memory left (every worker copies what it changes). Bus error: "
        "no shared memory was left. Segmentation fault: a C library crashed, often one that was used before the fork.",
        do="Use fewer workers or a smaller prefetch_factor; in a container a larger --shm-size; "
        'multiprocessing_context="spawn".',
        source="torch, DataLoader",
        facts=r"is killed by signal: (?P<signal>[\w ]+)",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
    ),
    KnownMessage(
        name="loader-worker-gone",
        kind="cause",
        title="a worker of the DataLoader ended",
        texts=("exited unexpectedly",),
        means="The error of the worker is above this message, or was lost with the worker.",
        do="Run with num_workers=0 to see the error.",
        source="torch, DataLoader",
        example="RuntimeError: DataLoader worker (pid(s) 812, 813) exited unexpectedly",
    ),
    KnownMessage(
        name="loader-shm",
        kind="cause",
        title="shared memory is used up",
        texts=("insufficient shared memory (shm)", "out of shared memory"),
        means="Workers send batches through /dev/shm, which containers limit to 64 MB by default.",
        do="Use docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir of medium Memory at /dev/shm.",
        source="torch, DataLoader",
        example="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
        "(shm).",
    ),
    KnownMessage(
        name="loader-timeout",
        kind="waiting",
        title="the DataLoader waited too long for a batch",
        texts=("DataLoader timed out after",),
        means="The workers hang or are too slow, because of a file system, a lock that was taken before the fork, or "
        "one bad sample.",
        do="Run with num_workers=0 to see the line. While one rank waits for its DataLoader, the other ranks wait for "
        "that rank in a collective.",
        timeout="DataLoader(timeout=)",
        source="torch, DataLoader",
        facts=r"after (?P<seconds>[\d.]+) seconds",
        example="RuntimeError: DataLoader timed out after 60 seconds",
    ),
)
