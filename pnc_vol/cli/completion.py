"""The Tab key completes verbs and options: the scripts for bash, zsh and fish ask ``pnc-vol --complete``.

Knows: where each shell looks for such scripts. Does not know: which options a verb has; the parsers do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pnc_vol.cli.arguments import parser_of
from pnc_vol.cli.errors import expected, fail
from pnc_vol.cli.main import OPTIONS, VERBS
from pnc_vol.cli.show import make_folders
from pnc_vol.settings.options import shell_variable
from pnc_vol.system import REAL
from pnc_vol.system.full_io import write_whole

__all__ = ["act"]

_BASH = """_pnc_vol() {
  local verb=""
  ((COMP_CWORD > 1)) && verb=${COMP_WORDS[1]}
  COMPREPLY=()
  if [[ -z $verb || $2 == -* ]]; then COMPREPLY=($(compgen -W "$(pnc-vol --complete $verb)" -- "$2")); fi
}
complete -o default -F _pnc_vol pnc-vol
"""
_FISH = """complete -c pnc-vol -n __fish_use_subcommand -f -a "(pnc-vol --complete)"
complete -c pnc-vol -n "not __fish_use_subcommand; and string match -q -- '-*' (commandline -ct)" \\
  -a "(pnc-vol --complete (commandline -opc)[2])"
"""
_SCRIPTS = {
    "bash": (("XDG_DATA_HOME", ".local/share"), "bash-completion/completions/pnc-vol", _BASH),
    "zsh": (("ZDOTDIR", ""), ".pnc-vol-completion.zsh", f"autoload -U bashcompinit && bashcompinit\n{_BASH}"),
    "fish": (("XDG_CONFIG_HOME", ".config"), "fish/completions/pnc-vol.fish", _FISH),
}
"""For each shell: the variable that names a folder, its default below the home folder; the file; the script."""


def act(option: str, rest: Sequence[str]) -> int:
    """Print what can be completed, or print or install the script of the shell; the exit code."""
    if option == "--complete":
        verb = rest[0] if rest else ""
        words = [*VERBS, *" ".join(OPTIONS).replace(",", "").split()]
        if verb in VERBS:
            words = sorted(parser_of(verb)[0].options())
        print("\n".join(words))
        return 0
    shell = rest[0] if rest else os.path.basename(shell_variable("SHELL"))
    if shell not in _SCRIPTS:
        fail(option, f"give the shell, one of {', '.join(_SCRIPTS)}: pnc-vol {option} bash")
    (variable, default), name, script = _SCRIPTS[shell]
    if option == "--show-completion":
        print(script, end="")
        return 0
    path = os.path.join(shell_variable(variable, os.path.join(os.path.expanduser("~"), default)), name)
    with expected(path):
        make_folders(os.path.dirname(path))
        write_whole(REAL, path, script.encode())
    print(f"{shell} completion is in {path}; {'source it in .zshrc' if shell == 'zsh' else 'new shells use it'}")
    return 0
