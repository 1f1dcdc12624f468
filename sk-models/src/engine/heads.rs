//! Reading heads: values of hidden states that a pass over the candidates leaves behind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{Int, Tensor, TensorData};
use sk_core::{Candidates, Policy, Reading, Readings, TokenId};

use super::EngineError;
use super::follower::read;
use crate::head::Head;

/// The heads a backbone can read with, by name. Clones address the same rack, as those of [`AdapterRack`](super::AdapterRack) do.
#[derive(Clone, Default)]
pub struct HeadRack(Arc<Mutex<BTreeMap<Arc<str>, Arc<Head>>>>);

impl HeadRack {
    /// Adds a head, or replaces the one of that name. Takes effect at the next step.
    pub fn insert(&self, name: impl Into<Arc<str>>, head: Head) {
        self.lock().insert(name.into(), Arc::new(head));
    }

    /// Drops a head. A step that still asks for it fails and says so.
    pub fn remove(&self, name: &str) -> bool {
        self.lock().remove(name).is_some()
    }

    /// The names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    /// The heads among `policies`, each fit for hidden states of `width`.
    pub(super) fn asked(&self, policies: &[Policy], width: usize) -> Result<AskedHeads, EngineError> {
        let rack = self.lock();
        let mut heads = Vec::new();
        for policy in policies {
            let Policy::Head(name) = policy else { continue };
            let head = rack.get(name).cloned().ok_or_else(|| EngineError::UnknownHead {
                name: name.to_string(),
                loaded: rack.keys().map(|k| &**k).collect::<Vec<_>>().join(", "),
            })?;
            if head.width() != width {
                return Err(EngineError::HeadWidth { name: name.to_string(), found: head.width(), expected: width });
            }
            heads.push((Arc::clone(name), head));
        }
        Ok(AskedHeads(heads))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Head>>> {
        // Every change is one insertion or removal, so a panic elsewhere cannot have left it torn.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The heads that one reading asks for.
pub(super) struct AskedHeads(Vec<(Arc<str>, Arc<Head>)>);

impl AskedHeads {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tokens of a candidate that every row must read beyond those that predict it: a head looks at what its last token left.
    pub(super) fn extra_tokens(&self) -> usize {
        usize::from(!self.is_empty())
    }

    /// Adds each head's readings of the candidates.
    ///
    /// `hidden` are the backbone's final-norm states `[N·width, H]` of rows that read the last token of the context, then y_1 … y_L: the
    /// state at place t of a row is what y_t left. One product `[M, H]·[H, heads]`, M the tokens of all candidates; M·heads numbers
    /// come back from the device.
    pub(super) fn read_into(
        &self,
        readings: &mut Readings,
        hidden: Tensor<2>,
        candidates: &Candidates,
        width: usize,
    ) -> Result<(), EngineError> {
        if self.is_empty() {
            return Ok(());
        }
        let device = hidden.device();
        let tokens: Vec<TokenId> = candidates.iter().flat_map(|c| c.tokens.iter().copied()).collect();
        let places =
            candidates.iter().enumerate().flat_map(|(row, c)| (1..=c.tokens.len()).map(move |t| (row * width + t) as i64));
        let places = Tensor::<1, Int>::from_data(TensorData::new(places.collect::<Vec<_>>(), [tokens.len()]), &device);
        let size = hidden.dims()[1];
        let weights: Vec<f32> = self.0.iter().flat_map(|(_, head)| head.weight.iter().copied()).collect();
        let biases: Vec<f32> = self.0.iter().map(|(_, head)| head.bias).collect();
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [self.0.len(), size]), &device).transpose();
        let biases = Tensor::<2>::from_data(TensorData::new(biases, [1, self.0.len()]), &device);
        let values = read(hidden.select(0, places).matmul(weights) + biases)?;

        for (place, (name, _)) in self.0.iter().enumerate() {
            let own: Vec<f32> = values.iter().skip(place).step_by(self.0.len()).copied().collect();
            if let Some(broken) = own.iter().position(|value| !value.is_finite()) {
                return Err(EngineError::HeadNotANumber { name: name.to_string(), token: tokens[broken] });
            }
            let mut rest = own.as_slice();
            let per_candidate = candidates.iter().map(|candidate| {
                let (values, after) = rest.split_at(candidate.tokens.len());
                rest = after;
                Reading { values: values.to_vec(), ..Reading::default() }
            });
            readings.insert(Policy::Head(Arc::clone(name)), per_candidate.collect());
        }
        Ok(())
    }
}
