use std::sync::Arc;

use sk_core::Rack;

use super::EngineError;
use crate::decoder::Decoder;
use crate::head::Head;
use crate::lora::LoraAdapter;

/// The adapters of a backbone by name. The backbone's weights are not touched.
pub type AdapterRack = Rack<LoraAdapter>;

/// The heads of a backbone by name.
pub type HeadRack = Rack<Head>;

/// The models that read for variants in place of the backbone, by the names of the variants.
pub type ReaderRack = Rack<Decoder>;

/// Returns an adapter of a rack.
pub(super) fn adapter(rack: &AdapterRack, name: &str) -> Result<Arc<LoraAdapter>, EngineError> {
    rack.get(name).ok_or_else(|| EngineError::UnknownAdapter { name: name.to_owned(), loaded: loaded(rack) })
}

/// Returns a head of a rack.
pub(super) fn head(rack: &HeadRack, name: &str) -> Result<Arc<Head>, EngineError> {
    rack.get(name).ok_or_else(|| EngineError::UnknownHead { name: name.to_owned(), loaded: loaded(rack) })
}

fn loaded<T>(rack: &Rack<T>) -> String {
    rack.names().join(", ")
}
