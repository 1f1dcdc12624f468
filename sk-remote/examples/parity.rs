//! Reads recorded steps of the engine in this repository again, by models behind servers, and
//! compares every number.
//!
//! ```sh
//! cargo run --release -p sk-remote --example parity -- vllm+http://localhost:8000#base TRACES
//! ```
//!
//! `TRACES` is a folder of `NAME.txt`, a prompt, and `NAME.jsonl`, what `swiss-knife generate --trace`
//! wrote for it on the model that ships; the servers have the same model. `sk-remote/tests/vllm.sh`
//! and `sk-remote/tests/sglang.sh` make all of it. The candidates are those of the trace, and so is
//! the scheme. Fails if μ or σ of a candidate differs by more than [`TOLERANCE`], or if one number
//! draws other tokens.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use sk_core::{BoxError, Candidate, Candidates, Context, DraftRequest, Proposal, SpanEnd, StepTrace, TokenId, Traffic, draw_at};
use sk_remote::{Probe, RemoteEngine, RemoteOptions, Retry, Role, Tolerance};
use sk_scheme::Steering;

/// The most that μ or σ may differ, in nats per token.
const TOLERANCE: f64 = 1e-3;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_mins(10);
/// Steps that are compared.
const STEPS: usize = 50;
/// Blades and adapters of the model that ships.
const BLADES: [&str; 3] = ["harmless", "helpful", "honest"];

type Failure = Box<dyn Error>;

/// What a trace holds of a step.
#[derive(Deserialize)]
struct Recorded {
    position: usize,
    candidates: Vec<Span>,
    blades: Vec<Scores>,
    fluency: Option<Vec<f64>>,
    probabilities: Vec<f64>,
    chosen: usize,
    seconds: Seconds,
}

#[derive(Deserialize)]
struct Span {
    tokens: Vec<TokenId>,
    end: SpanEnd,
}

#[derive(Deserialize)]
struct Scores {
    name: String,
    mu: Vec<f64>,
    sigma: Vec<f64>,
}

#[derive(Deserialize)]
struct Seconds {
    score: f64,
}

/// Candidates that were drafted elsewhere.
struct Given(Candidates);

impl Proposal for Given {
    /// Given spans end by no rule.
    fn knows_entropy(&self) -> bool {
        true
    }

    fn propose(&mut self, _: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        Ok(self.0.clone())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("give the address of the servers and the folder of the traces".into());
    };
    let role: Role = address.parse()?;
    let prompts = prompts(Path::new(&folder))?;
    let (_, first) = prompts.first().ok_or("the folder has no prompt")?;
    let tokens = tokens_of(&framed(first), &role)?;
    let mut options = RemoteOptions::new(role.clone(), Arc::from([]), Vec::new());
    options.tolerance = Tolerance::F32;
    // A model on a CPU that others use takes its time.
    options.retry = Retry { patience: PATIENCE, deadline: 3 * PATIENCE, ..Retry::default() };
    let engine = RemoteEngine::new(options)?;
    BLADES.iter().for_each(|name| engine.adapters().insert(*name, *name));
    let report = engine.check(&Probe { tokens: &tokens, text: &framed(first) })?;
    println!("{:?}", report.servers);

    let mut far = Far::default();
    for (trace, prompt) in &prompts {
        let steps = fs::read_to_string(trace)?;
        let steps = steps.lines().map(serde_json::from_str).collect::<Result<Vec<Recorded>, _>>()?;
        compare(&engine, &tokens_of(&framed(prompt), &role)?, &steps, &mut far)?;
    }
    let Far { steps, same, mu, sigma, traffic, seconds } = far;
    println!("{same} of {steps} choices are the same");
    println!("μ differs by {mu:.1e} nats per token at most, σ by {sigma:.1e}");
    let per_step = |count: u64| count as f64 / steps as f64;
    println!(
        "reading a step: {:.1} requests in {:.1} round trips, {:.1} kB out, {:.1} kB in; {:.0} ms there, {:.0} ms here",
        per_step(traffic.requests),
        per_step(traffic.round_trips),
        per_step(traffic.bytes_out) / 1e3,
        per_step(traffic.bytes_in) / 1e3,
        seconds[1] * 1e3 / steps as f64,
        seconds[0] * 1e3 / steps as f64,
    );
    if steps < STEPS {
        return Err(format!("the traces have {steps} steps, and {STEPS} are to be compared").into());
    }
    if same < steps || mu > TOLERANCE || sigma > TOLERANCE { Err("the two do not agree".into()) } else { Ok(()) }
}

/// Returns the tokens of a text, by the first server.
fn tokens_of(text: &str, role: &Role) -> Result<Vec<TokenId>, Failure> {
    let url = format!("{}/tokenize", role.urls.first().ok_or("no address")?);
    let mut body = serde_json::json!({"prompt": text, "add_special_tokens": false});
    if let Some(model) = &role.model {
        body["model"] = model.as_str().into();
    }
    let answer = ureq::post(&url).content_type("application/json").send(body.to_string())?.body_mut().read_to_string()?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    Ok(serde_json::from_value(answer["tokens"].clone())?)
}

/// How far the two are apart.
#[derive(Default)]
struct Far {
    steps: usize,
    same: usize,
    mu: f64,
    sigma: f64,
    traffic: Traffic,
    /// Of reading and scoring, here and there.
    seconds: [f64; 2],
}

/// Takes the steps of a trace again.
fn compare(engine: &RemoteEngine, prompt: &[TokenId], steps: &[Recorded], far: &mut Far) -> Result<(), Failure> {
    let mut spec = Steering::default().spec(true)?;
    BLADES.iter().for_each(|name| spec.seat(name));
    let mut scheme = spec.build(engine)?;
    let mut context = prompt.to_vec();
    for step in steps.iter().take(STEPS - far.steps) {
        if step.position != context.len() {
            return Err(format!("a step follows {} tokens, and the server makes {} of them", step.position, context.len()).into());
        }
        scheme.proposal = Box::new(Given(step.candidates()?));
        let mut rng = ChaCha8Rng::seed_from_u64(far.steps as u64);
        let uniform = rng.random();
        let taken = scheme.step(&mut Context::new(&context[..])?, usize::MAX, &mut rng)?;
        far.add(step, &taken, uniform)?;
        context.extend(&step.candidates[step.chosen].tokens);
    }
    Ok(())
}

impl Recorded {
    /// The candidates. What the drafter thinks of each token is recorded as its mean.
    fn candidates(&self) -> Result<Candidates, Failure> {
        let candidate = |(place, span): (usize, &Span)| {
            let fluency = self.fluency.as_ref().map_or(0.0, |fluency| fluency[place]);
            Candidate { tokens: span.tokens.clone(), log_probs: vec![fluency as f32; span.tokens.len()], end: span.end }
        };
        Ok(Candidates::new(self.candidates.iter().enumerate().map(candidate).collect())?)
    }
}

impl Far {
    fn add(&mut self, ours: &Recorded, theirs: &StepTrace, uniform: f64) -> Result<(), Failure> {
        let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let (mut mu, mut sigma) = (0.0_f64, 0.0_f64);
        for blade in &ours.blades {
            let read = theirs.blades.iter().find(|read| read.name == blade.name).ok_or("a blade of the trace is not seated")?;
            mu = mu.max(apart(&blade.mu, &read.mu));
            sigma = sigma.max(apart(&blade.sigma, &read.sigma));
        }
        let [one, other] = [&ours.probabilities, &theirs.decision.probabilities].map(|p| draw_at(p, uniform));
        self.steps += 1;
        println!("step {}: μ within {mu:.1e}, σ within {sigma:.1e}, candidates {one} and {other} drawn", self.steps);
        // Of candidates with the same tokens, rounding decides.
        self.same += usize::from(ours.candidates[one].tokens == ours.candidates[other].tokens);
        (self.mu, self.sigma) = (self.mu.max(mu), self.sigma.max(sigma));
        self.traffic += theirs.traffic;
        self.seconds[0] += ours.seconds.score;
        self.seconds[1] += theirs.seconds.score;
        Ok(())
    }
}

/// The traces of a folder with their prompts, in the order of their names.
fn prompts(folder: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            all.push((path.with_extension("jsonl"), fs::read_to_string(&path)?.trim().to_owned()));
        }
    }
    all.sort();
    Ok(all)
}

/// The text of a prompt as `generate` makes it.
fn framed(prompt: &str) -> String {
    format!("\n\nHuman: {prompt}\n\nAssistant:")
}
