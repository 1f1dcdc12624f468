//! One law per axiom. A law returns `Ok` if the operator satisfies the axiom on the case, and
//! otherwise both sides of the violated relation.

use std::fmt;

use serde::Serialize;
use sk_core::{Aggregator, Batch};

use super::{Axiom, Case};

/// The tolerance relative to the largest difference of ratings. A sum of sixteen terms is a
/// thousand times more accurate, and a violation by a millionth is detected.
const RELATIVE: f64 = 1e-9;

/// The tolerance relative to the largest rating, for ratings with an origin such as 1500.
const ROUNDING: f64 = 64.0 * f64::EPSILON;

/// How far a rating may decrease, relative to the largest difference: the rounding of the link.
const BACK: f64 = 1e-12;

/// The least increase of a probit over max(σ_i, σ_j) from which strict growth is required: a
/// hundred rounding errors of a rating.
const CLIMB: f64 = 1e-13;

/// The same for small steps from a tie, which kernels of another degree than the family's must
/// resolve beside differences of any size.
const SLIGHT_CLIMB: f64 = 1e-8;

/// Dispersions relative to everything else, approaching infinity. The smaller ones are for ratings
/// that grow with σ itself, whose rounding hides the effect of the largest.
const WIDEST: [f64; 3] = [(1u64 << 15) as f64, (1u64 << 30) as f64, (1u64 << 60) as f64];

/// The most that may remain of a change from one of them to the next. A change that falls like
/// 1/log σ halves.
const LEFT: f64 = 0.75;

/// Shares of the widening of a case that are tested. A slight widening reveals a jump at one exact
/// dispersion, such as zero, which a wide one would hide.
const WIDENINGS: [f64; 3] = [1.0, 1.0 / (1u64 << 10) as f64, 1.0 / (1u64 << 20) as f64];

/// Distances, in units of the largest dispersion and the step. Between them, a change that has a
/// supremum grows less and less.
const DISTANT: [f64; 3] = [(1u64 << 10) as f64, (1u64 << 20) as f64, (1u64 << 30) as f64];

/// The least relative growth that is considered: at the largest distance, scores have a precision
/// of 2⁻²² of a step.
const KEEPS_GROWING: f64 = 1e-6;

/// A violation of an axiom on a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Violation {
    /// The axiom.
    pub axiom: Axiom,
    /// The meaning of `left` and `right`, and the required relation.
    pub reason: String,
    /// The left side.
    pub left: f64,
    /// The right side.
    pub right: f64,
}

impl Violation {
    /// Returns right minus left.
    pub fn difference(&self) -> f64 {
        self.right - self.left
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axiom, reason, left, right } = self;
        write!(f, "{axiom}: {reason}: {left:?} against {right:?}, a difference of {:.1e}", self.difference())
    }
}

/// The verdict of a law on a case.
pub(super) type Law = Result<(), Violation>;

/// An operator under test for one axiom.
pub(super) struct Trial<'a> {
    pub(super) axiom: Axiom,
    pub(super) operator: &'a dyn Aggregator,
}

impl Trial<'_> {
    fn broken<T>(&self, reason: impl Into<String>, left: f64, right: f64) -> Result<T, Violation> {
        Err(Violation { axiom: self.axiom, reason: reason.into(), left, right })
    }

    /// Returns the ratings of a batch. A rating that is not finite violates every axiom.
    fn rate(&self, mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>, Violation> {
        self.rate_where(mu, sigma, "")
    }

    /// As [`rate`](Self::rate). `which` describes the batch in the violation.
    fn rate_where(&self, mu: &[f64], sigma: &[f64], which: &str) -> Result<Vec<f64>, Violation> {
        let mut ratings = vec![f64::NAN; mu.len()];
        self.operator.rate(&Batch::trusted(mu, sigma), &mut ratings);
        match ratings.iter().position(|r| !r.is_finite()) {
            Some(i) => self.broken(format!("rating {i} should be finite{which}"), ratings[i], 0.0),
            None => Ok(ratings),
        }
    }

    /// Returns by how much rating `who` moves when its score is raised from `low` to `high`, and
    /// the rounding error of that move.
    fn moved(&self, mu: &[f64], sigma: &[f64], who: usize, [low, high]: [f64; 2]) -> Result<(f64, f64), Violation> {
        let mut mu = mu.to_vec();
        mu[who] = low;
        let before = self.rate(&mu, sigma)?;
        mu[who] = high;
        let after = self.rate(&mu, sigma)?;
        Ok(((after[who] - before[who]).abs(), ROUNDING * largest(&before).max(largest(&after))))
    }

    /// Returns the ratings of a batch of two: ψ(own; rival) first, if the operator has a kernel.
    fn duel(&self, own: (f64, f64), rival: (f64, f64)) -> Result<[f64; 2], Violation> {
        let ratings = self.rate(&[own.0, rival.0], &[own.1, rival.1])?;
        Ok([ratings[0], ratings[1]])
    }

    /// Checks that two rating vectors have the same differences.
    fn same_differences(&self, before: &[f64], after: &[f64], what: &str) -> Law {
        let allowed = tolerance(before).max(tolerance(after));
        let (before, after) = (centred(before), centred(after));
        match (0..before.len()).find(|&i| (before[i] - after[i]).abs() > allowed) {
            Some(i) => {
                self.broken(format!("rating {i} over the mean, before and after {what}, should agree"), before[i], after[i])
            }
            None => Ok(()),
        }
    }
}

/// A0: every rating is finite, for the given batch, with `who` and `rival` certain (at their scores
/// and tied), and with all certain.
///
/// The operator defines the ratings of certain candidates. The other laws use batches with at most
/// one of them.
pub(super) fn totality(trial: &Trial<'_>, case: &Case) -> Law {
    let (who, rival) = (case.who, case.rival);
    let mut tied = case.mu.clone();
    tied[who] = tied[rival];
    let mut two = case.sigma.clone();
    (two[who], two[rival]) = (0.0, 0.0);
    trial.rate(&case.mu, &case.sigma)?;
    if case.len() > 1 {
        trial.rate_where(&case.mu, &two, &format!(" where candidates {who} and {rival} are certain"))?;
        trial.rate_where(&tied, &two, &format!(" where candidates {who} and {rival} are certain and tie"))?;
    }
    trial.rate_where(&case.mu, &vec![0.0; case.len()], " where all are certain").map(drop)
}

/// A1: A(π·(μ, σ)) = π·A(μ, σ), for a transposition, a rotation and the reversal.
///
/// Any two candidates may be exchanged, and exchanges generate all permutations.
pub(super) fn anonymity(trial: &Trial<'_>, case: &Case) -> Law {
    let before = trial.rate(&case.mu, &case.sigma)?;
    let order: Vec<usize> = (0..case.len()).collect();
    let (mut swapped, mut rotated, mut reversed) = (order.clone(), order.clone(), order);
    swapped.swap(case.who, case.rival);
    rotated.rotate_left(1);
    reversed.reverse();
    for (what, order) in [("exchanging two candidates", swapped), ("rotating", rotated), ("reversing", reversed)] {
        let permuted = |values: &[f64]| order.iter().map(|&i| values[i]).collect::<Vec<f64>>();
        let after = trial.rate(&permuted(&case.mu), &permuted(&case.sigma))?;
        let expected = permuted(&before);
        let allowed = tolerance(&expected);
        if let Some(k) = (0..after.len()).find(|&k| (after[k] - expected[k]).abs() > allowed) {
            return trial.broken(
                format!("rating of candidate {} before and after {what} should agree", order[k]),
                expected[k],
                after[k],
            );
        }
    }
    Ok(())
}

/// A2: R_i − R_j is the same for (μ + δ, σ) as for (μ, σ).
pub(super) fn translation(trial: &Trial<'_>, case: &Case) -> Law {
    let moved: Vec<f64> = case.mu.iter().map(|m| m + case.shift).collect();
    let what = format!("adding {} to every score", case.shift);
    trial.same_differences(&trial.rate(&case.mu, &case.sigma)?, &trial.rate(&moved, &case.sigma)?, &what)
}

/// A3′: R_i − R_j is the same for (aμ, aσ) as for (μ, σ).
pub(super) fn scale_of_ratings(trial: &Trial<'_>, case: &Case) -> Law {
    let (mu, sigma) = scaled(case);
    let what = format!("multiplying scores and dispersions by {}", case.scale);
    trial.same_differences(&trial.rate(&case.mu, &case.sigma)?, &trial.rate(&mu, &sigma)?, &what)
}

/// A3: (aμ, aσ) has the same ranking as (μ, σ), ties included.
///
/// Random ratings are rarely close. The law therefore also moves μ of `who` to a tie with the
/// rating of `rival`, and checks that the tie remains.
pub(super) fn scale_of_ranking(trial: &Trial<'_>, case: &Case) -> Law {
    let (n, who) = (case.len(), case.who);
    let before = trial.rate(&case.mu, &case.sigma)?;
    let (mu, sigma) = scaled(case);
    let after = trial.rate(&mu, &sigma)?;
    // If a link saturates, distinct ratings may round to the same number, so only a reversal is a
    // violation.
    let (near, far) = (tolerance(&before), tolerance(&after));
    for i in 0..n {
        for j in 0..n {
            if before[i] - before[j] > near && after[i] - after[j] < -far {
                let reason = format!("R_{i} − R_{j} before and after multiplying by {} should have one sign", case.scale);
                return trial.broken(reason, before[i] - before[j], after[i] - after[j]);
            }
        }
    }
    // With one rival, a tie of ratings is a tie of scores.
    if n < 3 {
        return Ok(());
    }
    let rival = case.rival;
    let Some((tied, remainder)) = tie(trial, case)? else { return Ok(()) };
    let mu: Vec<f64> = tied.mu.iter().map(|m| m * tied.scale).collect();
    let after = trial.rate(&mu, &sigma)?;
    if (after[who] - after[rival]).abs() > 100.0 * tolerance(&after) {
        let reason = format!(
            "R_{who} and R_{rival} tie to {remainder:.0e} at μ_{who} = {:?}; after multiplying by {} they should too",
            tied.mu[who], case.scale
        );
        return trial.broken(reason, after[who], after[rival]);
    }
    Ok(())
}

/// Returns `case` with μ of `who` moved such that its rating equals that of `rival`, and the
/// remaining difference; `None` if there is no such μ.
fn tie(trial: &Trial<'_>, case: &Case) -> Result<Option<(Case, f64)>, Violation> {
    let who = case.who;
    let mut moved = case.clone();
    let gap = |mu: &mut Vec<f64>, at: f64| -> Result<f64, Violation> {
        mu[who] = at;
        let ratings = trial.rate(mu, &case.sigma)?;
        Ok(ratings[who] - ratings[case.rival])
    };
    let (mut low, mut high) = case.mu.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &m| (m.min(l), m.max(h)));
    if gap(&mut moved.mu, low)? >= 0.0 || gap(&mut moved.mu, high)? <= 0.0 {
        return Ok(None);
    }
    let left = loop {
        let middle = low + 0.5 * (high - low);
        let left = gap(&mut moved.mu, middle)?;
        if left == 0.0 || middle <= low || middle >= high {
            break left;
        }
        *if left < 0.0 { &mut low } else { &mut high } = middle;
    };
    let ratings = trial.rate(&moved.mu, &case.sigma)?;
    // A jump across equality is not a tie.
    if left.abs() > 1e-3 * tolerance(&ratings) {
        return Ok(None);
    }
    Ok(Some((moved, left.abs())))
}

/// A4: raising μ_i raises R_i and lowers every R_j, strictly if f64 can resolve the change.
///
/// Tested for the full step from the current score, and for a part of it from a tie with the rival.
pub(super) fn monotonicity(trial: &Trial<'_>, case: &Case) -> Law {
    /// The share of the step, from a tie.
    const SLIGHT: f64 = 1.0 / (1u64 << 16) as f64;
    let who = case.who;
    climbs(trial, case, CLIMB, "")?;
    let mut tied = Case { step: SLIGHT * case.step, ..case.clone() };
    tied.mu[who] = case.mu[case.rival];
    climbs(trial, &tied, SLIGHT_CLIMB, &format!(", from a tie with μ_{}", case.rival))
}

/// Checks A4 for one step, strictly if a probit increases by more than `least`. `from` describes
/// the start of the step.
fn climbs(trial: &Trial<'_>, case: &Case, least: f64, from: &str) -> Law {
    let who = case.who;
    let mut raised = case.mu.clone();
    raised[who] += case.step;
    let step = raised[who] - case.mu[who];
    let (before, after) = (trial.rate(&case.mu, &case.sigma)?, trial.rate(&raised, &case.sigma)?);
    let allowed = |ratings: &[f64]| BACK * largest(&centred(ratings)) + ROUNDING * largest(ratings);
    let back = allowed(&before).max(allowed(&after));
    let unsaturated = is_unsaturated(&case.mu, &case.sigma) && is_unsaturated(&raised, &case.sigma);
    // Ratings with an origin are rounded relative to it.
    let resolved = least.max(ROUNDING * largest(&before) / largest(&centred(&before)).max(1.0));
    let mut any = false;
    for j in (0..case.len()).filter(|&j| j != who) {
        let fall = before[j] - after[j];
        let strict = unsaturated && climb(case, j, step) > resolved;
        any |= strict;
        if fall < -back || (strict && fall <= 0.0) {
            let reason = format!("R_{j}, before and after adding {step} to μ_{who}{from}, should fall");
            return trial.broken(reason, before[j], after[j]);
        }
    }
    if after[who] - before[who] < -back || (any && after[who] <= before[who]) {
        let reason = format!("R_{who}, before and after adding {step} to μ_{who}{from}, should rise");
        return trial.broken(reason, before[who], after[who]);
    }
    Ok(())
}

/// Returns whether every pair is within seven times the larger dispersion, where a probit still
/// increases in f64.
fn is_unsaturated(mu: &[f64], sigma: &[f64]) -> bool {
    (0..mu.len()).all(|i| (0..i).all(|j| (mu[i] - mu[j]).abs() <= 7.0 * sigma[i].max(sigma[j])))
}

/// Returns a lower bound on the increase of a probit over max(σ_i, σ_j), up to a constant.
fn climb(case: &Case, j: usize, step: f64) -> f64 {
    let scale = case.sigma[case.who].max(case.sigma[j]);
    let furthest = ((case.mu[case.who] - case.mu[j]).abs() + step) / scale;
    (-0.5 * furthest * furthest).exp() * step / scale
}

/// A5: |R_i(μ_i + h) − R_i(μ_i)| does not grow with σ_i, and vanishes as σ_i → ∞.
///
/// This is the secant form of the axiom. For a rating that increases with its score, it holds for
/// all h if and only if |∂R_i/∂μ_i| does not grow with σ_i. A change counts as vanishing if it
/// falls by a quarter or more from 2¹⁵ to 2³⁰ and from there to 2⁶⁰ times everything else. This
/// accepts any decay like 1/log σ or faster; an iterated logarithm would be reported as a
/// violation.
pub(super) fn attenuation(trial: &Trial<'_>, case: &Case) -> Law {
    if case.len() == 1 {
        // Without a rival there is no comparison.
        return Ok(());
    }
    let who = case.who;
    let moved = |sigma_who: f64| {
        let mut sigma = case.sigma.clone();
        sigma[who] = sigma_who;
        trial.moved(&case.mu, &sigma, who, [case.mu[who], case.mu[who] + case.step])
    };
    fewer_moves(trial, case, moved, |_| Ok(0.0))
}

/// A5′: the largest change of R_i for a step of μ_i is finite, does not grow with σ_i, and vanishes
/// as σ_i → ∞.
///
/// The change is sup_μ |R_i(μ_i + h) − R_i(μ_i)| against N − 1 copies of one rival. For a member of
/// the family it is (N − 1) times the modulus of continuity of g at h/s, the secant form of L_g Σ_j
/// 1/s_ij. The supremum is evaluated at the tie, and searched for only if that gives a violation.
/// It counts as infinite if the change keeps growing with the distance to the rivals: from 2²⁰ to
/// 2³⁰ dispersions by at least half as much as from 2¹⁰ to 2²⁰. A slope that approaches a limit
/// grows less and less; a power or a logarithm does not. A change that falls anywhere between 2¹⁰
/// and 2³⁰ dispersions, as for a link that swings about a line, does not keep growing.
pub(super) fn envelope(trial: &Trial<'_>, case: &Case) -> Law {
    if case.len() == 1 {
        return Ok(());
    }
    let h = case.step;
    let rival = case.sigma[case.rival];
    // Several candidates without dispersion would meet among the copies.
    let n = if rival == 0.0 { 2 } else { case.len() };
    let moved_by = |h: f64, sigma_who: f64, offset: f64| {
        let mut sigma = vec![rival; n];
        sigma[0] = sigma_who;
        trial.moved(&vec![0.0; n], &sigma, 0, [offset - 0.5 * h, offset + 0.5 * h])
    };
    let moved = |sigma_who: f64| moved_by(h, sigma_who, 0.0);
    fewer_moves(trial, case, moved, |sigma_who| {
        supremum(|offset| Ok(moved_by(h, sigma_who, offset)?.0), largest(&[sigma_who, rival, h]))
    })?;
    let sigma = case.sigma[case.who];
    let scale = largest(&[sigma, rival, h]);
    for scale in [scale, -scale] {
        // Steps have the length of the scale, which scores at this distance still resolve.
        let at = |distance: f64| moved_by(scale.abs(), sigma, distance * scale);
        let ((near, _), (far, _), (farthest, rounding)) = (at(DISTANT[0])?, at(DISTANT[1])?, at(DISTANT[2])?);
        if farthest - far > (0.5 * (far - near)).max(KEEPS_GROWING * farthest + rounding) && never_falls(at)? {
            let (who, step, offset) = (case.who, scale.abs(), DISTANT[2] * scale);
            let reason =
                format!("the move of R_{who} for a step of {step} should not keep growing up to {offset:?} from its rivals");
            return trial.broken(reason, far, farthest);
        }
    }
    Ok(())
}

/// Returns whether a change, with its rounding error, falls nowhere from the nearest of [`DISTANT`]
/// to the farthest, octave by octave.
fn never_falls(at: impl Fn(f64) -> Result<(f64, f64), Violation>) -> Result<bool, Violation> {
    let (mut distance, mut before) = (DISTANT[0], at(DISTANT[0])?.0);
    while distance < DISTANT[2] {
        distance *= 2.0;
        let (now, rounding) = at(distance)?;
        if now < before * (1.0 - KEEPS_GROWING) - rounding {
            return Ok(false);
        }
        before = now;
    }
    Ok(true)
}

/// Returns the supremum of `f` over the line, by a logarithmic grid in units of `scale` and a
/// golden-section search around its best point.
fn supremum(f: impl Fn(f64) -> Result<f64, Violation>, scale: f64) -> Result<f64, Violation> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let mut best = (f(0.0)?, 0.0);
    for x in (-40..=40).map(|k| scale * 2f64.powf(f64::from(k) / 4.0)).flat_map(|x| [x, -x]) {
        let value = f(x)?;
        if value > best.0 {
            best = (value, x);
        }
    }
    let (mut low, mut high) = (best.1 / 1.5, best.1 * 1.5);
    for _ in 0..60 {
        let (a, b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (left, right) = (f(a)?, f(b)?);
        best.0 = best.0.max(left).max(right);
        if left > right {
            high = b;
        } else {
            low = a;
        }
    }
    Ok(best.0)
}

/// Checks that the change (returned with its rounding error) does not grow from the dispersion of
/// `who` to a wider one, and keeps falling towards infinity.
///
/// `ceiling` computes a larger value at the first dispersion before a violation is reported.
fn fewer_moves(
    trial: &Trial<'_>,
    case: &Case,
    moved: impl Fn(f64) -> Result<(f64, f64), Violation>,
    ceiling: impl Fn(f64) -> Result<f64, Violation>,
) -> Law {
    let (who, step, sigma) = (case.who, case.step, case.sigma[case.who]);
    let unit = if sigma > 0.0 { sigma } else { largest(&case.sigma) };
    let (at, rounding) = moved(sigma)?;
    for part in WIDENINGS {
        let wider = sigma + unit * (case.widen - 1.0) * part;
        let (then, more_rounding) = moved(wider)?;
        let grown = |at: f64| then > at * (1.0 + RELATIVE) + rounding + more_rounding;
        if grown(at) && grown(ceiling(sigma)?) {
            let reason =
                format!("the move of R_{who} for a step of {step} should not grow as σ_{who} goes from {sigma:?} to {wider:?}");
            return trial.broken(reason, at, then);
        }
    }
    let all = largest(&case.sigma).max(largest(&case.mu)).max(step);
    let [near, far, farthest] = WIDEST.map(|times| all * times);
    for (wide, wider) in [(near, far), (far, farthest)] {
        let ((at, rounding), (then, more_rounding)) = (moved(wide)?, moved(wider)?);
        if then > LEFT * at + rounding + more_rounding {
            let reason = format!(
                "the move of R_{who} for a step of {step} should go on falling as σ_{who} goes from {wide:?} to {wider:?}"
            );
            return trial.broken(reason, at, then);
        }
    }
    Ok(())
}

/// A6: R_i − R_j = Σ_k [ψ(i; k) − ψ(j; k)], where ψ(i; k) is the rating of i in the batch {i, k}.
///
/// Differences are used, since ratings may have an origin, which a sum would count once per rival.
/// Pairs keep the order of the batch; A1 tests the dependence on order.
pub(super) fn decomposability(trial: &Trial<'_>, case: &Case) -> Law {
    let ratings = trial.rate(&case.mu, &case.sigma)?;
    let mut sums = vec![0.0; case.len()];
    let (mut peak, mut origin) = (0.0f64, 0.0f64);
    for j in 0..case.len() {
        for i in 0..j {
            let [first, second] = trial.duel((case.mu[i], case.sigma[i]), (case.mu[j], case.sigma[j]))?;
            sums[i] += first;
            sums[j] += second;
            peak = peak.max((first - second).abs());
            origin = origin.max(first.abs()).max(second.abs());
        }
    }
    let allowed = RELATIVE * peak + ROUNDING * largest(&ratings).max(largest(&sums)).max(origin);
    let (ratings, sums) = (centred(&ratings), centred(&sums));
    match (0..case.len()).find(|&i| (ratings[i] - sums[i]).abs() > allowed) {
        Some(i) => {
            let reason =
                format!("R_{i} over the mean should be the sum of its ratings in batches of two, over the mean of the sums");
            trial.broken(reason, ratings[i], sums[i])
        }
        None => Ok(()),
    }
}

/// A7: ψ(i; j) + ψ(j; i) is the same for every pair.
pub(super) fn constant_sum(trial: &Trial<'_>, case: &Case) -> Law {
    if case.len() == 1 {
        return Ok(());
    }
    let side = |k: usize| (case.mu[k], case.sigma[k]);
    let pair = trial.duel(side(case.who), side(case.rival))?;
    let even = trial.duel((0.0, 1.0), (0.0, 1.0))?;
    let (sum, constant) = (pair[0] + pair[1], even[0] + even[1]);
    // Relative to the gains of the pair beyond the origin of the ratings.
    let gains = (pair[0] - even[0]).abs().max((pair[1] - even[1]).abs());
    if (sum - constant).abs() > RELATIVE * gains + ROUNDING * largest(&pair).max(largest(&even)) {
        let (i, j) = (case.who, case.rival);
        return trial.broken(format!("ψ({i}; {j}) + ψ({j}; {i}) should be what two even candidates share"), sum, constant);
    }
    Ok(())
}

/// A8: ψ(Δ, a, b) = g(Δ/s(a, b)). For any two pairs of dispersions, a single factor r converts
/// every difference under the first pair to the equivalent difference under the second.
///
/// r is solved for at one difference and tested at others: a tie, near-ties, a loss, large ones and
/// one beyond saturation. ψ may increase or decrease. The rival has score 0.
pub(super) fn single_channel(trial: &Trial<'_>, case: &Case) -> Law {
    /// Relative to the difference at which r is solved for, half of the larger dispersion.
    const OTHERS: [f64; 15] = [
        -1.0,
        0.25,
        -0.25,
        4.0,
        -4.0,
        12.0,
        -12.0,
        40.0,
        0.0,
        1.0 / (1u64 << 8) as f64,
        -1.0 / (1u64 << 8) as f64,
        1.0 / (1u64 << 14) as f64,
        -1.0 / (1u64 << 14) as f64,
        1.0 / (1u64 << 20) as f64,
        -1.0 / (1u64 << 20) as f64,
    ];
    if case.len() == 1 {
        return Ok(());
    }
    let (a, b) = (case.sigma[case.who], case.sigma[case.rival]);
    let scale = a.max(b);
    let reference = if a == b { (scale, 0.25 * scale) } else { (scale, scale) };
    let worth = |delta: f64, (a, b): (f64, f64)| Ok(trial.duel((delta, a), (0.0, b))?[0]);
    let origin = trial.duel((0.0, scale), (0.0, scale))?[0];
    // If that difference gives no more than a tie, a larger one is used.
    let tie = worth(0.0, (a, b))?;
    let (mut unit, mut at_unit) = (0.5 * scale, tie);
    for part in [0.5, 4.0, 32.0] {
        if at_unit == tie {
            unit = part * scale;
            at_unit = worth(unit, (a, b))?;
        }
    }
    let Some(r) = factor(|r| Ok(worth(r * unit, reference)? - at_unit))? else {
        let reason = format!(
            "ψ of a difference of {unit} under σ = ({a}, {b}) should be reached under ({}, {})",
            reference.0, reference.1
        );
        return trial.broken(reason, at_unit, worth(unit, reference)?);
    };
    // Ratings are rounded relative to their size, including the origin. The precision of r is that
    // of the values from which it was solved.
    let rounding = ROUNDING * at_unit.abs().max(origin.abs());
    let solved = if at_unit == origin { 0.0 } else { rounding / (at_unit - origin).abs().max(rounding) };
    for delta in OTHERS.map(|other| other * unit) {
        let (here, there) = (worth(delta, (a, b))?, worth(r * delta, reference)?);
        let gain = (here - origin).abs().max((there - origin).abs());
        if (here - there).abs() > (RELATIVE + 4.0 * solved) * gain + rounding {
            let reason = format!(
                "ψ of {delta} under σ = ({a}, {b}) should be ψ of {r} times as much under ({}, {}), as it is for {unit}",
                reference.0, reference.1
            );
            return trial.broken(reason, here, there);
        }
    }
    Ok(())
}

/// Returns a positive root of a monotone `f` by bisection in log r, preferring 1 if it is a root.
fn factor(f: impl Fn(f64) -> Result<f64, Violation>) -> Result<Option<f64>, Violation> {
    let at_one = f(1.0)?;
    if at_one == 0.0 {
        return Ok(Some(1.0));
    }
    let crosses = |value: f64| (value < 0.0) != (at_one < 0.0);
    // Goes outwards by octaves in both directions, since f may increase or decrease.
    for beyond in (1..=64).flat_map(|octave| [2f64.powi(octave), 0.5f64.powi(octave)]) {
        if crosses(f(beyond)?) {
            let (mut near, mut far) = (if beyond > 1.0 { 0.5 * beyond } else { 2.0 * beyond }, beyond);
            for _ in 0..60 {
                let middle = near + 0.5 * (far - near);
                *if crosses(f(middle)?) { &mut far } else { &mut near } = middle;
            }
            return Ok(Some(near + 0.5 * (far - near)));
        }
    }
    Ok(None)
}

fn scaled(case: &Case) -> (Vec<f64>, Vec<f64>) {
    let scaled = |values: &[f64]| values.iter().map(|v| v * case.scale).collect();
    (scaled(&case.mu), scaled(&case.sigma))
}

fn centred(ratings: &[f64]) -> Vec<f64> {
    let mean = ratings.iter().map(|r| r / ratings.len() as f64).sum::<f64>();
    ratings.iter().map(|r| r - mean).collect()
}

pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| v.abs().max(m))
}

/// Returns the distance up to which two ratings count as equal.
fn tolerance(ratings: &[f64]) -> f64 {
    RELATIVE * largest(&centred(ratings)) + ROUNDING * largest(ratings)
}
