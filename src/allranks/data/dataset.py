"""Define ``allranks.Dataset``: the samples, their transforms, and how they are batched."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from allranks.data import plan as planning
from allranks.data.arguments import check_choice, check_number
from allranks.data.base import RandomlyReadable, Source
from allranks.data.loader import Loader
from allranks.data.mix import Stop
from allranks.data.open_loader import open_loader, open_single_rank
from allranks.data.pack import Long, Method, PackingOptions
from allranks.data.packed_loader import PackedLoader
from allranks.data.plan import TAILS, Tail
from allranks.data.recipe import BatchOptions, DatasetPart, DatasetRecipe, Operation, RandomOptions
from allranks.data.sources.detect import open_source
from allranks.data.transform import FilterOperation, MapOperation, OnError
from allranks.data.workers.detect import check_workers
from allranks.errors import DataError
from allranks.world.base import World
from allranks.world.detect import current


@dataclass(frozen=True, slots=True)
class Dataset(DatasetRecipe):
    """A data set: samples from files, in an order that ``seed`` and epoch decide. Nothing is read before ``loader``.

    Every method returns a new data set. The batches are the same on any number of ranks. docs/data.md describes the
    guarantees and how they are kept.
    """

    @classmethod
    def jsonl(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of lines of JSON objects, plain or compressed (.gz, .zst). A sample is a dict.

        ``files`` is a path, a list of paths, a pattern (``data/**/*.jsonl``), a folder, or an address (``s3://...``).
        """
        return cls.of(open_source("jsonl", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def text(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of lines of text, plain or compressed. A sample is a str."""
        return cls.of(open_source("text", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def parquet(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of rows of Parquet files, only with the ``columns`` if given. A sample is a dict."""
        return cls.of(open_source("parquet", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def arrow(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of rows of Arrow IPC files. A sample is a dict."""
        return cls.of(open_source("arrow", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def webdataset(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of tar files. A sample is a dict of all files with the same name, by their extensions."""
        return cls.of(open_source("webdataset", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def folder(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of whole files. A sample is a dict of ``path`` and ``bytes``."""
        return cls.of(open_source("folder", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def huggingface(
        cls, dataset: Any, *, streaming: bool = False, seed: int = 0, shuffle: bool = True, **options: Any
    ) -> Dataset:
        """Return a data set of a map-style ``datasets.Dataset``, read from its Arrow table. A sample is a dict.

        With ``streaming=True``, ``dataset`` is instead a name, and the options are those of ``datasets.load_dataset``
        (``split=``, ``name=``, ``revision=``, ``data_files=``, ...). Then the plan reads the files of Parquet, JSON
        lines, text or Arrow directly, and each rank reads its part, with all guarantees. Raises DataError, with the
        reason, for a data set that the plan cannot read.
        """
        return cls.of(open_source("huggingface", dataset, streaming=streaming, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def sequence(cls, samples: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of an object with a length and items: a list, an array, a map-style torch Dataset.

        It must be the same on every rank. A few samples are compared over the ranks; ``compare=False`` skips that.
        """
        return cls.of(open_source("sequence", samples, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def mds(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of MDS shards, which mosaicml-streaming writes, also compressed. A sample is a dict."""
        return cls.of(open_source("mds", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def litdata(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of chunks of litdata. A sample is what was given to ``optimize``, mostly a dict."""
        return cls.of(open_source("litdata", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def tfrecord(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of TFRecord files. A sample is a dict of the features of a ``tf.train.Example``."""
        return cls.of(open_source("tfrecord", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def array_record(cls, files: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of ArrayRecord files. A sample is ``{"record": bytes}``; see also ``examples=True``."""
        return cls.of(open_source("array_record", files, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def lance(cls, place: Any, *, seed: int = 0, shuffle: bool = True, **options: Any) -> Dataset:
        """Return a data set of the rows of a version of a Lance data set. A sample is a dict."""
        return cls.of(open_source("lance", place, **options), seed=seed, shuffle=shuffle)

    @classmethod
    def tokens(
        cls,
        files: Any,
        *,
        length: int | None = None,
        targets: bool = False,
        seed: int = 0,
        shuffle: bool = True,
        **options: Any,
    ) -> Dataset:
        """Return a data set of files of tokens: ``.bin`` of nanoGPT, llm.c and Megatron (with ``.idx``), or ``.npy``.

        With ``length``, a sample is a window: ``{"tokens": array}``. With ``targets``, it also has ``"targets"``: the
        tokens that follow each of its tokens. Without ``length``, a sample is a document. The options:

        - ``stride``: the tokens from the start of a window to the start of the next one (default: ``length``). Tokens
          behind the last complete window of a file are left out.
        - ``eos_id``: without ``length``, the token that ends a document. Files of Megatron know their documents.
        - ``dtype``: the type of the tokens in files without a header (default: uint16): ``"uint32"`` or ``np.uint32``.
        - ``as_dtype``: the type of the tokens in a sample (default: int64).
        - ``vocab_size``: raise DataError for a token that is not below. Above 65,536, files without a header need
          ``dtype``.
        """
        found = open_source("tokens", files, length=length, targets=targets, **options)
        return cls.of(found, seed=seed, shuffle=shuffle)

    @classmethod
    def of(cls, origin: Source, *, seed: int = 0, shuffle: bool = True) -> Dataset:
        """Return a data set of the samples of a user-defined source."""
        if not hasattr(seed, "__index__"):
            raise DataError(f"seed={seed!r:.40}: expected a whole number.")
        return cls((DatasetPart(origin),), seed, shuffle)

    @classmethod
    def mix(
        cls, weights: Mapping[Dataset, float] | Sequence[tuple[Dataset, float]], *, seed: int = 0, stop: Stop = "first"
    ) -> Dataset:
        """Return one data set from several, each with its own maps and filters, mixed by their weights.

        Of every 2,048 samples of a stream, each data set has the share of its weight. An epoch ends when the ``first``
        of the data sets has been read, or when ``all`` have been. A data set that ends earlier starts again. The
        mixture is shuffled if its first data set is.
        """
        check_choice("stop", stop, get_args(Stop))
        pairs = list(weights.items() if isinstance(weights, Mapping) else weights)
        whole = [one for one, _ in pairs if len(one.parts) > 1 or one.batching is not None or one.drawing is not None]
        if not pairs or whole:
            what = "is empty" if not pairs else "holds a data set that is a mixture, at random, or in batches"
            raise DataError(f"the mixture {what}.", remedy="Mix data sets of one source each, before .batch.")
        parts = tuple(
            replace(one.parts[0], operations=one.parts[0].operations + one.operations, weight=weight)
            for one, weight in pairs
        )
        workers = max(one.workers for one, _ in pairs)
        return cls(parts, seed, pairs[0][0].shuffled, stop, workers=workers)

    def map(
        self,
        fn: Callable[..., Any],
        *,
        workers: int = 0,
        random: bool = False,
        batched: bool | None = None,
        on_error: OnError = "raise",
    ) -> Dataset:
        """Replace every sample by ``fn(sample)``, in order, in ``workers`` processes (0: in this process).

        - ``random``: ``fn(sample, rng)`` also gets a numpy Generator, which is the same for a seed, epoch and sample on
          any rank.
        - ``batched``: ``fn`` gets many samples at once, and must treat each sample independently. It returns a list of
          samples, or a dict of columns. ``samples["name"]`` is a column; ``for sample in samples`` yields the samples.
        - ``on_error="mask"``: if ``fn`` raises for a sample, its row is masked and the sample is counted as bad. The
          other samples keep their rows.

        If ``fn`` returns None for a sample, the loader raises DataError, also with ``on_error="mask"``.
        """
        return self._with_operation(MapOperation(fn, random, batched, on_error), workers)

    def filter(self, fn: Callable[..., Any], *, workers: int = 0, on_error: OnError = "raise") -> Dataset:
        """Mask the rows of samples for which ``fn(sample)`` is false. All samples keep their rows and steps."""
        return self._with_operation(FilterOperation(fn, on_error=on_error), workers)

    def random(self, seed: int = 0, *, samples: int | None = None) -> Dataset:
        """Draw samples at random with replacement, as the ``get_batch`` of nanoGPT does: windows from any token on.

        The draws of a step depend on the seed and the step only. So they are the same on any number of ranks, no two
        ranks take the same draw, and a state continues exactly. ``samples`` is the number of draws in an epoch, of all
        ranks together; by default as many as read each token once, on average.

        Only for tokens in windows and for sequences, before ``map``, ``take`` and ``mix``.
        """
        part, source = self.parts[0], self.parts[0].source
        changed = part.start or part.stop is not None or self.operations or len(self.parts) > 1
        if changed or not isinstance(source, RandomlyReadable):
            raise DataError(
                "random: expected Dataset.tokens(files, length=...) or Dataset.sequence(...), before other methods.",
                remedy="Call .random directly behind the source. Other sources are read in an order: leave it out.",
            )
        if samples is not None:
            check_number("samples", samples, "the number of draws in an epoch", least=1)
        access = source.random_access()
        drawn = Dataset.of(access.source, seed=seed)
        return replace(drawn, drawing=RandomOptions(samples, access.overlap))

    def take(self, count: int) -> Dataset:
        """Keep only the first ``count`` samples of all ranks together, in the order of the files."""
        return self._with_range(0, count)

    def skip(self, count: int) -> Dataset:
        """Skip the first ``count`` samples of all ranks together, in the order of the files."""
        return self._with_range(count, None)

    def pack(
        self,
        length: int,
        *,
        method: Method = "split",
        column: str = "tokens",
        pad_id: int = 0,
        eos_id: int | None = None,
        long: Long = "split",
    ) -> Dataset:
        """Pack samples, whose ``column`` is an array of tokens, into rows of ``length`` tokens; call it before .batch.

        A batch then has the columns ``tokens``, ``segment_ids`` (from 1 in each row, 0 for padding) and ``positions``.
        All are int32 with the shape (rows, length).

        - ``method="split"``: samples one after the other, cut when a row is full.
        - ``method="best-fit"``: complete samples, each in the row with the least space in which it fits.
        - ``long`` (with best-fit): a sample longer than a row is split (``split``), or cut to one row (``truncate``).
        - ``eos_id``: a token that ends every sample.
        """
        if self.drawing is not None:
            raise DataError("pack: samples at random have one length.", remedy="Leave .pack or .random out.")
        packing = PackingOptions(length, method, pad_id, eos_id, long)
        return replace(self, packing=packing, column=column)

    def batch(
        self,
        global_batch: int,
        *,
        tail: Tail = "pad",
        streams: int | None = None,
        window: int | None = None,
        lanes: int | None = None,
    ) -> Dataset:
        """Make batches of ``global_batch`` rows, over all ranks together.

        - ``tail``: the samples after the last full batch make a batch with masked rows (``pad``), or are dropped
          (``drop``).
        - ``streams`` (a divisor of the batch) and ``window`` (in blocks): trade the quality of the shuffle against
          reading and memory. docs/data.md says how the defaults are chosen.
        - ``lanes``: the old name of ``streams``.
        """
        if lanes is not None:
            warnings.warn("batch(lanes=...) is now called batch(streams=...)", DeprecationWarning, stacklevel=2)
            streams = lanes
        check_choice("tail", tail, TAILS)
        planning.check_batch(global_batch, streams, window)
        return replace(self, batching=BatchOptions(global_batch, tail, streams, window))

    def loader(
        self,
        world: World | None = None,
        *,
        rows: object = None,
        prefetch: int = 8,
        state: Mapping[str, Any] | None = None,
        rank: int | None = None,
        size: int | None = None,
    ) -> Loader | PackedLoader:
        """Open the data set on this rank, and return a loader. **Every rank must call**: all agree before step 0.

        Rank 0 indexes the files.

        - ``world``: by default the world of ``allranks.init()``.
        - ``rows``: the sharding of the batch, if rows do not follow the ranks. It is a jax.sharding.NamedSharding, or a
          (mesh, axis names) of jax or torch. A rank then has the rows of its devices.
        - ``prefetch``: how many batches are prepared ahead.
        - ``state``: a ``loader.state()`` from a checkpoint, of any world size.
        - ``rank`` and ``size``, instead of a world: this rank reads without comparing anything with other ranks.

        Raises, on every rank: DataError for a fault in the files, the state or the batch; Mismatch if the ranks do not
        read the same data; BatchMismatch if their rows are not the global batch.
        """
        if rank is not None or size is not None:
            if world is not None or rows is not None or rank is None or size is None:
                raise DataError(
                    "loader: rank= and size= cannot be combined with a world or rows=: expected one or "
                    "the other. Pass rank and size only for a rank that reads without the others."
                )
            check_number("size", size, "the number of ranks", least=1)
            check_number("rank", rank, "the number of a rank", most=size - 1)
            return open_single_rank(self, rank, size, prefetch=prefetch, state=state)
        return open_loader(self, world or current(), rows=rows, prefetch=prefetch, state=state)

    def _with_operation(self, operation: Operation, workers: int) -> Dataset:
        if self.packing is not None:
            raise DataError(
                "map and filter work on samples, not on packed rows.", remedy="Map and filter before .pack."
            )
        many = check_workers(workers)
        return replace(self, operations=(*self.operations, operation), workers=max(self.workers, many))

    def _with_range(self, skip: int, count: int | None) -> Dataset:
        name, many = ("skip", skip) if count is None else ("take", count)
        check_number(name, many, "a number of samples")
        if len(self.parts) > 1 or self.operations or self.drawing is not None:
            raise DataError(
                f"{name}({many}): expected samples of one source, before .map, .filter, .random and .mix.",
                remedy="Move .take or .skip directly behind the source.",
            )
        one = self.parts[0]
        start = one.start + skip
        ends = [end for end in (one.stop, None if count is None else start + count) if end is not None]
        return replace(self, parts=(replace(one, start=start, stop=min(ends, default=None)),))
