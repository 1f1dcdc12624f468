//! The identity of a scheme in records: a digest of its canonical JSON.

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::SchemeSpec;

/// The version of the canonical form. Increase it if the form of an unchanged scheme changes.
const VERSION: u32 = 1;

impl SchemeSpec {
    /// Returns the slots of the scheme in canonical form: without its name, its base, and the
    /// locations of adapters, heads and the models of blades.
    pub fn canonical(&self) -> Value {
        let mut spec = self.clone();
        for blade in spec.blades.iter_mut().chain(&mut spec.template) {
            // The number of members of an ensemble is part of the scheme; their locations are not.
            blade.paths_mut().for_each(std::path::PathBuf::clear);
            blade.other_mut().map(String::clear);
        }
        let mut json = json!(spec);
        if let Some(slots) = json.as_object_mut() {
            slots.remove("about");
            slots.remove("base");
            slots.insert("version".to_owned(), json!(VERSION));
            // JSON keys are sorted, so the order of blades is stored separately.
            slots.insert("order".to_owned(), json!(self.blades.iter().map(|blade| &blade.name).collect::<Vec<_>>()));
            if !self.selector.gates.is_empty() {
                slots.insert("gates".to_owned(), json!(self.selector.gates.iter().map(|gate| &gate.name).collect::<Vec<_>>()));
            }
        }
        json
    }

    /// Returns the SHA-256 of the [canonical form](Self::canonical), in hexadecimal.
    pub fn digest(&self) -> String {
        digest(&self.canonical())
    }
}

/// Returns the SHA-256 of the canonical JSON of a value, without spaces and with sorted keys, in
/// hexadecimal. NaN and infinities count as null.
///
/// # Panics
/// If `value` has no JSON form, such as a map whose keys are not strings.
pub fn digest(value: &impl Serialize) -> String {
    let mut json = json!(value);
    json.sort_all_objects();
    format!("{:x}", Sha256::digest(json.to_string()))
}
