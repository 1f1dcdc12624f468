"""The polynomial of `src/elementary.rs` for erf.

    python3 erf.py        (needs mpmath; a minute)

q(x) = -log(erfc x) / x on [0, END] in powers of t = 2x/END - 1. An error of q by a part e makes one of erf by e * L / (e^L - 1), L = x q(x), so
the fit is weighted by that: digits where erf is small, few where it has saturated. Least squares on Chebyshev nodes, reweighted by Lawson's
method until the largest error stops falling.
"""
import mpmath as mp

mp.mp.dps = 50

DEGREE = 22
END = mp.mpf("5.9")
ROUNDS = 12


def chebyshev(t):
    values = [mp.mpf(1), t]
    while len(values) <= DEGREE:
        values.append(2 * t * values[-1] - values[-2])
    return values


def fit():
    count = 6 * DEGREE
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    basis = [chebyshev(t) for t in nodes]
    logs = [-mp.log(mp.erfc((t + 1) * END / 2)) for t in nodes]
    q = [log / ((t + 1) * END / 2) for log, t in zip(logs, nodes)]
    weight = [log / mp.expm1(log) / value for log, value in zip(logs, q)]
    lawson = [mp.mpf(1)] * count
    best = None
    for _ in range(ROUNDS):
        scale = [w * mp.sqrt(l) for w, l in zip(weight, lawson)]
        left = mp.matrix([[s * b for b in row] for s, row in zip(scale, basis)])
        right = mp.matrix([s * value for s, value in zip(scale, q)])
        c = mp.qr_solve(left, right)[0]
        errors = [abs((mp.fdot(c, row) - value) * w) for row, value, w in zip(basis, q, weight)]
        if best is None or max(errors) < best[0]:
            best = (max(errors), list(c))
        lawson = [l * e for l, e in zip(lawson, errors)]
        total = mp.fsum(lawson)
        lawson = [l * count / total for l in lawson]
    return best


def powers(c):
    """From Chebyshev polynomials to powers of t."""
    polynomials = [[mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]]
    while len(polynomials) <= DEGREE:
        doubled = [mp.mpf(0)] + [2 * x for x in polynomials[-1]]
        polynomials.append([x - (polynomials[-2][i] if i < len(polynomials[-2]) else 0) for i, x in enumerate(doubled)])
    return [mp.fsum(c[k] * p[i] for k, p in enumerate(polynomials) if i < len(p)) for i in range(DEGREE + 1)]


if __name__ == "__main__":
    error, coefficients = fit()
    print(f"// relative error of erf: {mp.nstr(error, 3)}")
    for value in powers(coefficients):
        print(f"{float(value)!r},")
