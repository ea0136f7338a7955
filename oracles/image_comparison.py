"""Statistics of comparisons of classifiers: McNemar's exact test, tests by signs, DeLong's areas, resamples.

    pip install numpy scipy statsmodels scikit-learn
    python oracles/image_comparison.py

Writes oracles/image_comparison.json. Areas follow DeLong et al. (1988) by brute force over all pairs of images, with the matrices of that paper:
no library here has them. The exact test of signs with several repeats is SciPy's permutation test over all assignments. Resamples are
those of the indices that are written beside them, scored by scikit-learn.
"""

import json
import math
from pathlib import Path

import numpy
from scipy.stats import norm, permutation_test
from sklearn.metrics import (
    accuracy_score, average_precision_score, balanced_accuracy_score, cohen_kappa_score, f1_score, roc_auc_score,
)
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

HERE = Path(__file__).resolve().parent
random = numpy.random.default_rng(41)

pairs = []
for first, second in (
    (0, 0), (1, 0), (3, 3), (5, 0), (6, 0), (9, 2), (12, 25), (40, 41), (3, 300), (700, 800), (20_000, 20_400), (50_000, 48_000),
):
    found = mcnemar([[7, first], [second, 9]], exact=True)
    pairs.append({"first": first, "second": second, "p": float(found.pvalue)})

signs = []
for n, low, high in ((3, -2, 3), (8, -2, 3), (12, -3, 4), (14, -6, 7), (10, 1, 4), (16, -4, 3)):
    d = random.integers(low, high, n)
    found = permutation_test(
        (d,), lambda x, axis: numpy.abs(x.sum(axis=axis)), permutation_type="samples", n_resamples=numpy.inf,
        alternative="greater", vectorized=True,
    )
    signs.append({"differences": d.tolist(), "p": float(found.pvalue)})


def components(labels, scores):
    """V10 of images of the class and V01 of the others, by all pairs."""
    own, others = scores[labels], scores[~labels]
    right = (own[:, None] > others[None]) + 0.5 * (own[:, None] == others[None])
    return right.mean(1), right.mean(0)


def delong(labels, all_scores):
    """Areas, and their covariance: equation (6) of DeLong et al."""
    parts = [components(labels, scores) for scores in all_scores]
    v10, v01 = numpy.array([p[0] for p in parts]), numpy.array([p[1] for p in parts])
    return v10.mean(1), numpy.cov(v10) / v10.shape[1] + numpy.cov(v01) / v01.shape[1]


def softmax(logits):
    e = numpy.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def drawn(n, classes, skills, digits):
    labels = random.integers(0, classes, n)
    hard = random.normal(size=(n, classes))
    tables = []
    for skill in skills:
        logits = 0.8 * hard + random.normal(size=(n, classes))
        logits[numpy.arange(n), labels] += skill
        table = softmax(logits).round(digits)
        table[:, -1] = (1 - table[:, :-1].sum(1)).clip(0)
        tables.append(table.round(digits))
    return labels, tables


def scores_of(labels, table, classes):
    """What reports have of all classes, and of each: by scikit-learn."""
    given = table.argmax(1)
    areas = [roc_auc_score(labels == k, table[:, k]) for k in range(classes)]
    return {
        "accuracy": accuracy_score(labels, given),
        "balanced_accuracy": balanced_accuracy_score(labels, given),
        "quadratic_kappa": cohen_kappa_score(labels, given, weights="quadratic"),
        "f1": f1_score(labels, given, average="macro", zero_division=numpy.nan),
        "auroc": float(numpy.mean(areas)),
        "average_precision": float(numpy.mean([average_precision_score(labels == k, table[:, k]) for k in range(classes)])),
    }


comparisons = []
for n, classes, skills, digits in ((40, 2, (1.0, 1.6), 3), (150, 2, (0.8, 0.9, 2.0), 2), (120, 3, (1.0, 1.8), 3), (200, 5, (1.2, 1.2, 1.6), 2)):
    labels, tables = drawn(n, classes, skills, digits)
    names = [f"m{k}" for k in range(len(tables))]
    found = []
    p_accuracy, p_area = [], {k: [] for k in range(classes)}
    for i in range(len(tables)):
        for j in range(i + 1, len(tables)):
            right = [tables[k].argmax(1) == labels for k in (i, j)]
            table = [[int((right[0] & right[1]).sum()), int((right[0] & ~right[1]).sum())],
                     [int((~right[0] & right[1]).sum()), int((~right[0] & ~right[1]).sum())]]
            p_accuracy.append(float(mcnemar(table, exact=True).pvalue))
            sensitivity = []
            for k in range(classes):
                own = labels == k
                alone = [int((right[0] & ~right[1] & own).sum()), int((right[1] & ~right[0] & own).sum())]
                p = float(mcnemar([[0, alone[0]], [alone[1], 0]], exact=True).pvalue)
                sensitivity.append({"alone": alone, "p": p})
            areas = []
            for k in range(classes):
                area, covariance = delong(labels == k, [tables[i][:, k], tables[j][:, k]])
                contrast = numpy.array([1.0, -1.0])
                se = math.sqrt(contrast @ covariance @ contrast)
                difference = float(area[0] - area[1])
                p = float(2 * norm.sf(abs(difference) / se))
                low, high = norm.interval(0.95, difference, se)
                areas.append({"areas": area.tolist(), "se": se, "p": p, "interval": [float(low), float(high)]})
                p_area[k].append(p)
            found.append({
                "first": names[i], "second": names[j], "alone": [table[0][1], table[1][0]], "p_accuracy": p_accuracy[-1],
                "sensitivity": sensitivity, "areas": areas,
            })
    in_order = [p for k in range(classes) for p in p_area[k]]
    comparisons.append({
        "labels": labels.tolist(), "tables": [table.reshape(-1).tolist() for table in tables],
        "scores": [scores_of(labels, table, classes) for table in tables], "pairs": found,
        "holm_of_accuracy": multipletests(p_accuracy, method="holm")[1].tolist(),
        "holm_of_areas": multipletests(in_order, method="holm")[1].tolist(),
    })

resamples = []
for n, classes, skills in ((30, 2, (1.0, 2.0)), (60, 4, (1.0, 1.4))):
    labels, tables = drawn(n, classes, skills, 3)
    indices, differences = [], {}
    while len(indices) < 60:
        drawn_now = random.integers(0, n, n)
        if len(set(labels[drawn_now])) < classes:
            continue
        indices.append(drawn_now.tolist())
        one, other = (scores_of(labels[drawn_now], table[drawn_now], classes) for table in tables)
        for name in one:
            differences.setdefault(name, []).append(one[name] - other[name])
    found = {}
    for name, d in differences.items():
        d = numpy.array(d)
        least = min((d <= 0).sum(), (d >= 0).sum())
        found[name] = {
            "differences": d.tolist(), "interval": numpy.quantile(d, [0.025, 0.975]).tolist(),
            "p": min(1.0, 2 * (int(least) + 1) / (len(d) + 1)),
        }
    resamples.append({
        "labels": labels.tolist(), "tables": [table.reshape(-1).tolist() for table in tables], "indices": indices, "found": found,
    })

found = {"mcnemar": pairs, "signs": signs, "comparisons": comparisons, "resamples": resamples}
(HERE / "image_comparison.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
