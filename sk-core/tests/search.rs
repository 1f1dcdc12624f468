//! Steps that score only some of their candidates, and steps that draft twice.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Aggregator, AlignmentSpec, Arm, Backbone, Batch, Blade, BoxError, Candidate, Candidates, Composite, Context, DraftRequest,
    Fallback, Fixed, Normalizer, Observation, Operators, Policy, Proposal, Race, Reading, Readings, Response, Scheme, Score,
    ScoreTable, Search, Seat, Selector, Settled, Simplex, SpanEnd, SpecHandle, StepTrace, TokenId, Waves,
};

/// The calls that the slots received, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Proposes given spans.
struct Spans(&'static str, Vec<Vec<TokenId>>, Log);

impl Proposal for Spans {
    fn propose(&mut self, _: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        let span = |tokens: &Vec<TokenId>| Candidate {
            tokens: tokens.clone(),
            log_probs: vec![-1.0; tokens.len()],
            end: SpanEnd::Complete,
        };
        Ok(Candidates::new(self.1.iter().map(span).collect())?)
    }
    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        self.2.lock().unwrap().push(format!("{} keeps {chosen}", self.0));
        Ok(())
    }
}

/// A backbone whose log-probability of a token is minus its id.
struct Digital(Log);

impl Backbone for Digital {
    fn read(&mut self, _: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        let lengths: Vec<usize> = candidates.iter().map(|c| c.tokens.len()).collect();
        self.0.lock().unwrap().push(format!("read {lengths:?}"));
        let read = |c: &Candidate| Reading {
            log_probs: c.tokens.iter().map(|&t| -(t as f32)).collect(),
            min_entropy: vec![0.5; c.tokens.len()],
            ..Reading::default()
        };
        let mut readings = Readings::new();
        policies.iter().for_each(|policy| readings.insert(policy.clone(), candidates.iter().map(read).collect()));
        Ok(readings)
    }
    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        self.0.lock().unwrap().push(format!("backbone keeps {chosen}"));
        Ok(())
    }
}

/// μ is the mean log-probability. Requires a reading of exactly the candidate's tokens.
struct Mean;

impl Blade for Mean {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let readings = step.readings.get(&Policy::Backbone).ok_or("not read")?;
        assert_eq!((readings.len(), out.len()), (step.candidates.len(), step.candidates.len()));
        for ((score, reading), candidate) in out.iter_mut().zip(readings).zip(step.candidates) {
            assert_eq!(reading.log_probs.len(), candidate.tokens.len());
            *score =
                Score::new(reading.log_probs.iter().map(|&p| f64::from(p)).sum::<f64>() / reading.log_probs.len() as f64, 0.0)?;
        }
        Ok(())
    }
    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Backbone]
    }
}

/// One blade without normalisation; the rating is its μ.
struct Plain;

impl Normalizer for Plain {
    fn combine(&self, scores: &ScoreTable, _: &Simplex, out: &mut Composite) {
        out.reset(scores.candidates());
        out.mu.copy_from_slice(scores.mu(0));
    }
}

impl Aggregator for Plain {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        ratings.copy_from_slice(batch.mu());
    }
}

/// p ∝ exp(rating).
struct Exponential;

impl Selector for Exponential {
    fn distribution(&self, ratings: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
        let sum: f64 = ratings.iter().map(|rating| rating.exp()).sum();
        probabilities.iter_mut().zip(ratings).for_each(|(p, rating)| *p = rating.exp() / sum);
    }
}

/// Chooses the highest rating.
struct Highest;

impl Selector for Highest {
    fn distribution(&self, ratings: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
        let best = (0..ratings.len()).rev().max_by(|&a, &b| ratings[a].total_cmp(&ratings[b])).unwrap();
        probabilities.fill(0.0);
        probabilities[best] = 1.0;
    }
}

fn spans(spans: &[&[TokenId]]) -> Vec<Vec<TokenId>> {
    spans.iter().map(|span| span.to_vec()).collect()
}

/// Makes a step over `drafted`, with a fallback if the choice is below a threshold. Returns the
/// trace and the log of calls.
fn step(
    drafted: &[&[TokenId]],
    search: Search,
    fallback: Option<(&[&[TokenId]], f64)>,
    selector: impl Selector + 'static,
) -> (StepTrace, Vec<String>) {
    let log = Log::default();
    let spec = AlignmentSpec::new(vec![Seat::new("mean", Arc::new(Mean))], Simplex::uniform(1).unwrap()).unwrap();
    let mut scheme = Scheme {
        backbone: Box::new(Digital(Arc::clone(&log))),
        proposal: Box::new(Spans("proposal", spans(drafted), Arc::clone(&log))),
        granularity: Arc::new(Response),
        search,
        fallback: fallback.map(|(drafted, threshold)| Fallback {
            proposal: Box::new(Spans("fallback", spans(drafted), Arc::clone(&log))),
            threshold,
        }),
        arm: Arm {
            name: "own".into(),
            spec: SpecHandle::new(spec),
            fluency: None,
            operators: Operators {
                weighting: Arc::new(Fixed),
                normalizer: Arc::new(Plain),
                aggregator: Arc::new(Plain),
                selector: Arc::new(selector),
            },
        },
        others: Vec::new(),
    };
    let mut context = Context::new([1]).unwrap();
    let trace = scheme.step(&mut context, 100, &mut ChaCha8Rng::seed_from_u64(5)).unwrap();
    assert_eq!(context.response(), trace.chosen().tokens);
    let log = log.lock().unwrap().clone();
    (trace, log)
}

fn race(tokens: usize, mass: f64) -> Search {
    Search::Race(Race::new(NonZeroUsize::new(tokens).unwrap(), mass).unwrap())
}

fn waves(first: usize, size: usize, settled: Settled) -> Search {
    let count = |n| NonZeroUsize::new(n).unwrap();
    Search::Waves(Waves::new(count(first), count(size), settled).unwrap())
}

/// One candidate has probability one, so that a first wave of one would always settle.
#[test]
fn a_first_wave_that_settles_by_probability_has_two_candidates() {
    let waves = |first, settled| Waves::new(NonZeroUsize::new(first).unwrap(), NonZeroUsize::MIN, settled);
    let error = waves(1, Settled::Probability(0.5)).unwrap_err().to_string();
    assert!(error.contains("first is 1") && error.contains("at least 2"), "{error}");
    assert!(waves(2, Settled::Probability(0.5)).is_ok() && waves(1, Settled::Score(0.5)).is_ok());
}

/// −μ is 3, 1, 2 and 0.5; by the first token alone it is 0, 1, 2 and 0.
const FOUR: [&[TokenId]; 4] = [&[0, 6], &[1, 1, 1], &[2, 2], &[0, 1]];

#[test]
fn a_race_that_drops_nobody_chooses_as_a_step_that_scores_everything() {
    let (full, _) = step(&FOUR, Search::Full, None, Exponential);
    let (raced, log) = step(&FOUR, race(1, 1.0), None, Exponential);
    assert_eq!((full.decision, full.candidates), (raced.decision, raced.candidates));
    assert_eq!(log[..2], ["read [1, 1, 1, 1]", "read [2, 3, 2, 2]"]);
    // If no candidate is longer than the first tokens, there is one reading.
    let (short, log) = step(&FOUR, race(3, 0.1), None, Exponential);
    assert_eq!(short.decision.probabilities.iter().filter(|&&p| p > 0.0).count(), 4);
    assert_eq!(log[0], "read [2, 3, 2, 2]");
}

#[test]
fn a_race_drops_the_unlikely_and_keeps_them_in_the_batch() {
    // By first tokens the weights are 1, e⁻¹, e⁻² and 1, with the sum 2.503. The two equal
    // candidates hold 0.799, with the second candidate 0.946.
    let (trace, log) = step(&FOUR, race(1, 0.9), None, Exponential);
    let scored: Vec<Option<usize>> = trace.candidates.iter().map(|candidate| candidate.scored).collect();
    assert_eq!(scored, [None, None, Some(1), None]);
    assert_eq!(log[..2], ["read [1, 1, 1, 1]", "read [2, 3, 2]"]);
    assert_eq!((trace.scored_tokens(), trace.drafted_tokens()), (2 + 3 + 1 + 2, 9));
    // The dropped candidate has the score of its first token and a probability of zero.
    assert_eq!(trace.decision.mu, [-3.0, -1.0, -2.0, -0.5]);
    let weights = [(-3.0f64).exp(), (-1.0f64).exp(), 0.0, (-0.5f64).exp()];
    let sum: f64 = weights.iter().sum();
    for (p, weight) in trace.decision.probabilities.iter().zip(weights) {
        // A few roundings of numbers below one.
        assert!((p - weight / sum).abs() < 1e-15, "{p}");
    }
    // The backbone commits a row of its last reading, the proposal commits a candidate.
    let survivors = [0, 1, 3];
    let row = survivors.iter().position(|&i| i == trace.decision.chosen).unwrap();
    assert_eq!(log[2..], [format!("backbone keeps {row}"), format!("proposal keeps {}", trace.decision.chosen)]);
}

#[test]
fn a_race_whose_survivors_fall_behind_is_won_by_the_best_of_them() {
    // The first candidate leads after one token and is worse when read whole. The second was
    // dropped with a better score.
    let (trace, _) = step(&[&[0, 9], &[1, 0]], race(1, 0.5), None, Highest);
    assert_eq!(trace.decision.mu, [-4.5, -1.0]);
    assert_eq!(trace.decision.probabilities, [1.0, 0.0]);
}

#[test]
fn waves_end_when_the_choice_is_settled() {
    let (trace, log) = step(&[&[4], &[1], &[5], &[0], &[2]], waves(2, 2, Settled::Score(-1.5)), None, Highest);
    assert_eq!(log, ["read [1, 1]", "backbone keeps 1", "proposal keeps 1"]);
    let tokens = |candidates: &[sk_core::CandidateTrace]| candidates.iter().map(|c| c.tokens[0]).collect::<Vec<_>>();
    assert_eq!((tokens(&trace.candidates), tokens(&trace.unscored)), (vec![4, 1], vec![5, 0, 2]));
    assert_eq!((trace.decision.mu, trace.decision.chosen), (vec![-4.0, -1.0], 1));

    // No candidate reaches the score, and the winner is not in the last reading.
    let (trace, log) = step(&[&[4], &[1], &[5], &[3], &[2]], waves(2, 2, Settled::Score(-0.5)), None, Highest);
    assert_eq!(log, ["read [1, 1]", "read [1, 1]", "read [1]", "proposal keeps 1"]);
    assert_eq!((trace.decision.chosen, trace.unscored.len()), (1, 0));
    assert_eq!(trace.decision.mu, [-4.0, -1.0, -5.0, -3.0, -2.0]);

    // e⁻¹ and e⁻³: a probability of 0.88.
    let (trace, _) = step(&[&[1], &[3], &[0]], waves(2, 1, Settled::Probability(0.88)), None, Exponential);
    assert_eq!(trace.candidates.len(), 2);
    let (trace, _) = step(&[&[1], &[3], &[0]], waves(2, 1, Settled::Probability(0.89)), None, Exponential);
    assert_eq!(trace.candidates.len(), 3);
}

#[test]
fn a_wave_of_any_size_is_the_rest() {
    let (trace, log) = step(&[&[4], &[1], &[5], &[3], &[2]], waves(2, usize::MAX, Settled::Score(-0.5)), None, Highest);
    assert_eq!((log[1].as_str(), trace.decision.chosen), ("read [1, 1, 1]", 1));
}

#[test]
fn a_choice_that_is_not_good_enough_gives_way_to_the_fallback() {
    let (trace, log) = step(&[&[4], &[3]], Search::Full, Some((&[&[5], &[2, 2]], -2.5)), Highest);
    assert_eq!(log, ["read [1, 1]", "read [1, 2]", "backbone keeps 1", "fallback keeps 1"]);
    assert_eq!(trace.chosen().tokens, [2, 2]);
    let rejected = trace.rejected.as_ref().unwrap();
    assert_eq!((&rejected.decision.mu, rejected.decision.chosen), (&vec![-4.0, -3.0], 1));
    assert_eq!((trace.drafted_tokens(), trace.scored_tokens()), (5, 5));

    let (trace, log) = step(&[&[4], &[3]], Search::Full, Some((&[&[5]], -3.0)), Highest);
    assert_eq!(log, ["read [1, 1]", "backbone keeps 1", "proposal keeps 1"]);
    assert_eq!((trace.rejected, trace.decision.chosen), (None, 1));
}
