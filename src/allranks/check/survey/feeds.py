"""Programs of JAX whose processes all read the same, and feed it as rows of their own. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from allranks.check.sources.source import is_test
from allranks.check.summaries.project import Project

# The processes are joined, or a size is divided among them.
_JOINED = re.compile(r"distributed\.initialize\(|//\s*(jax\.)?(process|host)_count\(\)")
# What each process is given there is its own part of the batch; "#parallelization-pmap" leads to a page of JAX.
_FED = re.compile(r"(?<![\w#/-])(make_array_from_process_local_data|host_local_array_to_global_array|pmap)\b")
# Somebody has thought of who reads what, or cuts what all have read.
_SPLITS = re.compile(
    r"(?<!common_utils)\.shard\([^()]*(\([^()]*\)[^()]*)*,|\.shard\(\s*$|num_shards|shard_(index|id|options|idx|num|count)|"
    r"input_context|InputContext|[rR]ead_?[cC]onfig|split_for|even_splits|subsplit|split_by|split_dataset|ShardBy|ShardOptions|"
    r"PROCID|RANK\b|Sampler|make_array_from_callback|(task|worker|node|shard|replica)_(id|index|idx|rank)|"
    r"\b(per|own|my|local|this)_?(process|host)?_(split|files|rows|data|shard|slice|indices|examples|records|range)s?\b|"
    r"(process|host)_(split|files|rows|data|shard|slice|indices|batch_slice|range)s?\b|"
    r"seqio|deterministic_data|webdataset|StreamingDataset|multihost_dataload|array_split|local_index|process_indices|"
    r"addressable_devices_indices_map|process_allgather\([^)]*(batch|data)|broadcast_one_to_all\([^)]*(batch|data)"
)
_ASKS = r"(?:jax\.|multihost_utils\.|distributed\.)?(?:process_index|process_id|host_id)(?:\(\))?"
_STORED = re.compile(rf"^\s*(?:self\.)?(\w+)\s*(?::\s*int\s*)?=\s*(?:int\()?{_ASKS}\)?\s*$", re.MULTILINE)
_KEPT = re.compile(_STORED.pattern.replace(r"(?:self\.)?", r"self\."), re.MULTILINE)  # other files know it there
# Who asks only whether it is the first one, or says who it is, reads what all read.
_SPEAKS = re.compile(
    r"log|print|\bimport\b|^\s*def |add_argument|DEFINE_|initialize|process_id\s*=|\braise\b|assert|^\s*[\"']|"
    r"wandb|tqdm"
)
_LOOKS = re.compile(
    r"(^|[/_.])(eval\w*|infer\w*|sampl\w*|generat\w*|export\w*|convert\w*|test\w*|bench\w*|demo)($|[/_.])"
)
_COMMENT = re.compile(r"(^|\s)#.*")


def fed_alike(project: Project, lines: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the files of programs whose joined processes are each fed what nothing has divided among them."""
    using = {path for path, summary in project.summaries.items() if summary.uses("jax") and not is_test(path)}
    texts = {path: _plain(lines.get(path, ())) for path in using}
    if not any(_speaks(_JOINED, texts[path]) for path in using):
        return frozenset()
    found: set[str] = set()
    known: dict[str, bool] = {}
    kept = frozenset(name for text in texts.values() for name in _KEPT.findall("\n".join(text)))

    def divides(path: str) -> bool:
        if path not in known:
            known[path] = _divides(texts[path] if path in texts else _plain(lines.get(path, ())), kept)
        return known[path]

    for root in _roots(project, using):
        reach = [path for path in project.reach(root) if not is_test(path)]
        if _feeds(reach, texts) and not any(map(divides, reach)):
            found.update(reach)
    return frozenset(found)


def _plain(text: Iterable[str]) -> list[str]:
    return [_COMMENT.sub("", line) for line in text]


def _roots(project: Project, paths: Iterable[str]) -> Iterator[str]:
    """Yield the files that no other one imports, tests apart, and that train by their names."""
    for path in sorted(paths):
        users = [user for user in project.importers(path) if not is_test(user) and user != path]
        if not users and not _LOOKS.search(path.removesuffix(".py")):
            yield path


def _feeds(paths: Iterable[str], texts: Mapping[str, list[str]]) -> bool:
    told = [texts[path] for path in paths if path in texts]
    return any(_speaks(_JOINED, text) for text in told) and any(_speaks(_FED, text) for text in told)


def _speaks(pattern: re.Pattern[str], text: Sequence[str]) -> bool:
    return any(map(pattern.search, text))


def _divides(text: Sequence[str], kept: frozenset[str]) -> bool:
    """Whether a file speaks of a part of the data, or uses the number of a process for anything but to be the first.
    ``kept``: attributes that hold that number."""
    if _speaks(_SPLITS, text):
        return True
    stored = "|".join({"process_index", "process_id", "host_id", *_STORED.findall("\n".join(text))})
    attributes = rf"|\w+\.(?:{'|'.join(sorted(kept))})\b(?!\()" if kept else ""
    asks = rf"\b(?:(?:\w+\.)?(?:{stored})\b(?:\(\))?{attributes})"
    first = re.compile(
        rf"{asks}\s*(==|!=|>)\s*0|\b(0|not)\s*(==|!=|<)?\s*{asks}|\b(if|and|or)\s+{asks}\s*(:|and\b|or\b|else\b|$)"
    )
    uses = re.compile(asks)
    told = (line for line in text if not _SPEAKS.search(line) and not _STORED.search(line))
    return any(uses.search(line) and uses.search(first.sub("", line)) for line in told)
