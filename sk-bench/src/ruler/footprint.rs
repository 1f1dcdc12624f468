//! The memory that a steered generation needs, from the formula.

use std::sync::Arc;

use serde::Serialize;
use sk_models::decoder::Decoder;
use sk_models::lora::LoraAdapter;

use super::{Floors, Operating};
use sk_models::local::Models;

/// θ_B + θ_S + Σ adapters + KV, in bytes.
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
        let weights = |model: &Decoder| (model.formats().weights.size() * model.config().parameters()) as f64;
        let backbone = weights(&models.backbone);
        let drafter = if Arc::ptr_eq(&models.backbone, &models.drafter) { 0.0 } else { weights(&models.drafter) };
        let parameters = adapters.iter().map(|(_, adapter)| adapter.parameters()).sum::<usize>();
        let adapters = (models.backbone.formats().states.size() * parameters) as f64;
        let (of_backbone, of_drafter) = floors.cache_bytes();
        let cache = (at.prefix + at.candidates * at.span) as f64 * (of_backbone + of_drafter);
        Self { backbone, drafter, adapters, cache, total: backbone + drafter + adapters + cache }
    }
}
