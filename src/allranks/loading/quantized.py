"""Find quantised weights in a file: which of its arrays make up which weight, by their names.

Libraries store a quantised weight as integers (or floats of 8 bits) with scales beside them. Each library has its own
names for these arrays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.checkpoint.names import canonical_path
from allranks.loading.fit import QuantizedWeight, StoredArray

# By the ending of an array's name: its library, and the ending of the unquantised weight's name.
_ENDINGS = {
    ".qweight": ("GPTQ or AWQ", ".weight"),
    ".weight_packed": ("compressed-tensors", ".weight"),
    "._weight_qdata": ("torchao", ".weight"),
    "_blocks": ("MXFP4", ""),
}
# The other arrays beside it, by their endings. MXFP4 must have scales, because its name alone is ambiguous.
_BESIDE = {
    ".qweight": (".qzeros", ".scales", ".g_idx"),
    ".weight_packed": (".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx", ".weight_global_scale"),
    "._weight_qdata": ("._weight_scale", "._weight_zero_point", "._weight_scale_and_zero"),
    "_blocks": ("_scales",),
}
SCALED, INT8, FOUR_BITS = "FP8 or int8 with scales", "bitsandbytes int8", "bitsandbytes 4-bit"
# The methods that are dequantised here.
KNOWN = (SCALED, INT8, FOUR_BITS)
_LISTED = 3
# The arrays of a weight with 4 bits, beside its numbers.
_ROLES = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")


def find_quantized(leaves: Mapping[str, StoredArray]) -> tuple[QuantizedWeight, ...]:
    """Return the quantised weights in a file, given its arrays by name."""
    ordered = sorted(leaves)
    return tuple(found for name in leaves for found in _quantized_weight_at(name, leaves, ordered))


def _quantized_weight_at(
    name: str, leaves: Mapping[str, StoredArray], ordered: Sequence[str]
) -> Iterator[QuantizedWeight]:
    """Yield the quantised weight whose numbers are in the array ``name``, if it is one. ``ordered``: sorted names."""
    dtype = leaves[name].dtype
    if f"{name}.absmax" in leaves:
        begin = f"{name}.quant_state."
        place = bisect_left(ordered, begin)
        state = ordered[place] if place < len(ordered) else ""
        parts = {"numbers": name} | ({"state": state} if state.startswith(begin) else {})
        parts |= _present_parts(leaves, **{role: f"{name}.{role}" for role in _ROLES})
        yield QuantizedWeight(name, FOUR_BITS, parts, ("", ""))
        return
    at = name.removesuffix(".weight")
    if at != name and dtype == "int8" and f"{at}.SCB" in leaves:
        yield QuantizedWeight(
            name, INT8, _present_parts(leaves, numbers=name, scale=f"{at}.SCB", format=f"{at}.weight_format"), ("", "")
        )
        return
    scale = next((one for one in (f"{name}_scale_inv", f"{name}_scale") if one in leaves), "")
    if scale and (dtype.startswith("float8") or dtype == "int8"):
        beside = {"zero": f"{name}_zero_point", "input": f"{at}.input_scale", "activations": f"{at}.activation_scale"}
        yield QuantizedWeight(name, SCALED, _present_parts(leaves, numbers=name, scale=scale, **beside), ("", ""))
        return
    for ending, (method, becomes) in _ENDINGS.items():
        at = name.removesuffix(ending)
        if at != name and (ending != "_blocks" or f"{at}_scales" in leaves):
            beside = {one: f"{at}{one}" for one in _BESIDE[ending]}
            yield QuantizedWeight(
                f"{at}{becomes}", method, _present_parts(leaves, numbers=name, **beside), (ending, becomes)
            )


def _present_parts(leaves: Mapping[str, StoredArray], **parts: str) -> dict[str, str]:
    return {role: name for role, name in parts.items() if name in leaves}


def quantized_by_path(
    quantized_weights: Sequence[QuantizedWeight], file_names: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, QuantizedWeight]:
    """Map each quantised weight to the path that it would have in a template.

    The names of their arrays are shortened to those below the key. ``file_names`` has the shortened names by the
    template's paths; ``names`` has the full names by the shortened ones.
    """
    numbers = {one.parts["numbers"]: one for one in quantized_weights}
    short = {full: name for name, full in names.items()}
    paths: dict[str, QuantizedWeight] = {}
    for new, name in file_names.items():
        if one := numbers.get(names[name]):
            parts = {role: short[full] for role, full in one.parts.items() if full in short}
            ending, becomes = one.ending
            paths[canonical_path(f"{new.removesuffix(ending)}{becomes}")] = replace(one, parts=parts)
    return paths


def quantized_advice(quantized_weights: Sequence[QuantizedWeight]) -> str:
    """Return advice for the user on quantised weights that the template wants as floats."""
    known = [one for one in quantized_weights if one.method in KNOWN]
    others = sorted({one.method for one in quantized_weights} - set(KNOWN))
    lines = ["allranks.load(..., dequantize=True) converts them to floats."] if known else []
    if others:
        told = " and ".join(others)
        lines.append(
            f"Weights of {told} can only be unpacked by the library that wrote them: load and save them "
            "with transformers."
        )
    return " ".join([*lines, "allranks.load(path) without into= returns the arrays as they are in the file."])


def quantized_note(config: Mapping[str, Any], quantized_weights: Sequence[QuantizedWeight]) -> tuple[str, ...]:
    """Return a note on the quantised weights in a file, and on what config.json says about them; () without both."""
    if not quantized_weights and not config:
        return ()
    says = f"config.json says quant_method {config.get('quant_method')!r:.40}" if config else "config.json says nothing"
    told = ", ".join(repr(one.name) for one in quantized_weights[:_LISTED]) + (
        ", ..." if len(quantized_weights) > _LISTED else ""
    )
    methods = ", ".join(sorted({one.method for one in quantized_weights}))
    return (
        f"{len(quantized_weights)} weights are quantised ({methods}; {says}): {told}"
        if quantized_weights
        else f"{says}: quantised weights",
    )
