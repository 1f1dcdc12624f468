use std::sync::Arc;

use sk_core::{InstructionRack, Rack};

use super::EngineError;
use crate::decoder::Decoder;
use crate::head::Head;
use crate::lora::LoraAdapter;

/// The adapters of a backbone by name. The backbone's weights are not changed.
pub type AdapterRack = Rack<LoraAdapter>;

/// The heads of a backbone by name.
pub type HeadRack = Rack<Head>;

/// The models that variants use in place of the backbone, by the names of the variants.
pub type ReaderRack = Rack<Decoder>;

/// The adapters, heads, instructions and models of a backbone's policies, by name. Clones share the
/// racks.
#[derive(Debug, Clone, Default)]
pub struct Racks {
    /// The adapters of variants.
    pub adapters: AdapterRack,
    /// The heads.
    pub heads: HeadRack,
    /// The instructions of variants.
    pub instructions: InstructionRack,
    /// The models of variants that do not use the backbone.
    pub readers: ReaderRack,
}

/// Returns an entry of a rack. Errors call it a `kind`.
pub(super) fn find<T>(rack: &Rack<T>, kind: &'static str, name: &str) -> Result<Arc<T>, EngineError> {
    rack.get(name).ok_or_else(|| EngineError::Unknown { kind, name: name.to_owned(), loaded: rack.names().join(", ") })
}
