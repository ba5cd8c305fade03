"""Rows of tokens: nothing lost, twice or out of order, and the next row is found again from every row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allranks.data.pack import DocumentPacker, PackedRow, PackingOptions, RowCarry, Tokens, make_packer
from allranks.errors import DataError

PAD, EOS = -1, -2
FIRST_ID = 1000


@dataclass(frozen=True)
class Case:
    """Documents of these sizes; every token of all of them is another number."""

    packing: PackingOptions
    sizes: tuple[int, ...]
    step_chunks: tuple[int, ...]

    @property
    def documents(self) -> list[Tokens]:
        ends = np.cumsum(self.sizes)
        return [np.arange(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]

    def ids(self, depths: list[int]) -> list[int]:
        return [FIRST_ID + depth for depth in depths]

    def rows(self, carry: RowCarry | None = None, step_chunks: tuple[int, ...] | None = None) -> list[PackedRow]:
        """All rows from a carry on, with the documents pushed in strips of these sizes, over and over."""
        carry, documents, step_chunks = carry or RowCarry(), self.documents, step_chunks or self.step_chunks
        packing = make_packer(
            self.packing,
            carry,
            ids=self.ids(carry.depths_to_read_again),
            documents=[documents[depth] for depth in carry.depths_to_read_again],
        )
        found, depth, turn = [], carry.depth, 0
        while depth < len(documents):
            depths = list(range(depth, min(depth + step_chunks[turn % len(step_chunks)], len(documents))))
            found += packing.push_documents(depths, self.ids(depths), [documents[depth] for depth in depths])
            depth, turn = depth + len(depths), turn + 1
        return found + packing.flush_rows()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    method = draw(st.sampled_from(["split", "best-fit"]))
    packing = PackingOptions(
        draw(st.integers(1, 12)), method, PAD, draw(st.sampled_from([None, EOS])), open_rows=draw(st.integers(1, 4))
    )
    sizes = draw(st.lists(st.integers(0, 9) | st.integers(0, 40), max_size=25))
    return Case(packing, tuple(sizes), tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))))


def same(one: PackedRow, other: PackedRow) -> bool:
    return one.padding == other.padding and all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("tokens", "segment_ids", "positions", "ids")
    )


@given(cases())
def test_every_token_is_in_one_row(case: Case) -> None:
    """Each document's tokens in order, each segment a run of one document, each id where its document ends."""
    eos, tokens, ended = case.packing.eos_id, [], []
    last_of = {int(document[-1]): FIRST_ID + at for at, document in enumerate(case.documents) if len(document)}
    for row in case.rows():
        assert row.tokens.dtype == row.segment_ids.dtype == row.positions.dtype == np.int32
        assert len(row.tokens) == len(row.segment_ids) == len(row.positions) == case.packing.length
        full = case.packing.length - row.padding
        assert (row.segment_ids[:full] > 0).all()
        assert not row.segment_ids[full:].any()
        assert not row.positions[full:].any()
        assert (row.tokens[full:] == PAD).all()
        segments = [row.tokens[row.segment_ids == number] for number in range(1, row.segment_ids.max(initial=0) + 1)]
        assert np.array_equal(np.concatenate([*segments, row.tokens[:0]]), row.tokens[:full])
        assert row.positions[:full].tolist() == [at for one in segments for at in range(len(one))]
        for segment in segments:
            words = segment[segment != EOS]
            assert (np.diff(words) == 1).all()
            assert not set(words[:-1].tolist()) & set(last_of)
            assert EOS not in segment[:-1]
            assert (segment[-1] == EOS) <= (len(words) == 0 or int(words[-1]) in last_of)
        inside = {last_of[word] for word in row.tokens[:full].tolist() if word in last_of}
        assert eos is not None or inside <= set(row.ids.tolist())
        ended += row.ids.tolist()
        tokens += row.tokens[:full].tolist()
    assert sorted(ended) == [FIRST_ID + at for at in range(len(case.sizes))]
    words = [token for token in tokens if token != EOS]
    assert (words if case.packing.method == "split" else sorted(words)) == list(range(sum(case.sizes)))
    assert tokens.count(EOS) == (sum(size > 0 for size in case.sizes) if eos is not None else 0)


@given(cases(), st.data())
def test_the_next_row_is_found_again_from_every_row(case: Case, data: st.DataObject) -> None:
    """Bit for bit, in the middle of documents, with other strips, and a second time from a row that came then."""
    rows = case.rows()
    step_chunks = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    for at, row in enumerate(rows):
        carry = RowCarry.from_json(json.loads(json.dumps(row.carry.to_json())))
        assert carry == row.carry
        rest = case.rows(carry, step_chunks)
        assert len(rest) == len(rows) - at - 1
        assert all(map(same, rest, rows[at + 1 :]))
    if len(rows) > 2:
        middle = data.draw(st.integers(0, len(rows) - 2))
        again = case.rows(rows[middle].carry, step_chunks)
        third = data.draw(st.integers(0, len(again) - 1))
        assert all(map(same, case.rows(again[third].carry), rows[middle + third + 2 :]))


@given(cases())
@example(Case(PackingOptions(2, pad_id=PAD), (2, 0, 1), (3,)))
@example(Case(PackingOptions(2, "best-fit", PAD), (2, 0, 1), (3,)))
def test_how_many_are_pushed_at_once_decides_nothing(case: Case) -> None:
    """Also for a document without tokens that stands where a row ends."""
    rows, one_by_one = case.rows(), case.rows(step_chunks=(1,))
    assert len(rows) == len(one_by_one)
    assert all(map(same, rows, one_by_one))


def test_rows_as_a_person_would_write_them() -> None:
    """Golden, for both methods: the conventions of segments, positions, ids and padding."""
    documents = [np.arange(10, 13), np.arange(20, 26), np.arange(0), np.arange(30, 32)]

    def written(packing: PackingOptions) -> list[tuple[list[int], list[int], list[int], list[int], int]]:
        one: DocumentPacker = make_packer(packing)
        rows = [*one.push_documents(range(4), range(4), documents), *one.flush_rows()]
        return [
            (row.tokens.tolist(), row.segment_ids.tolist(), row.positions.tolist(), row.ids.tolist(), row.padding)
            for row in rows
        ]

    assert written(PackingOptions(5, eos_id=9)) == [
        ([10, 11, 12, 9, 20], [1, 1, 1, 1, 2], [0, 1, 2, 3, 0], [0], 0),
        ([21, 22, 23, 24, 25], [1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [], 0),
        ([9, 30, 31, 9, 0], [1, 2, 2, 2, 0], [0, 0, 1, 2, 0], [1, 2, 3], 1),
    ]
    assert written(PackingOptions(5, "best-fit")) == [
        ([20, 21, 22, 23, 24], [1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [], 0),
        ([10, 11, 12, 25, 0], [1, 1, 1, 2, 0], [0, 1, 2, 0, 0], [0, 1, 2], 1),
        ([30, 31, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 0, 0, 0], [3], 3),
    ]
    assert written(PackingOptions(5, "best-fit", long="truncate"))[0][0] == [20, 21, 22, 23, 24]
    assert written(PackingOptions(5, "best-fit", long="truncate"))[0][3] == [1]


@pytest.mark.parametrize(("method", "most"), [("split", 0.0), ("best-fit", 0.002)])
def test_little_is_padding(method: str, most: float) -> None:
    """0.1 % with short documents, and nothing but the last row where they are split."""
    sizes = np.random.default_rng(0).lognormal(4, 0.6, 20_000).astype(int)
    rows = Case(PackingOptions(2048, method), tuple(sizes.tolist()), (1000,)).rows()  # type: ignore[arg-type]
    assert sum(row.padding for row in rows[:-16]) <= most * 2048 * len(rows)
    assert all(pair[0].carry != pair[1].carry for pair in pairwise(rows))
    assert max(len(json.dumps(row.carry.to_json())) for row in rows) < (64 if method == "split" else 8192)


@pytest.mark.parametrize("wrong", [np.zeros((2, 2), int), np.zeros(2), "text", np.int64(3)])
def test_what_are_no_tokens_is_named(wrong: object) -> None:
    """With the sample's id, before anything is packed."""
    for method in ("split", "best-fit"):
        with pytest.raises(DataError, match="tokens of sample 8 ") as caught:
            make_packer(PackingOptions(4, method)).push_documents([0, 1], [7, 8], [np.arange(3), wrong])  # type: ignore[arg-type, list-item]
        assert caught.value.sample == 8


def test_a_packing_that_cannot_be_is_refused() -> None:
    for wrong in ({"length": 0}, {"length": 4, "method": "first"}, {"length": 4, "long": "truncate"}):
        with pytest.raises(DataError):
            PackingOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="not a state of a packing"):
        RowCarry.from_json([1, 2])
    with pytest.raises(DataError, match="sample 5 has 3 tokens now"):
        make_packer(PackingOptions(4), RowCarry(2, 6)).push_documents([2], [5], [np.arange(3)])
