"""The known messages of XLA and of JAX's coordination service."""

from __future__ import annotations

from allranks.messages.known import KnownMessage

_RENDEZVOUS = "XLA, xla/service/rendezvous.cc"
_COORDINATION = "JAX, xla/pjrt/distributed/coordination"
_DEVICES = (
    "Either a device's program failed (its error is above), or one device is much slower. Or devices run different "
    "programs (lax.cond or a loop over axis_index with a collective inside), or two Python threads launch collectives. "
    "On virtual CPU devices also: more than about 32 steps are launched without waiting for one, and there are fewer "
    "than two pool threads per device."
)
_WHAT_TO_DO = (
    "Search for an error above this line. On virtual CPU devices set NPROC to twice their number (allranks run does), "
    "or wait for a step now and then (jax.block_until_ready). XLA_RENDEZVOUS_WAIT_SECONDS does not exist; "
    "allranks run --rendezvous-timeout S sets the real flags."
)
_TIMEOUT = (
    "XLA_FLAGS: --xla_cpu_collective_call_warn_stuck_timeout_seconds (20) and "
    "--xla_cpu_collective_call_terminate_timeout_seconds (40 more); on GPU "
    "--xla_gpu_first_collective_call_warn_stuck_timeout_seconds (20) and ..._terminate_timeout_seconds (40)"
)

KNOWN = (
    KnownMessage(
        name="jax-callback-failed",
        kind="cause",
        title="a Python function that a device's program calls has raised an exception",
        texts=("jax.pure_callback failed", "jax.io_callback failed", "jax.debug.callback failed"),
        means="A Python function that the program of a device calls has raised an exception; the exception is below "
        "that line. The function is a pure_callback, io_callback or debug.callback, or a check that uses one "
        "(eqx.error_if). The program of that device has ended. The other devices wait for that device in the next "
        "collective, and XLA then reports a rendezvous.",
        do="Correct the error that the traceback shows. Check the rows of that device first. allranks run "
        "--rendezvous-timeout S shortens the wait of the other devices.",
        source="JAX, jax/_src/callback.py",
        example="jax.pure_callback failed",
    ),
    KnownMessage(
        name="xla-leader-stuck",
        kind="waiting",
        title="all device threads have reached a collective, but the collective does not end",
        texts=("has not marked the rendezvous as completed",),
        means="All devices are in the collective. One thread sets up NCCL or calls Python for all of them, and this "
        "thread does not return.",
        do="Check what that thread does: a callback that waits for a lock or for another rank, or NCCL that cannot "
        "reach a peer (NCCL_DEBUG=INFO shows this).",
        timeout=_TIMEOUT,
        source=_RENDEZVOUS,
        facts=r"for `(?P<collective>[^`]*)` (?:for|of) (?P<seconds>\d+) seconds",
        example="E1122 rendezvous.cc:98] [id=1] This thread has been waiting for `collective permute; run_id=5` for 20 "
        "seconds and may be stuck. All 2 threads joined the rendezvous, however the leader has not marked the "
        "rendezvous as completed. Leader can be deadlocked inside the rendezvous callback.",
    ),
    KnownMessage(
        name="xla-rendezvous-abort",
        kind="waiting",
        title="XLA ends the process: not all device threads reached a collective",
        texts=("seconds exceeded. Exiting to ensure a consistent program state",),
        means=_DEVICES + " XLA then aborts the process (SIGABRT), and names no device.",
        do=_WHAT_TO_DO,
        timeout=_TIMEOUT,
        source=_RENDEZVOUS,
        facts=r"for `(?P<collective>[^`]*)` of (?P<seconds>\d+) seconds.*?Expected (?P<expected>\d+) threads"
        r"(?:.*but only (?P<came>\d+))?",
        example="F0927 rendezvous.cc:77] [id=0] Termination timeout for `first call to collective operation 0; run_id=0"
        "` of 40 seconds exceeded. Exiting to ensure a consistent program state. Expected 2 threads to join the "
        "rendezvous, but only 1 of them arrived on time.",
    ),
    KnownMessage(
        name="xla-rendezvous",
        kind="waiting",
        title="not all device threads of this process reached a collective",
        texts=("and may be stuck",),
        means="All devices of one process must reach every collective. " + _DEVICES,
        do=_WHAT_TO_DO,
        timeout=_TIMEOUT,
        source=_RENDEZVOUS,
        facts=r"for `(?P<collective>[^`]*)` for (?P<seconds>\d+) seconds.*?Expected (?P<expected>\d+) threads",
        example="[id=0] This thread has been waiting for `first call to collective operation 190; run_id=-851342065` "
        "for 20 seconds and may be stuck. Expected 2 threads to join the rendezvous, but not all of them arrived on "
        "time.",
    ),
    KnownMessage(
        name="xla-rendezvous-late",
        kind="harmless",
        title="the device threads all reached the collective, but late",
        texts=("This thread is unstuck waiting for",),
        means="The warning above this line was a false alarm: one device was late, and the program continued.",
        do="Nothing, if the machine was busy or if steps take different times on purpose. Otherwise find out what "
        "makes a device late.",
        timeout=_TIMEOUT,
        source=_RENDEZVOUS,
        example="[id=0] This thread is unstuck waiting for `all-reduce; run_id=7` after 25.01s. Threads joined "
        "rendezvous with significant delay, system can be overloaded.",
    ),
    KnownMessage(
        name="xla-unknown-flag",
        kind="cause",
        title="XLA_FLAGS holds a flag that this jaxlib does not know",
        texts=("Unknown flag in XLA_FLAGS", "Unknown flags in XLA_FLAGS"),
        means="XLA ends the process if XLA_FLAGS has an unknown flag. (XLA ignores unknown environment variables.) The"
        " flags differ between versions of jaxlib.",
        do="Remove the flag, or spell it as this version of jaxlib does. allranks preflight reports unknown flags "
        "before the start.",
        source="XLA, xla/parse_flags_from_env.cc",
        facts=r"XLA_FLAGS: (?P<flags>.*)",
        example="F1122 01:30:54.749763   14878 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_foo=1",
    ),
    KnownMessage(
        name="xla-flag-value",
        kind="cause",
        title="a flag of XLA_FLAGS has a value that XLA cannot read",
        texts=("Couldn't interpret value",),
        means="XLA ends the process if it cannot read the value of a flag.",
        do="Correct the value. XLA prints all flags and their types below the message.",
        source="XLA, command_line_flags.cc",
        facts=r"value (?P<value>.*) for flag (?P<flag>\w+)",
        example="E1122 01:30:55.079391   14882 command_line_flags.cc:63] Couldn't interpret value abc for flag "
        "xla_cpu_collective_timeout_seconds.",
    ),
    KnownMessage(
        name="xla-flags-file",
        kind="cause",
        title="XLA_FLAGS was read as the name of a file",
        texts=('to read flags for environment variable "XLA_FLAGS"',),
        means="If the value of XLA_FLAGS does not begin with --, XLA takes it for the name of a file of flags. There "
        "is no such file.",
        do="Begin every flag in XLA_FLAGS with two hyphens.",
        source="XLA, xla/parse_flags_from_env.cc",
        facts=r'open file "(?P<file>[^"]*)"',
        example='F1122 parse_flags_from_env.cc:171] Could not open file "xla_foo=1" to read flags for environment '
        'variable "XLA_FLAGS". (We assumed "xla_foo=1" was a file name because it did not start with a "--".)',
    ),
    KnownMessage(
        name="xla-out-of-memory",
        kind="cause",
        title="a device has no memory left",
        texts=("RESOURCE_EXHAUSTED: Out of memory", "RESOURCE_EXHAUSTED: Failed to allocate"),
        means="The arrays and the buffers of the program do not fit into the memory of the device. The other ranks now"
        " wait for this rank.",
        do="Use a smaller batch, more accumulation, donated arguments, or parameters sharded over more devices. Check "
        "for another process on the same GPU: XLA takes 75 % of it at the start (XLA_PYTHON_CLIENT_MEM_FRACTION).",
        source="XLA, allocator",
        facts=r"allocat\w+ (?P<bytes>[\d.]+ ?\w+)",
        example="jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 68719476736 bytes.",
    ),
    KnownMessage(
        name="xla-slow-compile",
        kind="harmless",
        title="a compilation takes minutes",
        texts=("Very slow compile?",),
        means="This rank compiles a program for minutes. The other ranks wait for this rank at the first collective.",
        do="Set timeouts that are longer than the compilation. With a persistent compilation cache "
        "(JAX_COMPILATION_CACHE_DIR), a restart need not compile again.",
        source="XLA, slow_operation_alarm.cc",
        example="E1122 slow_operation_alarm.cc:73] Very slow compile? If you want to file a bug, run with envvar "
        "XLA_FLAGS=--xla_dump_to=/tmp/foo and attach the results.",
    ),
    KnownMessage(
        name="jax-not-all-came",
        kind="waiting",
        title="not all processes called jax.distributed.initialize before its timeout",
        texts=(
            "CoordinationService/RegisterTask",
            "Coordination service agent failed to register",
            "waited too long for some tasks to show up",
            "coordination service as cluster registration failed",
        ),
        means="Process 0 did not listen at the address of the coordinator, or some process never called "
        "jax.distributed.initialize.",
        do="Count the processes that started. If one is missing, find out why (its log ends early). Check that all "
        "processes use the same address, and that the port is open between hosts.",
        timeout="jax.distributed.initialize(initialization_timeout=300); allranks.init(timeout=300)",
        source=_COORDINATION,
        example="RPC: /xla.coordination.CoordinationService/RegisterTask",
    ),
    KnownMessage(
        name="jax-port-in-use",
        kind="cause",
        title="the coordinator's port is in use",
        texts=("Failed to add port to server", "Failed to start RPC server"),
        means="Another job, or a process that an earlier job left behind, listens at the coordinator's port.",
        do="`ss -ltnp` shows the process. Choose another port (JAX_COORDINATOR_PORT or coordinator_address, the same "
        "for every rank), or use allranks run, which chooses free ones.",
        source=_COORDINATION,
        facts=r"resolved for '\S*:(?P<port>\d+)'",
        example="add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for "
        "'[::]:34661'",
    ),
    KnownMessage(
        name="jax-heartbeat",
        kind="waiting",
        title="a process sent no more heartbeats",
        texts=("unhealthy (stopped sending heartbeats)", "heartbeat timeout. This indicates that the remote task"),
        means="The process named on the next line (or in task:N) was killed, or its host was lost or preempted, or the"
        " process was stopped or held the GIL for longer than the timeout. A process that is alive and waits sends "
        "heartbeats.",
        do="Read the end of the log of that process, and what the scheduler and the kernel report about its host "
        "(dmesg: out of memory).",
        timeout="jax.distributed.initialize(heartbeat_timeout_seconds=100)",
        source=_COORDINATION,
        facts=r"task:(?P<task>\d+) heartbeat|heartbeats\): (?P<tasks>[\d, ]+)",
        example="client.h:80] Terminating process because the JAX distributed service detected fatal errors. absl::"
        "Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): 1",
    ),
    KnownMessage(
        name="jax-shutdown-barrier",
        kind="waiting",
        title="the processes did not end together",
        texts=("Barrier timed out. Id: Shutdown", "Shutdown barrier in coordination service has failed"),
        means="Some processes had ended and waited for the other processes to end. A process that did not end has left"
        " early, has failed (its traceback is in its log), or makes more steps than the others.",
        do="Find the rank that is not among those that reached the barrier. If the data has unequal length, or if one "
        "rank stops early, let all ranks decide together when to stop (docs/preflight.md).",
        timeout="jax.distributed.initialize(shutdown_timeout_seconds=300)",
        source=_COORDINATION,
        example="DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::15002938948575300764::0. This usually happens "
        "because a task triggered the barrier too early or too slowly.",
    ),
    KnownMessage(
        name="jax-barrier",
        kind="waiting",
        title="not every process reached a barrier in time",
        texts=("Barrier timed out. Id:",),
        means="The lines below this message say how many processes reached the barrier, and name some processes that "
        "did not.",
        do="Find where the missing processes are. A barrier that only some ranks call (if process_index() == 0) never "
        "completes.",
        source=_COORDINATION,
        facts=r"Id: (?P<barrier>[^.\s]+)",
        example="DEADLINE_EXCEEDED: Barrier timed out. Id: restore::3. This usually happens because a task triggered "
        "the barrier too early or too slowly.",
    ),
    KnownMessage(
        name="jax-key",
        kind="waiting",
        title="a key was not set in JAX's coordination service",
        texts=("GetKeyValue() timed out with key",),
        means="A process waits for a value of another process: the description of its devices, the address of its "
        "collectives, or a value of the program.",
        do="Find the process that did not set the key, and where that process is: read its log, or run allranks doctor"
        " job.",
        source=_COORDINATION,
        facts=r"key: (?P<key>\S+)",
        example="DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cpu:local_topology/cpu/1 and duration: 2m",
    ),
    KnownMessage(
        name="jax-restarted",
        kind="cause",
        title="a process joined a running job again",
        texts=(
            "The task has restarted and likely crashed earlier",
            "Leader incarnation ID mismatch",
            "Heartbeat: Incarnation ID mismatch",
            "The service might have restarted",
        ),
        means="A scheduler restarted one process. JAX's service does not accept a restarted process: all processes "
        "must restart together.",
        do="Configure the scheduler to restart the whole job. Find out why the first process ended.",
        source=_COORDINATION,
        example="ABORTED: /job:jax_worker/task:1 unexpectedly tried to connect. The task has restarted and likely "
        "crashed earlier - check for any earlier errors.",
    ),
    KnownMessage(
        name="jax-leader-gone",
        kind="consequence",
        title="process 0, which serves JAX's coordination, has ended",
        texts=(
            "Failed to send RPC to coordination service",
            "Coordination service has stopped",
            "coordination service is shutting down",
            "UNAVAILABLE: Socket closed",
            "UNAVAILABLE: failed to connect to all addresses",
            "UNAVAILABLE: recvmsg:Connection reset by peer",
        ),
        means="All other processes end together with process 0.",
        do="Read the end of the log of process 0, and check its host.",
        source=_COORDINATION,
        example="UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was "
        "preempted/died/restarted unexpectedly or this task is experiencing network issues.",
    ),
    KnownMessage(
        name="jax-other-task-died",
        kind="consequence",
        title="JAX ends this process because another one failed",
        texts=(
            "JAX distributed service detected fatal errors",
            "Polled an error from coordination service",
            "All tasks were set to error because coordination service encountered an error",
            "coordination agent is in error state",
        ),
        means="Another process ended or was lost first. JAX ends this process by SIGABRT.",
        do="Find the rank whose log ends first. allranks run reports that rank as the first failure.",
        source=_COORDINATION,
        example="F1122 01:36:25 client.h:80] Terminating process because the JAX distributed service detected fatal "
        "errors. This most likely indicates that another task died; see the other task logs for more details.",
    ),
    KnownMessage(
        name="jax-late-init",
        kind="cause",
        title="the program called jax.distributed.initialize too late",
        texts=("initialize() must be called before",),
        means="The program used JAX (jax.devices(), an array) before it called jax.distributed.initialize, so each "
        "process is a separate job.",
        do="Call jax.distributed.initialize (or allranks.init()) before all other uses of JAX. Modules must not make "
        "arrays when they are imported.",
        source="jax/_src/distributed.py",
        example="RuntimeError: jax.distributed.initialize() must be called before any JAX calls that might initialise "
        "the XLA backend.",
    ),
    KnownMessage(
        name="jax-not-addressable",
        kind="cause",
        title="an array that is sharded over several processes was fetched on one",
        texts=("spans non-addressable",),
        means="float(x), print(x) or np.asarray(x) of a global array needs the shards of the other processes.",
        do="Call jax.experimental.multihost_utils.process_allgather(x) on all ranks, or make the value replicated (a "
        "loss usually is). Do not fetch the array on rank 0 only.",
        source="jax/_src/array.py",
        example="RuntimeError: Fetching value for `jax.Array` that spans non-addressable (non process local) devices "
        "is not possible.",
    ),
    KnownMessage(
        name="jax-indivisible",
        kind="cause",
        title="a dimension does not divide over the devices",
        texts=(
            "implies that array axis",
            "implies that the global size of its dimension",
            "not evenly divisible by the corresponding mesh axis",
            "got inconsistent sizes for array axes to be mapped",
        ),
        means="Most often the array is the last, smaller batch of an epoch, or the batch size is not a multiple of the"
        " number of devices.",
        do="Use drop_last=True, and allranks.preflight(world, batch=..., data=loader) before the first step.",
        source="jax/_src/sharding_impls.py, pjit.py, shard_map.py, api.py",
        facts=r"axis (?P<axis>\d+) is partitioned (?P<parts>\d+) times.*dimension size (?:is )?(?P<size>\d+)",
        example="jax._src.sharding_impls.IndivisibleError: Sharding NamedSharding(mesh=Mesh('d': 2), spec=P('d',)) "
        "implies that array axis 0 is partitioned 2 times, but the dimension size is 3 (full shape: (3,))",
    ),
    KnownMessage(
        name="jax-fork",
        kind="cause",
        title="a process in which JAX runs was forked",
        texts=("os.fork() is incompatible with multithreaded code",),
        means="A DataLoader with num_workers > 0, or code that uses subprocess, forks the process. The child may "
        "inherit a lock that is never released, and then hangs.",
        do='Use multiprocessing_context="spawn" (or "forkserver") for the DataLoader, or num_workers=0.',
        source="jax/_src/xla_bridge.py",
        example="RuntimeWarning: os.fork() was called. os.fork() is incompatible with multithreaded code, and JAX is "
        "multithreaded, so this will likely lead to a deadlock.",
    ),
    KnownMessage(
        name="jax-no-backend",
        kind="cause",
        title="JAX cannot use the accelerator that was requested",
        texts=("Unable to initialize backend", "The TPU is already in use by process"),
        means="The driver or plugin of the accelerator is missing or does not fit, or another process holds the "
        "device.",
        do="Read the rest of the line. nvidia-smi shows which process holds the device.",
        source="jax/_src/xla_bridge.py",
        facts=r"backend '(?P<backend>\w+)'",
        example="RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",
    ),
)
