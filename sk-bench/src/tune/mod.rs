//! Tuning: Bayesian optimisation of a scheme's numbers against a score of its responses.
//!
//! A [`Search`] proposes points of a [`Space`] with the tree-structured Parzen estimator. Its
//! proposals depend only on its seed and the earlier trials. A [`TunePlan`] defines the searches
//! and their prompts, a [`Ledger`] stores the trials, and [`run`] continues after the last stored
//! trial. [`SweepTrials`] evaluates a trial: it generates responses and scores them with a
//! [`Scorer`].
//!
//! The method of the paper (section on hyperparameter search) is [`consensus`] over one search per
//! objective.

mod dimension;
mod evaluation;
mod ledger;
mod plan;
mod points;
mod run;
mod scalar;
mod score;
mod search;
mod space;

pub use dimension::Dimension;
pub use evaluation::SweepTrials;
pub(crate) use ledger::write_point;
pub use ledger::{Ledger, TrialRecord};
pub use plan::{JudgePlan, Mode, Objective, ScoreSource, SearchPlan, ServerPlan, TunePlan};
pub use points::{balanced, best, consensus, front};
pub use run::{TuneProgress, Worth, run};
pub use score::Scorer;
pub use search::{Search, Trial};
pub use space::{Point, Space};
