"""What packages are asked that neither the project nor the tables know: taken at the names of their functions. Pure."""

from __future__ import annotations

import builtins
import re

from allranks.check.interpret.given import Given
from allranks.check.interpret.spread import created
from allranks.check.interpret.values import ANYTHING, COUNTER, DEALT, Value
from allranks.check.summaries.project import Project
from allranks.check.summaries.summary import Node
from allranks.check.tables.apis import PLAIN, WEAK, Apis
from allranks.check.tables.collectives import Collective
from allranks.check.tables.local import LOCAL, LocalQuery
from allranks.check.tables.names import documented
from allranks.check.tables.ranks import RankQuery
from allranks.check.tables.receivers import RECEIVERS

# Names that mean the same in whatever package they are: of a process' own things.
_SAYS_ALL = frozenset(
    ["uuid1", "uuid4", "getpid", "gethostname", "getfqdn", "get_ident", "mkdtemp", "mkstemp", "mktemp"]
)
_OWN = {q.pattern.rpartition(".")[2]: q for q in LOCAL if q.pattern.rpartition(".")[2] in _SAYS_ALL}
# Of the words of a name, those that speak of a file that processes lock: not a lock between threads.
_LOCK = re.compile(
    r"(?i)(^|_)(file|process|dist|path|cache|soft|dir|directory|exclusive)_?lock(er|ed|ing)?(_|$)|(^|_)lock_?(file|path|dir)(_|$)"
    r"|^(inter|cross|multi)_?process_?lock$"
)
# Modules whose functions ask about processes: there, `is_root` is not about a tree.
_OF_PROCESSES = re.compile(r"(?i)(^|_)(dist|comm|ddp|mpi|hvd)|distributed|parallel|process|multihost|rank")
_OWN_PROCESSES = ("threading", "multiprocessing", "asyncio", "ray", "dask", "torch", "jax")
_ANOTHER = re.compile(r"(^|_)(peer|neighbou?r|src|dst|dest|source|destination|sender|receiver|other|next|prev)(_|$)")
_ROOT = frozenset(["is_root", "is_first", "is_lead", "is_leader", "is_head", "is_zero"])


def unknown(given: Given) -> Value:
    """Return what a call of an unknown function gives: of a name that is this process' own, another such."""
    if (state := created(given.node[1], given.keywords)) is not None:
        return state
    own = any(value.private and not (value.number or value.truth) for value in given.all())
    return Value(flags=frozenset({"own"})) if own else ANYTHING


def of_part(name: str, given: Given) -> frozenset[str]:
    """Return the flags of what a class of a stranger makes: a data set of a part is a part."""
    parts = (value.flags & DEALT for value in given.all()) if name.endswith("Dataset") else ()
    return frozenset().union(*parts)


def of_another(argument: Node, value: Value) -> Value:
    """Return what is given to a function: a variable of which nothing is known, and that is called as another process
    is, is not the rank of this one."""
    another = value == ANYTHING and argument[0] == "name" and _ANOTHER.search(argument[1])
    return COUNTER if another else value


def rank_of(apis: Apis, dotted: str, form: str, *, bare: bool = True) -> RankQuery | None:
    """Return what a call or an attribute of a stranger gives of ranks, by its last name. What says little by itself
    (``rank``) counts where no arguments are given (``bare``) and the tables do not know the package."""
    package, _, last = dotted.rpartition(".")
    query = apis.ranks[form].tail(last.removeprefix("get_") if last.startswith("get_is_") else last)
    if query is None and form == "call" and bare:
        root = last in _ROOT and _OF_PROCESSES.search(package.rpartition(".")[2])
        query = apis.ranks[form].tail("is_main_process") if root else apis.ranks["decorator"].tail(last)
    if query is None or (query.pattern in WEAK and (not bare or package.partition(".")[0] in apis.packages)):
        return None
    return query


def constant_of(apis: Apis, dotted: str) -> RankQuery | None:
    """Return what an imported constant holds that is called as the launcher's variable: ``pkg.env.LOCAL_RANK``."""
    package, _, last = dotted.rpartition(".")
    query = apis.ranks["environment"].named(last) if package else None
    return query if query is not None and query.kind != "node" else None


def meeting_of(apis: Apis, dotted: str) -> Collective | None:
    """Return the collective that a function of a package is, by its last name."""
    package, _, last = dotted.rpartition(".")
    meeting = apis.collectives["call"].tail(last) if package else None
    if meeting is None or package.startswith(PLAIN):
        return None
    top = package.partition(".")[0]
    return None if top in apis.packages or top in _OWN_PROCESSES else meeting


def own_of(dotted: str) -> LocalQuery | None:
    """Return what a call gives of this process alone: a name that no other has, or a lock."""
    last = dotted.rpartition(".")[2]
    return LocalQuery(dotted, "lock") if is_lock(last) else _OWN.get(last)


def is_lock(name: str) -> bool:
    """Whether a function or class, by its name, locks a file."""
    return bool(_LOCK.search(name))


def outside(project: Project, path: str, name: str) -> Value:
    """Return what a name stands for that nothing in a file defines: Python's own, what is known by its name, or a class
    of the one library of which the file imports all there is."""
    if name in RECEIVERS:
        return Value(instance=RECEIVERS[name])
    if not name[:1].isupper() or name.isupper() or hasattr(builtins, name):
        return Value(reference=name)
    whole = [dotted.removesuffix("*") for dotted, _ in project.summaries[path].imports if dotted.endswith(".*")]
    library = whole[0] if len(whole) == 1 and project.split(whole[0].rstrip("."), path) is None else "."
    return Value(reference=name if library.startswith(".") else documented(library + name))
