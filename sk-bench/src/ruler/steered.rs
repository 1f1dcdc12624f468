//! Timed generation, frozen and steered.

use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::{Context, Instruction, InstructionRack, Scheme, Seconds, SpecHandle, TokenId};
use sk_models::engine::{AdapterRack, Frozen, Sampling};
use sk_models::lora::LoraAdapter;

use crate::Error;
use crate::scheme::{SchemeError, SchemeSpec};
use sk_models::local::Models;
use sk_models::text::{TextError, Tokenizer};

/// The times of an unsteered response, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FrozenSeconds {
    /// Time of the prefill.
    pub prefill: f64,
    /// Time of decoding.
    pub decode: f64,
}

/// Generates `tokens` tokens after `prompt` greedily with the backbone alone.
pub(crate) fn frozen(models: &Models, prompt: &[TokenId], tokens: usize, seed: u64) -> Result<FrozenSeconds, Error> {
    let mut frozen = Frozen::new(models.backbone.clone());
    let mut context = prompt.to_vec();
    let start = Instant::now();
    // Reading logits waits for the device; filling the KV cache alone would not.
    frozen.next_logits(&context)?;
    let prefill = start.elapsed().as_secs_f64();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let start = Instant::now();
    frozen.decode(&mut context, &Sampling::greedy(), tokens, &[], &mut rng, |_| true)?;
    Ok(FrozenSeconds { prefill, decode: start.elapsed().as_secs_f64() })
}

/// A scheme on loaded models, with its own KV caches and random generator. It works on tokens only,
/// without text.
pub(crate) struct Steered {
    scheme: Scheme,
    rng: ChaCha8Rng,
    context_limit: usize,
}

/// A response with its times.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed {
    /// Wall time, in seconds.
    pub elapsed: f64,
    /// For each step, the number of tokens appended and the times of its parts.
    pub steps: Vec<(usize, Seconds)>,
}

impl Timed {
    /// Returns the number of tokens of the response.
    pub(crate) fn tokens(&self) -> usize {
        self.steps.iter().map(|(tokens, _)| tokens).sum()
    }

    /// Returns the sum of the times of all steps.
    pub(crate) fn seconds(&self) -> Seconds {
        self.steps.iter().fold(Seconds::default(), |mut sum, (_, seconds)| {
            sum += *seconds;
            sum
        })
    }

    /// Returns tokens and time of all steps after the first, which includes the prefill; `None` if
    /// there is only one step.
    pub(crate) fn later(&self) -> Option<(usize, f64)> {
        let later = self.steps.get(1..).filter(|steps| !steps.is_empty())?;
        Some((later.iter().map(|(tokens, _)| tokens).sum(), later.iter().map(|(_, seconds)| seconds.total()).sum()))
    }
}

/// Returns the instructions of a scheme. Each comes before the prompt.
pub(crate) fn instructions(config: &SchemeSpec, tokenizer: &Tokenizer) -> Result<InstructionRack, TextError> {
    let rack = InstructionRack::default();
    for (lane, text) in config.instructions() {
        rack.insert(lane, Instruction::new(0, tokenizer.encode(text)?));
    }
    Ok(rack)
}

impl Steered {
    /// Returns the scheme `config` on `models` with `adapters`. `seed` determines all random draws.
    pub(crate) fn new(
        models: &Models,
        config: &SchemeSpec,
        adapters: &[(String, LoraAdapter)],
        seed: u64,
    ) -> Result<Self, SchemeError> {
        let rack = AdapterRack::default();
        for (name, adapter) in adapters {
            rack.insert(name.as_str(), adapter.clone());
        }
        let refused = |error: sk_core::BoxError| SchemeError::Engine(error);
        let instructions = instructions(config, &models.tokenizer).map_err(|error| refused(error.into()))?;
        let engine = models.engine(&rack, &models.heads).with_instructions(&instructions).with_readers(config.readers());
        let scheme = config.build(&engine.map_err(|error| refused(error.into()))?)?;
        Ok(Self { scheme, rng: ChaCha8Rng::seed_from_u64(seed), context_limit: models.context_limit() })
    }

    /// Returns Ω. Edits take effect at the next step.
    pub(crate) fn spec(&self) -> &SpecHandle {
        &self.scheme.arm.spec
    }

    /// Generates `tokens` tokens after `prompt`. They must fit into the context.
    pub(crate) fn generate(&mut self, prompt: &[TokenId], tokens: usize) -> Result<Timed, Error> {
        let start = Instant::now();
        let mut context = Context::new(prompt)?;
        let mut steps = Vec::new();
        self.scheme.generate(&mut context, tokens, &mut self.rng, |step| {
            steps.push((step.chosen().tokens.len(), step.seconds));
            true
        })?;
        Ok(Timed { elapsed: start.elapsed().as_secs_f64(), steps })
    }

    /// Runs one step after `prompt`. The KV caches keep the prompt but not the appended tokens, so
    /// that steps after the same prompt cost the same.
    pub(crate) fn step(&mut self, prompt: &[TokenId]) -> Result<Seconds, Error> {
        let limit = self.context_limit.saturating_sub(prompt.len());
        let trace = self.scheme.step(&mut Context::new(prompt)?, limit, &mut self.rng)?;
        Ok(trace.seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sk_core::StepTrace;
    use sk_models::decoder::Precision;
    use sk_models::device::DeviceName;

    use super::*;
    use crate::Loading;

    /// Sums of a few dozen f32 products, taken in batches of another shape.
    const ROUNDING: f64 = 1e-4;

    const SHAPE: &str = r#"{"vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 128}"#;
    const PROMPT: [TokenId; 5] = [7, 1, 250, 33, 4];

    /// Returns models with random weights, and adapters with these names and ranks, by name.
    fn random(blades: &[(&str, usize)]) -> (Models, Vec<(String, LoraAdapter)>) {
        let folder = tempfile::tempdir().unwrap();
        let shape = folder.path().join("config.json");
        std::fs::write(&shape, SHAPE).unwrap();
        let ranks: Vec<usize> = blades.iter().map(|&(_, rank)| rank).collect();
        let config = seating(&blades.iter().map(|&(name, _)| name).collect::<Vec<_>>(), 7);
        let names = config.adapters().map(|(name, _)| name);
        Models::random((&shape, Some(&shape)), (DeviceName::Cpu, Precision::F32), 3, &ranks, names, &mut Loading::new(true))
            .unwrap()
    }

    /// Returns the reference scheme with these blades and N candidates of six tokens.
    fn seating(names: &[&str], candidates: usize) -> SchemeSpec {
        let mut config = SchemeSpec::default();
        config.proposal.draft_mut().unwrap().candidates = candidates;
        config.granularity = crate::scheme::GranularitySpec::FixedLength { span_tokens: 6 };
        names.iter().for_each(|name| config.seat(name));
        config
    }

    fn step(steered: &mut Steered, context: &mut Context) -> StepTrace {
        steered.scheme.step(context, 6, &mut steered.rng).unwrap()
    }

    /// μ and σ of each blade.
    fn scores(trace: &StepTrace) -> BTreeMap<&str, Vec<f64>> {
        trace.blades.iter().map(|blade| (blade.name.as_str(), [&blade.mu[..], &blade.sigma].concat())).collect()
    }

    fn assert_alike(a: &[f64], b: &[f64], what: &str) {
        assert_eq!(a.len(), b.len(), "{what}");
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= ROUNDING * a.abs().max(1e-2)), "{what}: {a:?} {b:?}");
    }

    #[test]
    fn the_step_after_a_swap_is_that_of_the_new_blades_and_the_backbone_stays_as_it_is() {
        let (models, adapters) = random(&[("first", 4), ("second", 4), ("third", 4), ("resident", 4)]);
        // The bit-exact logits of the backbone alone.
        let alone = |models: &Models| Frozen::new(models.backbone.clone()).next_logits(&PROMPT).unwrap();
        let size = models.backbone.bytes();
        let before = alone(&models);
        let mut steered = Steered::new(&models, &seating(&["first", "second", "third"], 7), &adapters, 5).unwrap();
        let mut context = Context::new(PROMPT).unwrap();
        let first = step(&mut steered, &mut context);
        assert_eq!(scores(&first).into_keys().collect::<Vec<_>>(), ["first", "second", "third"]);

        let other = seating(&["resident"], 7).alignment().unwrap();
        let resident = other.seats()[0].clone();
        steered.spec().edit(|spec| spec.swap("first", resident.clone())).unwrap();
        let after = context.tokens().to_vec();
        let swapped = step(&mut steered, &mut context);

        // A fresh scheme that had `resident` from the start, at the same position with the same
        // draws.
        let mut fresh = Steered::new(&models, &seating(&["resident", "second", "third"], 7), &adapters, 5).unwrap();
        step(&mut fresh, &mut Context::new(PROMPT).unwrap());
        let expected = step(&mut fresh, &mut Context::new(after).unwrap());
        assert_eq!(swapped.candidates, expected.candidates);
        assert_eq!(scores(&swapped).into_keys().collect::<Vec<_>>(), ["resident", "second", "third"]);
        for (name, found) in scores(&swapped) {
            assert_alike(&found, &scores(&expected)[name], name);
        }

        steered.spec().edit(|spec| spec.unseat("second")).unwrap();
        assert_eq!(scores(&step(&mut steered, &mut context)).into_keys().collect::<Vec<_>>(), ["resident", "third"]);
        steered.spec().edit(|spec| spec.with_named_weights([("third", 1.0)])).unwrap();
        assert_eq!(scores(&step(&mut steered, &mut context)).into_keys().collect::<Vec<_>>(), ["third"]);
        assert!(before == alone(&models), "an edit has changed the backbone");
        assert_eq!(models.backbone.bytes(), size);
    }

    #[test]
    fn eight_blades_of_any_rank_score_32_candidates_as_each_does_alone() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let ranks = [64, 1, 16, 32, 2, 64, 8, 5];
        let blades: Vec<(&str, usize)> = names.into_iter().zip(ranks).collect();
        let (models, adapters) = random(&blades);
        let trace = |names: &[&str]| {
            let mut steered = Steered::new(&models, &seating(names, 32), &adapters, 5).unwrap();
            step(&mut steered, &mut Context::new(PROMPT).unwrap())
        };
        let company = trace(&names);
        assert_eq!((company.candidates.len(), company.blades.len()), (32, 8));
        for name in names {
            let alone = trace(&[name]);
            assert_eq!(alone.candidates, company.candidates);
            assert_alike(&scores(&alone)[name], &scores(&company)[name], name);
        }
        assert_ne!(scores(&company)["a"], scores(&company)["f"], "equal ranks are not equal blades");
    }

    #[test]
    fn later_steps_are_all_but_the_first() {
        let step = |tokens, draft| (tokens, Seconds { draft, ..Seconds::default() });
        let timed = Timed { elapsed: 9.0, steps: vec![step(24, 5.0), step(24, 1.0), step(10, 0.5)] };
        assert_eq!((timed.tokens(), timed.seconds().draft, timed.later()), (58, 6.5, Some((34, 1.5))));
        assert_eq!(Timed { elapsed: 1.0, steps: vec![step(24, 5.0)] }.later(), None);
    }

    #[test]
    fn steps_after_a_prompt_can_be_repeated() {
        let (models, adapters) = random(&[("only", 4)]);
        let mut steered = Steered::new(&models, &seating(&["only"], 3), &adapters, 5).unwrap();
        steered.step(&PROMPT).unwrap();
        let timed = steered.generate(&PROMPT, 15).unwrap();
        assert_eq!((timed.tokens(), timed.steps.len()), (15, 3));
        // A span has at most six tokens, even if the number of tokens is not limited otherwise.
        let seconds = steered.step(&PROMPT).unwrap();
        assert!(seconds.total() > 0.0 && timed.elapsed >= timed.seconds().total());
    }
}
