"""``python -m bench.check.fetch``: bring the code of the evaluation set into a folder outside the tree.

Only Python files, shell scripts and Markdown are taken, each commit once. Nothing of it is run or ever committed.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from bench.check.labels import SPLITS, code_bases, labels, split

HOST = "https://github.com"
KINDS = (".py", ".sh", ".md")
FOLDER = Path(os.environ.get("ALLRANKS_CHECK_CODE", Path.home() / ".cache" / "allranks-check-code"))


class Missing(Exception):
    """The code of a commit could not be had."""


def tree(repository: str, commit: str, *, into: Path = FOLDER, mirror: Path | None = None) -> Path:
    """Return the folder with the `KINDS` of files of a commit, fetched now if it is not there.

    ``mirror`` holds git directories named ``owner+name`` (or ``owner+name/repo``, or a clone of that name) to look in
    before the public host.
    Raises Missing where neither has the commit.
    """
    where = into / repository.replace("/", "+") / commit[:12]
    if not where.is_dir():
        folder = _git_folder(repository, commit, into, mirror)
        names = _git(folder, "ls-tree", "-r", "--name-only", commit).stdout.decode(errors="replace").split()
        kinds = [f"*{end}" for end in KINDS if any(name.endswith(end) for name in names)]  # others are an error
        _unpack(folder, commit, kinds, where)
    return where


def parts(repository: str, commit: str, paths: Sequence[str], where: Path, *, into: Path, mirror: Path | None) -> None:
    """Write these files and folders of a commit into the new folder ``where``; without ``paths`` all.

    ``into`` keeps what is fetched. Raises Missing as `tree` does.
    """
    _unpack(_git_folder(repository, commit, into, mirror), commit, paths, where)


def _unpack(folder: Path, commit: str, paths: Sequence[str], where: Path) -> None:
    part = where.with_name(f"{where.name}.part-{os.getpid()}")
    with tarfile.open(fileobj=io.BytesIO(_archive(folder, commit, paths))) as files:
        files.extractall(part, [file for file in files if file.isreg()], filter="data")
    part.rename(where)


def files_of(root: Path) -> dict[str, Path]:
    """Return the files of these `KINDS` below ``root`` by their path from there, kind by kind."""
    return {
        path.relative_to(root).as_posix(): path
        for end in KINDS
        for path in sorted(root.rglob(f"*{end}"))
        if path.is_file()
    }


def _git_folder(repository: str, commit: str, into: Path, mirror: Path | None) -> Path:
    name = repository.replace("/", "+")
    for folder in (mirror / name / inside for inside in ("", ".git", "repo", "repo/.git")) if mirror else ():
        if (folder / "HEAD").is_file() and _git(folder, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0:
            return folder
    folder = into / "git" / name
    if _git(folder, "cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "--bare", "--quiet")
        fetched = _git(folder, "fetch", "--depth=1", "--quiet", f"{HOST}/{repository}", commit)
        if fetched.returncode != 0:
            raise Missing(f"{repository} at {commit}: {fetched.stderr.decode(errors='replace').strip()}")
    return folder


def _archive(folder: Path, commit: str, paths: Sequence[str]) -> bytes:
    made = _git(folder, "archive", "--format=tar", commit, "--", *paths)
    if made.returncode != 0:
        raise Missing(f"{folder.name} at {commit}: {made.stderr.decode(errors='replace').strip()}")
    return made.stdout


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(["git", f"--git-dir={folder}", *words], capture_output=True, check=False, env=environ)


def wanted(splits: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commits of the labels and of the other code in these halves, each once."""
    bugs = {(label.repository, label.commit) for label in labels()}
    other = {(entry.repository, entry.commit) for entry in code_bases()}
    return sorted((repository, commit) for repository, commit in bugs | other if split(repository) in splits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=FOLDER, help=f"folder for the code (default: {FOLDER})")
    parser.add_argument("--mirror", type=Path, help="folder of git directories named owner+name, looked in first")
    parser.add_argument("--split", choices=SPLITS, action="append", help="only this half (default: both)")
    chosen = parser.parse_args()
    missing = 0
    for repository, commit in wanted(chosen.split or SPLITS):
        try:
            print(tree(repository, commit, into=chosen.into, mirror=chosen.mirror), flush=True)
        except Missing as error:
            missing += 1
            print(error, file=sys.stderr)
    if missing:
        sys.exit(f"{missing} commits could not be had; the scorer leaves them out and says so")


if __name__ == "__main__":
    main()
