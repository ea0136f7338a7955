"""Packs a wheel from a module that is built already: python pack.py MODULE FOLDER.

The module is of the stable interface, or, if the interpreter that runs this has no global lock, of its version alone.

Releases are built by `python/build`, with maturin. The checks use this script, so that nothing is compiled twice:
maturin writes the metadata, and the files lie where maturin puts them.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent


def metadata(folder: Path) -> Path:
    """Let maturin write the metadata, and return its folder."""
    command = ["maturin", "pep517", "write-dist-info", "--metadata-directory", str(folder)]
    subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.DEVNULL)
    (found,) = folder.glob("*.dist-info")
    return found


def names() -> tuple[str, str]:
    """Return the wheel's tags of interpreters, and the name of the module's file."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # There is no stable interface without the global lock before Python 3.15.
        version = f"cp{sys.version_info.major}{sys.version_info.minor}"
        return f"{version}-{version}t", f"_plimsoll{sysconfig.get_config_var('EXT_SUFFIX')}"
    return "cp310-abi3", "_plimsoll.abi3.so"


def files(info: Path, module: Path) -> Iterator[tuple[str, bytes, int]]:
    """Return the files of the wheel: their names, their contents and their modes."""
    for path in sorted((HERE / "plimsoll").rglob("*")):
        if path.suffix in (".py", ".pyi", ".typed"):
            yield path.relative_to(HERE).as_posix(), path.read_bytes(), 0o644
    yield f"plimsoll/{names()[1]}", module.read_bytes(), 0o755
    for path in sorted(info.rglob("*")):
        if path.is_file() and path.name != "RECORD":
            yield f"{info.name}/{path.relative_to(info).as_posix()}", path.read_bytes(), 0o644


def pack(module: Path, folder: Path) -> Path:
    """Write the wheel, and return its path."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    with tempfile.TemporaryDirectory() as temporary:
        info = metadata(Path(temporary))
        wheel = folder / f"{info.stem}-{names()[0]}-{platform}.whl"
        folder.mkdir(parents=True, exist_ok=True)
        record = []
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as to:
            for name, contents, mode in files(info, module):
                entry = zipfile.ZipInfo(name)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100000 | mode) << 16
                to.writestr(entry, contents)
                digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(contents)}\n")
            to.writestr(f"{info.name}/RECORD", "".join(record) + f"{info.name}/RECORD,,\n")
    return wheel


if __name__ == "__main__":
    print(pack(*map(Path, sys.argv[1:3])))
