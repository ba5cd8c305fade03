"""Propose arguments that make a training script small enough for a rehearsal, by the names of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.rehearse.options import UNKNOWN, Found, Option

# By a pattern of names: the value of a small run. The first that matches is taken.
_NUMBERS: tuple[tuple[str, int], ...] = (
    (r"warmup.*", 2),
    (r".*(save|checkpoint|ckpt|eval|val|log|logging|print|sample|snapshot).*(every|interval|freq|frequency|steps?)", 5),
    (r"(every|interval|freq).*(save|checkpoint|ckpt|eval|val|log|print).*", 5),
    (r".*(accum|accumulate|accumulation).*", 2),
    (r"(max|num|n|total|train|training|num_train|max_train)?_?(steps?|iters?|iterations|updates)", 20),
    (r"(max|num|n|total|train|num_train)?_?epochs?", 2),
    (r".*(samples|examples|rows)|limit_.*(batches)|.*(train|eval|val|dataset|data)_size", 256),
    (r".*batch.*|bsz|bs", 4),
    (r"(n|num|num_hidden)?_?(layers?|blocks|encoder_layers|decoder_layers)|depth", 2),
    (r"(n|num|num_attention|num_key_value|kv)?_?(heads?|kv_heads)", 2),
    (r"(n|d)_(embd|embed|model|head|ff|ffn)|dim|width|.*channels", 64),
    (r".*(hidden|embed|embedding|model|ffn?|intermediate)_?(size|dim)?", 64),
    (r".*(image|img|crop)_?(resolution|size)|resolution|input_size", 32),
    (r".*(seq|sequence|context|block|max|chunk|target)_?(len|length|size|seqlen)|seq_?len|.*_length", 64),
    (r"vocab(_size)?", 512),
    (r".*workers|.*num_proc", 1),
)
_TEXTS: tuple[tuple[str, str], ...] = (
    (r"report_to|logger|tracker|log_with", "none"),
    (r"wandb(_mode)?", "offline"),
    (r"model|arch|model_name|model_type|config_name|size|variant", ""),
)
_OFF = re.compile(r"(use_|enable_|no_)?(wandb|neptune|comet|torch_compile|compile|push_to_hub|profile|track|upload).*")
_SMALL = re.compile(r"(?i).*(tiny|nano|debug|test|small|mini|toy|smoke|resnet18).*")
_PER_RANK = re.compile(r"(devices|gpus|num_gpus|n_gpus|ngpus|num_devices|nproc.*|world_size|num_processes)")
# Arguments of a Trainer that LightningCLI starts.
_LIGHTNING = ("--trainer.max_steps=20", "--trainer.limit_val_batches=2")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to try.

    ``arguments`` are for the script. ``reasons`` has a row for each: the argument, the default, the line of the
    option. ``open`` are the required options for which there is no proposal, ``kept`` all others that keep their
    values. ``notes`` are sentences.
    """

    arguments: tuple[str, ...]
    reasons: tuple[tuple[str, str, str], ...]
    open: tuple[str, ...]
    notes: tuple[str, ...]
    kept: tuple[str, ...] = ()


def suggest(found: Mapping[str, Found], *, ranks: int, configs: Mapping[str, Mapping[str, Any]]) -> Suggestion:
    """Propose arguments for a script.

    ``found`` has the options in the script's files, by path. ``configs`` has the values in its configuration files.
    """
    words: list[str] = []
    reasons: list[tuple[str, str, str]] = []
    missing: list[str] = []
    kept: list[str] = []
    seen: set[str] = set()
    for path, one in found.items():
        for option in one.options:
            if option.flag in seen and option.flag:
                continue
            seen.add(option.flag)
            value = _small(option, ranks)
            if value is not None:
                words += value
                default = "" if option.default in (UNKNOWN, None) else repr(option.default)
                reasons.append((shlex.join(value), default, f"{path}:{option.line}"))
            elif option.is_required:
                missing.append(f"{option.flag or option.name.upper()} ({path}:{option.line})")
            else:
                kept.append(_with_default(option))
    readers = [reader for one in found.values() for reader in one.readers]
    if "hydra" in readers:
        words += _overrides(configs, ranks, reasons)
    if "LightningCLI" in readers:
        words = ["fit", *_LIGHTNING, f"--trainer.devices={ranks}", *words]
        reasons += [(word, "", "LightningCLI") for word in words[1 : len(_LIGHTNING) + 2]]
    notes = _notes(configs, ranks, readers)
    return Suggestion(tuple(words), tuple(reasons), tuple(missing), tuple(notes), tuple(kept))


def _with_default(option: Option) -> str:
    name = option.flag or option.name.upper()
    return name if option.default in (UNKNOWN, None) else f"{name} ({option.default})"


def _notes(configs: Mapping[str, Mapping[str, Any]], ranks: int, readers: Sequence[str]) -> list[str]:
    if "hydra" in readers:
        return []
    notes = []
    for path, values in configs.items():
        small = [f"{key}: {value}" for key, value in _small_values(values, ranks)]
        if small:
            notes.append(f"{path}: make a copy with {', '.join(small)}")
    return notes


def _overrides(configs: Mapping[str, Mapping[str, Any]], ranks: int, reasons: list[tuple[str, str, str]]) -> list[str]:
    words = []
    for path, values in configs.items():
        for key, value in _small_values(values, ranks):
            words.append(f"{key}={value}")
            reasons.append((words[-1], "", path))
    return words


def _small_values(values: Mapping[str, Any], ranks: int, above: str = "") -> list[tuple[str, Any]]:
    """Return (dotted key, small value) for the values of a configuration that are large."""
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _small_values(value, ranks, f"{above}{key}.")
        else:
            words = _small(Option(str(key), "--x", 0, value, form="="), ranks)
            if words:
                found.append((f"{above}{key}", words[0].removeprefix("--x=")))
    return found


def _small(option: Option, ranks: int) -> list[str] | None:
    """Return the words that make an option small, or None if it is small, or there is no proposal."""
    name, default = option.name.lower(), option.default
    if not option.form:
        if _OFF.fullmatch(name) and default is True:
            return [option.off] if option.off else None
        return None
    if isinstance(default, bool):
        return _written(option, False) if _OFF.fullmatch(name) and default else None
    if _PER_RANK.fullmatch(name):
        return None if default == ranks or default is None else _written(option, ranks)
    if option.choices and isinstance(option.choices[0], str):
        return _of_choices(option, name)
    if isinstance(default, int | float) or default in (None, UNKNOWN):
        small = next((value for pattern, value in _NUMBERS if re.fullmatch(pattern, name)), None)
        is_small = isinstance(default, int | float) and small is not None and (default <= small or default == -1)
        if small is not None and not is_small:
            return _written(option, small) if default is not None or _is_a_limit(name) or option.is_required else None
    text = next((value for pattern, value in _TEXTS if re.fullmatch(pattern, name)), "")
    return _written(option, text) if text and isinstance(default, str) and default != text else None


def _is_a_limit(name: str) -> bool:
    """Return whether an option that is not set means "no limit"."""
    return bool(re.match(r"max_|limit_|.*(steps|samples|examples|iters|iterations|batches)$", name))


def _of_choices(option: Option, name: str) -> list[str] | None:
    text = next((value for pattern, value in _TEXTS if re.fullmatch(pattern, name)), None)
    if text is None:
        return None
    wanted = (
        text if text in option.choices else next((one for one in option.choices if _SMALL.fullmatch(str(one))), None)
    )
    return _written(option, wanted) if wanted is not None and wanted != option.default else None


def _written(option: Option, value: Any) -> list[str]:
    if not option.flag:
        return [str(value)]
    return [option.flag, str(value)] if option.form == " " else [f"{option.flag}={value}"]
