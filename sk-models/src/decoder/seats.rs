use std::sync::{Arc, PoisonError, Weak};

use super::{Decoder, Network};
use crate::lora::{AdapterError, AdapterStack, Lanes, LoraAdapter};
use crate::packed::PackedAdapter;

/// The adapters that lanes run under, in a form that the decoder reads.
#[derive(Debug, Clone)]
pub struct Seats(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// The module's; none is one lane, the backbone.
    Tensors(Option<Box<AdapterStack>>),
    Packed(Vec<Option<Arc<PackedAdapter>>>),
}

impl Seats {
    /// Lanes.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.0 {
            Kind::Tensors(stack) => stack.as_ref().map_or(1, |stack| stack.lanes()),
            Kind::Packed(seats) => seats.len(),
        }
    }

    pub(super) fn lanes(&self) -> Lanes<'_> {
        match &self.0 {
            Kind::Tensors(stack) => stack.as_deref().map_or(Lanes::backbone(), Lanes::of),
            Kind::Packed(_) => unreachable!("seats belong to the decoder that made them"),
        }
    }

    pub(super) fn packed(&self) -> &[Option<Arc<PackedAdapter>>] {
        match &self.0 {
            Kind::Packed(seats) => seats,
            Kind::Tensors(_) => unreachable!("seats belong to the decoder that made them"),
        }
    }
}

impl Decoder {
    /// One lane, the backbone itself.
    #[must_use]
    pub fn alone(&self) -> Seats {
        Seats(match &self.network {
            Network::Tensors(_) => Kind::Tensors(None),
            Network::Packed(_) => Kind::Packed(vec![None]),
        })
    }

    /// A lane for each entry; one without an adapter is the backbone.
    ///
    /// On a CPU an adapter is packed the first time it is seated, in O(its parameters), and costs a reference from then on; on other
    /// devices the adapters are stacked into one tensor per layer and target.
    ///
    /// # Errors
    ///
    /// If an adapter was made for another shape; the error counts adapters by lane.
    ///
    /// # Panics
    ///
    /// If there is no lane.
    pub fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Seats, AdapterError> {
        assert!(!lanes.is_empty(), "seats need at least one lane");
        Ok(Seats(match &self.network {
            Network::Tensors(_) if matches!(lanes, [None]) => Kind::Tensors(None),
            Network::Tensors(model) => {
                let adapters: Vec<Option<&LoraAdapter>> = lanes.iter().map(Option::as_deref).collect();
                Kind::Tensors(Some(Box::new(AdapterStack::new(&model.config, &adapters, &model.device())?)))
            }
            Network::Packed(_) => {
                let seat = |(lane, adapter): (usize, &Option<Arc<LoraAdapter>>)| {
                    adapter.as_ref().map(|adapter| self.pack(lane, adapter)).transpose()
                };
                Kind::Packed(lanes.iter().enumerate().map(seat).collect::<Result<_, _>>()?)
            }
        }))
    }

    /// The adapter in panels, packed now if it was not before.
    fn pack(&self, lane: usize, adapter: &Arc<LoraAdapter>) -> Result<Arc<PackedAdapter>, AdapterError> {
        // Every change is one insertion or removal, so a panic elsewhere cannot have left it torn.
        let mut known = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(origin, _)| origin.strong_count() > 0);
        if let Some((_, packed)) = known.iter().find(|(origin, _)| Weak::as_ptr(origin) == Arc::as_ptr(adapter)) {
            return Ok(Arc::clone(packed));
        }
        let packed = Arc::new(PackedAdapter::new(adapter, lane, self.config())?);
        known.push((Arc::downgrade(adapter), Arc::clone(&packed)));
        Ok(packed)
    }
}
