//! A scheme runs on any engine; here on one with three tokens and no tensors.

use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Backbone, Blade, BoxError, Candidate, Candidates, Context, DraftRequest, Drafting, Engine, Generation, Observation, Policy,
    Proposal, Reading, Readings, Score, Seat, SpanEnd, SpecHandle, TokenId,
};
use sk_scheme::{Cap, FallbackSpec, GranularitySpec, SchemeError, SchemeSpec, Shipped, Unlimited};

/// Token 0 is "a", 1 is "\n\n", and 2 ends a response. Variant k prefers token k.
struct Toy;

struct ToyBackbone;

struct ToyProposal(usize);

impl Engine for Toy {
    fn start(&self, drafting: &Drafting, _: &SpecHandle) -> Result<Generation, BoxError> {
        match drafting {
            Drafting::Sampled { candidates, .. } => {
                Ok(Generation { backbone: Box::new(ToyBackbone), proposal: Box::new(ToyProposal(candidates.get())) })
            }
            Drafting::Vocabulary { .. } => Err("this engine knows no vocabulary".into()),
        }
    }

    fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        [&b"a"[..], b"\n\n", b""].into_iter().map(Box::from).collect()
    }
}

impl Backbone for ToyBackbone {
    fn read(&mut self, _: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        let mut readings = Readings::new();
        for policy in policies {
            let likes: TokenId = if *policy == Policy::Variant("calm".into()) { 0 } else { 1 };
            let read = |candidate: &Candidate| Reading {
                log_probs: candidate.tokens.iter().map(|&token| if token == likes { -0.5 } else { -1.5 }).collect(),
                min_entropy: vec![0.25; candidate.tokens.len()],
                ..Reading::default()
            };
            readings.insert(policy.clone(), candidates.iter().map(read).collect());
        }
        Ok(readings)
    }
}

impl Proposal for ToyProposal {
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        let mut span = |_| {
            let mut tokens = Vec::new();
            let end = loop {
                tokens.push(rng.random_range(0..3));
                if tokens.last() == Some(&2) {
                    break SpanEnd::EndOfText;
                } else if request.granularity.completes(&tokens) {
                    break SpanEnd::Complete;
                } else if tokens.len() == request.limit {
                    break SpanEnd::Limit;
                }
            };
            Candidate { log_probs: vec![-1.0; tokens.len()], tokens, end }
        };
        Ok(Candidates::new((0..self.0).map(&mut span).collect())?)
    }
}

#[test]
fn a_scheme_is_built_on_an_engine() {
    let mut spec = Shipped::named("swiss-knife").unwrap().spec().unwrap();
    ["calm", "brief"].iter().for_each(|name| spec.seat(name));
    let mut scheme = spec.build(&Toy).unwrap();
    let mut context = Context::new([0]).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut steps = Vec::new();
    scheme
        .generate(&mut context, 40, &mut rng, |step| {
            steps.push(step.clone());
            true
        })
        .unwrap();
    assert!(!steps.is_empty());
    for step in &steps {
        assert_eq!((step.candidates.len(), step.blades.len()), (7, 2));
        // A blank line ends a span, so only the last token can be one.
        assert!(step.candidates.iter().all(|c| !c.tokens[..c.tokens.len() - 1].contains(&1)));
        assert!(step.fluency.is_some() && (step.decision.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    // The spec read back from JSON gives the same scheme.
    let copy: SchemeSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    let mut again = copy.build(&Toy).unwrap();
    let mut context = Context::new([0]).unwrap();
    let first = again.step(&mut context, 40, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    assert_eq!(first.decision.probabilities, steps[0].decision.probabilities);
}

#[test]
fn a_blade_of_ones_own_takes_the_place_of_an_ingredient() {
    /// Prefers short candidates.
    struct Short;
    impl Blade for Short {
        fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
            for (score, candidate) in out.iter_mut().zip(step.candidates) {
                *score = Score::new(-(candidate.tokens.len() as f64), 0.0)?;
            }
            Ok(())
        }
    }
    let file = "[blades.calm]\n[blades.short]\nkind = \"ingredient\"\n[weights]\nshort = 0.75\ncalm = 0.25\n\
                [selector.gates.short]\nthreshold = -2\n";
    let mut scheme = SchemeSpec::from_toml("own.toml", file).unwrap().build(&Toy).unwrap();
    scheme.arm.spec.edit(|spec| spec.swap("short", Seat::new("short", Arc::new(Short)))).unwrap();
    let trace = scheme.step(&mut Context::new([0]).unwrap(), 40, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let short = trace.blades.iter().find(|blade| blade.name == "short").unwrap();
    assert_eq!(short.weight, 0.75);
    for ((candidate, mu), p) in trace.candidates.iter().zip(&short.mu).zip(&trace.decision.probabilities) {
        assert_eq!(*mu, -(candidate.tokens.len() as f64));
        assert!(candidate.tokens.len() <= 2 || *p == 0.0, "the gate stops {candidate:?}");
    }
}

#[test]
fn what_an_engine_cannot_do_is_said() {
    let spec = Shipped::named("base").unwrap().spec().unwrap();
    let error = spec.build(&Toy).err().unwrap();
    assert!(matches!(error, SchemeError::Engine(_)) && error.to_string() == "this engine knows no vocabulary", "{error}");
    let empty = SchemeSpec::default();
    assert!(matches!(empty.build(&Toy), Err(SchemeError::NoBlade)));
}

#[test]
fn a_number_out_of_range_is_refused_when_the_scheme_is_built() {
    let mut spec = SchemeSpec::default();
    spec.seat("calm");
    let refused = |change: &dyn Fn(&mut SchemeSpec), said: &str| {
        let mut spec = spec.clone();
        change(&mut spec);
        let error = spec.build(&Toy).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(said));
    };
    let cap = Cap::Unlimited(Unlimited::Unlimited);
    for span in [GranularitySpec::FixedLength { span_tokens: 0 }, GranularitySpec::Response { span_tokens: Cap::Tokens(0) }] {
        refused(&|spec| spec.granularity = span.clone(), "granularity: span_tokens is 0; a span needs a token");
    }
    refused(
        &|spec| spec.granularity = GranularitySpec::Entropy { entropy: f64::NAN, span_tokens: cap },
        "granularity: entropy is NaN; it must be finite and not negative",
    );
    refused(
        &|spec| spec.granularity = GranularitySpec::Delimiters { delimiters: Vec::new(), span_tokens: cap },
        "granularity: kind \"delimiters\" needs delimiters = [\"…\"], at least one text",
    );
    refused(
        &|spec| spec.fallback = FallbackSpec::Backbone { threshold: f64::NAN },
        "fallback: threshold is NaN; it must be finite",
    );
}
