use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// A batch, and the changes that the laws apply to it.
///
/// Generated scores, dispersions, shifts and scales are short binary fractions, so that shifting
/// and scaling are exact.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    /// μ, one per candidate.
    pub mu: Vec<f64>,
    /// σ, one per candidate, at most one of them zero.
    pub sigma: Vec<f64>,
    /// The candidate whose score or dispersion is changed.
    pub who: usize,
    /// The second candidate of laws on pairs; different from `who` if there are at least two.
    pub rival: usize,
    /// Added to every score (A2).
    pub shift: f64,
    /// The factor of scores and dispersions (A3, A3′), positive.
    pub scale: f64,
    /// Added to the score of `who` (A4, A5, A5′), positive.
    pub step: f64,
    /// The factor of the dispersion of `who` (A5, A5′), above 1.
    pub widen: f64,
}

impl Case {
    /// Returns N.
    #[allow(clippy::len_without_is_empty)] // at least one candidate
    pub fn len(&self) -> usize {
        self.mu.len()
    }

    /// Returns whether the laws apply to this case: its fields are as described above, and all
    /// numbers are finite. Generated cases are valid.
    pub fn is_valid(&self) -> bool {
        let n = self.len();
        let finite = |values: &[f64]| values.iter().all(|x| x.is_finite());
        n > 0
            && self.sigma.len() == n
            && self.who < n
            && self.rival < n
            && (n == 1 || self.who != self.rival)
            && finite(&self.mu)
            && finite(&self.sigma)
            && finite(&[self.shift, self.scale, self.step, self.widen])
            && self.sigma.iter().all(|&s| s >= 0.0)
            && self.sigma.iter().filter(|&&s| s == 0.0).count() <= 1
            && self.scale > 0.0
            && self.step > 0.0
            && self.widen > 1.0
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mu, sigma, who, rival, shift, scale, step, widen } = self;
        write!(f, "μ = {mu:?}, σ = {sigma:?} (candidate {who}, rival {rival}, ")?;
        write!(f, "shift {shift}, scale {scale}, step {step}, widen {widen})")
    }
}

/// An infinite iterator of cases, determined by a seed.
///
/// ```
/// use sk_aggregate::axioms::Cases;
/// assert_eq!(Cases::new(7).nth(100), Cases::new(7).nth(100));
/// ```
#[derive(Debug, Clone)]
pub struct Cases {
    rng: ChaCha8Rng,
    /// The number of candidates; random if `None`.
    candidates: Option<usize>,
}

impl Cases {
    /// Creates the cases of a seed.
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), candidates: None }
    }

    /// Creates the cases of a seed with `candidates` each.
    pub(super) fn of(candidates: usize, seed: u64) -> Self {
        Self { candidates: Some(candidates), ..Self::new(seed) }
    }

    /// Draws the number of candidates: mostly few, since most laws break on few, and sometimes
    /// many.
    fn candidates(&mut self) -> usize {
        match self.rng.random_range(0..20) {
            0 => 1,
            1..5 => 2,
            5..9 => 3,
            9..19 => self.rng.random_range(4..=8),
            _ => self.rng.random_range(9..=16),
        }
    }

    /// Returns a multiple of 1/`parts` in [low, high].
    fn fraction(&mut self, low: f64, high: f64, parts: f64) -> f64 {
        self.rng.random_range((low * parts) as i64..=(high * parts) as i64) as f64 / parts
    }

    fn power_of_two(&mut self, low: i32, high: i32) -> f64 {
        // Exact, unlike `powi`.
        libm::ldexp(1.0, self.rng.random_range(low..=high))
    }

    /// Draws (μ, σ) in units of the case.
    fn batch(&mut self, n: usize) -> (Vec<f64>, Vec<f64>) {
        const SCORE: f64 = 65_536.0;
        const DISPERSION: f64 = 1024.0;
        let region = self.rng.random_range(0..7);
        let mut mu = Vec::with_capacity(n);
        let mut sigma = Vec::with_capacity(n);
        for _ in 0..n {
            let (m, s) = match region {
                // All of the same order of magnitude.
                0 => (self.fraction(-2.0, 2.0, SCORE), self.fraction(0.5, 4.0, DISPERSION)),
                // Scores a few parts in 65536 apart, on two levels.
                1 => (
                    f64::from(self.rng.random_range(0..2u8)) + self.fraction(-3.0, 3.0, 1.0) / SCORE,
                    self.fraction(0.5, 4.0, DISPERSION),
                ),
                // Exact ties of scores, of dispersions and of both.
                2 => (self.fraction(-1.0, 1.0, 1.0), self.power_of_two(-1, 1)),
                // Dispersions over six decades.
                3 => (self.fraction(-2.0, 2.0, SCORE), self.power_of_two(-10, 10) * self.fraction(1.0, 2.0, 64.0)),
                // Differences of many dispersions.
                4 => (self.fraction(-8.0, 8.0, SCORE), self.fraction(0.125, 1.0, DISPERSION)),
                // Close to saturation: tied, nearly certain candidates, and uncertain ones at a
                // distance of six to seven σ.
                5 if self.rng.random_bool(0.5) => (0.0, 0.0625),
                5 => (self.fraction(5.75, 6.75, SCORE), 1.0),
                // Moderate, with one certain candidate (below).
                _ => (self.fraction(-4.0, 4.0, 16.0), self.fraction(0.25, 2.0, 16.0)),
            };
            mu.push(m);
            sigma.push(s);
        }
        let certain = region == 6 || self.rng.random_bool(0.1);
        if certain {
            let who = self.rng.random_range(0..n);
            sigma[who] = 0.0;
        }
        (mu, sigma)
    }
}

impl Iterator for Cases {
    type Item = Case;

    fn next(&mut self) -> Option<Case> {
        let n = self.candidates.unwrap_or_else(|| self.candidates());
        let (mut mu, mut sigma) = self.batch(n);
        let who = self.rng.random_range(0..n);
        let rival = if n == 1 { 0 } else { (who + self.rng.random_range(1..n)) % n };
        let unit = self.power_of_two(-10, 10);
        // The location of the batch on the line, for operators that depend on it.
        let place = if self.rng.random_bool(0.5) { 0.0 } else { self.fraction(-64.0, 64.0, 1.0) };
        mu.iter_mut().for_each(|m| *m = (*m + place) * unit);
        sigma.iter_mut().for_each(|s| *s *= unit);
        let shift = self.fraction(0.0625, 256.0, 16.0) * unit * if self.rng.random_bool(0.5) { -1.0 } else { 1.0 };
        let odd = f64::from(2 * self.rng.random_range(1..4u8) + 1);
        let scale = if self.rng.random_bool(0.3) { self.power_of_two(1, 12) } else { odd * self.power_of_two(-12, 10) };
        let step = unit
            * self.fraction(0.5, 1.0, 64.0)
            * if self.rng.random_bool(0.5) { self.power_of_two(-3, 2) } else { self.power_of_two(-18, 0) };
        let widen = 1.0 + self.power_of_two(-4, 8);
        Some(Case { mu, sigma, who, rival, shift, scale, step, widen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_valid_and_its_moves_are_exact() {
        // Miri takes ten thousand times as long.
        for case in Cases::new(3).take(if cfg!(miri) { 20 } else { 5000 }) {
            assert!(case.is_valid(), "{case}");
            for &m in &case.mu {
                assert_eq!((m + case.shift) - case.shift, m);
                assert_eq!(m * case.scale / case.scale, m);
            }
        }
    }

    /// A seed must give the same cases in every version. A change of the generator belongs in the
    /// changelog, and here.
    #[test]
    fn cases_are_pinned_to_their_seed() {
        // FNV-1a over the bits of every number.
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bits: u64| digest = (digest ^ bits).wrapping_mul(0x0000_0100_0000_01b3);
        for case in Cases::new(20).take(1000) {
            let numbers = [case.shift, case.scale, case.step, case.widen];
            case.mu.iter().chain(&case.sigma).chain(&numbers).for_each(|x| add(x.to_bits()));
            [case.who, case.rival].into_iter().for_each(|index| add(index as u64));
        }
        assert_eq!(digest, 5_683_414_143_436_713_365);
    }

    #[test]
    fn cases_of_a_size_have_it() {
        assert!((1..6).all(|n| Cases::of(n, 4).take(200).all(|case| case.len() == n && case.is_valid())));
    }

    #[test]
    fn what_the_laws_are_not_stated_for_is_not_valid() {
        let valid = Case {
            mu: vec![1.0, -1.0, 0.0],
            sigma: vec![0.0, 1.0, 2.0],
            who: 0,
            rival: 2,
            shift: -1.0,
            scale: 2.0,
            step: 0.5,
            widen: 1.5,
        };
        assert!(valid.is_valid());
        let alone = Case { mu: vec![1.0], sigma: vec![0.0], who: 0, rival: 0, ..valid.clone() };
        assert!(alone.is_valid());
        let spoil: [fn(&mut Case); 20] = [
            |c| (c.mu, c.sigma) = (vec![], vec![]),
            |c| c.sigma = vec![1.0, 1.0],
            |c| c.sigma = vec![1.0; 4],
            |c| c.who = 3,
            |c| c.rival = 3,
            |c| c.rival = 0,
            |c| c.mu[1] = f64::NAN,
            |c| c.mu[2] = f64::INFINITY,
            |c| c.sigma[1] = f64::INFINITY,
            |c| c.sigma[1] = -1.0,
            |c| c.sigma[1] = 0.0,
            |c| c.shift = f64::NEG_INFINITY,
            |c| c.scale = f64::INFINITY,
            |c| c.scale = 0.0,
            |c| c.scale = -1.0,
            |c| c.step = f64::INFINITY,
            |c| c.step = 0.0,
            |c| c.step = -0.5,
            |c| c.widen = f64::INFINITY,
            |c| c.widen = 1.0,
        ];
        for (k, spoil) in spoil.into_iter().enumerate() {
            let mut case = valid.clone();
            spoil(&mut case);
            assert!(!case.is_valid(), "{k}: {case}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it counts among thousands of cases, which takes Miri hours")]
    fn the_hard_regions_are_reached() {
        let cases: Vec<Case> = Cases::new(5).take(2000).collect();
        let share = |region: &dyn Fn(&Case) -> bool| cases.iter().filter(|c| region(c)).count() as f64 / 2000.0;
        let gap = |c: &Case| (c.mu[c.who] - c.mu[c.rival]).abs();
        let widest = |c: &Case| c.sigma[c.who].max(c.sigma[c.rival]);
        assert!(share(&|c| c.len() == 1) > 0.02);
        assert!(share(&|c| c.len() >= 5) > 0.3);
        assert!(share(&|c| c.len() > 1 && gap(c) == 0.0) > 0.05);
        assert!(share(&|c| gap(c) > 0.0 && gap(c) < 1e-3 * widest(c)) > 0.02);
        assert!(share(&|c| gap(c) > 6.0 * widest(c)) > 0.05);
        assert!(share(&|c| c.sigma.contains(&0.0)) > 0.1);
        assert!(share(&|c| c.sigma[c.who] > 1e3 * c.sigma[c.rival]) > 0.01);
    }
}
