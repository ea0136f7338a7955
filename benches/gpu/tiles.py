"""Lines of the table of tiles, crates/plimsoll-cuda/src/ops/conv/tiles.csv, from reports of lease.sh: of each layer that was measured the fastest tile.

    python3 benches/gpu/tiles.py gpu-report/runs.json

They take the places of those lines that begin with the same eight fields.
"""
import json
import sys

FIELDS = ["architecture", "bytes", "taps", "stride", "places", "batch", "chunks", "outputs"]

layers = {}
for path in sys.argv[1:]:
    with open(path) as file:
        for timed in json.load(file)["tiles"] or []:
            layers.setdefault(tuple(timed[field] for field in FIELDS), []).append((timed["milliseconds"], timed["tile"]))
for layer, tiles in layers.items():
    print(*layer, min(tiles)[1], "measured", sep=",")
