use std::sync::{Arc, PoisonError, Weak};

use super::{Decoder, Network};
use crate::lora::{AdapterError, AdapterStack, Lanes, LoraAdapter};
use crate::packed::PackedAdapter;
use crate::tensors::{Tensors, pause};

/// The adapters that lanes run under, in a form that the decoder reads.
#[derive(Debug, Clone)]
pub struct Seats(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// The module's; none is one lane, the backbone.
    Tensors(Option<Arc<AdapterStack>>),
    Packed(Vec<Option<Arc<PackedAdapter>>>),
}

/// The adapters of the lanes of a stack, and the stack, for as long as somebody holds it. A weak reference keeps an adapter's address from
/// being another's.
pub(super) type Stacked = (Vec<Option<Weak<LoraAdapter>>>, Weak<AdapterStack>);

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
    /// devices the adapters are stacked into one tensor per layer and target, once for all who seat them in that order at a time.
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
            Network::Tensors(model) => Kind::Tensors(Some(self.stack(model, lanes)?)),
            Network::Packed(_) => {
                let seat = |(lane, adapter): (usize, &Option<Arc<LoraAdapter>>)| {
                    adapter.as_ref().map(|adapter| self.pack(lane, adapter)).transpose()
                };
                Kind::Packed(lanes.iter().enumerate().map(seat).collect::<Result<_, _>>()?)
            }
        }))
    }

    /// The adapters in one stack, that of others who have seated them in the same order if there is one.
    fn stack(&self, model: &Tensors, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Arc<AdapterStack>, AdapterError> {
        let mut known = self.stacked.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, stack)| stack.strong_count() > 0);
        let same = |(seated, _): &&Stacked| {
            let identical = |(seated, lane): (&Option<Weak<LoraAdapter>>, &Option<Arc<LoraAdapter>>)| match (seated, lane) {
                (None, None) => true,
                (Some(seated), Some(lane)) => seated.as_ptr() == Arc::as_ptr(lane),
                _ => false,
            };
            seated.len() == lanes.len() && seated.iter().zip(lanes).all(identical)
        };
        if let Some(stack) = known.iter().find(same).and_then(|(_, stack)| stack.upgrade()) {
            return Ok(stack);
        }
        let _quiet = pause(&model.device());
        let adapters: Vec<Option<&LoraAdapter>> = lanes.iter().map(Option::as_deref).collect();
        let stack = Arc::new(AdapterStack::new(model.config(), &adapters, &model.device())?);
        known.push((lanes.iter().map(|lane| lane.as_ref().map(Arc::downgrade)).collect(), Arc::downgrade(&stack)));
        Ok(stack)
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
