"""Runs the command line: ``python -m plimsoll``."""

from __future__ import annotations

import os
import sys

from ._find_bin import find_plimsoll_bin


def main() -> None:
    """Replace this process by the program, or run it and return its status where processes cannot be replaced."""
    try:
        program = find_plimsoll_bin()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    arguments = [program, *sys.argv[1:]]
    if os.name == "nt":
        import subprocess

        try:
            sys.exit(subprocess.run(arguments).returncode)
        except KeyboardInterrupt:
            # The program has received it as well.
            sys.exit(130)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, arguments)


if __name__ == "__main__":
    main()
