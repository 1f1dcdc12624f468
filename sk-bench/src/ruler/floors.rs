//! Minimum times of measurements, from the roofline of each model, and the memory that they need.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use sk_core::{Blade, Policy};
use sk_models::Qwen2Config;
use sk_models::decoder::{Decoder, Formats, Precision};
use sk_models::lora::LoraAdapter;
use sk_models::roofline::{self, Bandwidth, Peak, Roof, Work};

use super::{Operating, Spread};
use crate::scheme::{GranularitySpec, ProposalSpec, SchemeError, SchemeSpec};
use sk_models::local::Models;

/// The measured limits of the device, once per repetition.
#[derive(Debug, Default)]
pub(crate) struct Roofs {
    /// Bandwidths over a working set of the backbone's size.
    pub backbone: Vec<Bandwidth>,
    /// Bandwidths over a working set of the drafter's size.
    pub drafter: Vec<Bandwidth>,
    /// Peak compute rates.
    pub peaks: Vec<Peak>,
}

impl Roofs {
    /// Measures the device once more, with working sets as large as the models.
    pub(crate) fn measure(&mut self, models: &Models) {
        let (name, device) = (models.device(), models.backbone.device());
        let bytes = |model: &Decoder| model.formats().weights.size() * model.config().parameters();
        self.backbone.push(roofline::bandwidth(name, &device, bytes(&models.backbone)));
        self.drafter.push(roofline::bandwidth(name, &device, bytes(&models.drafter)));
        self.peaks.push(roofline::peak(name, &device, models.backbone.formats().weights));
    }

    /// Returns the median roof for one of the working sets.
    fn roof(&self, bandwidths: &[Bandwidth]) -> Roof {
        Roof {
            bandwidth: Spread::of(bandwidths.iter().map(Bandwidth::best)).median,
            peak: Spread::of(self.peaks.iter().map(Peak::best)).median,
        }
    }
}

/// The lanes that read the candidates of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lanes {
    /// Number of lanes, including the plain backbone.
    count: usize,
    /// Number of parameters of their adapters.
    adapters: usize,
}

impl Lanes {
    fn of(config: &SchemeSpec, adapters: &[(String, LoraAdapter)]) -> Result<Self, SchemeError> {
        let spec = config.alignment()?;
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

/// A model and the roof of its device.
struct Roofed {
    config: Qwen2Config,
    formats: Formats,
    roof: Roof,
}

impl Roofed {
    fn floor(&self, work: &Work) -> f64 {
        work.floor(&self.config, self.formats, &self.roof)
    }
}

/// The minimum times of a scheme on a pair of models, in seconds.
///
/// Steps have a floor only if spans of a fixed length are drafted by one of the models. There is no
/// floor for schemes over the vocabulary.
pub(crate) struct Floors {
    backbone: Roofed,
    drafter: Roofed,
    lanes: Lanes,
    drafted: bool,
}

impl Floors {
    /// Returns the floors of `config` with `adapters` on `models`, from the roofs measured so far.
    pub(crate) fn new(
        models: &Models,
        config: &SchemeSpec,
        adapters: &[(String, LoraAdapter)],
        roofs: &Roofs,
    ) -> Result<Self, SchemeError> {
        let under = |model: &Decoder, bandwidths: &[Bandwidth]| Roofed {
            config: model.config().clone(),
            formats: model.formats(),
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

    /// Returns the time to write `bytes` bytes of weights.
    pub(crate) fn load(&self, bytes: f64) -> f64 {
        bytes / self.backbone.roof.bandwidth
    }

    /// Returns the time of the backbone's prefill of a prompt.
    pub(crate) fn prefill(&self, prompt: usize) -> f64 {
        self.backbone.floor(&Work::prefill(prompt, 1, 0, true))
    }

    /// Returns the time in which the backbone alone decodes `tokens` tokens after a context.
    pub(crate) fn frozen(&self, context: usize, tokens: usize) -> f64 {
        self.backbone.floor(&Work::decode(context, tokens))
    }

    /// Returns the time of drafting.
    pub(crate) fn draft(&self, at: Operating) -> Option<f64> {
        let work = Work::draft(at.prefix, at.candidates, at.span);
        self.drafted.then(|| self.drafter.floor(&work))
    }

    /// Returns the time of scoring.
    pub(crate) fn score(&self, at: Operating) -> Option<f64> {
        let work = Work::score(at.prefix, at.candidates, at.span, self.lanes.count, self.lanes.adapters);
        self.drafted.then(|| self.backbone.floor(&work))
    }

    /// Returns the time of a whole step: drafting, then scoring.
    pub(crate) fn step(&self, at: Operating) -> Option<f64> {
        Some(self.draft(at)? + self.score(at)?)
    }

    /// Returns the time in which a new blade with `adapter` parameters prefills a context.
    pub(crate) fn newcomer(&self, context: usize, adapter: usize) -> f64 {
        self.backbone.floor(&Work::prefill(context.saturating_sub(1), 1, adapter, false))
    }

    /// Returns the time in which both models prefill the prompt in all lanes.
    pub(crate) fn read(&self, prompt: usize) -> Option<f64> {
        let tokens = prompt.saturating_sub(1);
        let drafter = self.drafter.floor(&Work::prefill(tokens, 1, 0, false));
        let backbone = self.backbone.floor(&Work::prefill(tokens, self.lanes.count, self.lanes.adapters, false));
        self.drafted.then_some(drafter + backbone)
    }

    /// Returns the time of the steps from `at` until `tokens` tokens are added. The last span is
    /// shortened to fit.
    pub(crate) fn steps(&self, at: Operating, tokens: usize) -> Option<f64> {
        let starts = (0..tokens).step_by(at.span);
        starts.map(|done| self.step(Operating { prefix: at.prefix + done, span: at.span.min(tokens - done), ..at })).sum()
    }
}

/// The memory that a steered generation needs: θ_B + θ_S + Σ adapters + KV, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Footprint {
    /// θ_B.
    pub backbone: f64,
    /// θ_S; zero if the backbone drafts for itself.
    pub drafter: f64,
    /// Σ adapters.
    pub adapters: f64,
    /// KV cache of the longest context in every lane, and of N spans, in both models.
    pub cache: f64,
    pub total: f64,
}

impl Footprint {
    /// Returns the footprint at the operating point `at`, where the final context has `at.prefix`
    /// tokens.
    pub(crate) fn new(models: &Models, adapters: &[(String, LoraAdapter)], floors: &Floors, at: Operating) -> Self {
        let weights = |model: &Decoder| {
            let (format, config) = (model.formats().weights, model.config());
            // Weights in eight bits have scales, and an embedding that is not the head stays in f32.
            if format.is_float() { (format.size() * config.parameters()) as f64 } else { Precision::Int8.bytes(config) as f64 }
        };
        let backbone = weights(&models.backbone);
        let drafter = if Arc::ptr_eq(&models.backbone, &models.drafter) { 0.0 } else { weights(&models.drafter) };
        let parameters = adapters.iter().map(|(_, adapter)| adapter.parameters()).sum::<usize>();
        let adapters = (models.backbone.formats().states.size() * parameters) as f64;
        let per_token = |model: &Roofed| (model.formats.keys.size() * model.config.cache_numbers()) as f64;
        let in_lanes = floors.lanes.count as f64 * per_token(&floors.backbone);
        let cache = (at.prefix + at.candidates * at.span) as f64 * (in_lanes + per_token(&floors.drafter));
        Self { backbone, drafter, adapters, cache, total: backbone + drafter + adapters + cache }
    }
}
