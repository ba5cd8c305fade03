"""Where the corpora of the data bench are, in all the forms that the peers need; and the peers' own environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measure import PROGRAMS, Ran, run
from bench.runs import how

LIMIT = 300.0
COPIES = 10
# What needs an older NumPy than all others. It stays in the temporary folder, for the next run.
OWN = ("mosaicml-streaming==0.13.0", "torchdata==0.11.0", "datasets", "huggingface-hub<1")
OWN_FORMS = ("mds",)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in files, in a folder of a place."""

    folder: Path
    documents: int
    files: int = 16

    def nbytes(self, form: str) -> int:
        return sum(path.stat().st_size for path in (self.folder / form).glob(f"*.{form}"))


@dataclass(frozen=True, slots=True)
class Place:
    """``large`` for speed, also in 17 files (``more``) and ten times over (``tenfold``); ``small`` for exactness;
    ``odd``, whose last global batch has one document.

    ``missing`` says of a form, or of ``own``, the environment, why it is not there.
    """

    large: Corpus
    more: Corpus
    tenfold: Corpus
    small: Corpus
    odd: Corpus
    missing: Mapping[str, str]

    def run(self, program: str, *words: object, own: bool = False) -> Ran:
        """Run a program of the bench on the corpora, in the peers' own environment if it must be."""
        folder = self.large.folder.parent
        env = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "hf"), "RANK": "0"}
        python = _own_python() if own else sys.executable
        return run([python, PROGRAMS / program, *words], limit=LIMIT, env=env)


@contextmanager
def made(*, quick: bool, forms: Iterable[str]) -> Iterator[Place]:
    """Make the corpora, each in those of the forms that are needed of it; take them away again."""
    size = 10 if quick else 1
    with tempfile.TemporaryDirectory(prefix="bench-data-") as name:
        folder, missing = Path(name), dict[str, str]()
        large = Corpus(folder / "large", 1_000_000 // size + 3)
        place = Place(
            large,
            more=Corpus(folder / "more", large.documents, 17),
            tenfold=Corpus(folder / "tenfold", large.documents * COPIES, 16 * COPIES),
            small=Corpus(folder / "small", 100_000 // size + 3),
            odd=Corpus(folder / "odd", 9_600 // size + 1),
            missing=missing,
        )
        wanted = [form for form in forms if form != "jsonl"]
        if set(wanted) & set(OWN_FORMS) and (why := _own_environment()):
            missing.update(dict.fromkeys(("own", *OWN_FORMS), why))
        with ThreadPoolExecutor(2) as pool:
            for corpus in (place.large, place.small, place.odd):
                _must(place.run("data_corpus.py", "jsonl", corpus.folder, corpus.documents, corpus.files))
                jobs = {form: pool.submit(_form, place, corpus, form) for form in wanted if form not in missing}
                missing.update({form: why for form, job in jobs.items() if (why := job.result())})
        _must(place.run("data_corpus.py", "jsonl", place.more.folder, place.more.documents, place.more.files))
        _must(place.run("data_corpus.py", "parquet", place.more.folder))
        _copied(place.large, place.tenfold)
        for corpus in (place.large, place.more, place.tenfold, place.small, place.odd):
            _must(place.run("data_corpus.py", "index", corpus.folder))
        yield place


def _must(ran: Ran) -> None:
    if ran.code != 0:
        raise RuntimeError(f"the corpus could not be made: {how(ran)}")


def _form(place: Place, corpus: Corpus, form: str) -> str:
    """Make a form of a corpus; return why that could not be done, or nothing."""
    print(f"  {corpus.folder.name}: {form}", file=sys.stderr)
    ran = place.run("data_corpus.py", form, corpus.folder, own=form in OWN_FORMS)
    return "" if ran.code == 0 else how(ran)


def _copied(corpus: Corpus, tenfold: Corpus) -> None:
    """The same files under ten names each."""
    (tenfold.folder / "jsonl").mkdir(parents=True)
    for path in (corpus.folder / "jsonl").glob("*.jsonl"):
        for copy in range(COPIES):
            os.link(path, tenfold.folder / "jsonl" / f"{copy}-{path.name}")


def _own_python() -> Path:
    return Path(tempfile.gettempdir(), "allranks-bench-peers", "bin", "python")


def _own_environment() -> str:
    """Make the environment if it is not there; return why that could not be done, or nothing."""
    python = _own_python()
    done = python.parents[1] / "installed"
    if done.exists():
        return ""
    print(f"  {' '.join(OWN)}: into {python.parents[1]}", file=sys.stderr)
    venv.create(python.parents[1], with_pip=True, clear=True)
    ended = subprocess.run([python, "-m", "pip", "install", "-q", *OWN], capture_output=True, text=True, check=False)
    if ended.returncode:
        return f"pip: {(ended.stderr.strip().splitlines() or ['no reason'])[-1][:160]}"
    done.touch()
    return ""
