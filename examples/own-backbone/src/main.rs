//! A custom backbone: a model of letter pairs, without tensors. Shipped schemes over drafted spans
//! run on it.
//!
//! The model is a table of log π(next | last) over 27 characters. A policy variant is the table of
//! another text, so a blade is a preference for certain letters.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Backbone, BoxError, Candidate, Candidates, Context, DraftModel, DraftRequest, Drafting, Engine, Generation, PartialSpan,
    Policy, Proposal, Reading, Readings, Sampling, SpecHandle, TokenId,
};
use sk_scheme::Shipped;

/// The changes to the shipped scheme `softmax-mu`.
const CHANGES: &str = r#"
[granularity]
kind = "fixed-length"
span_tokens = 4

[proposal]
candidates = 16
temperature = 1
top_p = 1

[selector]
temperature = 0.05
"#;

/// The tokens: token i is byte i of this text.
const ALPHABET: &[u8; 27] = b"abcdefghijklmnopqrstuvwxyz ";

/// log π(next | last).
#[derive(Clone)]
struct Pairs([[f32; ALPHABET.len()]; ALPHABET.len()]);

impl Pairs {
    /// Counts the pairs in `text`. Each row also gets the frequencies of the letters in the text
    /// plus 0.01 per letter, so no probability is zero.
    fn of(text: &str) -> Self {
        let tokens = tokens(text);
        let mut letters = [0.01; ALPHABET.len()];
        tokens.iter().for_each(|&token| letters[token as usize] += 1.0 / tokens.len() as f32);
        let mut counts = [letters; ALPHABET.len()];
        tokens.windows(2).for_each(|pair| counts[pair[0] as usize][pair[1] as usize] += 1.0);
        for row in &mut counts {
            let total: f32 = row.iter().sum();
            row.iter_mut().for_each(|count| *count = (*count / total).ln());
        }
        Self(counts)
    }

    /// The reading of `candidate` after the token `last`.
    fn read(&self, last: TokenId, candidate: &Candidate) -> Reading {
        let before = std::iter::once(&last).chain(&candidate.tokens);
        let rows = before.zip(&candidate.tokens).map(|(&last, &next)| (&self.0[last as usize], next));
        let (log_probs, min_entropy) =
            rows.map(|(row, next)| (row[next as usize], -row.iter().copied().fold(f32::NEG_INFINITY, f32::max))).unzip();
        Reading { log_probs, min_entropy, ..Reading::default() }
    }

    fn draw(&self, last: TokenId, rng: &mut dyn Rng) -> (TokenId, f32) {
        let row = &self.0[last as usize];
        let mut left: f32 = rng.random();
        let next = row.iter().position(|log_prob| {
            left -= log_prob.exp();
            left <= 0.0
        });
        let next = next.unwrap_or(row.len() - 1);
        (next as TokenId, row[next])
    }
}

/// The engine: one table for the backbone, and one for each adapter by name.
struct Letters {
    base: Pairs,
    adapters: BTreeMap<&'static str, Pairs>,
}

impl Backbone for Letters {
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        let last = *context.last().ok_or("a context holds at least one token")?;
        let mut readings = Readings::new();
        for policy in policies {
            let table = match policy {
                Policy::Backbone => &self.base,
                Policy::Variant(name) => self.adapters.get(&**name).ok_or_else(|| format!("no table \"{name}\""))?,
                other => return Err(format!("letters have no {other:?}").into()),
            };
            readings.insert(policy.clone(), candidates.iter().map(|candidate| table.read(last, candidate)).collect());
        }
        Ok(readings)
    }
}

/// Draws spans from the backbone's table.
struct Writer {
    table: Pairs,
    candidates: usize,
    most: usize,
}

impl Proposal for Writer {
    fn propose(&mut self, request: DraftRequest<'_>, rng: &mut dyn Rng) -> Result<Candidates, BoxError> {
        let request = DraftRequest { limit: self.most.min(request.limit), ..request };
        let start = *request.context.last().ok_or("a context holds at least one token")?;
        let mut span = |_| {
            let (mut last, mut span) = (start, PartialSpan::default());
            while span.end.is_none() {
                let (next, log_prob) = self.table.draw(last, rng);
                // No token ends a text.
                span.push(next, log_prob, &request, &[], false);
                last = next;
            }
            span.into_candidate()
        };
        Ok(Candidates::new((0..self.candidates).map(&mut span).collect())?)
    }
}

impl Engine for Letters {
    fn start(&self, drafting: &Drafting, _: &SpecHandle) -> Result<Generation, BoxError> {
        // Without a token that ends a text, `keep_end_of_text` has no effect.
        let Drafting::Sampled { model, candidates, sampling, keep_end_of_text: _, span_tokens } = drafting else {
            return Err("letters are drafted in spans; choose [proposal] kind = \"drafter\"".into());
        };
        if let DraftModel::Soup(_) = model {
            return Err("letters are not drafted by a soup; choose [proposal] kind = \"drafter\"".into());
        }
        if *sampling != Sampling::new(1.0, 1.0, 0, 1.0)? {
            return Err("letters are drawn from the whole table; set temperature = 1, top_p = 1, top_k = 0 and \
                        repetition_penalty = 1 in [proposal]"
                .into());
        }
        let most = span_tokens.map_or(usize::MAX, std::num::NonZero::get);
        let writer = Writer { table: self.base.clone(), candidates: candidates.get(), most };
        let backbone = Self { base: self.base.clone(), adapters: self.adapters.clone() };
        Ok(Generation { backbone: Box::new(backbone), proposal: Box::new(writer) })
    }

    fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        ALPHABET.iter().map(|&byte| Box::from([byte])).collect()
    }
}

fn tokens(text: &str) -> Vec<TokenId> {
    text.bytes().filter_map(|byte| ALPHABET.iter().position(|&known| known == byte)).map(|place| place as TokenId).collect()
}

fn letters() -> Letters {
    Letters {
        base: Pairs::of(
            "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness",
        ),
        adapters: BTreeMap::from([("hiss", Pairs::of("essess ess sses ssess")), ("hum", Pairs::of("mmm omom mom omm mum"))]),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let engine = letters();
    let write = |favourite: &str| -> Result<String, Box<dyn Error>> {
        let mut spec = Shipped::named("softmax-mu").ok_or("no such scheme")?.spec()?;
        ["hiss", "hum"].iter().for_each(|blade| spec.seat(blade));
        spec.overlay("letters.toml", CHANGES, Path::new(""))?;
        spec.overlay("weights.toml", &format!("[blades.{favourite}]\nweight = 1\n"), Path::new(""))?;
        let mut scheme = spec.build(&engine)?;
        let mut context = Context::new(tokens("it "))?;
        scheme.generate(&mut context, 60, &mut ChaCha8Rng::seed_from_u64(1), |_| true)?;
        Ok(context.tokens().iter().map(|&token| char::from(ALPHABET[token as usize])).collect())
    };
    let (hiss, hum) = (write("hiss")?, write("hum")?);
    println!("hiss: {hiss}\nhum:  {hum}");
    let count = |text: &str, letter: char| text.chars().filter(|&own| own == letter).count();
    assert!(count(&hiss, 's') > count(&hum, 's') && count(&hum, 'm') > count(&hiss, 'm'), "a blade was not followed");
    Ok(())
}

#[test]
fn what_letters_cannot_do_is_refused() {
    const PLAIN: &str = "[proposal]\ntemperature = 1\ntop_p = 1";
    for (scheme, changes, reason) in [
        ("softmax-mu", "[proposal]\ntemperature = 0.5\ntop_p = 1", "drawn from the whole table"),
        ("softmax-mu", "[proposal]\ntemperature = 1\ntop_p = 0.9", "drawn from the whole table"),
        ("cards", PLAIN, "cannot end by entropy"),
        ("rewarded-soups", PLAIN, "not drafted by a soup"),
        ("greedy", "", "drafted in spans"),
    ] {
        let mut spec = Shipped::named(scheme).unwrap().spec().unwrap();
        spec.seat("hum");
        spec.overlay("changes.toml", changes, Path::new("")).unwrap();
        let step = |mut scheme: sk_core::Scheme| {
            scheme.step(&mut Context::new([0]).unwrap(), 9, &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err().to_string()
        };
        let error = spec.build(&letters()).map_or_else(|error| error.to_string(), step);
        assert!(error.contains(reason), "{scheme}: {error}");
    }
}
