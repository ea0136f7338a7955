"""Runs the command line: the script ``plimsoll``, or ``python -m plimsoll``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

from ._find_bin import find_plimsoll_bin
from ._plimsoll import command_line


def main() -> NoReturn:
    """Run the command that the arguments of this process name, and exit with its status."""
    # Until the command handles Ctrl-C itself, it ends the process, as it does for other programs.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(command_line(_program(), sys.argv[1:]))


def _program() -> str:
    """Return the script, which jobs of batch systems start again."""
    if Path(sys.argv[0]).name != Path(__file__).name:
        return sys.argv[0]
    try:
        return find_plimsoll_bin()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
