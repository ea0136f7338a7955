"""How long a command takes and how much all of its processes hold, for the comparisons beside it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path


def tree(pid):
    """A process and all below it."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def measured(command, environment):
    """What a command writes, its seconds, and the bytes that all of its processes have at most.

    Each page counts once: the bytes are the sum of their proportional set sizes, asked for five times a second, or as often as takes a tenth
    of a processor.
    """
    most, start = 0, time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | environment)
    said = []
    reader = threading.Thread(target=lambda: said.extend(process.communicate()))
    reader.start()
    while process.poll() is None:
        size, asked = 0, time.perf_counter()
        for pid in tree(process.pid):
            try:
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                size += 1024 * int(rollup.split("\nPss:")[1].split()[0])
            except (OSError, IndexError):
                pass
        most = max(most, size)
        time.sleep(max(0.2, 9 * (time.perf_counter() - asked)))
    reader.join()
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}: {b''.join(said).decode()[-2000:]}")
    return said[0].decode(), time.perf_counter() - start, most
