#![doc = include_str!("../README.md")]

mod admission;
mod arenas;
mod body;
mod completions;
mod connections;
mod edit;
mod error;
mod generation;
pub mod host;
mod id;
mod live;
mod playground;
mod request;
mod response;
mod routes;
mod server;
mod service;
mod step;

pub use arenas::limit_arenas;
pub use axum::http::HeaderValue;
pub use error::ApiError;
pub use routes::Access;
pub use server::Server;
pub use service::{Limits, Parts};
