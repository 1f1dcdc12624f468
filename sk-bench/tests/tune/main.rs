//! Tests of `swiss-knife tune`: searches on scores whose optimum is known, and the program on a
//! tiny random model.

#[allow(dead_code)] // shared with the tests of the program
#[path = "../cli/common.rs"]
mod common;

mod judged;
mod known;
mod ledgers;
mod plans;
mod program;
#[allow(dead_code)] // shared with the tests of judges
#[path = "../judge/server.rs"]
mod server;

use sk_bench::tune::{Search, Space};

/// The point where the scores of these tests are greatest. It lies inside every default range.
const OPTIMUM: [f64; 7] = [1.2, 1.4, 2.1, 0.3, 6.0, 9.0, 0.25];

/// The distance of a point from the optimum: Σ w (u − u*)² in the unit coordinates of the space,
/// with a weight w per dimension.
fn distance(space: &Space, point: &[f64], optimum: &[f64]) -> f64 {
    const IMPORTANCE: [f64; 7] = [1.0, 0.3, 0.5, 0.2, 0.1, 0.8, 1.0];
    let parameters = space.dimensions().iter().zip(point).zip(optimum);
    parameters.zip(IMPORTANCE).map(|(((p, x), best), w)| w * (p.unit(*x) - p.unit(*best)).powi(2)).sum()
}

fn search(name: &str, seed: u64, startup: usize) -> Search {
    Search { name: name.to_owned(), space: Space::default(), seed, startup, origin: None }
}
