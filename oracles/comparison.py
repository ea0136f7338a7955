"""Statistics of paired comparisons: signed-rank tests, bootstrap intervals, Holm's correction, Kendall's tau, power.

    pip install numpy scipy statsmodels
    python oracles/comparison.py

Writes oracles/comparison.json. Bootstrap intervals are of the resampled indices that are written beside them. BCa intervals are those of
scipy.stats.bootstrap, whose shares are asked for directly so that it draws nothing itself. Power is that of a t test with as many
cases as the signed-rank test is worth for normal differences: 3 / pi of them (Lehmann 1975).
"""

import json
import math
from pathlib import Path

import numpy
from scipy.stats import kendalltau, norm, wilcoxon
from scipy.stats._resampling import _bca_interval
from scipy._lib._array_api import array_namespace
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

HERE = Path(__file__).resolve().parent
random = numpy.random.default_rng(20)

signed_ranks = []


def signed_rank(name, d):
    d = numpy.asarray(d, float)
    found = wilcoxon(d)
    signed_ranks.append({"name": name, "differences": d.tolist(), "statistic": float(found.statistic), "p": float(found.pvalue)})


for n in (1, 2, 5, 6, 12, 13, 14, 30, 49, 50, 51, 120, 1000):
    signed_rank(f"{n} without ties", random.normal(0.3, 1, n))
    signed_rank(f"{n} with ties", numpy.where(numpy.arange(n) % 2, 1, -1) * random.integers(1, 6, n) + 0.0)
    if n > 2:
        zeros = random.integers(-3, 5, n) + 0.0
        zeros[0] = 0.0
        zeros[1] = 2.0
        signed_rank(f"{n} with zeros and ties", zeros)
    if n > 5:
        few = random.normal(0.1, 1, n)
        few[:2] = 0
        signed_rank(f"{n} with zeros", few)
signed_rank("all positive", random.uniform(0.1, 1, 20))
signed_rank("far apart", random.normal(3, 1, 60))
signed_rank("thousand far apart", random.normal(1, 1, 1000))

bootstraps = []
for n, resamples, skew in ((11, 200, 0), (12, 400, 0), (15, 500, 1), (40, 300, 2)):
    d = random.normal(0.2, 1, n) + skew * random.exponential(1, n)
    indices = random.integers(0, n, (resamples, n))
    means = d[indices].mean(axis=1)
    medians = numpy.median(d[indices], axis=1)
    for confidence in (0.9, 0.95):
        outside = (1 - confidence) / 2
        shares = _bca_interval((d,), lambda x, axis: numpy.mean(x, axis=axis), -1, outside, means, None, array_namespace(d))[:2]
        bootstraps.append({
            "differences": d.tolist(), "indices": indices.tolist(), "confidence": confidence,
            "bca_of_mean": [float(numpy.quantile(means, float(share))) for share in shares],
            "percentile_of_mean": numpy.quantile(means, [outside, 1 - outside]).tolist(),
            "percentile_of_median": numpy.quantile(medians, [outside, 1 - outside]).tolist(),
        })

families = []
for p in ([0.03], [0.01, 0.04, 0.03, 0.005], [0.5, 0.5, 0.2, 0.9], [0.0, 1.0, 1e-9, 0.2, 0.2], random.uniform(0, 0.2, 25).tolist()):
    families.append({"p": p, "holm": multipletests(p, method="holm")[1].tolist()})

taus = []
for one, other in (([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [3, 2, 1]), ([1, 1, 2, 3], [2, 1, 1, 3]), ([1, 1, 1], [1, 2, 3])):
    tau = kendalltau(one, other).statistic
    taus.append({"one": one, "other": other, "tau": None if math.isnan(tau) else float(tau)})
for n in (4, 9):
    one, other = random.normal(size=n).round(1), random.normal(size=n).round(1)
    taus.append({"one": one.tolist(), "other": other.tolist(), "tau": float(kendalltau(one, other).statistic)})

powers = []
for cases, shift in ((20, 0.5), (20, 0.8), (40, 0.5)):
    power = TTestPower().power(shift, cases * 3 / math.pi, 0.05, alternative="two-sided")
    powers.append({"cases": cases, "shift": shift, "power": float(power)})

# Noether (1987): p' of normal differences with this shift is the probability that the sum of two is above zero.
needed = []
for shift in (0.3, 0.5, 0.8):
    p = norm.cdf(shift * math.sqrt(2))
    z = norm.ppf(0.975) + norm.ppf(0.8)
    needed.append({"shift": shift, "cases": z * z / (3 * (p - 0.5) ** 2)})

found = {
    "signed_ranks": signed_ranks, "bootstraps": bootstraps, "families": families, "taus": taus, "powers": powers, "needed": needed,
}
(HERE / "comparison.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
