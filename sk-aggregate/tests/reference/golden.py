"""One selection step of the reference instantiation, written from the paper in plain floats and independently of the crates.

    python3 golden.py > golden.json

Two conventions. `paper` is what the published runs did; `sound` has no epsilon in a standardisation, measures dispersions by the spread of
the scores, and seeds by what the candidates are. Sums go through math.fsum, so that they are correctly rounded.
"""
import json
import math
import random

HHH = dict(T=8.0, w_tour=1.1, w_blade=1.75, lam=0.2)
HARMLESSNESS = dict(T=11.219, w_tour=0.504, w_blade=1.483, lam=0.109)
HELPFULNESS = dict(T=1.69, w_tour=1.170, w_blade=1.707, lam=0.158)
HONESTY = dict(T=21.03, w_tour=1.587, w_blade=2.088, lam=0.395)
ALPHA, K_MAX, K_MIN = 0.5, 40.0, 10.0


def mean(x):
    return math.fsum(x) / len(x)


def std(x):
    """Sample standard deviation; 0 for one value."""
    if len(x) == 1:
        return 0.0
    m = mean(x)
    return math.sqrt(math.fsum((v - m) ** 2 for v in x) / (len(x) - 1))


def z(x, convention):
    m, s = mean(x), std(x)
    if convention == "paper":
        return [v - m for v in x] if s < 1e-8 else [(v - m) / (s + 1e-6) for v in x]
    return [0.0 for _ in x] if s == 0 else [(v - m) / s for v in x]


def cbn(blades, weights, convention):
    n = len(blades[0]["mu"])
    mu, sigma = [0.0] * n, [0.0] * n
    if n == 1:
        return mu, sigma
    for blade, w in zip(blades, weights):
        m, s_mu, s_sigma = mean(blade["mu"]), std(blade["mu"]), std(blade["sigma"])
        for i in range(n):
            if convention == "paper":
                mu[i] += w * (blade["mu"][i] - m) / (s_mu + 1e-6)
                sigma[i] += w * blade["sigma"][i] / (s_sigma + 1e-6)
            elif s_mu > 0:
                mu[i] += w * (blade["mu"][i] - m) / s_mu
                sigma[i] += w * blade["sigma"][i] / s_mu
    return mu, sigma


def enter(ell, mu, sigma, convention):
    z_ell, z_mu, spread = z(ell, convention), z(mu, convention), std(mu)
    if convention == "paper":
        scaled = [s / (spread + 1e-8) for s in sigma]
    else:
        scaled = [s / spread if spread > 0 else 0.0 for s in sigma]
    return [ALPHA * e + (1 - ALPHA) * m for e, m in zip(z_ell, z_mu)], [(1 - ALPHA) * s for s in scaled]


def tournament(ell, mu, sigma, R, convention):
    n = len(mu)
    d, s = enter(ell, mu, sigma, convention)
    if convention == "paper":
        seed = lambda i: (-mu[i], i)
    else:
        seed = lambda i: (-mu[i], -ell[i], sigma[i], i)
    rating, met, rounds = [1500.0] * n, set(), []
    for r in range(R):
        K = K_MAX if R == 1 else K_MAX * (K_MIN / K_MAX) ** (r / (R - 1))
        waiting = sorted(range(n), key=lambda i: (-rating[i], seed(i)))
        matches = []
        while len(waiting) > 1:
            i = waiting.pop(0)
            unmet = [j for j in waiting if frozenset((i, j)) not in met]
            j = unmet[0] if unmet else waiting[0]
            waiting.remove(j)
            met.add(frozenset((i, j)))
            S = 0.5 * math.erfc(-(d[i] - d[j]) / math.sqrt(s[i] ** 2 + s[j] ** 2 + 1e-8) / math.sqrt(2))
            E = 1 / (1 + 10 ** ((rating[j] - rating[i]) / 400))
            matches.append(dict(i=i, j=j, score=S, expected=E))
        for m in matches:
            gain = K * (m["score"] - m["expected"])
            rating[m["i"]] += gain
            rating[m["j"]] -= gain
        rounds.append(dict(k=K, matches=matches, bye=waiting[0] if waiting else None, ratings=list(rating)))
    if convention == "sound":
        alike = {}
        for i in range(n):
            alike.setdefault((mu[i], ell[i], sigma[i]), []).append(i)
        for group in alike.values():
            shared = mean([rating[i] for i in group])
            for i in group:
                rating[i] = shared
    return d, s, rounds, rating


def champion(rating, mu, sigma, point, convention):
    tour = z([r - 1500 for r in rating], convention)
    score, doubt = z(mu, convention), z(sigma, convention)
    logits = [
        (point["w_tour"] * a + point["w_blade"] * (b - point["lam"] * c)) / point["T"] for a, b, c in zip(tour, score, doubt)
    ]
    top = max(logits)
    weights = [math.exp(l - top) for l in logits]
    return [w / math.fsum(weights) for w in weights]


def step(name, point, R, weights, blades, ell):
    case = dict(name=name, point=point, rounds=R, weights=weights, blades=blades, fluency=ell)
    for convention in ("paper", "sound"):
        mu, sigma = cbn(blades, weights, convention)
        d, s, rounds, rating = tournament(ell, mu, sigma, R, convention)
        probabilities = champion(rating, mu, sigma, point, convention)
        case[convention] = dict(mu=mu, sigma=sigma, d=d, s=s, bracket=rounds, ratings=rating, probabilities=probabilities)
    return case


def drawn(name, point, n, R, k, seed):
    rng = random.Random(seed)
    scale = [0.005, 0.0008, 0.0035, 0.02]
    blades = [
        dict(mu=[rng.gauss(0, scale[b]) for _ in range(n)], sigma=[1 + rng.random() for _ in range(n)]) for b in range(k)
    ]
    raw = [1 + rng.random() for _ in range(k)]
    return step(name, point, R, [w / sum(raw) for w in raw], blades, [-2 - rng.random() for _ in range(n)])


CASES = [
    step("odd, by hand", HHH, 2, [1.0], [dict(mu=[3.0, 1.0, 2.0], sigma=[1.0, 2.0, 3.0])], [-1.0, -3.0, -2.0]),
    step(
        "even, by hand",
        HHH,
        5,
        [0.75, 0.25],
        [
            dict(mu=[0.0, 1.0, 2.0, 5.0], sigma=[1.0, 1.0, 3.0, 3.0]),
            dict(mu=[0.4, 0.0, 0.0, 0.0], sigma=[0.1, 0.2, 0.3, 0.4]),
        ],
        [-1.0, -2.0, -2.0, -3.0],
    ),
    step("one candidate", HHH, 5, [0.5, 0.5], [dict(mu=[0.3], sigma=[0.7]), dict(mu=[-2.0], sigma=[0.0])], [-1.5]),
    step("two candidates, three rounds", HHH, 3, [1.0], [dict(mu=[0.1, 0.3], sigma=[0.2, 0.5])], [-1.0, -1.25]),
    step(
        "two candidates alike",
        HONESTY,
        7,
        [0.5, 0.5],
        [dict(mu=[0.5, 0.25, 0.5], sigma=[0.5, 1.0, 0.5]), dict(mu=[1.0, -1.0, 1.0], sigma=[0.25, 0.5, 0.25])],
        [-1.0, -0.5, -1.0],
    ),
    step(
        "a blade without spread",
        HHH,
        3,
        [0.5, 0.5],
        [dict(mu=[0.1] * 4, sigma=[0.3, 0.3, 0.4, 0.5]), dict(mu=[0.1, 0.4, 0.2, 0.7], sigma=[0.5, 0.1, 0.1, 0.2])],
        [-1.0, -1.5, -2.5, -1.25],
    ),
    drawn("HHH", HHH, 7, 5, 3, 1),
    drawn("harmlessness", HARMLESSNESS, 11, 4, 1, 2),
    drawn("helpfulness", HELPFULNESS, 7, 3, 1, 3),
    drawn("honesty", HONESTY, 3, 7, 1, 4),
    drawn("one round", HHH, 8, 1, 2, 5),
    drawn("more rounds than opponents", HHH, 6, 9, 4, 6),
    drawn("more rounds than opponents, odd", HHH, 5, 12, 2, 7),
]

if __name__ == "__main__":
    print(json.dumps(CASES, indent=1))
