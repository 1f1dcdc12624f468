use sk_core::{Aggregator, Batch, Selector};

/// Two score vectors at most the radius apart, with their selection probabilities.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) before: Vec<f64>,
    pub(super) after: Vec<f64>,
    pub(super) from: Vec<f64>,
    pub(super) to: Vec<f64>,
    pub(super) total_variation: f64,
}

/// Computes selection probabilities and counts the evaluations.
pub(super) struct Search<'a> {
    aggregator: &'a dyn Aggregator,
    selector: &'a dyn Selector,
    pub(super) batch: &'a Batch<'a>,
    pub(super) radius: f64,
    limit: usize,
    pub(super) evaluations: usize,
    ratings: Vec<f64>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        aggregator: &'a dyn Aggregator,
        selector: &'a dyn Selector,
        batch: &'a Batch<'a>,
        radius: f64,
        limit: usize,
    ) -> Self {
        Self { aggregator, selector, batch, radius, limit, evaluations: 0, ratings: vec![0.0; batch.len()] }
    }

    /// Returns the number of evaluations left.
    pub(super) fn left(&self) -> usize {
        self.limit.saturating_sub(self.evaluations)
    }

    /// Returns whether no evaluations are left.
    pub(super) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    /// Returns the pair with equal ends.
    pub(super) fn still(&mut self, before: Vec<f64>) -> Pair {
        let from = self.choice(&before);
        Pair { after: before.clone(), to: from.clone(), before, from, total_variation: 0.0 }
    }

    /// Moves the end of `pair` to `after`, as far as the radius allows, if this increases the total
    /// variation. Returns whether it did.
    pub(super) fn improve(&mut self, pair: &mut Pair, mut after: Vec<f64>) -> bool {
        for (after, &before) in after.iter_mut().zip(&pair.before) {
            *after = self.within(before, *after);
        }
        if self.is_spent() || after == pair.after {
            return false;
        }
        let to = self.choice(&after);
        let distance = total_variation(&pair.from, &to);
        if distance > pair.total_variation {
            (pair.after, pair.to, pair.total_variation) = (after, to, distance);
            return true;
        }
        false
    }

    /// Moves the start of `pair` to `before` with the same change, if this increases the total
    /// variation.
    pub(super) fn restart(&mut self, pair: &mut Pair, before: Vec<f64>) -> bool {
        if self.is_spent() || before.iter().any(|b| !b.is_finite()) {
            return false;
        }
        let moves = pair.after.iter().zip(&pair.before).map(|(after, before)| after - before);
        let after = before.iter().zip(moves).map(|(before, delta)| before + delta).collect();
        let mut moved = self.still(before);
        if self.improve(&mut moved, after) && moved.total_variation > pair.total_variation {
            *pair = moved;
            return true;
        }
        false
    }

    /// Returns the finite score nearest to `target` within the radius of `before`.
    pub(super) fn within(&self, before: f64, target: f64) -> f64 {
        let after = target.clamp((before - self.radius).max(f64::MIN), (before + self.radius).min(f64::MAX));
        // The ends of the interval are rounded, possibly outwards if scores are large relative to
        // the radius.
        match after - before {
            delta if delta > self.radius => after.next_down(),
            delta if -delta > self.radius => after.next_up(),
            _ => after,
        }
    }

    fn choice(&mut self, mu: &[f64]) -> Vec<f64> {
        self.evaluations += 1;
        let mut batch = Batch::trusted(mu, self.batch.sigma());
        if let Some(fluency) = self.batch.fluency() {
            batch = batch.with_trusted_fluency(fluency);
        }
        if let Some(blades) = self.batch.blades() {
            batch = batch.with_blades(blades);
        }
        let mut probabilities = vec![0.0; mu.len()];
        self.aggregator.rate(&batch, &mut self.ratings);
        self.selector.distribution(&self.ratings, &batch, &mut probabilities);
        probabilities
    }
}

/// Returns the total variation ½ Σ |p_i − q_i|.
pub(super) fn total_variation(p: &[f64], q: &[f64]) -> f64 {
    0.5 * p.iter().zip(q).map(|(p, q)| (p - q).abs()).sum::<f64>()
}
