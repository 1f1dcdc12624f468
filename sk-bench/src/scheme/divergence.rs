//! The divergence that policies are mixed under, as blades and aggregator name it.

use sk_core::Divergence;

use super::SchemeError;
use super::document::Section;

/// None is the α-divergence, whose parameter is a field of its own.
const DIVERGENCES: [(&str, Option<Divergence>); 4] = [
    ("reverse-kl", Some(Divergence::ReverseKl)),
    ("forward-kl", Some(Divergence::ForwardKl)),
    ("jensen-shannon", Some(Divergence::JensenShannon)),
    ("alpha", None),
];

/// α where none is given.
const ALPHA: f64 = 0.5;

/// Reads `divergence` and, for the α-divergence, `divergence_alpha`.
pub(super) fn read(section: &mut Section<'_, '_>, default: Divergence) -> Result<Divergence, SchemeError> {
    let alpha = match (section.choice("divergence", "divergence", &DIVERGENCES)?, default.order()) {
        (Some(Some(other)), _) => return Ok(other),
        (Some(None), _) => ALPHA,
        (None, Some(alpha)) => alpha,
        (None, None) => return Ok(default),
    };
    let alpha = section.number("divergence_alpha")?.unwrap_or(alpha);
    Divergence::alpha(alpha).map_err(|error| section.fault(error))
}

/// Its name in a scheme file.
pub(super) fn name(divergence: Divergence) -> &'static str {
    DIVERGENCES.iter().find(|(_, known)| *known == Some(divergence)).map_or("alpha", |(name, _)| name)
}
