//! Training: the tokenizer, the language model, and adapters from preferences.

pub mod data;
pub mod dpo;
mod error;
pub mod lm;
pub mod loss;
pub mod optimizer;
pub mod preference;
pub mod schedule;
pub mod state;
pub mod tokenizer;

pub use burn::tensor::Device;
pub use error::TrainError;
