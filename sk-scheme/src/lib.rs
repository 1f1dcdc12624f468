#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

mod aggregator;
mod blades;
mod choices;
mod defaults;
mod digest;
mod divergence;
mod error;
mod fields;
mod formats;
mod granularity;
mod library;
mod normalizer;
mod number;
mod overlay;
pub mod parameters;
mod proposal;
mod schema;
mod search;
mod selector;
pub mod source;
mod spec;
mod stability;
mod steering;
pub mod suggest;
mod summary;
#[cfg(test)]
mod tests;
pub mod text;
mod weighting;
mod weights;

pub use aggregator::{AggregatorSpec, EntrySpec, LinkSpec, RoundRobinSpec, SwissEloSpec};
pub use blades::{BladeRule, BladeSpec, Guidance};
pub use choices::{
    Convention, Deviation, Dispersion, DispersionArm, DispersionUnit, GateFallback, LabelSpread, Length, Merge, Preset, Prior,
};
pub use digest::digest;
pub use divergence::DivergenceSpec;
pub use error::SchemeError;
pub use granularity::{Cap, GranularitySpec, Unlimited};
pub use library::{SHIPPED, Shipped};
pub use normalizer::{NormalizerRule, NormalizerSpec, PropagationRule, PropagationSpec};
pub use parameters::Parameter;
pub use proposal::{DraftSpec, ProposalSpec, SoupSpec, VocabularySpec};
pub use schema::{json_schema, kind_named};
pub use search::{FallbackSpec, SearchSpec};
pub use selector::{ChampionSpec, GateOn, GateSpec, SelectorRule, SelectorSpec};
pub use spec::{About, Base, SchemeSpec};
pub use stability::{Stability, Uncertified};
pub use steering::{FieldEdit, Steering};
pub use summary::{Passes, Summary};
pub use weighting::WeightingSpec;
pub use weights::NamedWeights;
