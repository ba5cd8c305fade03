"""Implement ``allranks completion``: shell completion of commands, options and files."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence

from allranks.cli.command_parser import CommandParser

_BASH = """\
_allranks() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} options=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$cur"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case $cur in
        -*) COMPREPLY=($(compgen -W "$options" -- "$cur")) ;;
        *) COMPREPLY=($(compgen -W "${{options//-[^ ]*/}}" -- "$cur") $(compgen -f -- "$cur")) ;;
    esac
}}
complete -o filenames -F _allranks allranks
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_HOW = """\
examples:
  allranks completion bash > ~/.local/share/bash-completion/completions/allranks
  allranks completion zsh >> ~/.zshrc
  allranks completion fish > ~/.config/fish/completions/allranks.fish
"""


def main(argv: Sequence[str]) -> int:
    """Run ``allranks completion`` with these arguments; return its exit code."""
    from allranks.cli.main import COMMANDS

    parser = CommandParser(
        prog="allranks completion",
        description="Print what a shell needs to complete the commands of allranks and their options.",
        epilog=_HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    shell = parser.parse_args(argv).shell
    options = {name: _options(name) for name in COMMANDS}
    print(_fish(COMMANDS, options) if shell == "fish" else _bash(options, zsh=shell == "zsh"), end="")
    return 0


def _options(command: str) -> list[str]:
    """Return the options of a command. If the command is a group, return the group's commands."""
    module = importlib.import_module(f"allranks.cli.{command}")
    if hasattr(module, "GROUP"):
        return list(module.GROUP.commands)
    if not hasattr(module, "parser"):
        return ["--help"]
    actions = module.parser()._actions
    return [option for action in actions for option in action.option_strings]


def _bash(options: Mapping[str, Sequence[str]], *, zsh: bool) -> str:
    cases = "\n".join(f'        {name}) options="{" ".join(found)}" ;;' for name, found in options.items())
    return (_ZSH if zsh else "") + _BASH.format(commands=" ".join(options), cases=cases)


def _fish(commands: Mapping[str, str], options: Mapping[str, Sequence[str]]) -> str:
    lines = [
        f"complete -c allranks -n __fish_use_subcommand -a {name} -d '{_quoted(what)}'"
        for name, what in commands.items()
    ]
    for name, found in options.items():
        lines.append(f"complete -c allranks -n '__fish_seen_subcommand_from {name}' -a '{' '.join(found)}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
