"""TotalSegmentator's own statistics of the labels that it made of the small CT in `oracles/total_segmentator/`.

    python oracles/label_statistics.py

needs TotalSegmentator==2.18.0. Without labels near the border of the image, as is its default, and with them.
"""

import json
import os
from pathlib import Path

os.environ["TOTALSEG_HOME_DIR"] = "/tmp/plimsoll-totalsegmentator-home"
Path(os.environ["TOTALSEG_HOME_DIR"]).mkdir(exist_ok=True)

import nibabel as nib  # noqa: E402
import numpy as np  # noqa: E402
from totalsegmentator.statistics import get_basic_statistics  # noqa: E402

HERE = Path(__file__).parent / "total_segmentator"


def main():
    labels = nib.load(HERE / "total.nii.gz").get_fdata().astype(np.uint8)
    found = {
        name: get_basic_statistics(labels, HERE / "ct.nii.gz", None, True, "total", exclude)
        for name, exclude in [("whole", True), ("incomplete", False)]
    }
    count = {name: sum(entry["volume"] > 0 for entry in stats.values()) for name, stats in found.items()}
    assert 0 < count["whole"] < count["incomplete"], count
    (HERE / "statistics.json").write_text(json.dumps(found, indent=1) + "\n")


main()
