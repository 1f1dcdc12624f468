//! The least time of what is measured: the roofline of each model.

use std::collections::BTreeSet;

use sk_core::{Blade, Policy};
use sk_models::Qwen2Config;
use sk_models::decoder::Decoder;
use sk_models::lora::LoraAdapter;
use sk_models::roofline::{self, Bandwidth, Peak, Roof, Storage, Work};

use super::{Operating, Spread};
use crate::Models;
use crate::scheme::{GranularitySpec, ProposalSpec, SchemeError, SchemeSpec};

/// What the device was measured to do, once per repetition.
#[derive(Debug, Default)]
pub struct Roofs {
    /// Bandwidths over a working set of the backbone's size.
    pub backbone: Vec<Bandwidth>,
    /// Bandwidths over a working set of the drafter's size.
    pub drafter: Vec<Bandwidth>,
    /// Peaks.
    pub peaks: Vec<Peak>,
}

impl Roofs {
    /// Measures it once more, over working sets as large as the models.
    pub fn measure(&mut self, models: &Models) {
        let (name, device) = (models.device(), models.backbone.device());
        let bytes = |model: &Decoder| (Storage::of(model).weight * model.config().parameters() as f64) as usize;
        self.backbone.push(roofline::bandwidth(name, &device, bytes(&models.backbone)));
        self.drafter.push(roofline::bandwidth(name, &device, bytes(&models.drafter)));
        self.peaks.push(roofline::peak(name, &device, models.backbone.weight_format()));
    }

    /// The median roof over one of the working sets.
    fn roof(&self, bandwidths: &[Bandwidth]) -> Roof {
        Roof {
            bandwidth: Spread::of(bandwidths.iter().map(Bandwidth::best)).median,
            peak: Spread::of(self.peaks.iter().map(Peak::best)).median,
        }
    }
}

/// The policies that a step of a scheme reads candidates under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lanes {
    /// How many, the backbone included.
    count: usize,
    /// Numbers of their adapters.
    adapters: usize,
}

impl Lanes {
    fn of(config: &SchemeSpec, adapters: &[(String, LoraAdapter)]) -> Result<Self, SchemeError> {
        let spec = config.spec()?;
        let policies: BTreeSet<Policy> = spec.active().flat_map(|(seat, _)| seat.blade().policies()).collect();
        let mut lanes = Self { count: 0, adapters: 0 };
        for policy in &policies {
            if let Policy::Variant(name) = policy {
                let found = adapters.iter().find(|(adapter, _)| **adapter == **name);
                lanes.adapters += found.map_or(0, |(_, adapter)| adapter.parameters());
            }
            lanes.count += usize::from(!matches!(policy, Policy::Head(_)));
        }
        Ok(lanes)
    }
}

/// One model under its roof.
struct Roofed {
    config: Qwen2Config,
    storage: Storage,
    roof: Roof,
}

impl Roofed {
    fn floor(&self, work: &Work) -> f64 {
        work.floor(&self.config, self.storage, &self.roof)
    }
}

/// The least times of one scheme on one pair of models, in seconds.
///
/// Steps have a floor where spans of a fixed length are drawn from one of the models; what a scheme
/// over the vocabulary must compute is another question.
pub struct Floors {
    backbone: Roofed,
    drafter: Roofed,
    lanes: Lanes,
    drafted: bool,
}

impl Floors {
    /// The floors of `config` with `adapters` on `models`, under the roofs measured so far.
    ///
    /// # Errors
    /// When no blade is seated, or one with a parameter out of range.
    pub fn new(
        models: &Models,
        config: &SchemeSpec,
        adapters: &[(String, LoraAdapter)],
        roofs: &Roofs,
    ) -> Result<Self, SchemeError> {
        let under = |model: &Decoder, bandwidths: &[Bandwidth]| Roofed {
            config: model.config().clone(),
            storage: Storage::of(model),
            roof: roofs.roof(bandwidths),
        };
        let (backbone, small) = (under(&models.backbone, &roofs.backbone), under(&models.drafter, &roofs.drafter));
        let (drafter, spans) = match config.proposal {
            ProposalSpec::Drafter(_) => (small, true),
            ProposalSpec::Backbone(_) => (under(&models.backbone, &roofs.backbone), true),
            ProposalSpec::Soup(_) | ProposalSpec::Vocabulary(_) => (small, false),
        };
        let drafted = spans && matches!(config.granularity, GranularitySpec::FixedLength { .. });
        Ok(Self { backbone, drafter, lanes: Lanes::of(config, adapters)?, drafted })
    }

    /// Writing `bytes` bytes of weights.
    pub fn load(&self, bytes: f64) -> f64 {
        bytes / self.backbone.roof.bandwidth
    }

    /// The backbone alone reading a prompt.
    pub fn prefill(&self, prompt: usize) -> f64 {
        self.backbone.floor(&Work::prefill(prompt, 1, 0, true))
    }

    /// The backbone alone adding `tokens` tokens to a context.
    pub fn frozen(&self, context: usize, tokens: usize) -> f64 {
        self.backbone.floor(&Work::decode(context, tokens))
    }

    /// Drafting.
    pub fn draft(&self, at: Operating) -> Option<f64> {
        let work = Work::draft(at.prefix, at.candidates, at.span);
        self.drafted.then(|| self.drafter.floor(&work))
    }

    /// Scoring.
    pub fn score(&self, at: Operating) -> Option<f64> {
        let work = Work::score(at.prefix, at.candidates, at.span, self.lanes.count, self.lanes.adapters);
        self.drafted.then(|| self.backbone.floor(&work))
    }

    /// A whole step: one after the other.
    pub fn step(&self, at: Operating) -> Option<f64> {
        Some(self.draft(at)? + self.score(at)?)
    }

    /// A blade of `adapter` numbers reading a context that it has not read before.
    pub fn newcomer(&self, context: usize, adapter: usize) -> f64 {
        self.backbone.floor(&Work::prefill(context.saturating_sub(1), 1, adapter, false))
    }

    /// Every model reading the prompt under every policy.
    pub fn read(&self, prompt: usize) -> Option<f64> {
        let tokens = prompt.saturating_sub(1);
        let drafter = self.drafter.floor(&Work::prefill(tokens, 1, 0, false));
        let backbone = self.backbone.floor(&Work::prefill(tokens, self.lanes.count, self.lanes.adapters, false));
        self.drafted.then_some(drafter + backbone)
    }

    /// The steps of `at` until `tokens` tokens are added; the last one is as long as there is room.
    pub fn steps(&self, at: Operating, tokens: usize) -> Option<f64> {
        let starts = (0..tokens).step_by(at.span);
        starts.map(|done| self.step(Operating { prefix: at.prefix + done, span: at.span.min(tokens - done), ..at })).sum()
    }

    /// Keys and values of one more token: of the backbone under every policy, and of the drafter,
    /// in bytes.
    pub fn cache_bytes(&self) -> (f64, f64) {
        let per_token = |model: &Roofed| model.storage.cache * roofline::cache_numbers(&model.config) as f64;
        (self.lanes.count as f64 * per_token(&self.backbone), per_token(&self.drafter))
    }
}
