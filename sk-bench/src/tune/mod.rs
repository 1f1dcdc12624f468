//! Tuning: Bayesian optimisation of a scheme's numbers against a score of its responses.
//!
//! A [`Search`] proposes points of a [`Space`] by the tree-structured Parzen estimator; what it
//! proposes follows from its seed and the trials before, and from nothing else. A [`TunePlan`] says
//! what is searched on which prompts, a [`Ledger`] keeps the trials, and [`run`] goes on from
//! wherever it stands. [`Evaluate`] is what a trial costs: [`SweepTrials`] answers prompts and asks
//! a [`Scorer`].
//!
//! The paper's recipe (its section on hyperparameter search) is [`consensus`] over one search per
//! objective.

mod consensus;
mod dimension;
mod error;
mod evaluation;
mod ledger;
mod plan;
mod points;
mod run;
mod scalar;
mod score;
mod search;
mod space;

pub use consensus::consensus;
pub use dimension::Dimension;
pub use error::TuneError;
pub use evaluation::SweepTrials;
pub use ledger::{Ledger, TrialRecord};
pub use plan::{JudgePlan, Mode, Objective, ScoreSource, SearchPlan, ServerPlan, TunePlan};
pub use points::{balanced, best, front};
pub use run::{Evaluate, TuneProgress, Worth, run};
pub use score::Scorer;
pub use search::{Search, Trial};
pub use space::{Point, Space};
