"""Scores of the tables in metrics.json that depend on thresholds or weights, intervals of shares, and one-vs-one votes.

    pip install numpy scipy scikit-learn
    python oracles/classification.py

Writes oracles/classification.json. A weighted score is the mean of the defined ones of each class, weighted by its cases.
Coupled probabilities are the minimum of their definition, found by a general optimiser.
"""

import json
import math
import warnings
from pathlib import Path

import numpy
from scipy.optimize import minimize
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score, average_precision_score, f1_score, precision_recall_fscore_support, roc_auc_score, roc_curve,
)
from sklearn.calibration import calibration_curve
from sklearn.utils.multiclass import _ovr_decision_function

HERE = Path(__file__).resolve().parent
warnings.filterwarnings("ignore")


def number(value):
    value = float(value)
    return None if math.isnan(value) else value


tables = []
for case in json.loads((HERE / "metrics.json").read_text())["classification"]:
    labels = numpy.array(case["labels"])
    table = numpy.array(case["probabilities"], float).reshape(len(labels), -1)
    classes = range(table.shape[1])
    precision, recall, f1, support = precision_recall_fscore_support(
        labels, table.argmax(1), labels=list(classes), zero_division=numpy.nan
    )

    def weighted(scores):
        use = (support > 0) & ~numpy.isnan(scores)
        return number(numpy.average(scores[use], weights=support[use])) if use.any() else None

    areas, curves, wanted = [], [], []
    for k in classes:
        both = 0 < (labels == k).sum() < len(labels)
        areas.append(roc_auc_score(labels == k, table[:, k]) if both else math.nan)
        if both:
            fpr, tpr, thresholds = roc_curve(labels == k, table[:, k], drop_intermediate=False)
            curves.append([[number(1 - f), number(t)] for f, t in zip(fpr, tpr)])
            wanted.append([number(thresholds[numpy.flatnonzero(tpr >= s)[0]]) for s in (0.5, 0.9, 1.0)])
        else:
            curves.append(None)
            wanted.append(None)
    entry = {
        "weighted_precision": weighted(precision), "weighted_sensitivity": weighted(recall), "weighted_f1": weighted(f1),
        "weighted_auroc": weighted(numpy.array(areas)), "roc": curves, "thresholds": wanted,
    }
    # Bins are closed above there and here but for probabilities on an edge, of which the tables with ties are full.
    if case["name"] == "four classes":
        frequency, confidence = calibration_curve(labels == 1, table[:, 1], n_bins=10)
        entry["reliability"] = [confidence.tolist(), frequency.tolist()]
    tables.append(entry)

wilson = []
for successes, trials, level in [(0, 7, 0.95), (7, 7, 0.95), (3, 10, 0.9), (190, 200, 0.95), (1, 1, 0.99), (512, 1000, 0.999)]:
    found = binomtest(successes, trials).proportion_ci(level, method="wilson")
    wilson.append([successes, trials, level, found.low, found.high])


def coupled(r):
    classes = len(r)

    def loss(pi):
        return sum((r[b][a] * pi[a] - r[a][b] * pi[b]) ** 2 for a in range(classes) for b in range(classes) if a != b)

    return minimize(
        loss, numpy.full(classes, 1 / classes), bounds=[(0, 1)] * classes, method="SLSQP",
        constraints={"type": "eq", "fun": lambda pi: pi.sum() - 1}, options={"ftol": 1e-16, "maxiter": 2000},
    ).x


random = numpy.random.default_rng(3)
votes = []
for classes, draw in [(2, 3), (3, 6), (4, 6), (5, 12)]:
    pairs = [(a, b) for a in range(classes) for b in range(a + 1, classes)]
    for number_of_case in range(draw):
        p = random.beta(0.7, 0.7, len(pairs)).round(3).clip(0.02, 0.98)
        if number_of_case % 3 == 2:
            # Ties of votes, and of sums.
            p = random.choice([0.25, 0.5, 0.75], len(pairs))
        r = numpy.zeros((classes, classes))
        for (a, b), q in zip(pairs, p):
            r[a, b], r[b, a] = 1 - q, q
        # scikit-learn's predictions are 1 for the second class; its confidences are signed.
        decision = _ovr_decision_function((p > 0.5).astype(int)[None], (p - 0.5)[None], classes)[0]
        votes.append({
            "classes": classes, "probabilities": p.tolist(), "majority": decision.tolist(), "coupled": coupled(r).tolist(),
        })

random = numpy.random.default_rng(11)
several = []
for name, cases, shares in [("three labels", 60, [0.5, 0.2, 0.8]), ("a label that no case has", 20, [0.4, 0.0]), ("ties", 24, [0.5, 0.5, 0.5])]:
    truth = (random.random((cases, len(shares))) < shares).astype(int)
    table = (0.35 * truth + 0.65 * random.random(truth.shape)).round(1 if name == "ties" else 4)
    given = (table >= 0.5).astype(int)
    precision, recall, f1, _ = precision_recall_fscore_support(truth, given, zero_division=numpy.nan)
    both = [0 < column.sum() < cases for column in truth.T]
    area = [roc_auc_score(truth[:, k], table[:, k]) if ok else math.nan for k, ok in enumerate(both)]
    average = [average_precision_score(truth[:, k], table[:, k]) if ok else math.nan for k, ok in enumerate(both)]
    specificity = [((given == 0) & (truth == 0))[:, k].sum() / (truth[:, k] == 0).sum() for k in range(len(shares))]
    several.append({
        "name": name, "labels": truth.ravel().tolist(), "probabilities": table.ravel().tolist(),
        "overall": {
            "accuracy": accuracy_score(truth, given), "f1": number(numpy.nanmean(f1)), "auroc": number(numpy.nanmean(area)),
            "average_precision": number(numpy.nanmean(average)), "micro_f1": f1_score(truth, given, average="micro"),
        },
        "classes": {
            "sensitivity": list(map(number, recall)), "specificity": list(map(number, specificity)),
            "precision": list(map(number, precision)), "f1": list(map(number, f1)), "auroc": list(map(number, area)),
            "average_precision": list(map(number, average)),
        },
    })

text = json.dumps({"tables": tables, "wilson": wilson, "votes": votes, "several": several}, separators=(",", ":"))
(HERE / "classification.json").write_text(text + "\n")
