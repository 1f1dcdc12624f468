//! Time to rate one batch, for each operator and batch size. Throughput is in pairs, of which a round-robin compares N(N−1)/2.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_aggregate::{Copeland, Entry, Fluent, PNorm, Probit, RoundRobin, Scores, StudentT, SwissElo};
use sk_core::{Aggregator, Batch, OperatingPoint};

/// The published batch, one that leaves the stack, and ones that a pool of responses could have.
const SIZES: [usize; 4] = [7, 64, 1024, 16_384];

fn operators() -> Vec<(&'static str, Box<dyn Aggregator>)> {
    let OperatingPoint { rounds, alpha, .. } = OperatingPoint::HHH;
    let entry = Entry::sound(alpha).expect("a published coefficient");
    vec![
        ("scores", Box::new(Scores)),
        ("copeland", Box::new(Copeland)),
        ("thurstone", Box::new(RoundRobin::thurstone())),
        ("bradley-terry", Box::new(RoundRobin::bradley_terry())),
        ("weakest-link", Box::new(RoundRobin::weakest_link())),
        ("asinh", Box::new(RoundRobin::asinh())),
        ("probit, p = 3", Box::new(RoundRobin::new(Probit, PNorm::new(3.0).expect("an exponent above 1")))),
        ("student", Box::new(RoundRobin::new(StudentT::new(3.0).expect("positive"), PNorm::EUCLIDEAN))),
        ("fluent thurstone", Box::new(Fluent::new(entry, RoundRobin::thurstone()))),
        ("swiss-elo", Box::new(SwissElo::sound(rounds, alpha).expect("a published point"))),
    ]
}

fn rate(criterion: &mut Criterion) {
    for n in SIZES {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let mut column = |low: f64, high: f64| (0..n).map(|_| rng.random_range(low..high)).collect::<Vec<f64>>();
        let (mu, sigma, fluency) = (column(-2.0, 2.0), column(0.1, 2.0), column(-4.0, 0.0));
        let batch = Batch::new(&mu, &sigma).with_fluency(&fluency);
        let mut ratings = vec![0.0; n];
        let mut group = criterion.benchmark_group(format!("rate/{n}"));
        group.throughput(Throughput::Elements((n * (n - 1) / 2) as u64));
        if n > 1024 {
            group.sample_size(10);
        }
        for (name, operator) in operators() {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| operator.rate(std::hint::black_box(&batch), &mut ratings));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, rate);
criterion_main!(benches);
