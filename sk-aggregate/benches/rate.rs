//! Time to rate one batch, for each operator and batch size. Throughput is in pairs, of which a
//! round robin compares N(N−1)/2.
//!
//! `SIZES` are the published batch and ones that a pool of responses could have. A name selects:
//! `cargo bench -p sk-aggregate -- "/7/"`.
//!
//! With the feature `parallel` the groups `threads` rate one batch on one thread, on two, four and
//! so on, and on every core: `cargo bench -p sk-aggregate --features parallel -- threads`.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_aggregate::{
    Asinh, Copeland, DivergenceMixture, Entry, Fluent, Identity, Kernel, Laplace, Link, Logistic, PNorm, Pairwise, Probit,
    RoundRobin, Scores, Seeding, SignedLog, StudentT, SwissElo, Tanh,
};
use sk_core::{Aggregator, Batch, Divergence, OperatingPoint, Real};

const SIZES: [usize; 4] = [7, 64, 1024, 16_384];

/// A pairwise operator of somebody else's.
struct Softsign;

impl<F: Real> Kernel<F> for Softsign {
    fn psi(&self, own: (F, F), rival: (F, F)) -> F {
        let delta = own.0 - rival.0;
        delta / (own.1 + rival.1 + delta.abs())
    }
}

fn operators<F: Real>() -> Vec<(&'static str, Box<dyn Aggregator<F>>)> {
    fn member<F: Real>(link: impl Link<F> + 'static, p: f64) -> Box<dyn Aggregator<F>> {
        Box::new(RoundRobin::new(link, PNorm::new(p).expect("an exponent from 1")))
    }
    let OperatingPoint { rounds, alpha, .. } = OperatingPoint::HHH;
    let entry = Entry::sound(alpha).expect("a published coefficient");
    let student = |nu| StudentT::new(nu).expect("positive");
    vec![
        ("scores", Box::new(Scores)),
        ("copeland", Box::new(Copeland)),
        ("probit p=2 (thurstone)", Box::new(RoundRobin::thurstone())),
        ("logistic p=1 (bradley-terry)", Box::new(RoundRobin::bradley_terry())),
        ("probit p=inf (weakest link)", Box::new(RoundRobin::weakest_link())),
        ("asinh p=2", Box::new(RoundRobin::asinh())),
        ("probit p=1", member(Probit, 1.0)),
        ("probit p=3", member(Probit, 3.0)),
        ("probit p=7", member(Probit, 7.0)),
        ("logistic p=2", member(Logistic, 2.0)),
        ("tanh p=2", member(Tanh, 2.0)),
        ("laplace p=2", member(Laplace, 2.0)),
        ("signed log p=2", member(SignedLog, 2.0)),
        ("identity p=2", member(Identity, 2.0)),
        ("asinh p=1", member(Asinh, 1.0)),
        ("student 3 p=2", member(student(3.0), 2.0)),
        ("student 4.5 p=2", member(student(4.5), 2.0)),
        ("student 3 p=3", member(student(3.0), 3.0)),
        ("student 19 p=2", member(student(19.0), 2.0)),
        ("student 100 p=2", member(student(100.0), 2.0)),
        ("student 1e4 p=2", member(student(1e4), 2.0)),
        ("pairwise", Box::new(Pairwise(Softsign))),
        ("fluent thurstone", Box::new(Fluent::new(entry, RoundRobin::thurstone()))),
        ("swiss-elo paper", Box::new(SwissElo::paper(rounds, alpha).expect("a published point"))),
        ("swiss-elo sound", Box::new(SwissElo::sound(rounds, alpha).expect("a published point"))),
        ("swiss-elo by index", Box::new(SwissElo::new(rounds, entry, Seeding::Index).expect("a published point"))),
        ("mixture (jensen-shannon)", Box::new(DivergenceMixture::new(Divergence::JensenShannon))),
    ]
}

/// μ, σ and ℓ_S of `n` candidates.
fn columns<F: Real>(n: usize) -> [Vec<F>; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
    [(-2.0, 2.0), (0.1, 2.0), (-4.0, 0.0)].map(|(low, high)| (0..n).map(|_| F::of(rng.random_range(low..high))).collect())
}

fn group<'c>(criterion: &'c mut Criterion, name: &str, n: usize) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(format!("{name}/{n}"));
    group.throughput(Throughput::Elements((n * (n - 1) / 2) as u64));
    group.sampling_mode(SamplingMode::Flat).sample_size(if n > 1024 { 10 } else { 50 });
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_millis(1000));
    group
}

fn rate<F: Real>(criterion: &mut Criterion, precision: &str) {
    for n in SIZES {
        let [mu, sigma, fluency] = columns::<F>(n);
        let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
        let mut ratings = vec![F::zero(); n];
        let mut group = group(criterion, &format!("rate {precision}"), n);
        for (name, operator) in operators::<F>() {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| operator.rate(black_box(&batch), &mut ratings));
            });
        }
        group.bench_function(BenchmarkId::from_parameter("entry"), |bencher| {
            let entry = Entry::sound(0.5).expect("a coefficient");
            let mut s = vec![F::zero(); n];
            bencher.iter(|| entry.apply(black_box(&batch), &mut ratings, &mut s));
        });
        group.finish();
    }
}

fn double(criterion: &mut Criterion) {
    rate::<f64>(criterion, "f64");
}

fn single(criterion: &mut Criterion) {
    rate::<f32>(criterion, "f32");
}

/// The pools on which a batch is rated: of one thread, two, four … and of all cores.
#[cfg(feature = "parallel")]
fn threads(criterion: &mut Criterion) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let pools: Vec<usize> = (0..).map(|k| 1 << k).take_while(|&threads| threads < cores).chain([cores]).collect();
    // The first of these is the smallest that is shared at all.
    for n in [512, 1024, 16_384] {
        let [mu, sigma, fluency] = columns::<f64>(n);
        let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
        let mut ratings = vec![0.0; n];
        let mut group = group(criterion, "threads", n);
        for (name, operator) in operators::<f64>() {
            for &threads in &pools {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
                group.bench_function(BenchmarkId::new(name, threads), |bencher| {
                    pool.install(|| bencher.iter(|| operator.rate(black_box(&batch), &mut ratings)));
                });
            }
        }
        group.finish();
    }
}

/// One thread is all that there is.
#[cfg(not(feature = "parallel"))]
fn threads(_: &mut Criterion) {}

criterion_group!(benches, double, single, threads);
criterion_main!(benches);
