"""AR604: a variable that nothing reads, or a flag that XLA does not know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from allranks.check.rule import LocalRule
from allranks.check.sources.nodes import walk
from allranks.check.sources.scripts import asked, is_script, is_text, settings
from allranks.check.sources.source import File, module_name
from allranks.check.tree.syntax import name_of
from allranks.findings import Edit, Finding, Fix
from allranks.names.flags import nearest_flag as nearest_flag
from allranks.names.flags import xla_flags
from allranks.names.variables import EARLIER, MEANT, NAMES, PLUGINS, nearest_variable

# Flags of libtpu are read where libtpu is; which ones there are is not published.
_ELSEWHERE = ("xla_tpu_", "xla_jf_", "xla_vf_", "xla_sc_", "xla_latency_", "xla_enable_async_", "xla_lf_", "xla_msa_")
_ABORTS = "XLA ends the process at an unknown flag, on every rank."
_SETTERS = ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__")


class UnknownEnvVar(LocalRule):
    """
    ## What it does
    Finds environment variables with the prefixes of JAX, NCCL, Gloo, XLA and torch that none of these reads, and whose
    names are close to a name that is read (or are known mistakes). Also flags in `XLA_FLAGS` that jaxlib does not know.
    The names are data, with the versions that have them. Shell scripts, batch files of Slurm, Dockerfiles and YAML
    files are read, too.

    ## Why is this bad
    An unknown variable is ignored without a message: a timeout keeps its default. An unknown flag ends the process.

    ## What happens with N processes
    With a variable such as `XLA_RENDEZVOUS_WAIT_SECONDS`, nothing: the job hangs or stops after the same time as
    before. With an unknown flag, every process aborts at the start.

    ## Known problems
    A variable of the program with such a prefix is reported unless the same file reads it (if a script sets it: unless
    a file of the project names it). Flags of libtpu (`xla_tpu_...`) are not checked. In a script, a suppression is a
    comment at the end of the line.

    ## Use instead
    The name that the message suggests, or `allranks run --rendezvous-timeout S`.

    ## Fix safety
    Unsafe: with the right name, the setting takes effect for the first time.
    """

    code, name, severity, row = "AR604", "unknown-env-var", "warning", "timeouts"
    cluster = "The setting has no effect, without a message, on every rank."
    advice = "Use the name that is read, or remove the line."
    words = ("JAX_", "XLA_", "NCCL_", "GLOO_", "TORCH_", "--xla_")
    nodes = (ast.Assign, ast.Call, ast.AugAssign)
    calls = (*_SETTERS, "os.environ.update")
    bad = (
        """\
import os

os.environ['XLA_RENDEZVOUS_WAIT_SECONDS'] = '120'  # <-- found
""",
        """\
# file: run.sbatch
#!/bin/bash
#SBATCH --nodes=4
export XLA_RENDEZVOUS_WAIT_SECONDS=300  # <-- found
# export JAX_PROCESS_COUNT=4
NCCL_SOCKET_IFNAMES=eth0 srun python train.py  # <-- found
export XLA_FLAGS="--xla_force_host_platform_devices_count=8"  # <-- found
""",
    )
    good = (
        """\
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_tpu_anything=1"
os.environ["NCCL_DEBUG"] = "INFO"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
""",
        """\
# file: run.sh
export NCCL_DEBUG=INFO XLA_FLAGS="--xla_gpu_autotune_level=0"
TORCH_VERSION=2.6
pip install torch==$TORCH_VERSION
export JAX_MY_SETTING=1
export JAX_PROCESS_COUNT=4  # allranks: ignore[AR604] for our own launcher
srun --export=ALL,NCCL_IB_DISABLE=1 python train.py
# file: train.py
import os

print(os.environ.get('JAX_MY_SETTING'))
""",
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        for key, value in _settings(node, file):
            name = key.value if isinstance(key, ast.Constant) else None
            if not isinstance(name, str):
                continue
            if name == "XLA_FLAGS" and value is not None:
                yield from self._flags(value, file)
            elif _is_unknown(name, file):
                yield self._variable(key, name, file)

    def in_scripts(self, sources: Mapping[str, bytes]) -> Iterator[Finding]:
        """Yield what is wrong in the scripts among ``sources``; what a Python file there names, it may read."""
        for path in filter(is_script, sources):
            text = sources[path].decode("utf-8", "replace")
            for name, place, flag in settings(path, sources[path]):
                if flag:
                    close = _other_flag(name)
                    if close:
                        told = f"no jaxlib knows the flag --{name}: did you mean --{close}?"
                        yield self.finding(place, module_name(path), told, cluster=_ABORTS)
                elif _is_strange(name) and not asked(name, text) and not _named(name, sources):
                    close = None if name in MEANT else nearest_variable(name)
                    told = f"nothing reads {name}" + (f": did you mean {close}?" if close else "")
                    advice = self.advice if close else MEANT.get(name, self.advice) + "."
                    yield self.finding(place, module_name(path), told, advice=advice)

    def _variable(self, key: ast.expr, name: str, file: File) -> Finding:
        close = None if name in MEANT else nearest_variable(name)
        fix = Fix(close, (Edit(file.place(key), f'"{close}"'),), safe=False) if close else None
        if close:
            return self.local(file, key, f"nothing reads {name}: did you mean {close}?", fix=fix)
        return self.local(file, key, f"nothing reads {name}", advice=MEANT.get(name, self.advice) + ".")

    def _flags(self, value: ast.expr, file: File) -> Iterator[Finding]:
        for part in walk(value):
            if not isinstance(part, ast.Constant) or not isinstance(part.value, str):
                continue
            for flag in (word[2:].partition("=")[0] for word in part.value.split() if word.startswith("--xla_")):
                if close := _other_flag(flag):
                    told = f"no jaxlib knows the flag --{flag}: did you mean --{close}?"
                    yield self.local(file, part, told, cluster=_ABORTS)


def _settings(node: ast.AST, file: File) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield (name, value) of the variables that a statement or call sets."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript) and name_of(target.value, file) == "os.environ":
                yield target.slice, node.value
    elif isinstance(node, ast.Call):
        called = name_of(node, file)
        if called in _SETTERS and node.args:
            yield node.args[0], node.args[1] if len(node.args) > 1 else None
        elif called == "os.environ.update":
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    yield from ((k, v) for k, v in zip(argument.keys, argument.values, strict=True) if k is not None)


def _other_flag(flag: str) -> str | None:
    """Return the flag that was meant, if this one is known to nobody."""
    return None if flag in xla_flags() or flag.startswith(_ELSEWHERE) else nearest_flag(flag)


def _named(name: str, sources: Mapping[str, bytes]) -> bool:
    word = name.encode()
    return any(word in raw for path, raw in sources.items() if not is_text(path))


def _is_unknown(name: str, file: File) -> bool:
    return _is_strange(name) and not _is_read(name, file)


def _is_strange(name: str) -> bool:
    """Whether a name is meant for one of these libraries, by what it is close to, and none of them reads it."""
    prefix = next((p for p in NAMES if name.startswith(p)), None)
    if prefix is None or name in NAMES[prefix] or name in EARLIER[prefix] or name.startswith(PLUGINS):
        return False
    return name in MEANT or nearest_variable(name) is not None


def _is_read(name: str, file: File) -> bool:
    """The file asks for the variable: it is the program's own."""
    quoted = rf"""["']{name}["']"""
    asked = rf"(getenv|environ\.get|environ\.pop)\(\s*{quoted}|{quoted}\s+(not\s+)?in\b|environ\[{quoted}\](?!\s*=[^=])"
    return re.search(asked, file.code_in(None)) is not None
