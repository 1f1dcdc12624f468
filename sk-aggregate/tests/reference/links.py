"""Links at 40 digits, rounded to the nearest double.

    python3 links.py > links.json        (needs mpmath)

The arguments are doubles, written exactly; values are g(u) for u >= 0. Every link is odd.
"""
import json

import mpmath as mp

mp.mp.dps = 60

ARGUMENTS = [
    1e-300, 1e-160, 1e-20, 1e-8, 1e-4, 0.01, 0.1, 0.25, 0.5, 0.6324555320336759, 0.75, 0.84375, 1.0, 1.25, 1.5434, 1.7888543819998317,
    2.0, 2.5, 2.857, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0, 8.3, 10.0, 20.0, 37.0, 100.0, 1e4, 1e8, 1e20, 1e160, 1e300, 4e307,
]


# From this many degrees of freedom on, use quadrature: the series of the incomplete beta function
# would have too many terms.
MANY = 50


def student(nu):
    nu = mp.mpf(nu)

    def few(u):
        v = u * u / nu
        return mp.betainc(mp.mpf(1) / 2, nu / 2, 0, v / (1 + v), regularized=True) / 2 if v < 1 else (
            (1 - mp.betainc(nu / 2, mp.mpf(1) / 2, 0, 1 / (1 + v), regularized=True)) / 2
        )

    def many(u):
        # Beyond 40, the tails hold less than 1e-37.
        with mp.workdps(60 + int(mp.log10(nu))):
            density = mp.exp(mp.loggamma((nu + 1) / 2) - mp.loggamma(nu / 2)) / mp.sqrt(nu * mp.pi)
            end = min(u, mp.mpf(40))
            # Integrate over parts of `end`, since the quadrature stops at an absolute error.
            points = [k / end for k in range(41) if k < end] + [mp.mpf(1)]
            return density * end * mp.quad(lambda part: mp.exp(-(nu + 1) / 2 * mp.log1p((part * end) ** 2 / nu)), points)

    return few if nu < MANY else many


STUDENTS = [
    "0.1", "0.3", "1", "2", "3.5", "8", "14.5", "19.9", "20", "21.5", "30", "64", "100", "1000", "10000", "1e6", "1e9", "1e12", "1e16", "1e100",
    "1e300",
]

# A dense grid where the elementary links bend.
GRID = [k / 32 for k in range(1, 289)]

LINKS = {
    "probit": lambda u: mp.erf(u / mp.sqrt(2)) / 2,
    "logistic": lambda u: mp.tanh(u / 2) / 2,
    "tanh": mp.tanh,
    "laplace": lambda u: -mp.expm1(-u) / 2,
    "asinh": lambda u: mp.asinh(u) if u > 1e-30 else u,
    "signed_log": lambda u: mp.log1p(u) if u > 1e-30 else u,
    **{f"student_{nu}": student(float(nu)) for nu in STUDENTS},
}


# Below this many degrees of freedom, g has one formula for small u and another for large u. It is
# least accurate just above the switch.
FRACTION = 20


def near_the_switch(nu):
    split = 1.5 / (nu / 2 + 2.5)
    switch = (nu * split / (1 - split)) ** 0.5
    return [switch * (1 + k / 256) for k in range(-8, 33)]


def row(name, g):
    if name.startswith("student"):
        nu = float(name.removeprefix("student_"))
        arguments = sorted(set(ARGUMENTS + near_the_switch(nu))) if nu < FRACTION else ARGUMENTS
    else:
        arguments = sorted(set(ARGUMENTS + GRID))
    pairs = ",\n".join(f" {json.dumps([u, float(g(mp.mpf(u)))])}" for u in arguments)
    return f'"{name}": [\n{pairs}\n]'


if __name__ == "__main__":
    print("{\n" + ",\n".join(row(name, g) for name, g in LINKS.items()) + "\n}")
