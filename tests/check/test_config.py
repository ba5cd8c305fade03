"""[tool.allranks.check]: what may stand there, and what is said of what may not."""

from __future__ import annotations

import tomllib

import pytest

from allranks.check.config import Config, ConfigWrong, read


def config(text: str) -> Config:
    return read(tomllib.loads(text), "pyproject.toml")


def test_every_option_is_read() -> None:
    assert config("""
select = ["AR1", "AR2"]
extend-select = ["AR405"]
ignore = ["AR103"]
assume = "multi-host"
precision = 0.9
entry-points = ["train.py"]
rank-zero-predicates = ["utils.is_chief"]
collectives = ["mylib.sync"]
shared-paths = ["/data/**"]
node-local-paths = ["/tmp/**"]
exclude = ["third_party"]
extend-exclude = ["old/**"]
respect-gitignore = false
fail-on = "error"
output-format = "concise"
baseline = "known.json"
cache-dir = ".cache"
[per-file-ignores]
"tests/**" = ["AR1"]
""") == Config(
        select=("AR1", "AR2"),
        extend_select=("AR405",),
        ignore=("AR103",),
        per_file_ignores=(("tests/**", ("AR1",)),),
        assume="multi-host",
        precision=0.9,
        entry_points=("train.py",),
        rank_zero_predicates=("utils.is_chief",),
        collectives=("mylib.sync",),
        shared_paths=("/data/**",),
        node_local_paths=("/tmp/**",),
        exclude=("third_party",),
        extend_exclude=("old/**",),
        respect_gitignore=False,
        fail_on="error",
        output_format="concise",
        baseline="known.json",
        cache_dir=".cache",
    )
    assert config("") == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("selct = []", "no option 'selct'. Is 'select' meant?"),
        ("rank_zero_predicates = []", "Is 'rank-zero-predicates' meant?"),
        ("extend-ignore = []", "Is 'ignore' meant?"),
        ("zzz = 1", "There are: assume"),
        ("select = 'AR1'", "select must be a list of texts, not 'AR1'"),
        ("ignore = [1]", "ignore must be a list of texts"),
        ("assume = 'one'", "assume must be one of auto, multi-host, not 'one'"),
        ("assume = []", "assume must be one of"),
        ("respect-gitignore = 1", "must be true or false"),
        ("baseline = false", "must be a path"),
        ("per-file-ignores = []", "must be a table such as"),
        ("[per-file-ignores]\n'a' = 'AR1'", "per-file-ignores.a must be a list"),
    ],
)
def test_a_mistake_is_named_with_what_is_meant(text: str, says: str) -> None:
    """The file, the key, what was expected and what was found."""
    with pytest.raises(ConfigWrong) as error:
        config(text)
    assert says in str(error.value)
    assert "pyproject.toml" in str(error.value)


def test_the_command_line_wins() -> None:
    """What it does not say stays."""
    assert Config(assume="auto", fail_on="error").with_(assume="multi-host", fail_on=None) == Config(
        assume="multi-host", fail_on="error"
    )
