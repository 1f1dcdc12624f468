//! Operators that each break one axiom. Unless stated otherwise, they modify asinh over the
//! Euclidean spread, which breaks none.

use sk_aggregate::axioms::Axiom::{self, A0, A1, A2, A3, A3Prime, A4, A5, A5Prime, A6, A7, A8};
use sk_aggregate::{Kernel, Pairwise, RoundRobin};
use sk_core::{Aggregator, Batch};

pub(crate) struct Broken {
    pub(crate) axiom: Axiom,
    pub(crate) how: &'static str,
    /// The axioms that must break together with this one.
    pub(crate) also: &'static [Axiom],
    pub(crate) operator: Box<dyn Aggregator>,
}

/// A kernel of (Δ, σ_i, σ_j). Two certain candidates draw.
struct Delta<F>(F);

impl<F: Fn(f64, f64, f64) -> f64 + Send + Sync> Kernel for Delta<F> {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        if own.1 + rival.1 == 0.0 { 0.0 } else { (self.0)(own.0 - rival.0, own.1, rival.1) }
    }
}

/// A kernel of both scores. Two certain candidates draw.
struct Scored<F>(F);

impl<F: Fn((f64, f64), (f64, f64)) -> f64 + Send + Sync> Kernel for Scored<F> {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        if own.1 + rival.1 == 0.0 { 0.0 } else { (self.0)(own, rival) }
    }
}

/// A kernel of Δ and s₂ without an exception for two certain candidates.
struct Bare<F>(F);

impl<F: Fn(f64, f64) -> f64 + Send + Sync> Kernel for Bare<F> {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        (self.0)(own.0 - rival.0, own.1.hypot(rival.1))
    }
}

/// A kernel for the earlier of two candidates in the batch; the later one gets the opposite. Two
/// certain candidates draw.
struct Ordered<F>(F);

impl<F: Fn(f64, f64, f64) -> f64 + Send + Sync> Aggregator for Ordered<F> {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        ratings.fill(0.0);
        for j in 0..batch.len() {
            for i in 0..j {
                if batch.sigma()[i] + batch.sigma()[j] == 0.0 {
                    continue;
                }
                let worth = (self.0)(batch.mu()[i] - batch.mu()[j], batch.sigma()[i], batch.sigma()[j]);
                ratings[i] += worth;
                ratings[j] -= worth;
            }
        }
    }
}

/// Edits the ratings of a sound operator by any function of the batch.
struct Spoiled<F>(F);

impl<F: Fn(&Batch<'_>, &mut [f64]) + Send + Sync> Aggregator for Spoiled<F> {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        RoundRobin::asinh().rate(batch, ratings);
        (self.0)(batch, ratings);
    }
}

/// One operator below five candidates, and another from five on.
struct FromFive<S, B>(S, B);

impl<S: Aggregator, B: Aggregator> Aggregator for FromFive<S, B> {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        if batch.len() < 5 { self.0.rate(batch, ratings) } else { self.1.rate(batch, ratings) }
    }
}

fn delta(f: impl Fn(f64, f64, f64) -> f64 + Send + Sync + 'static) -> Box<dyn Aggregator> {
    Box::new(Pairwise(Delta(f)))
}

/// asinh(Δ/s) for a spread of the two dispersions.
fn spread(s: impl Fn(f64, f64) -> f64 + Send + Sync + 'static) -> Box<dyn Aggregator> {
    delta(move |d, a, b| (d / s(a, b)).asinh())
}

/// g(Δ/s₂) for a link.
fn link(g: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Box<dyn Aggregator> {
    delta(move |d, a, b| g(d / a.hypot(b)))
}

/// asinh((f(μ_i) − f(μ_j))/s₂).
fn seen(f: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Box<dyn Aggregator> {
    Box::new(Pairwise(Scored(move |own: (f64, f64), rival: (f64, f64)| ((f(own.0) - f(rival.0)) / own.1.hypot(rival.1)).asinh())))
}

fn ordered(f: impl Fn(f64, f64, f64) -> f64 + Send + Sync + 'static) -> Box<dyn Aggregator> {
    Box::new(Ordered(f))
}

fn spoiled(f: impl Fn(&Batch<'_>, &mut [f64]) + Send + Sync + 'static) -> Box<dyn Aggregator> {
    Box::new(Spoiled(f))
}

fn from_five(broken: Box<dyn Aggregator>) -> Box<dyn Aggregator> {
    Box::new(FromFive(RoundRobin::asinh(), broken))
}

fn certain(a: f64, b: f64) -> bool {
    a == 0.0 || b == 0.0
}

/// asinh with its part beyond |u| = 6 replaced by asinh(6) + tail(|u| − 6).
fn tail(tail: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Box<dyn Aggregator> {
    link(move |u| if u.abs() <= 6.0 { u.asinh() } else { u.signum() * (6f64.asinh() + tail(u.abs() - 6.0)) })
}

pub(crate) fn all() -> Vec<Broken> {
    let mut list = Vec::new();
    let mut add =
        |axiom, also: &'static [Axiom], how, operator: Box<dyn Aggregator>| list.push(Broken { axiom, how, also, operator });

    add(A0, &[], "two certain candidates that tie are rated 0/0; signed root", {
        Box::new(Pairwise(Bare(|d: f64, s: f64| (d / s).signum() * (d / s).abs().min(1e300).sqrt())))
    });
    add(A0, &[], "two certain candidates that do not tie are infinitely far apart; identity link", {
        Box::new(Pairwise(Bare(|d: f64, s: f64| if d == 0.0 { 0.0 } else { d / s })))
    });
    add(
        A0,
        &[],
        "nobody is rated where all are certain, from N = 5 on",
        spoiled(|batch, ratings| {
            if batch.len() >= 5 && batch.sigma().iter().all(|&s| s == 0.0) {
                ratings.fill(f64::NAN);
            }
        }),
    );

    add(A1, &[], "the earlier dispersion counts more, by 1e-6", ordered(|d, a, b| (d / a.hypot((1.0 + 1e-6) * b)).asinh()));
    add(
        A1,
        &[],
        "a certain candidate that comes first narrows the spread",
        ordered(|d, a, b| (d / if a == 0.0 { 0.9 * b } else { a.hypot(b) }).asinh()),
    );
    add(
        A1,
        &[],
        "past u = 6 the earlier wins by more",
        ordered(|d, a, b| {
            let u = d / a.hypot(b);
            u.asinh() + 0.1 * (u - 6.0).max(0.0)
        }),
    );
    add(A1, &[A4, A5], "exact ties go to the earlier", ordered(|d, a, b| if d == 0.0 { 1e-6 } else { (d / a.hypot(b)).asinh() }));
    add(
        A1,
        &[A6],
        "from N = 5 on, the last candidate gets 1e-6 more",
        spoiled(|batch, ratings| {
            if batch.len() >= 5
                && let Some(last) = ratings.last_mut()
            {
                *last += 1e-6;
            }
        }),
    );

    add(A2, &[], "positive scores count three times as much as negative ones", seen(|m| m + 0.5 * m.abs()));
    add(A2, &[], "positive scores count more, by 1e-6", seen(|m| m + 1e-6 * m.abs()));
    add(A2, &[A8], "the same, only against a certain candidate; identity link", {
        let f = |m: f64, a, b| if certain(a, b) { m + 0.1 * m.max(0.0) } else { m };
        Box::new(Pairwise(Scored(move |own: (f64, f64), rival: (f64, f64)| {
            let (a, b) = (own.1, rival.1);
            (f(own.0, a, b) - f(rival.0, a, b)) / a.hypot(b)
        })))
    });
    add(A2, &[], "scores past six of their dispersions count more, by a tenth; identity link", {
        let seen = |m: f64| m + 0.1 * m.signum() * (m.abs() - 6.0).max(0.0);
        Box::new(Pairwise(Scored(move |own: (f64, f64), rival: (f64, f64)| {
            let s = own.1.hypot(rival.1);
            seen(own.0 / s) - seen(rival.0 / s)
        })))
    });
    add(A2, &[A6], "positive scores count more, by 1e-6, only from N = 5 on", from_five(seen(|m| m + 1e-6 * m.abs())));

    add(A3, &[A3Prime], "a floor of 1 under the spread", spread(|a, b| a.hypot(b) + 1.0));
    add(A3, &[A3Prime], "a floor of 1e-6 under the spread", spread(|a, b| a.hypot(b) + 1e-6));
    add(
        A3,
        &[A3Prime],
        "a certain candidate is compared on a scale of its own",
        spread(|a, b| {
            let s = a.hypot(b);
            if certain(a, b) { s * s / (1.0 + s) } else { s }
        }),
    );
    add(A3, &[A3Prime, A6], "a floor under the spread, only from N = 5 on", from_five(spread(|a, b| a.hypot(b) + 0.01)));

    add(A3Prime, &[], "the spread has degree 2; identity link", delta(|d, a, b| d / (a * a + b * b)));
    add(A3Prime, &[], "the spread has degree 1.000001; identity link", delta(|d, a, b| d / a.hypot(b).powf(1.000_001)));
    add(A3Prime, &[], "differences enter by their cube root", delta(|d, a, b| d.cbrt() / a.hypot(b)));
    add(A3Prime, &[A6], "the spread has degree 2, only from N = 5 on; identity link", {
        let degree = |q: f64| Pairwise(Delta(move |d: f64, a: f64, b: f64| d / a.hypot(b).powf(q)));
        Box::new(FromFive(degree(1.0), degree(2.0)))
    });

    add(A4, &[A5, A5Prime], "past |u| = 6 a higher score counts less", tail(|over| -0.1 * over.ln_1p()));
    add(A4, &[A5, A5Prime], "past |u| = 6 a higher score counts less, by 1e-6", tail(|over| -1e-6 * over));
    add(A4, &[A5], "past |u| = 6 a higher score counts no more", tail(|_| 0.0));
    add(A4, &[], "near-ties, up to |u| = 0.001, are draws", link(|u| u.signum() * (u.abs() - 1e-3).max(0.0).asinh()));
    add(A4, &[], "near-ties, up to |u| = 1e-6, are draws", link(|u| u.signum() * (u.abs() - 1e-6).max(0.0).asinh()));
    add(A4, &[], "everybody draws", delta(|_, _, _| 0.0));
    add(A4, &[], "everybody is compared in reverse", link(|u| -u.asinh()));
    add(
        A4,
        &[A5, A8],
        "a certain candidate is compared in reverse",
        delta(|d, a, b| {
            let g = (d / a.hypot(b)).asinh();
            if certain(a, b) { -g } else { g }
        }),
    );
    add(A4, &[A5, A5Prime, A6], "past |u| = 6 a higher score counts less, from N = 5 on", from_five(tail(|over| -1e-3 * over)));

    add(A5, &[], "the probit link", Box::new(RoundRobin::thurstone()));
    add(A5, &[], "past |u| = 6 the link grows more slowly than log u, by 1e-6", {
        // From |u| = 6 on, g′ falls like u^−1.000001.
        const POWER: f64 = 1e-6;
        let slope = 1.0 / 37f64.sqrt();
        tail(move |over| slope * 6.0 / POWER * -((-POWER * ((over + 6.0) / 6.0).ln()).exp_m1()))
    });
    add(
        A5,
        &[A5Prime],
        "a certain candidate widens the spread",
        spread(|a, b| if certain(a, b) { 1.1 * a.hypot(b) } else { a.hypot(b) }),
    );
    add(
        A5,
        &[A5Prime],
        "a certain candidate widens the spread, by 1e-6",
        spread(|a, b| if certain(a, b) { (1.0 + 1e-6) * a.hypot(b) } else { a.hypot(b) }),
    );
    add(A5, &[], "between |u| = 2 and 3 the link climbs half as fast", {
        link(|u| u.asinh() - 0.5 * u.signum() * (u.abs().clamp(2.0, 3.0).asinh() - 2f64.asinh()))
    });
    add(A5, &[A6], "a bounded link, only from N = 5 on", from_five(link(f64::tanh)));

    add(A5Prime, &[], "the link grows like a cube", link(|u| u + u.powi(3)));
    add(A5Prime, &[], "the link grows like a cube, by 1e-6", link(|u| u + 1e-6 * u.powi(3)));
    add(A5Prime, &[], "the link grows like u·log u", link(|u| u * (1.0 + u.abs().ln_1p())));
    add(A5Prime, &[], "past |u| = 6 the link grows like a square", tail(|over| over + over * over));
    add(A5Prime, &[A6], "the link grows like a cube, only from N = 5 on", from_five(link(|u| u + u.powi(3))));
    add(
        A5Prime,
        &[A5],
        "past ten million times the smaller dispersion the larger counts no more",
        spread(|a, b| if certain(a, b) { a.max(b) } else { a.hypot(b).min(1e7 * a.min(b)) }),
    );
    add(A5Prime, &[A5], "the smaller dispersion narrows the spread", spread(|a, b| a.max(b) - 0.5 * a.min(b)));
    add(A5Prime, &[A5], "the smaller dispersion narrows the spread, by 1e-6", spread(|a, b| a.max(b) - 1e-6 * a.min(b)));
    add(A5Prime, &[A5], "the more certain of two sets the scale", spread(|a, b| if certain(a, b) { a.max(b) } else { a.min(b) }));
    add(
        A5Prime,
        &[A5, A6],
        "the same, only from N = 5 on",
        from_five(spread(|a, b| if certain(a, b) { a.max(b) } else { a.min(b) })),
    );

    add(
        A6,
        &[],
        "every further candidate adds 1e-6 to what a comparison counts",
        spoiled(|batch, ratings| {
            let factor = 1.0 + 1e-6 * (batch.len() as f64 - 2.0);
            ratings.iter_mut().for_each(|r| *r *= factor);
        }),
    );
    add(
        A6,
        &[],
        "from N = 5 on comparisons count double",
        spoiled(|batch, ratings| {
            if batch.len() >= 5 {
                ratings.iter_mut().for_each(|r| *r *= 2.0);
            }
        }),
    );
    add(
        A6,
        &[],
        "one certain candidate among three or more makes all comparisons count more",
        spoiled(|batch, ratings| {
            if batch.len() > 2 && batch.sigma().contains(&0.0) {
                ratings.iter_mut().for_each(|r| *r *= 1.1);
            }
        }),
    );
    add(
        A6,
        &[],
        "a rating past 6 grows faster than its sum",
        spoiled(|_, ratings| {
            ratings.iter_mut().for_each(|r| *r += 0.1 * r.signum() * (r.abs() - 6.0).max(0.0));
        }),
    );

    add(A7, &[], "one's own dispersion counts double", spread(|a, b| 2.0 * a + b));
    add(A7, &[], "a win counts more than a defeat, by 1e-6", link(|u| u.asinh() + 1e-6 * u.asinh().abs()));
    add(
        A7,
        &[],
        "a certain candidate sees a narrower spread than its rival",
        spread(|a, b| if a == 0.0 { 0.9 * b } else { a.hypot(b) }),
    );
    add(A7, &[], "past u = 6 a win counts more than a defeat", link(|u| u.asinh() + 0.1 * (u - 6.0).max(0.0)));
    add(A7, &[], "defeats count double; identity link", link(|u| if u > 0.0 { u } else { 2.0 * u }));

    add(A8, &[], "two spreads at once", delta(|d, a, b| (d / (a + b)).asinh() + (d / a.max(b)).asinh()));
    add(A8, &[], "a second spread, by 1e-6", delta(|d, a, b| (d / a.hypot(b)).asinh() + 1e-6 * (d / a.max(b)).asinh()));
    add(
        A8,
        &[],
        "past |Δ| = 6 max(σ) a second spread",
        delta(|d, a, b| (d / a.hypot(b)).asinh() + 0.1 * d.signum() * (d.abs() / a.max(b) - 6.0).max(0.0)),
    );
    add(A8, &[], "near ties a second spread, by 1e-6", {
        delta(|d, a, b| (d / a.hypot(b)).asinh() + 1e-9 * (1e3 * d / a.max(b)).asinh())
    });
    add(A8, &[], "up to |u| = 0.001 a second spread, by 1e-6", {
        delta(|d, a, b| (d / a.hypot(b)).asinh() + 1e-6 * (d / a.max(b)).clamp(-1e-3, 1e-3))
    });
    add(A8, &[A4, A5], "exact ties go to the surer, by 1e-4", {
        delta(|d, a, b| if d == 0.0 { 1e-4 * (b - a) / (a + b) } else { (d / a.hypot(b)).asinh() })
    });
    add(
        A8,
        &[],
        "against a certain candidate another link",
        delta(|d, a, b| {
            let u = d / a.hypot(b);
            if certain(a, b) { u.asinh() } else { u.signum() * u.abs().ln_1p() }
        }),
    );
    list
}
