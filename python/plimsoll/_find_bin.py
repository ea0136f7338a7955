"""The script of the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def find_plimsoll_bin() -> str:
    """Return the path of the script ``plimsoll`` that was installed with this package.

    Raises
    ------
    FileNotFoundError
        If the package was installed without it; the message lists the searched folders.
    """
    import sysconfig

    name = "plimsoll" + (sysconfig.get_config_var("EXE") or "")
    folders = dict.fromkeys(_folders())
    for folder in folders:
        path = Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError(f"the script {name} is in none of {', '.join(folders)}; install the wheel of plimsoll")


def _folders() -> list[str]:
    """Return the folders for scripts of this environment, the base, the user and `pip --target`."""
    import sysconfig

    folders = [sysconfig.get_path("scripts")]
    folders.append(sysconfig.get_path("scripts", vars={"base": sys.base_prefix}))
    folders.append(sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")))
    packages = Path(__file__).resolve().parent.parent
    folders.append(str(packages / "bin"))
    return [folder for folder in folders if folder]
