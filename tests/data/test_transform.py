"""Chains of maps and filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks import Dataset
from allranks.checkpoint import agree
from allranks.data.base import BadSample, find_bad_samples
from allranks.data.sample_columns import SampleColumns
from allranks.data.transform import FilterOperation, MapOperation, TransformChain
from allranks.errors import DataError

IDS = np.arange(100, 110)
GOLDEN = [6380676797988579796, 836983838563215863]


def double(sample: int) -> int:
    return 2 * sample


def allergic(sample: int) -> int:
    if sample == 3:
        raise ValueError("three")
    return sample


def allergic_many(samples: list[int]) -> list[int]:
    return [allergic(sample) for sample in samples]


def noise(sample: int, rng: np.random.Generator) -> tuple[int, int]:
    return sample, int(rng.integers(1 << 62))


def noise_many(samples: list[int], rngs: list[np.random.Generator]) -> list[tuple[int, int]]:
    return [noise(sample, rng) for sample, rng in zip(samples, rngs, strict=True)]


def test_every_sample_keeps_its_place() -> None:
    """Filtered rows and bad ones stay where they stand, and later functions do not see them."""
    chain = TransformChain(
        (MapOperation(double), FilterOperation(lambda sample: sample % 4 == 0), MapOperation(double))
    )
    samples = [0, BadSample("torn"), 2, 3, *range(4, 10)]
    done = chain.apply(samples, IDS, 0)
    assert [one if isinstance(one, int) else one.filtered for one in done] == [
        0, False, 8, True, 16, True, 24, True, 32, True,
    ]  # fmt: skip
    assert samples[0] == 0
    assert done[1] is samples[1]


FAULTY: list[tuple[Callable[..., Any], bool]] = [(allergic, False), (allergic_many, True)]


@pytest.mark.parametrize(("fn", "batched"), FAULTY)
def test_an_error_names_the_sample(fn: Callable[..., Any], batched: bool) -> None:
    """Of a batched function, too: it is called for each sample, to find whose fault it is."""
    with pytest.raises(DataError, match=r"allergic.* raised ValueError for sample 103 in epoch 7: three") as caught:
        TransformChain((MapOperation(fn, batched=batched),)).apply(range(10), IDS, 7)
    assert caught.value.sample == 103
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(("fn", "batched"), FAULTY)
def test_an_error_masks_one_row(fn: Callable[..., Any], batched: bool) -> None:
    """With on_error="mask" the others are as if nothing had happened."""
    done = TransformChain((MapOperation(fn, batched=batched, on_error="mask"),)).apply(range(10), IDS, 0)
    assert done == [
        0,
        1,
        2,
        BadSample("allergic raised ValueError: three".replace("allergic", fn.__name__)),
        *range(4, 10),
    ]


def forgets(sample: int) -> int | None:
    return sample if sample < 3 else None


def forgets_many(samples: list[int]) -> list[int | None]:
    return [forgets(sample) for sample in samples]


def forgets_all(samples: list[int]) -> None:
    pass


@pytest.mark.parametrize("on_error", ["raise", "mask"])
@pytest.mark.parametrize(
    ("fn", "batched", "sample"), [(forgets, False, 103), (forgets_many, True, 103), (forgets_all, True, 100)]
)
def test_a_map_that_returns_none_is_named(fn: Callable[..., Any], batched: bool, sample: int, on_error: Any) -> None:
    """A function without return would mask every row, or give a column of None."""
    chain = TransformChain((MapOperation(fn, batched=batched, on_error=on_error),))
    with pytest.raises(
        DataError, match=rf"{fn.__name__} returned None for sample {sample} in epoch 7: .*return"
    ) as caught:
        chain.apply(range(10), IDS, 7)
    assert caught.value.sample == sample


def test_none_is_a_value_of_a_column_and_of_a_source() -> None:
    """A filter passes it on."""
    chain = TransformChain((FilterOperation(lambda _: True), MapOperation(lambda one: {"value": one})))
    assert list(chain.apply([None] * 10, IDS, 0)) == [{"value": None}] * 10


def test_an_error_whose_text_cannot_be_made_is_an_error_like_any_other() -> None:
    """In a map, and in what another rank hears of it."""

    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def fails(_: int) -> int:
        raise Speechless

    with pytest.raises(DataError, match=r"fails raised Speechless for sample 100 in epoch 0: \(its __str__ raises\)"):
        TransformChain((MapOperation(fails),)).apply(range(10), IDS, 0)
    [done, *_] = TransformChain((MapOperation(fails, on_error="mask"),)).apply(range(10), IDS, 0)
    assert isinstance(done, BadSample)
    assert "Speechless: (its __str__ raises)" in done.why
    assert agree.refusal_of(Speechless()) == ["Speechless", "(its __str__ raises)"]


def test_a_batched_function_that_fails_only_in_company_is_no_bad_sample() -> None:
    """Nor is one that loses samples; and memory that runs out is never masked."""

    def shy(samples: list[int]) -> list[int]:
        if len(samples) > 1:
            raise RuntimeError("too many")
        return samples

    def forgetful(samples: list[int]) -> list[int]:
        return samples[:-1]

    def greedy(_: int) -> int:
        raise MemoryError

    with pytest.raises(DataError, match=r"10 samples together .* and for none alone"):
        TransformChain((MapOperation(shy, batched=True, on_error="mask"),)).apply(range(10), IDS, 0)
    with pytest.raises(DataError, match=r"forgetful returned 9 results for 10 samples \(the first is 100\)"):
        TransformChain((MapOperation(forgetful, batched=True),)).apply(range(10), IDS, 0)
    with pytest.raises(DataError, match="MemoryError"):
        TransformChain((MapOperation(greedy, on_error="mask"),)).apply(range(10), IDS, 0)


@given(cut=st.integers(0, 10), batched=st.booleans())
def test_random_numbers_belong_to_the_sample(cut: int, batched: bool) -> None:
    """However samples are cut into strips; another epoch, seed or place in the chain gives others."""
    operation = MapOperation(noise_many if batched else noise, random=True, batched=batched)

    def numbers(seed: int, epoch: int, at: int, parts: Sequence[slice]) -> list[Any]:
        chain = TransformChain((*[MapOperation(int)] * at, operation), seed)
        return [one for part in parts for one in chain.apply(range(10)[part], IDS[part], epoch)]

    whole = numbers(0, 0, 0, [slice(None)])
    assert len(set(whole)) == 10
    assert numbers(0, 0, 0, [slice(cut), slice(cut, None)]) == whole
    for other in [(1, 0, 0), (0, 1, 0), (0, 0, 1)]:
        assert not set(numbers(*other, [slice(None)])) & set(whole)


def test_random_numbers_stay_the_same_for_ever() -> None:
    """Golden: a run that goes on with a newer allranks goes on with the same augmentation (but for NumPy's own)."""

    def bits(_: int, rng: np.random.Generator) -> int:
        return int(rng.bit_generator.random_raw())

    assert TransformChain((MapOperation(bits, random=True),), seed=5).apply([0, 1], IDS[:2], 3) == GOLDEN


def doubled_column(samples: Any) -> Any:
    return {"n": 2 * np.asarray(samples["n"]), "text": samples["text"]}


def grown(samples: Any) -> Any:
    for sample in samples:
        sample["n"] += 1
        if sample["n"] % 5 == 0:
            raise ValueError(f"not {sample['n']}")
    return samples


def as_list(samples: Any) -> Any:
    return [{**sample, "text": sample["text"] + "!"} for sample in samples]


OPERATIONS = [
    MapOperation(doubled_column, batched=True),
    MapOperation(grown, batched=True, on_error="mask"),
    MapOperation(as_list, batched=True),
    MapOperation(dict),
    MapOperation(lambda sample: BadSample("odd") if sample["n"] % 3 == 0 else sample),
    FilterOperation(lambda samples: np.asarray(samples["n"]) % 4 != 1, batched=True),
    FilterOperation(lambda sample: sample["n"] % 7 != 2),
]


@given(
    st.lists(st.integers(0, 30), min_size=8, max_size=12),
    st.sets(st.integers(0, 7), max_size=3),
    st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3),
)
def test_columns_with_bad_samples_are_transformed_as_dicts_are(
    numbers: list[int], bad_places: set[int], operations: list[MapOperation | FilterOperation]
) -> None:
    """Each sample by itself, too: which samples come together does not matter."""
    chain = TransformChain(tuple(operations))
    bad = {at: BadSample(f"bad {at}") for at in sorted(bad_places)}
    columns = SampleColumns({"n": np.array(numbers), "text": [f"t{one}" for one in numbers]}, len(numbers), bad)
    dicts = [bad.get(at, {"n": one, "text": f"t{one}"}) for at, one in enumerate(numbers)]
    ids = np.arange(len(numbers))
    alone = [
        one
        for at, sample in enumerate(dicts)
        for one in chain.apply([dict(sample) if isinstance(sample, dict) else sample], ids[at : at + 1], 0)
    ]
    done = chain.apply(columns, ids, 0)
    good = set(range(len(numbers))) - set(find_bad_samples(done))
    assert list(done) == alone
    assert list(chain.apply(dicts, ids, 0)) == alone
    assert good == {at for at, one in enumerate(alone) if not isinstance(one, BadSample)}


def yields(samples: Any) -> Any:
    yield from samples


@pytest.mark.parametrize("on_error", ["raise", "mask"])
@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda samples: {"n": samples["n"][:-1]}, "9 values in column 'n'"),
        (lambda samples: list(samples)[1:], "9 results"),
        (yields, "a generator"),
        (lambda _: {"n": 5}, "a int in column 'n'"),
        (lambda _: {"n": "text"}, "a str in column 'n'"),
        (lambda _: {"n": np.array(5)}, "a ndarray in column 'n'"),
        (lambda _: "0123456789", "a str"),
    ],
)
def test_results_that_are_not_one_for_each_sample(fn: Callable[..., Any], says: str, on_error: Any) -> None:
    """No sample is at fault, so the error names none, and none is masked."""
    chain = TransformChain((MapOperation(fn, batched=True, on_error=on_error),))
    with pytest.raises(DataError, match=rf"returned {says} for 10 samples \(the first is 100\) in epoch 0: ") as caught:
        chain.apply([{"n": one} for one in range(10)], IDS, 0)
    assert caught.value.sample is None
    assert type(caught.value) is DataError


def test_columns_may_be_lists_of_several_lengths() -> None:
    chain = TransformChain((MapOperation(lambda samples: {"n": [[0] * one for one in samples]}, batched=True),))
    assert list(chain.apply([1, 2], IDS[:2], 0)) == [{"n": [0]}, {"n": [0, 0]}]


def test_a_batched_function_that_changes_its_columns_and_raises_gets_them_again() -> None:
    def grow(samples: Any) -> Any:
        samples["n"][...] += 100
        samples["text"][0] += "!"
        if 103 in samples["n"]:
            raise ValueError
        return {"n": samples["n"]}

    given = SampleColumns({"n": np.arange(10), "text": ["a"] * 10}, 10)
    done = TransformChain((MapOperation(grow, batched=True, on_error="mask"),)).apply(given, IDS, 0)
    assert [one["n"] for at, one in enumerate(done) if at != 3] == [100, 101, 102, *range(104, 110)]
    assert given["n"].tolist() == [*range(10)]
    assert given["text"] == ["a"] * 10


KINDS = "int8 uint8 int32 uint64 int64 float16 float32 float64 complex64 bool datetime64[ns] timedelta64[s]"


@pytest.mark.parametrize("dtype", KINDS.split())
def test_a_batched_map_keeps_the_dtype_of_an_array(dtype: str) -> None:
    """As one for single samples does, also in rows that are masked, and if a map for single samples follows."""

    def value(row: Any) -> Any:
        return np.asarray(row + (1 << 63) if dtype == "uint64" else row, np.uint64).astype(dtype)

    def columns_after(*operations: Any) -> Any:
        data = Dataset.sequence([{"n": one} for one in range(7)], shuffle=False)
        for fn, batched in operations:
            data = data.map(fn, batched=batched)
        return [(batch["x"].dtype, batch["x"].tolist()) for batch in data.batch(3).loader(rank=0, size=1)]

    many = (lambda samples: {"x": np.array([value(one) for one in samples["n"]])}, True)
    single = columns_after((lambda sample: {"x": value(sample["n"])[()]}, False))
    assert {kind for kind, _ in single} == {np.dtype(dtype)}
    assert columns_after(many) == single
    assert columns_after(many, (dict, False)) == single
