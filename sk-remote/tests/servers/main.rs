//! The crate against test servers: its results if they behave, and the outcome of a step if they do
//! not.

mod checking;
mod drafting;
mod fake;
mod faults;
mod model;
mod reading;
mod recorded;
mod steps;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use fake::{Fake, Setup};
use sk_core::{AlignmentSpec, Blade, BoxError, Candidate, Candidates, DraftModel, Drafting, Engine, Generation, Observation};
use sk_core::{Policy, Readings, Sampling, Score, Seat, Simplex, SpanEnd, SpecHandle, TokenId};
use sk_remote::{Kind, Probe, RemoteEngine, RemoteError, RemoteOptions, Retry, Role, Tolerance};

/// The size of the vocabulary.
const VOCABULARY: TokenId = 48;

/// The adapters of most tests. Blades have the same names without the prefix `lora-`.
const ADAPTERS: [&str; 2] = ["lora-helpful", "lora-honest"];

/// The text that the check tokenizes.
const TEXT: &str = "a text of forty bytes and a little more.";

/// The token that ends a response.
const END: TokenId = 7;

fn start(kind: Kind, count: usize) -> Vec<Fake> {
    (0..count).map(|_| Fake::start(Setup::new(kind, &ADAPTERS))).collect()
}

/// Longer than any answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The retries of production, with pauses a hundred times shorter.
fn quick() -> Retry {
    Retry {
        attempts: 4,
        patience: LONG,
        deadline: LONG,
        first_pause: Duration::from_millis(2),
        longest_pause: Duration::from_millis(20),
        set_aside: Duration::from_millis(60),
        longest_aside: Duration::from_millis(200),
    }
}

fn role(servers: &[Fake]) -> Role {
    let urls: Vec<&str> = servers.iter().map(|server| server.url.as_str()).collect();
    format!("{}+{}", servers[0].kind().name(), urls.join(",")).parse().unwrap()
}

fn options(servers: &[Fake]) -> RemoteOptions {
    let bytes: Vec<Box<[u8]>> = (0..VOCABULARY).map(|token| Box::from([token as u8])).collect();
    let mut options = RemoteOptions::new(role(servers), bytes.into(), vec![END]);
    options.retry = quick();
    options.tolerance = Tolerance::F32;
    options
}

fn engine(servers: &[Fake]) -> RemoteEngine {
    engine_of(options(servers))
}

/// An engine with the adapters of most tests.
fn engine_of(options: RemoteOptions) -> RemoteEngine {
    let engine = RemoteEngine::new(options).unwrap();
    ADAPTERS.iter().for_each(|name| engine.adapters().insert(name.trim_start_matches("lora-"), *name));
    engine
}

/// An engine that has checked its servers.
fn checked(servers: &[Fake]) -> RemoteEngine {
    let engine = engine(servers);
    check(&engine).unwrap();
    engine
}

fn check(engine: &RemoteEngine) -> Result<sk_remote::CheckReport, RemoteError> {
    engine.check(&Probe { tokens: &fake::tokenize(TEXT), text: TEXT })
}

/// A blade that no test calls.
struct Silent;

impl Blade for Silent {
    fn score(&self, _: &Observation<'_>, _: &mut [Score]) -> Result<(), BoxError> {
        Ok(())
    }
}

fn spec() -> SpecHandle {
    let seat = Seat::new("silent", Arc::new(Silent));
    SpecHandle::new(AlignmentSpec::new(vec![seat], Simplex::uniform(1).unwrap()).unwrap())
}

fn sampled(candidates: usize, sampling: Sampling) -> Drafting {
    Drafting::Sampled {
        model: DraftModel::Drafter,
        candidates: NonZeroUsize::new(candidates).unwrap(),
        sampling,
        keep_end_of_text: true,
        span_tokens: None,
    }
}

fn plain() -> Sampling {
    Sampling::new(1.0, 1.0, 0, 1.0).unwrap()
}

fn generation(engine: &RemoteEngine) -> Generation {
    engine.start(&sampled(3, plain()), &spec()).unwrap()
}

fn candidates(spans: &[&[TokenId]]) -> Candidates {
    let candidate =
        |span: &&[TokenId]| Candidate { tokens: span.to_vec(), log_probs: vec![-1.0; span.len()], end: SpanEnd::Complete };
    Candidates::new(spans.iter().map(candidate).collect()).unwrap()
}

fn variant(name: &str) -> Policy {
    Policy::Variant(Arc::from(name))
}

/// The backbone and both adapters.
fn policies() -> [Policy; 3] {
    [Policy::Backbone, variant("helpful"), variant("honest")]
}

const CONTEXT: [TokenId; 6] = [3, 1, 4, 1, 5, 9];
const SPANS: [&[TokenId]; 4] = [&[2, 6], &[5], &[3, 5, 8, 9, 7], &[2, 7, 1]];

/// Reads the spans of most tests.
fn read(engine: &RemoteEngine) -> Result<Readings, BoxError> {
    generation(engine).backbone.read(&CONTEXT, &candidates(&SPANS), &policies())
}

/// Checks that each reading equals the model's, bit for bit.
fn assert_exact(readings: &Readings, context: &[TokenId], spans: &[&[TokenId]], policies: &[(Policy, Option<&str>)]) {
    assert_eq!(readings.policies().count(), policies.len());
    for (policy, adapter) in policies {
        let expected: Vec<_> = spans.iter().map(|span| model::reading(*adapter, context, span)).collect();
        assert_eq!(readings.get(policy).unwrap(), expected, "{policy:?}");
    }
}

/// Checks the readings of [`read`].
fn assert_right(readings: &Readings) {
    let [base, helpful, honest] = policies();
    let named = [(base, None), (helpful, Some(ADAPTERS[0])), (honest, Some(ADAPTERS[1]))];
    assert_exact(readings, &CONTEXT, &SPANS, &named);
}

/// Extracts this crate's error from the error of a slot.
fn typed(error: BoxError) -> RemoteError {
    *error.downcast().unwrap()
}
