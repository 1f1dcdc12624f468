//! One step of a scheme whose slots are small enough to follow by hand.

use std::num::NonZeroUsize;
use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Aggregator, AlignmentSpec, Arm, Backbone, Batch, Blade, BoxError, Candidate, Candidates, Capped, Composite, Context,
    DraftRequest, Ended, Fixed, Normalizer, Observation, Operators, Policy, Proposal, Reading, Readings, Response, Scheme, Score,
    ScoreTable, Search, Seat, Selector, Simplex, SpanEnd, SpecHandle, StepError, TokenId, Uncertain, Weighting,
};

const END: TokenId = 9;

/// Draws `n` spans of digits; a span that draws [`END`] ends the response.
struct Digits {
    n: usize,
}

impl Proposal for Digits {
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        let span = |rng: &mut dyn Rng| {
            let mut tokens = Vec::new();
            loop {
                tokens.push(rng.random_range(0..10));
                let end = match tokens.last() {
                    Some(&END) => SpanEnd::EndOfText,
                    _ if request.granularity.completes(&tokens) => SpanEnd::Complete,
                    _ if tokens.len() == request.limit => SpanEnd::Limit,
                    _ => continue,
                };
                return Candidate { log_probs: vec![-2.0; tokens.len()], tokens, end };
            }
        };
        Ok(Candidates::new((0..self.n).map(|_| span(rng)).collect())?)
    }
}

/// [`First`] applied to the scores of one blade.
struct LookingAt(&'static str);

impl Selector for LookingAt {
    fn distribution(&self, ratings: &[f64], batch: &Batch<'_>, probabilities: &mut [f64]) {
        let table = batch.blades().unwrap();
        assert_eq!(table.candidates(), ratings.len());
        // Finds the blade by name, among all that were read.
        First.distribution(table.mu(table.find(self.0).unwrap()), batch, probabilities);
    }
    fn blades(&self) -> Vec<Arc<str>> {
        vec![self.0.into()]
    }
}

/// A backbone whose log-probability of a token is minus its id. It records the policies of each
/// read.
#[derive(Default)]
struct Digital {
    asked: Arc<std::sync::Mutex<Vec<Vec<Policy>>>>,
}

impl Backbone for Digital {
    fn read(&mut self, _: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        self.asked.lock().unwrap().push(policies.to_vec());
        let mut readings = Readings::new();
        for policy in policies {
            let read = |c: &Candidate| Reading {
                log_probs: c.tokens.iter().map(|&t| -(t as f32)).collect(),
                min_entropy: vec![0.5; c.tokens.len()],
                ..Reading::default()
            };
            readings.insert(policy.clone(), candidates.iter().map(read).collect());
        }
        Ok(readings)
    }
}

/// μ = sign · mean log-probability under the variant with the blade's name.
struct Mean {
    name: &'static str,
    sign: f64,
}

impl Blade for Mean {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        let readings = step.readings.get(&Policy::Variant(self.name.into())).ok_or("not read")?;
        for (score, reading) in out.iter_mut().zip(readings) {
            let mean = reading.log_probs.iter().map(|&p| f64::from(p)).sum::<f64>() / reading.log_probs.len() as f64;
            *score = Score::new(self.sign * mean, 0.5)?;
        }
        Ok(())
    }
    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Variant(self.name.into())]
    }
}

struct WeightedSum;

impl Normalizer for WeightedSum {
    fn combine(&self, scores: &ScoreTable, weights: &Simplex, out: &mut Composite) {
        out.reset(scores.candidates());
        for (k, &w) in weights.as_slice().iter().enumerate() {
            for i in 0..scores.candidates() {
                out.mu[i] += w * scores.mu(k)[i];
                out.sigma[i] += w * scores.sigma(k)[i];
            }
        }
    }
}

struct Scores;

impl Aggregator for Scores {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        ratings.copy_from_slice(batch.mu());
    }
}

struct First;

impl Selector for First {
    fn distribution(&self, ratings: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
        let best = (0..ratings.len()).rev().max_by(|&a, &b| ratings[a].total_cmp(&ratings[b])).unwrap();
        probabilities.fill(0.0);
        probabilities[best] = 1.0;
    }
}

struct Broken(f64);

impl Selector for Broken {
    fn distribution(&self, _: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
        probabilities.fill(self.0);
    }
}

fn scheme(n: usize) -> (Scheme, Arc<std::sync::Mutex<Vec<Vec<Policy>>>>) {
    let seats = vec![
        Seat::new("small", Arc::new(Mean { name: "small", sign: 1.0 })),
        Seat::new("large", Arc::new(Mean { name: "large", sign: -1.0 })),
    ];
    let backbone = Digital::default();
    let asked = Arc::clone(&backbone.asked);
    let spec = AlignmentSpec::new(seats, Simplex::new([1.0, 0.0]).unwrap()).unwrap();
    let scheme = Scheme {
        backbone: Box::new(backbone),
        proposal: Box::new(Digits { n }),
        granularity: Arc::new(Capped { rule: Response, tokens: NonZeroUsize::new(3).unwrap() }),
        search: Search::Full,
        fallback: None,
        arm: Arm {
            name: "own".into(),
            spec: SpecHandle::new(spec),
            fluency: None,
            operators: Operators {
                weighting: Arc::new(Fixed),
                normalizer: Arc::new(WeightedSum),
                aggregator: Arc::new(Scores),
                selector: Arc::new(First),
            },
        },
        others: Vec::new(),
    };
    (scheme, asked)
}

fn digit_mean(tokens: &[TokenId]) -> f64 {
    tokens.iter().map(|&t| f64::from(t)).sum::<f64>() / tokens.len() as f64
}

#[test]
fn the_winner_is_appended_and_the_trace_says_why() {
    let (mut scheme, _) = scheme(5);
    let mut context = Context::new([1, 2]).unwrap();
    let trace = scheme.step(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    assert_eq!(trace.candidates.len(), 5);
    let means: Vec<f64> = trace.candidates.iter().map(|c| digit_mean(&c.tokens)).collect();
    let smallest = means.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(means[trace.decision.chosen], smallest);
    assert_eq!(context.response(), trace.chosen().tokens);
    assert_eq!(trace.decision.mu, means.iter().map(|m| -m).collect::<Vec<_>>());
    assert_eq!(trace.decision.sigma, [0.5; 5]);
    assert_eq!((trace.step, trace.chosen()), (0, &trace.candidates[trace.decision.chosen]));
}

/// An arm over the candidates of [`scheme`], with the blade `name` alone and with `selector`.
fn arm(name: &'static str, sign: f64, selector: impl Selector + 'static) -> Arm {
    let seats = vec![Seat::new(name, Arc::new(Mean { name, sign }))];
    Arm {
        name: format!("by {name}").into(),
        spec: SpecHandle::new(AlignmentSpec::new(seats, Simplex::uniform(1).unwrap()).unwrap()),
        fluency: None,
        operators: Operators {
            weighting: Arc::new(Fixed),
            normalizer: Arc::new(WeightedSum),
            aggregator: Arc::new(Scores),
            selector: Arc::new(selector),
        },
    }
}

/// The uniform distribution.
struct Even;

impl Selector for Even {
    fn distribution(&self, _: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
        probabilities.fill(1.0 / probabilities.len() as f64);
    }
}

#[test]
fn arms_choose_from_the_same_candidates_by_one_reading_and_change_nothing() {
    let run = |arms: Vec<Arm>| {
        let (mut scheme, asked) = scheme(5);
        scheme.arm.operators.selector = Arc::new(Even);
        scheme.others = arms;
        let mut context = Context::new([1, 2]).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let traces = [(), ()].map(|()| scheme.step(&mut context, 10, &mut rng).unwrap());
        let asked = asked.lock().unwrap().clone();
        (context, traces, asked)
    };
    let (alone, without, _) = run(Vec::new());
    let (together, with, asked) = run(vec![arm("large", -1.0, First), arm("small", 1.0, Even)]);
    assert_eq!(alone, together);
    // One reading per step, with every policy that any arm needs.
    assert_eq!(
        asked,
        [
            ["large", "small"].map(|name| Policy::Variant(name.into())),
            ["large", "small"].map(|name| Policy::Variant(name.into()))
        ]
    );
    for (without, with) in without.iter().zip(&with) {
        assert_eq!(
            (&without.candidates, &without.decision.mu, without.decision.chosen),
            (&with.candidates, &with.decision.mu, with.decision.chosen)
        );
        assert_eq!((without.position, without.arms.len()), (with.position, 0));
        let [largest, even] = &with.arms[..] else { panic!("two arms") };
        let means: Vec<f64> = with.candidates.iter().map(|c| digit_mean(&c.tokens)).collect();
        assert_eq!((largest.name.as_str(), &largest.decision.mu), ("by large", &means));
        assert_eq!(means[largest.decision.chosen], means.iter().copied().fold(0.0, f64::max));
        // Equal distributions draw the same candidate, because all arms share one uniform number.
        assert_eq!((even.decision.chosen, &even.decision.probabilities), (with.decision.chosen, &with.decision.probabilities));
    }
    assert_eq!([with[0].position, with[1].position], [2, 2 + with[0].chosen().tokens.len()]);
}

#[test]
fn an_arm_that_fails_is_named() {
    let failing = |arm: Arm| {
        let (mut scheme, _) = scheme(3);
        scheme.others = vec![arm];
        let mut context = Context::new([1]).unwrap();
        let error = scheme.step(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err().to_string();
        assert_eq!(context.tokens(), [1], "nothing is appended");
        error
    };
    let error = failing(arm("large", 1.0, LookingAt("small")));
    assert_eq!(error, "arm \"by large\": the selector looks at blade \"small\", which is not seated; seated: large");
    let error = failing(arm("large", 1.0, Broken(0.5)));
    assert_eq!(error, "arm \"by large\": the selector's probabilities sum to 1.5, not to 1");
}

#[test]
fn only_blades_of_positive_weight_are_read_and_an_edit_takes_effect_at_the_next_step() {
    let (mut scheme, asked) = scheme(4);
    let handle = scheme.arm.spec.clone();
    let mut context = Context::new([1]).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    scheme.step(&mut context, 10, &mut rng).unwrap();
    handle.edit(|s| s.with_named_weights([("large", 1.0)])).unwrap();
    let trace = scheme.step(&mut context, 10, &mut rng).unwrap();
    let largest = trace.candidates.iter().map(|c| digit_mean(&c.tokens)).fold(0.0, f64::max);
    assert_eq!(digit_mean(&trace.chosen().tokens), largest);
    let variant = |name: &str| vec![Policy::Variant(name.into())];
    assert_eq!(*asked.lock().unwrap(), [variant("small"), variant("large")]);
}

#[test]
fn a_blade_that_the_selector_looks_at_is_read_at_weight_zero_and_left_out_of_the_composite() {
    let (mut scheme, asked) = scheme(6);
    let mut context = Context::new([1]).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    // In a `Box` and an `Arc`, as schemes hold their slots.
    scheme.arm.operators.selector = Arc::new(Box::new(LookingAt("large")));
    let trace = scheme.step(&mut context, 10, &mut rng).unwrap();
    let means: Vec<f64> = trace.candidates.iter().map(|c| digit_mean(&c.tokens)).collect();
    assert_eq!(means[trace.decision.chosen], means.iter().copied().fold(0.0, f64::max));
    assert_eq!(trace.decision.mu, means.iter().map(|m| -m).collect::<Vec<_>>());
    // A normaliser sees only the rows of blades with a positive weight, because it may do more with
    // a row than weigh it.
    struct Rows;
    impl Normalizer for Rows {
        fn combine(&self, scores: &ScoreTable, weights: &Simplex, out: &mut Composite) {
            assert_eq!((scores.blades(), scores.name(0), weights.as_slice()), (1, Some("small"), &[1.0][..]));
            WeightedSum.combine(scores, weights, out);
        }
    }
    let read: Vec<_> = trace.blades.iter().map(|blade| (blade.name.as_str(), blade.weight)).collect();
    assert_eq!(read, [("small", 1.0), ("large", 0.0)]);
    assert_eq!(*asked.lock().unwrap(), [vec![Policy::Variant("large".into()), Policy::Variant("small".into())]]);

    scheme.arm.operators.normalizer = Arc::new(Rows);
    scheme.step(&mut context, 10, &mut rng).unwrap();

    scheme.arm.operators.selector = Arc::new(LookingAt("polite"));
    let error = scheme.step(&mut context, 10, &mut rng).unwrap_err();
    assert_eq!(error.to_string(), "the selector looks at blade \"polite\", which is not seated; seated: small, large");
}

#[test]
fn generation_stops_at_the_limit_exactly_or_at_the_end_of_text() {
    let mut finishes = Vec::new();
    for seed in 0..20 {
        let (mut scheme, _) = scheme(1);
        let mut context = Context::new([1]).unwrap();
        let finish = scheme.generate(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(seed), |_| true).unwrap();
        match finish {
            Ended::Limit => assert_eq!(context.response().len(), 10),
            Ended::EndOfText => {
                assert_eq!(context.response().iter().position(|&t| t == END), Some(context.response().len() - 1));
            }
            other => unreachable!("nothing stops it: {other:?}"),
        }
        finishes.push(finish);
    }
    assert!(finishes.contains(&Ended::Limit) && finishes.contains(&Ended::EndOfText));
}

#[test]
fn a_candidate_that_ends_the_text_ends_it_also_where_the_caller_stops() {
    let mut ends = 0;
    for seed in 0..20 {
        let (mut scheme, _) = scheme(1);
        let mut context = Context::new([1]).unwrap();
        let finish = scheme.generate(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(seed), |_| false).unwrap();
        let is_end = context.response().contains(&END);
        assert_eq!(finish, if is_end { Ended::EndOfText } else { Ended::Interrupted });
        ends += usize::from(is_end);
    }
    assert!((1..20).contains(&ends), "{ends} of 20 steps end the text");
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let run = |seed| {
        let (mut scheme, _) = scheme(3);
        let mut context = Context::new([1]).unwrap();
        scheme.generate(&mut context, 30, &mut ChaCha8Rng::seed_from_u64(seed), |_| true).unwrap();
        context.response().to_vec()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn the_fluency_blade_is_scored_beside_the_others_and_has_no_weight() {
    struct Length;
    impl Blade for Length {
        fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
            for (score, candidate) in out.iter_mut().zip(step.candidates) {
                *score = Score::new(candidate.tokens.len() as f64, 0.0)?;
            }
            Ok(())
        }
    }
    struct Fluency;
    impl Aggregator for Fluency {
        fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
            ratings.copy_from_slice(batch.fluency().unwrap());
        }
    }
    let (mut scheme, _) = scheme(4);
    let mut context = Context::new([1]).unwrap();
    let trace = scheme.step(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    assert_eq!((trace.fluency, trace.blades.len()), (None, 1));
    scheme.arm.fluency = Some(Arc::new(Length));
    scheme.arm.operators.aggregator = Arc::new(Fluency);
    let trace = scheme.step(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(3)).unwrap();
    let lengths: Vec<f64> = trace.candidates.iter().map(|c| c.tokens.len() as f64).collect();
    assert_eq!((&trace.decision.ratings, trace.blades.len()), (&lengths, 1));
    assert_eq!(trace.fluency, Some(lengths));
}

#[test]
fn what_is_a_distribution_but_for_rounding_is_taken_and_nothing_else() {
    struct Fixed(Vec<f64>);
    impl Selector for Fixed {
        fn distribution(&self, _: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
            probabilities.copy_from_slice(&self.0);
        }
    }
    let step = |probabilities: &[f64]| {
        let (mut scheme, _) = scheme(probabilities.len());
        scheme.arm.operators.selector = Arc::new(Fixed(probabilities.to_vec()));
        scheme.step(&mut Context::new([1]).unwrap(), 10, &mut ChaCha8Rng::seed_from_u64(9))
    };
    // The tolerance is one rounding of 1e-9 per candidate, so 5e-9 here.
    for off in [0.0, 4e-9, -4e-9] {
        assert!(step(&[0.2, 0.2, 0.2, 0.2, 0.2 + off]).is_ok(), "{off}");
    }
    for off in [6e-9, -6e-9, 0.1] {
        assert!(matches!(step(&[0.2, 0.2, 0.2, 0.2, 0.2 + off]), Err(StepError::Mass { .. })), "{off}");
    }
    assert_eq!(step(&[0.0, 1.0 + 5e-10]).unwrap().decision.chosen, 1);
    assert!(matches!(step(&[0.0, 1.0 + 2e-9]), Err(StepError::Distribution { index: 1, .. })));
    assert!(matches!(step(&[0.5, 0.5 + 1e-9, -1e-9]), Err(StepError::Distribution { index: 2, .. })));
}

/// Values that a custom slot may return by mistake, for example 0/0.
#[test]
fn what_is_not_a_number_is_refused_by_the_name_of_its_slot() {
    struct Nowhere(usize, usize);
    struct Beyond(f64);
    impl Aggregator for Beyond {
        fn rate(&self, _: &Batch<'_>, ratings: &mut [f64]) {
            ratings.fill(self.0);
        }
    }
    impl Normalizer for Nowhere {
        fn combine(&self, scores: &ScoreTable, _: &Simplex, out: &mut Composite) {
            out.reset(scores.candidates() + self.1);
            out.mu[self.0] = f64::NAN;
        }
    }
    impl Aggregator for Nowhere {
        fn rate(&self, _: &Batch<'_>, ratings: &mut [f64]) {
            ratings.fill(9.0);
            ratings[self.0] = f64::NAN;
        }
    }
    let refused = |change: &dyn Fn(&mut Scheme)| {
        let (mut scheme, _) = scheme(3);
        change(&mut scheme);
        scheme.step(&mut Context::new([1]).unwrap(), 10, &mut ChaCha8Rng::seed_from_u64(9)).unwrap_err().to_string()
    };
    for place in 0..3 {
        let error = refused(&|scheme| scheme.arm.operators.normalizer = Arc::new(Nowhere(place, 0)));
        assert_eq!(
            error,
            format!("the normaliser's composites cannot be used: score of candidate {place} is NaN; scores must be finite")
        );
        let error = refused(&|scheme| scheme.arm.operators.aggregator = Arc::new(Nowhere(place, 0)));
        assert_eq!(error, format!("the aggregator rated candidate {place} NaN; ratings must be finite"));
    }
    let error = refused(&|scheme| scheme.arm.operators.aggregator = Arc::new(Beyond(f64::INFINITY)));
    assert_eq!(error, "the aggregator rated candidate 0 inf; ratings must be finite");
    let error = refused(&|scheme| scheme.arm.operators.normalizer = Arc::new(Nowhere(0, 1)));
    assert_eq!(error, "the normaliser's composites cannot be used: 4 composite scores for 3 scores");
    // Scores from another source, such as a trace.
    let (scheme, _) = scheme(3);
    let table = ScoreTable::new([([0.0, 0.0], [0.1; 2])]).unwrap();
    let decide = |weights: &[f64], fluency: Option<&[f64]>| {
        scheme.arm.operators.decide(&table, weights, fluency, 0.5, None).unwrap_err().to_string()
    };
    assert!(decide(&[f64::INFINITY], None).contains("the weights of the blades cannot be used: weight 0 is inf"));
    assert!(decide(&[0.0], None).contains("the weights of the blades cannot be used: weights sum to 0"));
    assert!(decide(&[0.5, 0.5], None).contains("2 weights for 1 scores"));
    assert!(decide(&[1.0], Some(&[0.0, f64::NAN])).contains("the scores of the blades cannot be used"));
}

/// Requested weights only have to be finite. The composites have the scale of a rule's weights, so
/// the sum of these must be finite too.
#[test]
fn the_sum_of_weights_may_overflow_only_as_requested() {
    struct Huge;
    impl Weighting for Huge {
        fn weigh(&self, _: &ScoreTable, _: &[f64], weights: &mut [f64]) {
            weights.fill(1e308);
        }
    }
    let (mut scheme, _) = scheme(3);
    let table = ScoreTable::new([([0.0, 1.0], [0.1; 2]), ([0.5, 0.0], [0.1; 2])]).unwrap();
    let decide = |scheme: &Scheme, weights: [f64; 2]| scheme.arm.operators.decide(&table, &weights, None, 0.5, None);
    assert_eq!(decide(&scheme, [1e308; 2]).unwrap(), decide(&scheme, [0.5; 2]).unwrap());
    scheme.arm.operators.weighting = Arc::new(Huge);
    let said = decide(&scheme, [0.5; 2]).unwrap_err().to_string();
    assert_eq!(said, "the weights of the blades cannot be used: weights sum to inf; they must sum to a finite number");
}

#[test]
fn an_error_of_the_rule_for_w_counts_the_blades_of_weight_zero() {
    struct Negative;
    impl Weighting for Negative {
        fn weigh(&self, _: &ScoreTable, _: &[f64], weights: &mut [f64]) {
            weights.copy_from_slice(&[0.0, -1.0, 2.0]);
        }
    }
    let (scheme, _) = scheme(3);
    let table = ScoreTable::new([([0.0, 1.0], [0.1; 2]); 3]).unwrap();
    let operators = Operators { weighting: Arc::new(Negative), ..scheme.arm.operators };
    let error = operators.decide(&table, &[1.0; 3], None, 0.5, None).unwrap_err().to_string();
    assert_eq!(error, "the weights of the blades cannot be used: weight 1 is -1; weights must not be negative");
}

#[test]
fn a_decision_is_among_some_of_the_candidates_in_ascending_order() {
    let (scheme, _) = scheme(3);
    let table = ScoreTable::new([([0.0, 1.0, 2.0], [0.1; 3])]).unwrap();
    let decide = |among: &[usize]| {
        let decide = || scheme.arm.operators.decide(&table, &[1.0], None, 0.5, Some(among)).unwrap();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(decide)).map(|decision| decision.probabilities)
    };
    assert_eq!(decide(&[1]).unwrap(), [0.0, 1.0, 0.0]);
    assert!(decide(&[0, 1, 2]).is_ok());
    for among in [&[7, 8, 9][..], &[0, 0], &[1, 0], &[]] {
        assert!(decide(among).is_err(), "{among:?}");
    }
}

#[test]
fn a_generation_without_a_limit_ends_with_its_text() {
    let (mut scheme, _) = scheme(2);
    let mut context = Context::new([1]).unwrap();
    let finish = scheme.generate(&mut context, usize::MAX, &mut ChaCha8Rng::seed_from_u64(4), |_| true).unwrap();
    assert_eq!((finish, context.response().last()), (Ended::EndOfText, Some(&END)));
}

/// A backbone receives a commit for its own readings only.
#[test]
fn a_backbone_that_was_not_asked_is_not_told() {
    struct Told(Digital, Arc<std::sync::Mutex<Vec<usize>>>);
    impl Backbone for Told {
        fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
            self.0.read(context, candidates, policies)
        }
        fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
            self.1.lock().unwrap().push(chosen);
            Ok(())
        }
    }
    struct Even;
    impl Blade for Even {
        fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
            out.fill(Score::new(0.0, 0.0)?);
            Ok(())
        }
    }
    let (mut scheme, _) = scheme(3);
    let told: Arc<std::sync::Mutex<Vec<usize>>> = Arc::default();
    scheme.backbone = Box::new(Told(Digital::default(), Arc::clone(&told)));
    let mut context = Context::new([1]).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let chosen = scheme.step(&mut context, 10, &mut rng).unwrap().decision.chosen;
    assert_eq!(*told.lock().unwrap(), [chosen]);
    scheme.arm.spec.edit(|spec| spec.swap("small", Seat::new("even", Arc::new(Even)))).unwrap();
    scheme.step(&mut context, 10, &mut rng).unwrap();
    assert_eq!(*told.lock().unwrap(), [chosen], "no blade asks for a reading");
}

#[test]
fn failures_name_the_slot_and_leave_the_context_alone() {
    assert!(matches!(Context::new([]), Err(StepError::EmptyContext)));
    let (mut scheme, _) = scheme(2);
    let mut context = Context::new([1]).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for probability in [f64::NAN, -0.5, 0.1, 0.9] {
        scheme.arm.operators.selector = Arc::new(Broken(probability));
        let error = scheme.step(&mut context, 10, &mut rng).unwrap_err();
        assert!(error.to_string().contains("selector"), "{error}");
    }
    struct Unread;
    impl Blade for Unread {
        fn score(&self, step: &Observation<'_>, _: &mut [Score]) -> Result<(), BoxError> {
            step.readings.get(&Policy::Backbone).map(|_| ()).ok_or_else(|| "the backbone was not read".into())
        }
    }
    scheme.arm.spec.edit(|s| s.swap("small", Seat::new("unread", Arc::new(Unread)))).unwrap();
    let error = scheme.step(&mut context, 10, &mut rng).unwrap_err();
    assert_eq!(error.to_string(), "blade \"unread\" failed: the backbone was not read");
    assert_eq!(context.response(), []);
}

/// Readings are checked once for all blades, which may zip them.
#[test]
fn wrong_readings_are_refused_by_name() {
    struct Cut(Digital, fn(&Policy, &mut Vec<Reading>));
    impl Backbone for Cut {
        fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
            let full = self.0.read(context, candidates, policies)?;
            let mut readings = Readings::new();
            for policy in full.policies() {
                let mut own = full.get(policy).unwrap().to_vec();
                self.1(policy, &mut own);
                if !own.is_empty() {
                    readings.insert(policy.clone(), own);
                }
            }
            Ok(readings)
        }
    }
    struct Head;
    impl Blade for Head {
        fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
            out.fill(Score::new(0.0, 0.0)?);
            Ok(())
        }
        fn policies(&self) -> Vec<Policy> {
            vec![Policy::Head("fair".into())]
        }
    }
    let (mut scheme, _) = scheme(3);
    let mut context = Context::new([1]).unwrap();
    let mut said = |scheme: &mut Scheme, cut| {
        scheme.backbone = Box::new(Cut(Digital::default(), cut));
        scheme.step(&mut context, 2, &mut ChaCha8Rng::seed_from_u64(7)).unwrap_err().to_string()
    };
    for (cut, reason) in [
        ((|_, own| own.clear()) as fn(&Policy, &mut Vec<Reading>), "policy \"small\" was not read"),
        (|_, own| own.truncate(2), "policy \"small\" was read for 2 candidates where 3 were given"),
        (|_, own| own[1].log_probs.truncate(1), "candidate 1 has 1 log-probabilities of policy \"small\" for 2 tokens"),
        (|_, own| own[2].min_entropy.clear(), "candidate 2 has 0 min-entropies of policy \"small\" for 2 tokens"),
        // A logit.
        (
            |_, own| own[1].log_probs[1] = 2.5,
            "candidate 1 has log-probability 2.5 of policy \"small\" at position 1; it must be a number and at most 0, in nats",
        ),
        (
            |_, own| own[2].min_entropy[0] = f32::NAN,
            "candidate 2 has min-entropy NaN of policy \"small\" at position 0; it must be a number and at least 0, in nats",
        ),
    ] {
        assert_eq!(said(&mut scheme, cut), format!("the backbone's readings cannot be used: {reason}"));
    }
    scheme.arm.spec.edit(|spec| spec.swap("small", Seat::new("head", Arc::new(Head)))).unwrap();
    let error = said(&mut scheme, |_, own| own.iter_mut().for_each(|reading| reading.values = vec![0.0]));
    assert_eq!(error, "the backbone's readings cannot be used: candidate 0 has 1 values of head \"fair\" for 2 tokens");
}

#[test]
fn a_candidate_without_a_score_is_an_error() {
    /// Scores the first `usize` candidates.
    struct Scores(usize);
    impl Blade for Scores {
        fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
            out[..self.0].fill(Score::new(1.0, 0.0)?);
            Ok(())
        }
    }
    let (mut scheme, _) = scheme(3);
    let seats = [("all", 3), ("two", 2)].map(|(name, scored)| Seat::new(name, Arc::new(Scores(scored))));
    let spec = AlignmentSpec::new(seats.into(), Simplex::uniform(2).unwrap()).unwrap();
    scheme.arm.spec = SpecHandle::new(spec);
    let mut context = Context::new([1]).unwrap();
    let mut step = |scheme: &mut Scheme| {
        scheme.step(&mut context, 10, &mut ChaCha8Rng::seed_from_u64(8)).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(step(&mut scheme), Err("blade \"two\" gave candidate 2 no score".to_owned()));
    scheme.arm.spec.edit(|spec| spec.swap("two", Seat::new("too", Arc::new(Scores(3))))).unwrap();
    scheme.arm.fluency = Some(Arc::new(Scores(0)));
    assert_eq!(step(&mut scheme), Err("blade \"fluency\" gave candidate 0 no score".to_owned()));
}

#[test]
fn a_candidate_beyond_the_limit_is_refused() {
    /// Ignores the limit.
    struct Long;
    impl Proposal for Long {
        fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
            Digits { n: 3 }.propose(DraftRequest { limit: 3, ..request }, rng)
        }
    }
    let (mut scheme, _) = scheme(3);
    scheme.proposal = Box::new(Long);
    let mut context = Context::new([1]).unwrap();
    let error = scheme.generate(&mut context, 2, &mut ChaCha8Rng::seed_from_u64(9), |_| true).unwrap_err();
    assert_eq!(error.to_string(), "candidate 0 has 3 tokens where at most 2 were requested");
    assert_eq!(context.response(), []);
}

#[test]
fn a_step_needs_room_for_a_token() {
    let (mut scheme, _) = scheme(3);
    let mut context = Context::new([1]).unwrap();
    let error = scheme.step(&mut context, 0, &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err();
    assert!(matches!(error, StepError::NoTokens), "{error}");
}

#[test]
fn spans_end_by_entropy_only_if_the_proposal_knows_it() {
    let (mut scheme, _) = scheme(3);
    scheme.granularity = Arc::new(Uncertain(0.5));
    let mut context = Context::new([1]).unwrap();
    let error = scheme.step(&mut context, 5, &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err();
    assert!(matches!(error, StepError::NoEntropy), "{error}");
    assert_eq!(context.response(), []);
}
