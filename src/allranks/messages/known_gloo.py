"""The known messages of Gloo, which carries the collectives of torch and JAX on CPUs."""

from __future__ import annotations

from allranks.messages.known import KnownMessage

_SOURCE = "Gloo (torch, and JAX on CPUs)"
# Said of NCCL's collectives too.
GROUP_TIMEOUT = (
    "torch: init_process_group(timeout=), default 10 min with NCCL and 30 min with Gloo; JAX on CPUs: "
    "--xla_cpu_collective_timeout_seconds (1800; psum_scatter: always 30). allranks run --rendezvous-timeout S sets "
    "both"
)
ABSENT = (
    "Some rank did not reach this collective. That rank is busy elsewhere (data, a save, a longer validation), has "
    "left the loop, or is in another collective. A longer timeout seldom helps."
)
FIND_IT = (
    "Find the rank that reports nothing, and where that rank is: run allranks doctor job (if the program calls "
    "allranks.init()), or read the end of its log. Decisions (skip on NaN, end of data, early stop) must be equal on "
    "all ranks: docs/preflight.md."
)

KNOWN = (
    KnownMessage(
        name="gloo-size-mismatch",
        kind="cause",
        title="the ranks made a collective with different sizes, or different operations",
        texts=("op.preamble.length <= op.nbytes", "Received data size doesn't match expected size"),
        means="The ranks are in different collectives at the same time, or in the same one with different shapes. The "
        "process ends by SIGABRT (gloo::EnforceNotMet). If the sizes fit by chance, the result is wrong without a "
        "message.",
        do="Search for a collective that only some ranks reach, and for shapes that depend on the data of a rank. "
        "allranks.lockstep compares the ranks before each new collective; TORCH_DISTRIBUTED_DEBUG=DETAIL compares "
        "shapes.",
        source=_SOURCE,
        facts=r"op\.nbytes\. (?P<came>\d+) vs (?P<expected>\d+)",
        example="  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 4096 vs "
        "4. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
    ),
    KnownMessage(
        name="gloo-connect",
        kind="waiting",
        title="the ranks cannot reach each other",
        texts=("Gloo connectFullMesh failed", "Gloo context initialization failed"),
        means="Every rank connects to every other rank. Either a rank has ended already, or a rank has announced an "
        "address that the others cannot reach (a host name that resolves to 127.0.0.1, a second network). Under JAX "
        "(GetKeyValue timed out), a rank reached its first collective more than 30 s after the first rank, because it "
        "still compiled or its machine is busy.",
        do="Set GLOO_SOCKET_IFNAME to the network interface that all hosts share. Search for a rank that failed "
        "before. The 30 s cannot be changed: call world.barrier before the first collective, and give each rank its "
        "own cores.",
        source=_SOURCE,
        example="RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error",
    ),
    KnownMessage(
        name="gloo-timeout",
        kind="waiting",
        title="a collective did not end in time",
        texts=(
            "ms for recv",
            "ms for send",
            "Read timeout [",
            "Write timeout [",
            "Connect timeout [",
            "Application timeout caused pair closure",
            "Operation timed out!",
        ),
        means=ABSENT,
        do=FIND_IT,
        timeout=GROUP_TIMEOUT,
        source=_SOURCE,
        facts=r"waiting (?P<milliseconds>\d+)ms",
        example="[rank0]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv "
        "operation to complete",
    ),
    KnownMessage(
        name="gloo-peer-gone",
        kind="consequence",
        title="a peer closed its connection",
        texts=(
            "Connection closed by peer",
            "typically caused by a remote worker crashing",
            "Read error [",
            "Write error [",
            "Socket closed [",
            "Socket unexpectedly closed [",
            "writev [",
        ),
        means="The process on the other end has ended, or has given up waiting.",
        do="Find the rank whose log ends first, or that reports another error.",
        source=_SOURCE,
        facts=r"\[(?P<peer>[\d.:a-f]+)\]:\d+",
        example="RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:42638. This is "
        "typically caused by a remote worker crashing.",
    ),
    KnownMessage(
        name="gloo-other",
        kind="unclear",
        title="an operation of Gloo failed",
        texts=(
            "gloo/transport/",
            "Gloo all-reduce failed",
            "Gloo AllGather failed",
            "Gloo ReduceScatter failed",
            "Gloo all-to-all failed",
            "Gloo collective permute failed",
        ),
        means="The connection to a peer broke, or the operation itself failed.",
        do="Find the rank whose log ends first. Read the text after the file name: it is the error that Gloo saw.",
        source=_SOURCE,
        example="RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != "
        "nullptr. Unable to find address for: eth7",
    ),
)
