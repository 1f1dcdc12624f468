//! How far servers of a 70B model scale, simulated, and what our side of a step costs, measured.
//!
//! ```sh
//! cargo run --release -p sk-remote --example scale
//! ```
//!
//! The first two tables are a simulation: no model runs. Its assumptions are the constants below.
//! The third is measured on this machine, against a server that sends stored answers.

#[path = "../tests/servers/fake.rs"]
#[allow(dead_code, reason = "the example needs less of the server than the tests do")]
mod fake;
#[path = "../tests/servers/model.rs"]
#[allow(dead_code, reason = "the example needs less of the model than the tests do")]
mod model;
#[path = "scale/overhead.rs"]
mod overhead;
#[path = "scale/simulation.rs"]
mod simulation;

use std::error::Error;

use sk_remote::Kind;

use simulation::{Load, Outcome, simulate};

/// Tokens of the vocabulary of the server that answers.
const VOCABULARY: sk_core::TokenId = 48;

/// Numbers of servers and of users.
const SERVERS: [usize; 5] = [1, 2, 4, 8, 16];
const USERS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Servers count as full where twice the users gain less than this share of steps.
const WORTHWHILE: f64 = 0.1;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", simulation::assumptions());
    for kind in [Kind::Sglang, Kind::Vllm] {
        println!("\n{}: step time in seconds (share of the time that servers compute)", kind.name());
        print!("{:>8}", "servers");
        USERS.iter().for_each(|users| print!("{users:>13} u"));
        println!("{:>22}", "stops scaling at");
        for servers in SERVERS {
            let outcomes: Vec<Outcome> = USERS.iter().map(|&users| simulate(Load { kind, servers, users })).collect();
            print!("{servers:>8}");
            outcomes.iter().for_each(|outcome| print!("{:>8.2} ({:>3.0} %)", outcome.step_seconds, 100.0 * outcome.busy));
            println!("   {}", limit(&outcomes));
        }
    }
    overhead::measure()
}

/// Where more users bring no more steps.
fn limit(outcomes: &[Outcome]) -> String {
    let full = outcomes.windows(2).position(|pair| pair[1].steps_per_second < (1.0 + WORTHWHILE) * pair[0].steps_per_second);
    match full {
        Some(place) => format!("{} users, {:.1} steps/s", USERS[place], outcomes[place].steps_per_second),
        None => format!("beyond {} users", USERS[USERS.len() - 1]),
    }
}
