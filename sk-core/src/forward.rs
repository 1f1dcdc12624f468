//! Implementations of each slot for references, boxes and, if the slot is shared, `Arc`.

use std::sync::Arc;

use rand::Rng;

use crate::{
    Aggregator, Backbone, Batch, Blade, BoxError, Candidates, Composite, DraftRequest, Granularity, Normalizer, Observation,
    Policy, Proposal, Readings, Real, Score, ScoreTable, Selector, Simplex, TokenId, Traffic, Weighting,
};

macro_rules! forward_shared {
    ($($pointer:ty),+) => {$(
        impl<T: Granularity + ?Sized> Granularity for $pointer {
            fn completes(&self, span: &[TokenId]) -> bool {
                (**self).completes(span)
            }
            fn ends_before(&self, span: &[TokenId], entropy: f64) -> bool {
                (**self).ends_before(span, entropy)
            }
            fn needs_entropy(&self) -> bool {
                (**self).needs_entropy()
            }
        }
        impl<T: Blade + ?Sized> Blade for $pointer {
            fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
                (**self).score(step, out)
            }
            fn policies(&self) -> Vec<Policy> {
                (**self).policies()
            }
        }
        impl<T: Weighting + ?Sized> Weighting for $pointer {
            fn weigh(&self, scores: &ScoreTable, requested: &[f64], weights: &mut [f64]) {
                (**self).weigh(scores, requested, weights);
            }
        }
        impl<F: Real, T: Normalizer<F> + ?Sized> Normalizer<F> for $pointer {
            fn combine(&self, scores: &ScoreTable<F>, weights: &Simplex<F>, out: &mut Composite<F>) {
                (**self).combine(scores, weights, out);
            }
        }
        impl<F: Real, T: Aggregator<F> + ?Sized> Aggregator<F> for $pointer {
            fn rate(&self, batch: &Batch<'_, F>, ratings: &mut [F]) {
                (**self).rate(batch, ratings);
            }
        }
        impl<F: Real, T: Selector<F> + ?Sized> Selector<F> for $pointer {
            fn distribution(&self, ratings: &[F], batch: &Batch<'_, F>, probabilities: &mut [F]) {
                (**self).distribution(ratings, batch, probabilities);
            }
            fn blades(&self) -> Vec<Arc<str>> {
                (**self).blades()
            }
        }
    )+};
}

forward_shared!(&T, Box<T>, Arc<T>);

macro_rules! forward_exclusive {
    ($($pointer:ty),+) => {$(
        impl<T: Proposal + ?Sized> Proposal for $pointer {
            fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
                (**self).propose(request, rng)
            }
            fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
                (**self).commit(chosen)
            }
        }
        impl<T: Backbone + ?Sized> Backbone for $pointer {
            fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
                (**self).read(context, candidates, policies)
            }
            fn read_beginnings(&mut self, context: &[TokenId], beginnings: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
                (**self).read_beginnings(context, beginnings, policies)
            }
            fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
                (**self).commit(chosen)
            }
            fn traffic(&self) -> Traffic {
                (**self).traffic()
            }
        }
    )+};
}

forward_exclusive!(&mut T, Box<T>);
