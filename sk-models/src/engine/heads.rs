//! Heads: values computed from the hidden states of a pass over the candidates.

use std::sync::Arc;

use sk_core::{Candidates, Policy, Reading, Readings, TokenId};

use super::EngineError;
use super::rack::{self, HeadRack};
use crate::decoder::{Decoder, Hidden, Seats};
use crate::head::Head;

/// The heads that one reading uses.
pub(super) struct AskedHeads(Vec<(Arc<str>, Arc<Head>)>);

impl AskedHeads {
    /// Takes the heads among `policies` from `rack` and checks that each reads states of `width`
    /// numbers.
    pub(super) fn of(rack: &HeadRack, policies: &[Policy], width: usize) -> Result<Self, EngineError> {
        let mut heads = Vec::new();
        for policy in policies {
            let Policy::Head(name) = policy else { continue };
            let head = rack::find(rack, "head", name)?;
            if head.width() != width {
                return Err(EngineError::HeadWidth { name: name.to_string(), found: head.width(), expected: width });
            }
            heads.push((Arc::clone(name), head));
        }
        Ok(Self(heads))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of tokens that every row reads after those that predict its candidate:
    /// one if there are heads, since a head needs the state after the last token.
    pub(super) fn extra_tokens(&self) -> usize {
        usize::from(!self.is_empty())
    }

    /// Adds the readings of each head.
    ///
    /// Lane `lane` of `hidden` is the backbone. Its rows read the last token of the context, then
    /// y_1 … y_L, so the state at place t of a row is the one after y_t. One product `[M, H]·[H,
    /// heads]`, M the tokens of all candidates.
    pub(super) fn read_into(
        &self,
        readings: &mut Readings,
        (model, hidden, seats): (&Decoder, &Hidden, &Seats),
        lane: usize,
        candidates: &Candidates,
    ) -> Result<(), EngineError> {
        if self.is_empty() {
            return Ok(());
        }
        let tokens: Vec<TokenId> = candidates.iter().flat_map(|c| c.tokens.iter().copied()).collect();
        let places: Vec<(usize, usize)> =
            candidates.iter().enumerate().flat_map(|(row, c)| (1..=c.tokens.len()).map(move |t| (row, t))).collect();
        let heads: Vec<(&[f32], f32)> = self.0.iter().map(|(_, head)| (&head.weight[..], head.bias)).collect();
        let values = model.project(hidden, seats, lane, &places, &heads)?;

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
