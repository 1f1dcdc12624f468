//! Training: the tokenizer, the language model, and adapters and heads from preferences.

pub mod data;
pub mod dpo;
pub mod encoder;
mod error;
mod footprint;
pub mod grammar;
pub mod head;
pub mod judge;
mod lbfgs;
pub mod lm;
mod logistic;
pub mod loss;
pub mod optimizer;
mod pairs;
pub mod preference;
pub mod recipe;
pub mod run;
pub mod state;
pub mod tokenizer;

pub use burn::tensor::Device;
pub use error::TrainError;
