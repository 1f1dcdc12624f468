//! The divergence that policies are mixed under, as blades and aggregator name it.

use sk_core::Divergence;

use super::SchemeError;
use super::document::Section;

const DIVERGENCES: [(&str, Divergence); 4] = [
    ("reverse-kl", Divergence::ReverseKl),
    ("forward-kl", Divergence::ForwardKl),
    ("jensen-shannon", Divergence::JensenShannon),
    // Its parameter is a field of its own.
    ("alpha", Divergence::Alpha(0.5)),
];

/// Reads `divergence` and, for the α-divergence, `divergence_alpha`.
pub(super) fn read(section: &mut Section<'_, '_>, default: Divergence) -> Result<Divergence, SchemeError> {
    let divergence = section.choice("divergence", "divergence", &DIVERGENCES)?.unwrap_or(default);
    match divergence {
        Divergence::Alpha(alpha) => {
            let alpha = section.number("divergence_alpha")?.unwrap_or(alpha);
            Divergence::alpha(alpha).map_err(|error| section.fault(error))
        }
        other => Ok(other),
    }
}

/// Its name in a scheme file.
pub(super) fn name(divergence: Divergence) -> &'static str {
    let same = |known: Divergence| std::mem::discriminant(&known) == std::mem::discriminant(&divergence);
    DIVERGENCES.iter().find(|(_, known)| same(*known)).map_or("", |(name, _)| name)
}
