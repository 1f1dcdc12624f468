use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::probes::probed;
use super::search::{Pair, Search, total_variation};

/// The most rivals whose scores are tried for a coordinate in one sweep.
const RIVALS: usize = 6;

/// The most sweeps over all candidates from one start.
const SWEEPS: usize = 12;

/// The number of starts among which the best is chosen for a climb.
const STARTS: usize = 8;

/// The share of the largest total variation so far that a start must reach to be climbed from.
const PROMISING: f64 = 0.5;

/// Returns the pair with the largest total variation found within the evaluations.
pub(super) fn worst(search: &mut Search<'_>, anywhere: bool, rng: &mut ChaCha8Rng) -> Pair {
    let given = search.batch.mu().to_vec();
    let mut worst = probed(search, &given);
    if anywhere {
        // Operators that distinguish ties may jump at a batch of equal scores.
        let tied = probed(search, &vec![given[0]; given.len()]);
        worst = further(worst, tied);
    }
    // With a radius of zero or a single candidate, no change is possible.
    if search.radius == 0.0 || given.len() == 1 {
        return worst;
    }
    climb(search, &mut worst, anywhere, rng);
    while !search.is_spent() {
        let mut pair = random(search, anywhere, rng);
        for k in 1..STARTS {
            if search.is_spent() {
                break;
            }
            let other = if anywhere && k % 2 == 0 { crossing(search, rng) } else { random(search, anywhere, rng) };
            pair = further(pair, other);
        }
        // A climb costs as much as many starts.
        if pair.total_variation >= PROMISING * worst.total_variation {
            climb(search, &mut pair, anywhere, rng);
        }
        worst = further(worst, pair);
    }
    worst
}

/// Returns a random pair.
fn random(search: &mut Search<'_>, anywhere: bool, rng: &mut ChaCha8Rng) -> Pair {
    let before = if anywhere { scores(search, rng) } else { search.batch.mu().to_vec() };
    let mut pair = search.still(before);
    let after = start(search, &pair.before, rng);
    search.improve(&mut pair, after);
    pair
}

/// Returns two neighbouring points on the segment between two random score vectors, found by
/// bisection that keeps the half with the larger change. For a continuous map the change vanishes;
/// at a jump it remains.
fn crossing(search: &mut Search<'_>, rng: &mut ChaCha8Rng) -> Pair {
    let mut near = search.still(scores(search, rng));
    let mut far = search.still(scores(search, rng));
    while near.before.iter().zip(&far.before).any(|(a, b)| search.within(*a, *b) != *b) && !search.is_spent() {
        // Halved before the sum, so that large scores do not overflow.
        let middle: Vec<f64> = near.before.iter().zip(&far.before).map(|(a, b)| 0.5 * a + 0.5 * b).collect();
        if middle == near.before || middle == far.before {
            break;
        }
        let middle = search.still(middle);
        if total_variation(&near.from, &middle.from) >= total_variation(&middle.from, &far.from) {
            far = middle;
        } else {
            near = middle;
        }
    }
    search.improve(&mut near, far.before);
    // A change of order has the largest effect where the selection is undecided.
    for _ in 0..near.before.len() {
        if search.is_spent() {
            break;
        }
        meet(search, &mut near, rng);
    }
    near
}

/// Moves two candidates to a tie, or almost to one, and one of them past the other. Keeps the
/// result if the total variation increases.
fn meet(search: &mut Search<'_>, pair: &mut Pair, rng: &mut ChaCha8Rng) {
    let n = pair.before.len();
    let i = rng.random_range(0..n);
    let j = (i + rng.random_range(1..n)) % n;
    let mut before = pair.before.clone();
    before[i] = search.within(before[j], before[j] + 0.5 * search.radius * f64::from(rng.random_range(-1i8..=1)));
    let mut moved = search.still(before);
    for past in [1.0, -1.0] {
        let mut after = moved.before.clone();
        after[i] += past * search.radius;
        search.improve(&mut moved, after);
    }
    if moved.total_variation > pair.total_variation {
        *pair = moved;
    }
}

fn further(a: Pair, b: Pair) -> Pair {
    if b.total_variation > a.total_variation { b } else { a }
}

/// Coordinate ascent. Each score in turn is tried at the ends of its interval, at a tie with a
/// rival and just past it, and at random. If `anywhere`, the initial score is varied in the same
/// way. Uses at most a quarter of the remaining evaluations.
fn climb(search: &mut Search<'_>, pair: &mut Pair, anywhere: bool, rng: &mut ChaCha8Rng) {
    let mut order: Vec<usize> = (0..pair.before.len()).collect();
    let end = search.evaluations + search.left() / 4;
    for _ in 0..SWEEPS {
        let mut improved = false;
        order.shuffle(rng);
        for &i in &order {
            if search.evaluations >= end {
                return;
            }
            for target in targets(search, &pair.before, &pair.after, i, rng) {
                let mut after = pair.after.clone();
                after[i] = target;
                improved |= search.improve(pair, after);
            }
            if anywhere {
                for target in targets(search, &pair.before, &pair.before, i, rng) {
                    let mut before = pair.before.clone();
                    before[i] = target;
                    improved |= search.restart(pair, before);
                }
            }
        }
        if !improved {
            return;
        }
    }
}

/// Returns the scores to try for candidate `i`, given the others at `now`.
fn targets(search: &Search<'_>, before: &[f64], now: &[f64], i: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let (here, radius) = (before[i], search.radius);
    let mut out = vec![here, here - radius, here + radius];
    out.extend((0..2).map(|_| now[i] + radius * rng.random_range(-1.0..1.0)));
    let mut rivals: Vec<f64> = (0..now.len()).filter(|&j| j != i).map(|j| now[j]).collect();
    let (chosen, _) = rivals.partial_shuffle(rng, RIVALS);
    for &mut rival in chosen {
        out.extend([rival, rival.next_up(), rival.next_down(), rival + 1e-3 * radius, rival - 1e-3 * radius]);
    }
    out
}

/// Returns random changed scores: a corner of the box, a point in it, or all scores gathered near
/// one place.
fn start(search: &Search<'_>, before: &[f64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    let radius = search.radius;
    let share: fn(&mut ChaCha8Rng) -> f64 = match rng.random_range(0..3) {
        0 => |rng| if rng.random_bool(0.5) { 1.0 } else { -1.0 },
        1 => |rng| rng.random_range(-1.0..1.0),
        _ => {
            let place = before[rng.random_range(0..before.len())] + radius * rng.random_range(-1.0..1.0);
            let little = radius * 10f64.powf(rng.random_range(-9.0..0.0));
            return before.iter().map(|&b| search.within(b, place) + little * rng.random_range(-1.0..1.0)).collect();
        }
    };
    before.iter().map(|&b| b + radius * share(rng)).collect()
}

/// Returns random initial scores: over the spread of the batch, within a few radii, on two levels,
/// or the batch with two scores brought together.
fn scores(search: &Search<'_>, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let (given, radius) = (search.batch.mu(), search.radius);
    let spread = spread(given, search.batch.sigma());
    let mut scores = given.to_vec();
    match rng.random_range(0..4) {
        0 => scores.iter_mut().for_each(|m| *m = spread * rng.random_range(-2.0..2.0)),
        1 => scores.iter_mut().for_each(|m| *m = radius * rng.random_range(-4.0..4.0)),
        2 => {
            for m in &mut scores {
                *m = if rng.random_bool(0.5) { spread } else { 0.0 } + radius * rng.random_range(-1.0..1.0);
            }
        }
        _ => {
            let (i, j) = (rng.random_range(0..given.len()), rng.random_range(0..given.len()));
            scores[i] = given[j] + radius * rng.random_range(-1.0..1.0);
        }
    }
    scores.iter_mut().for_each(|m| *m = m.clamp(f64::MIN, f64::MAX));
    scores
}

/// Returns half the range of the scores. If they are tied, returns a scale of the order of a
/// dispersion, and 1 if there is none.
fn spread(mu: &[f64], sigma: &[f64]) -> f64 {
    let (low, high) = mu.iter().fold((f64::MAX, f64::MIN), |(low, high), &m| (low.min(m), high.max(m)));
    let widest = sigma.iter().fold(0.0f64, |widest, &s| widest.max(s));
    [0.5 * high - 0.5 * low, widest].into_iter().find(|&scale| scale > 0.0).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use sk_core::Batch;
    use sk_select::Softmax;

    use super::*;
    use crate::Copeland;

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    /// Two distant candidates are moved to a tie or half a radius off it, and one moves past the
    /// other by the radius.
    #[test]
    fn a_meeting_changes_the_order_of_two() {
        let (batch, softmax) = (Batch::trusted(&[0.0, 100.0], &[1.0, 1.0]), Softmax::new(1.0).unwrap());
        let (mut starts, mut moves) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..64 {
            let mut search = Search::new(&Copeland, &softmax, &batch, 4.0, 100);
            let mut pair = search.still(batch.mu().to_vec());
            meet(&mut search, &mut pair, &mut rng(seed));
            assert!(pair.total_variation > 0.0, "{pair:?}");
            let moved = usize::from(pair.before[0] == 0.0);
            starts.insert((moved, (pair.before[moved] - pair.before[1 - moved]) as i32));
            moves.insert((pair.after[moved] - pair.before[moved]) as i32);
            assert_eq!(pair.before[1 - moved], pair.after[1 - moved]);
        }
        assert_eq!(Vec::from_iter(starts), [(0, -2), (0, 0), (0, 2), (1, -2), (1, 0), (1, 2)]);
        assert_eq!(Vec::from_iter(moves), [-4, 4]);
    }

    /// If the radius is below the distance of neighbouring numbers, bisection ends at neighbours
    /// before the evaluations run out.
    #[test]
    fn a_crossing_ends_where_numbers_do() {
        let (batch, softmax) = (Batch::trusted(&[1e16, -1e16, 0.0], &[1.0; 3]), Softmax::new(1.0).unwrap());
        for seed in 0..20 {
            let mut search = Search::new(&Copeland, &softmax, &batch, 1e-3, 10_000);
            crossing(&mut search, &mut rng(seed));
            assert!(!search.is_spent(), "seed {seed}");
        }
    }

    /// The targets of a coordinate: its own value, the ends of its interval, a random value, and
    /// for each rival its value, just past it and slightly further.
    #[test]
    fn targets_are_ends_and_rivals() {
        let (mu, softmax) = ([0.0, 100.0, -7.0], Softmax::new(1.0).unwrap());
        let batch = Batch::trusted(&mu, &[1.0; 3]);
        let search = Search::new(&Copeland, &softmax, &batch, 4.0, 100);
        let mut drawn = Vec::new();
        for seed in 0..64 {
            let mut found = targets(&search, &mu, &[1.0, 99.0, -8.0], 0, &mut rng(seed));
            drawn.extend(found.drain(3..5));
            assert_eq!(found[..3], [0.0, -4.0, 4.0]);
            found[3..].sort_by(f64::total_cmp);
            let around = |x: f64| [x - 0.004, x.next_down(), x, x.next_up(), x + 0.004];
            assert_eq!(found[3..], [around(-8.0), around(99.0)].concat());
        }
        // Within the radius of the current value, on both sides.
        assert!(drawn.iter().all(|x| (-3.0..5.0).contains(x)), "{drawn:?}");
        assert!(drawn.iter().any(|&x| x < -2.0) && drawn.iter().any(|&x| x > 4.0), "{drawn:?}");
        // At most six rivals are tried.
        let many = [0.0; 20];
        assert_eq!(targets(&search, &many, &many, 0, &mut rng(1)).len(), 5 + 5 * RIVALS);
    }

    /// A corner of the box, a point in it, or all scores near one place.
    #[test]
    fn random_changes_are_of_three_kinds() {
        let (mu, softmax) = ([50.0; 6], Softmax::new(1.0).unwrap());
        let batch = Batch::trusted(&mu, &[1.0; 6]);
        let search = Search::new(&Copeland, &softmax, &batch, 4.0, 100);
        let (mut corners, mut gathered, mut inside) = (0, 0, 0);
        let mut places = Vec::new();
        for seed in 0..300 {
            let by: Vec<f64> = start(&search, &mu, &mut rng(seed)).iter().map(|x| x - 50.0).collect();
            let (low, high) = by.iter().fold((f64::MAX, f64::MIN), |(l, h), &x| (l.min(x), h.max(x)));
            // At most a radius to the place and another one off it.
            assert!(low >= -8.0 && high <= 8.0, "{by:?}");
            if by.iter().all(|x| x.abs() == 4.0) {
                corners += 1;
                assert!(low < high || by[0].abs() == 4.0);
            } else if high - low < 0.5 {
                gathered += 1;
                places.push(low);
            } else {
                inside += 1;
            }
        }
        // A third each. The distance from the place spans nine decades and is sometimes as large as
        // the radius.
        assert!([corners, gathered, inside].iter().all(|kind| (60..150).contains(kind)), "{corners} {gathered} {inside}");
        assert!(places.iter().any(|&x| x < -2.0) && places.iter().any(|&x| x > 2.0));
    }

    /// Scores over the spread of the batch, within a few radii, on two levels, or the batch with
    /// two scores brought together.
    #[test]
    fn random_scores_are_of_four_kinds() {
        let (mu, softmax) = ([0.0, 2000.0, 600.0, 800.0], Softmax::new(1.0).unwrap());
        let batch = Batch::trusted(&mu, &[1.0; 4]);
        let search = Search::new(&Copeland, &softmax, &batch, 1.0, 100);
        let mut kinds = [0; 4];
        let (mut widest, mut nearest) = (0.0f64, 0.0f64);
        for seed in 0..400 {
            let found = scores(&search, &mut rng(seed));
            let largest = found.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let changed: Vec<usize> = (0..4).filter(|&i| found[i] != mu[i]).collect();
            let kind = if let [i] = changed[..] {
                assert!(mu.iter().any(|m| (m - found[i]).abs() <= 1.0), "{found:?}");
                3
            } else if largest <= 4.0 {
                nearest = nearest.max(largest);
                1
            } else if found.iter().all(|x| x.abs() <= 1.0 || (x - 1000.0).abs() <= 1.0) {
                2
            } else {
                assert!(largest <= 2000.0, "{found:?}");
                widest = widest.max(largest);
                0
            };
            kinds[kind] += 1;
        }
        assert!(kinds.iter().all(|kind| (70..140).contains(kind)), "{kinds:?}");
        assert!(widest > 1800.0 && nearest > 3.5, "{widest} {nearest}");
    }

    #[test]
    fn the_spread_is_of_scores_or_else_of_dispersions() {
        assert_eq!(spread(&[1.0, -3.0, 2.0], &[9.0; 3]), 2.5);
        assert_eq!(spread(&[3.0, 3.0], &[0.5, 2.0]), 2.0);
        assert_eq!(spread(&[3.0, 3.0], &[0.0, 0.0]), 1.0);
        assert_eq!(spread(&[f64::MAX, f64::MIN], &[1.0, 1.0]), f64::MAX);
    }
}
