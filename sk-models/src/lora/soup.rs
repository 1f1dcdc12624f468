//! Weighted averages of adapters in weight space.

use burn::tensor::Tensor;

use sk_core::Merge;

use super::{LoraAdapter, LowRank, Target};
use crate::device::block_recording;

/// Adapters that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum MergeError {
    /// Nothing to merge.
    #[error("no adapter has a positive weight; give at least one")]
    Empty,
    /// Different ranks under a rule that adds matrices.
    #[error("{module}: adapters of rank {first} and {second} cannot be merged linearly; use the exact merge")]
    Ranks { module: String, first: usize, second: usize },
    /// Adapters of different depths.
    #[error("adapters of {first} and {second} layers cannot be merged")]
    Layers { first: usize, second: usize },
    /// A negative scale under the rule that takes its root. `adapter` is an index into the
    /// arguments.
    #[error("adapter {adapter} has a negative scale and cannot be merged linearly; use the exact merge")]
    NegativeScale { adapter: usize },
}

/// Merges several adapters, each with a weight ≥ 0. Adapters of weight zero are ignored.
///
/// Costs O(Σ r·(in + out)) per layer, once. In a forward pass, the result costs as much as any
/// adapter of its rank.
///
/// # Errors
///
/// If no adapter is left, the adapters do not fit each other, or one has a negative scale under
/// [`Merge::PeftLinear`].
pub fn merge(rule: Merge, weighted: &[(f64, &LoraAdapter)]) -> Result<LoraAdapter, MergeError> {
    let negative = |adapter: &LoraAdapter| adapter.updates().any(|update| update.scale < 0.0);
    if rule == Merge::PeftLinear
        && let Some(adapter) = weighted.iter().position(|(weight, adapter)| *weight > 0.0 && negative(adapter))
    {
        return Err(MergeError::NegativeScale { adapter });
    }
    let weighted: Vec<(f64, &LoraAdapter)> = weighted.iter().filter(|(weight, _)| *weight > 0.0).copied().collect();
    let Some((_, first)) = weighted.first() else { return Err(MergeError::Empty) };
    let layers = first.layers.len();
    let _blocked = first.updates().next().and_then(|update| block_recording(&update.a.device()));
    if let Some((_, other)) = weighted.iter().find(|(_, adapter)| adapter.layers.len() != layers) {
        return Err(MergeError::Layers { first: layers, second: other.layers.len() });
    }
    let merge = |module: &str, pick: &dyn Fn(&'_ LoraAdapter) -> Option<LowRank>| {
        let parts: Vec<(f64, LowRank)> =
            weighted.iter().filter_map(|(weight, adapter)| Some((*weight, pick(adapter)?))).collect();
        merge_module(rule, module, parts)
    };
    let mut merged = LoraAdapter { layers: vec![super::LayerAdapter::default(); layers], ..LoraAdapter::default() };
    for (index, layer) in merged.layers.iter_mut().enumerate() {
        for target in Target::ALL {
            let module = format!("layers.{index}.{}", target.path());
            if let Some(delta) = merge(&module, &|adapter| adapter.layers[index].get(target).cloned())? {
                layer.set(target, delta);
            }
        }
    }
    merged.embed_tokens = merge("embed_tokens", &|adapter| adapter.embed_tokens.clone())?;
    merged.lm_head = merge("lm_head", &|adapter| adapter.lm_head.clone())?;
    Ok(merged)
}

fn merge_module(rule: Merge, module: &str, parts: Vec<(f64, LowRank)>) -> Result<Option<LowRank>, MergeError> {
    let Some((_, first)) = parts.first() else { return Ok(None) };
    let rank = first.rank();
    match rule {
        Merge::Exact => {
            let b = parts.iter().map(|(weight, part)| part.b.clone().mul_scalar(weight * part.scale)).collect();
            let a = parts.into_iter().map(|(_, part)| part.a).collect();
            Ok(Some(LowRank { a: Tensor::cat(a, 1), b: Tensor::cat(b, 0), scale: 1.0 }))
        }
        Merge::PeftLinear => {
            if let Some((_, other)) = parts.iter().find(|(_, part)| part.rank() != rank) {
                return Err(MergeError::Ranks { module: module.to_owned(), first: rank, second: other.rank() });
            }
            let add = |sum: Option<Tensor<2>>, term: Tensor<2>| Some(sum.map_or(term.clone(), |sum| sum + term));
            let (mut a, mut b) = (None, None);
            for (weight, part) in parts {
                let factor = (weight * part.scale).sqrt();
                a = add(a, part.a.mul_scalar(factor));
                b = add(b, part.b.mul_scalar(factor));
            }
            Ok(a.zip(b).map(|(a, b)| LowRank { a, b, scale: 1.0 }))
        }
    }
}
