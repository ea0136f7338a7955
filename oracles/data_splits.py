"""nnU-Net v2's folds of sorted case names.

    pip install nnunetv2 scikit-learn
    python oracles/data_splits.py

Writes oracles/data_splits.json: for each number of cases, the numbers of the validation cases of each fold. With fewer
than five cases nnU-Net fails; then there are as many folds as cases.
"""

import json
from pathlib import Path

from nnunetv2.utilities.crossval_split import generate_crossval_split

result = {}
for count in (2, 3, 4, 5, 6, 7, 10, 23, 64, 100, 257, 1000):
    names = [f"case_{number:04d}" for number in range(count)]
    folds = generate_crossval_split(names, seed=12345, n_splits=min(5, count))
    for fold in folds:
        assert sorted(fold["train"] + fold["val"]) == names
    result[count] = [[int(name[5:]) for name in fold["val"]] for fold in folds]

path = Path(__file__).resolve().parent / "data_splits.json"
path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
