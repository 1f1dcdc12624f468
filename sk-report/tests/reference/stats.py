"""Reference values for the statistics, from SciPy, pymoo and moocore, and from statsmodels for Holm's correction.

    pip install scipy==1.17.1 pymoo==0.6.2 moocore==0.3.2 statsmodels==0.15.0
    python3 stats.py > ../fixtures/stats.json

Inputs are drawn from a seeded generator, rounded so that they survive JSON, and kept beside the results.
"""
import json

import moocore
import numpy as np
from pymoo.indicators.hv import HV
from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting
from scipy import stats
from scipy.spatial.distance import cdist
from statsmodels.stats.multitest import multipletests

rng = np.random.default_rng(20)


def points(n, decimals):
    return np.round(rng.random((n, 3)), decimals)


def frontiers():
    """One decimal makes points that coincide, tie on an axis, and lie on the reference."""
    cases = []
    for n, decimals, reference in [(1, 3, 0.0), (7, 3, 0.0), (7, 1, 0.0), (30, 1, 0.2), (60, 3, -0.1), (120, 2, 0.25)]:
        p = points(n, decimals)
        if n == 60:  # most points of a random cloud are dominated; those of a shell are not
            p = np.round(p / np.linalg.norm(p, axis=1, keepdims=True), 4)
        ref = [reference, reference / 2, reference]
        volume = float(moocore.hypervolume(p, ref=ref, maximise=True))
        assert abs(volume - float(HV(ref_point=-np.array(ref))(-p))) < 1e-12
        front = sorted(int(i) for i in NonDominatedSorting().do(-p, only_non_dominated_front=True))
        assert front == [int(i) for i in np.flatnonzero(moocore.is_nondominated(p, maximise=True, keep_weakly=True))]
        case = dict(points=p.tolist(), reference=ref, hypervolume=volume, front=front)
        if n > 1:
            for name, metric, ddof in [("schott", "cityblock", 1), ("published", "euclidean", 0)]:
                d = cdist(p, p, metric)
                np.fill_diagonal(d, np.inf)
                case[name] = float(np.std(d.min(axis=1), ddof=ddof))
        cases.append(case)
    return cases


def harmonic_means():
    cases = np.round(rng.uniform(0.01, 1, (6, 3)), 3)
    return [dict(values=c.tolist(), mean=float(stats.hmean(c))) for c in cases]


def wilcoxon():
    cases = []
    samples = [
        np.round(rng.normal(0.3, 1, 12), 6),
        np.round(rng.normal(0.1, 1, 45), 6),
        np.round(rng.normal(0.4, 1, 11), 0) / 10,
        np.round(rng.normal(0.2, 1, 40), 1),
        np.round(rng.normal(1.0, 1, 120), 1),
        np.concatenate([np.zeros(9), np.round(rng.normal(0.5, 1, 30), 1)]),
    ]
    for d in samples:
        for zero in ("wilcox", "pratt", "zsplit"):
            auto = stats.wilcoxon(d, zero_method=zero)
            cases.append(dict(differences=d.tolist(), zeros=zero, statistic=float(auto.statistic), auto=float(auto.pvalue)))
    return cases


def spearman():
    cases = []
    for n, decimals in [(3, 2), (5, 2), (7, 3), (7, 0), (21, 2), (60, 1)]:
        x = np.round(rng.normal(size=n), decimals if n != 7 else 1)
        y = np.round(0.6 * x + rng.normal(size=n), decimals)
        if len(set(x)) == 1 or len(set(y)) == 1:
            continue
        found = stats.spearmanr(x, y)
        case = dict(x=x.tolist(), y=y.tolist(), rho=float(found.statistic), p=float(found.pvalue))
        if n <= 7:
            exact = stats.permutation_test((x,), lambda x: stats.spearmanr(x, y).statistic, permutation_type="pairings", n_resamples=np.inf)
            case["exact"] = float(exact.pvalue)
        cases.append(case)
    return cases


def steering():
    weights = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [1 / 3] * 3])
    achieved = np.round(0.7 + 0.05 * weights + 0.03 * rng.normal(size=(7, 3)), 4)
    z = (achieved - achieved.mean(0)) / achieved.std(0)
    pooled = stats.spearmanr(weights.ravel(), z.ravel())

    def statistic(index):
        return stats.spearmanr(weights[index.astype(int)].ravel(), z.ravel()).statistic

    permuted = stats.permutation_test((np.arange(7.0),), statistic, permutation_type="pairings", n_resamples=np.inf, vectorized=False)
    axes = []
    for k in range(3):
        found = stats.spearmanr(weights[:, k], achieved[:, k])
        slope = stats.linregress(weights[:, k], achieved[:, k]).slope
        axes.append(dict(rho=float(found.statistic), p=float(found.pvalue), slope=float(slope), range=float(np.ptp(achieved[:, k]))))
    return dict(
        weights=weights.tolist(), achieved=achieved.tolist(), axes=axes,
        pooled=dict(rho=float(pooled.statistic), p=float(pooled.pvalue), permutation_p=float(permuted.pvalue),
                    slope=float(stats.linregress(weights.ravel(), z.ravel()).slope)),
    )


def bootstrap():
    """Intervals of distributions that are given, so that no generator has to be shared."""
    cases = []
    for skewed in (False, True):
        sample = np.round(rng.exponential(size=25) - 0.4 if skewed else rng.normal(0.3, 1, 30), 4)
        drawn = stats.bootstrap((sample,), np.mean, n_resamples=199, rng=rng)
        distribution = np.round(drawn.bootstrap_distribution, 6)
        drawn.bootstrap_distribution = distribution
        case = dict(sample=sample.tolist(), distribution=distribution.tolist())
        for name, level in (("percentile", 0.95), ("BCa", 0.95), ("BCa", 0.8)):
            found = stats.bootstrap((sample,), np.mean, n_resamples=0, bootstrap_result=drawn, method=name, confidence_level=level)
            interval = found.confidence_interval
            case[f"{name} {level}"] = [float(interval.low), float(interval.high)]
        cases.append(case)
    return cases


def holm():
    cases = []
    for n in (1, 4, 9):
        p = np.round(rng.beta(0.4, 2, n), 4)
        if n == 9:
            p[3] = p[5]
        cases.append(dict(p=p.tolist(), adjusted=multipletests(p, method="holm")[1].tolist()))
    return cases


own = np.random.default_rng(21)  # a separate generator, so that the draws above do not change


def f1():
    """Cells by configuration, configurations of unequal size."""
    cases = []
    for sizes in [(1,), (3, 3), (4, 1, 2, 7)]:
        cells = [np.round(own.uniform(0.02, 1, (n, 3)), 3) for n in sizes]
        cases.append(dict(
            cells=[c.tolist() for c in cells],
            of_mean_axes=float(stats.hmean(np.concatenate(cells).mean(axis=0))),
            mean_of_configurations=float(np.mean([stats.hmean(c.mean(axis=0)) for c in cells])),
            mean_of_cells=float(np.mean(stats.hmean(np.concatenate(cells), axis=1))),
        ))
    return cases


def win_rates():
    cases = []
    for d in [np.round(own.normal(0.2, 1, 40), 1), np.round(own.normal(0, 1, 12), 3)]:
        wins, ties = np.mean(d > 0), np.mean(d == 0)
        cases.append(dict(differences=d.tolist(), of_all=float(wins), halving=float(wins + ties / 2), of_decided=float(np.mean(d[d != 0] > 0))))
    return cases


def clustered():
    """The mean over whole clusters: intervals of given draws, to the digit, and of SciPy's own draws, many."""
    cases = []
    for clusters in (8, 15):
        sizes = own.integers(1, 6, clusters)
        prompts = np.repeat(np.arange(clusters), sizes)
        differences = np.round(own.exponential(size=len(prompts)) - 0.5 + own.normal(size=clusters)[prompts] / 2, 4)
        totals = np.bincount(prompts, differences)

        def statistic(index, axis=-1):
            index = np.asarray(index).astype(int)
            return totals[index].sum(axis=axis) / sizes[index].sum(axis=axis)

        draws = own.integers(0, clusters, (199, clusters))
        units = (np.arange(clusters),)
        given = stats.bootstrap(units, statistic, n_resamples=2, rng=own)
        given.bootstrap_distribution = statistic(draws)
        case = dict(differences=differences.tolist(), prompts=prompts.tolist(), draws=draws.tolist(), mean=float(statistic(units[0])))
        for method in ("percentile", "BCa"):
            found = stats.bootstrap(units, statistic, n_resamples=0, bootstrap_result=given, method=method)
            many = stats.bootstrap(units, statistic, n_resamples=400_000, method=method, batch=10_000, rng=own)
            case[method] = list(map(float, found.confidence_interval))
            case[f"{method} of many"] = list(map(float, many.confidence_interval))
        cases.append(case)
    return cases


result = dict(
    frontiers=frontiers(), harmonic_means=harmonic_means(), wilcoxon=wilcoxon(), spearman=spearman(), steering=steering(),
    bootstrap=bootstrap(), holm=holm(), f1=f1(), win_rates=win_rates(), clustered=clustered(),
)
print("{")
print(",\n".join(f'"{name}": ' + ("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]" if isinstance(cases, list) else json.dumps(cases))
                 for name, cases in result.items()))
print("}")
