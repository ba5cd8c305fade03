"""Recognise other launchers in a command, and scripts that start their own ranks."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Options of torchrun and of accelerate launch without a value; all others have one. A dash also matches an underscore.
_SWITCHES = {
    "torchrun": {"--standalone", "--run_path", "--virtual_local_rank", "--no_python", "-m", "--module"},
    "accelerate": {
        *("--cpu", "--use_cpu", "--multi_gpu", "--tpu", "--tpu_cluster", "--no_tpu_cluster", "--tpu_use_sudo"),
        *("--debug", "-q", "--quiet", "--same_network", "--downcast_bf16", "--enable_cpu_affinity", "-m", "--module"),
        *("--dynamo_use_dynamic", "--dynamo_use_fullgraph", "--dynamo_use_regional_compilation", "--no_python"),
        *("--fp8_use_autocast_during_eval", "--use_parallelism_config", "--use_deepspeed", "--use_fsdp"),
        "--use_megatron_lm",
    },
}
_RANKS = {"--nproc_per_node", "--num_processes"}
# Options of accelerate launch that its workers read from the environment.
_VARIABLES = {
    "--mixed_precision": "ACCELERATE_MIXED_PRECISION",
    "--gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
}
_REFUSED = {
    "--use_deepspeed": "DeepSpeed",
    "--use_megatron_lm": "Megatron-LM",
    "--use_fsdp": "FSDP",
    "--no_python": "a command that is no Python",
}


@dataclass(frozen=True, slots=True)
class Start:
    """How to start the ranks of a command.

    ``program`` is the script (or ``-m module``) and its arguments. ``ranks`` is how many the launcher would start, or
    None if it does not say. ``launcher`` is its name, or "". ``variables`` are what it would set in the environment,
    ``config_file`` is the file of its settings. ``refusal`` says why the command cannot be rehearsed, and what to do;
    "" if it can.
    """

    program: tuple[str, ...]
    ranks: int | None = None
    launcher: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    config_file: str = ""


def start_of(command: Sequence[str]) -> Start:
    """Return how to start the ranks of a command: without torchrun or accelerate launch, which the rehearsal replaces.

    The launchers srun, mpirun and deepspeed are refused.
    """
    rest = [*command]
    while rest and (rest[0] in ("uv", "poetry", "pixi") and rest[1:2] == ["run"]):
        rest = rest[2:]
    name = rest[0].rpartition("/")[2] if rest else ""
    if name.startswith("python") and rest[1:2] == ["-m"]:
        module = rest[2] if len(rest) > 2 else ""
        if module in ("torch.distributed.run", "torch.distributed.launch"):
            return _unwrapped("torchrun", rest[3:])
        if module == "accelerate.commands.launch":
            return _unwrapped("accelerate", rest[3:])
    if name == "torchrun":
        return _unwrapped("torchrun", rest[1:])
    if name in ("accelerate", "accelerate-launch"):
        after = rest[2:] if rest[1:2] == ["launch"] else rest[1:] if name == "accelerate-launch" else None
        if after is not None:
            return _unwrapped("accelerate", after)
    if name in ("srun", "mpirun", "mpiexec", "deepspeed", "horovodrun", "composer"):
        how = f"Leave {name} out: allranks rehearse -n N SCRIPT ARGUMENTS starts the ranks on this machine."
        return Start(tuple(command), launcher=name, refusal=f"{name} starts ranks of its own. {how}")
    return Start(tuple(command))


def _unwrapped(launcher: str, words: Sequence[str]) -> Start:
    ranks: int | None = None
    variables: dict[str, str] = {}
    config_file = ""
    at, is_module = 0, False
    while at < len(words) and words[at].startswith("-"):
        written, equals, value = words[at].partition("=")
        if written == "--":
            at += 1
            break
        option = written if written in ("-m", "-q") else "--" + written.lstrip("-").replace("-", "_")
        if option in _REFUSED:
            why = f"{launcher} {written} prepares {_REFUSED[option]}, which a rehearsal does not."
            return Start(tuple(words), launcher=launcher, refusal=f"{why} Start the script without {launcher}.")
        is_switch = option in _SWITCHES[launcher]
        is_module |= option in ("-m", "--module")
        if not is_switch and not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if option in _RANKS and value.isdecimal():
            ranks = int(value)
        if option in _VARIABLES:
            variables[_VARIABLES[option]] = value
        if option == "--config_file":
            config_file = value
        if option in ("--cpu", "--use_cpu"):
            variables["ACCELERATE_USE_CPU"] = "true"
        at += 1 if is_switch or equals else 2
    program = (*(("-m",) if is_module else ()), *words[at:])
    if len(program) <= is_module:
        return Start(tuple(words), launcher=launcher, refusal=f"{launcher}: there is no script in this command.")
    return Start(program, ranks, launcher, variables, config_file=config_file)


@dataclass(frozen=True, slots=True)
class Spawn:
    """A call by which a script starts its own ranks: its line, the function called, and the function of each rank."""

    line: int
    name: str
    function: str


# How the last parts of a call's name are written, and which argument is the function of each rank (-1: none is).
_SPAWNS = {
    "mp.spawn": 0,
    "multiprocessing.spawn": 0,
    "torch.multiprocessing.spawn": 0,
    "multiprocessing.start_processes": 0,
    "mp.start_processes": 0,
    "launcher.elastic_launch": -1,
    "notebook_launcher": 0,
    "debug_launcher": 0,
    "xmp.spawn": 0,
    "elastic_launch": -1,
}


# Strategies of Lightning whose Trainer starts its ranks by fork or spawn.
_STRATEGIES = tuple(
    f"{kind}_{how}{more}"
    for kind in ("ddp", "fsdp")
    for how in ("spawn", "fork", "notebook")
    for more in ("", "_find_unused_parameters_true", "_find_unused_parameters_false")
)


def spawns_in(text: str) -> list[Spawn]:
    """Return the calls in a script by which it starts its own ranks.

    Return none if the script is no Python, or if it reads RANK or LOCAL_RANK: then it knows other launchers.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    nodes = [*ast.walk(tree)]
    if any(map(_reads_rank, nodes)):
        return []
    names = {*_SPAWNS, *(("spawn",) if any(map(_imports_spawn, nodes)) else ())}
    joins = any(isinstance(node, ast.Call) and ast.unparse(node.func).endswith("init_process_group") for node in nodes)
    found = []
    for node in nodes:
        if (
            isinstance(node, ast.keyword)
            and node.arg == "strategy"
            and ast.unparse(node.value).strip("'\"") in _STRATEGIES
        ):
            found.append(Spawn(node.value.lineno, f"strategy={ast.unparse(node.value)}", ""))
        elif joins and isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Process":
            target = next((ast.unparse(one.value) for one in node.keywords if one.arg == "target"), "")
            found.append(Spawn(node.lineno, ast.unparse(node.func), target))
        elif isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in names:
            first = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "fn"), None)
            function = ast.unparse(first) if first is not None and _SPAWNS.get(name, 0) == 0 else ""
            found.append(Spawn(node.lineno, name, function))
    return found


def _imports_spawn(node: ast.AST) -> bool:
    """Return whether a statement imports spawn from torch.multiprocessing."""
    names = node.names if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("multiprocessing") else ()
    return any(alias.name == "spawn" for alias in names)


def _reads_rank(node: ast.AST) -> bool:
    """Return whether an expression reads RANK or LOCAL_RANK from the environment, or requests torchrun."""
    if isinstance(node, ast.Attribute):
        return node.attr == "is_torchelastic_launched"
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        words: list[ast.expr] = [node.slice]
    elif isinstance(node, ast.Call):
        words = node.args[:1]
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        words = [node.left]
    else:
        return False
    return any(isinstance(word, ast.Constant) and word.value in ("RANK", "LOCAL_RANK") for word in words)


def advice_for_spawn(path: str, spawn: Spawn) -> str:
    """Return what a user must know about a script that starts its own ranks, and what to do."""
    if spawn.name.startswith("strategy="):
        return (
            f"{path}:{spawn.line}: the Trainer starts its own ranks ({spawn.name}), so each rank of the rehearsal "
            "would start them once more. Take strategy='ddp', which uses the ranks that are there."
        )
    function = spawn.function or "the function of a rank"
    call = f"{function}(int(os.environ['RANK']), ...)"
    return (
        f"{path}:{spawn.line}: the script starts its own ranks ({spawn.name}), so each rank of the rehearsal would "
        f"start them once more. Let the script call {call} where RANK is set, and {spawn.name} only where it is not. "
        "Or rehearse with -n 1: then only their file calls are seen."
    )


def settings_of_accelerate(text: str) -> dict[str, str]:
    """Return the settings at the top of a configuration file of accelerate (YAML)."""
    pairs = (line.partition(":") for line in text.splitlines() if line[:1].isalpha())
    return {key: value.strip().strip("'\"") for key, _, value in pairs if value.strip()}
