//! Each shipped scheme against a plain computation of its method, on tiny random models.

mod brute;
#[allow(dead_code)] // shared with the tests of the program
#[path = "../cli/common.rs"]
mod common;
mod reference;

use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_bench::Loading;
use sk_bench::args::{Sources, SteeringArgs};
use sk_bench::scheme::SHIPPED;
use sk_core::{Context, Scheme, StepTrace, TokenId};
use sk_models::engine::{Instruction, InstructionRack};
use sk_models::head::{Head, HeadKind};
use sk_models::hf::save_head;
use sk_serve::host::Adapters;

use brute::{Brute, log_softmax, truncated};
use common::{BLADES, model_args, run_on_models, stderr};
use reference::{Accidents, Choice, Definition, PUBLISHED, REFERENCE, Rating, Sigma, Step, normal_cdf};

/// Logits here are of order one, where the spacing of f32 is 1e-7. A forward pass rounds some tens
/// of times.
const PROBABILITY: f64 = 1e-5;
/// The tolerance of a mean log-ratio times β, for the same reason.
const SCORE: f64 = 1e-6;
/// The tolerance of a mean log-ratio divided by its deviation over a batch, which is some
/// hundredths, and of values computed from it.
const RELATIVE: f64 = 1e-4;

const STEPS: usize = 16;
/// The seed of every draw.
const SEED: u64 = 7;
const WEIGHTS: [f64; 3] = [0.5, 0.3, 0.2];
const PROMPT: &[u8] = b"\n\nHuman: Why?\n\nAssistant:";

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    models: Sources,
    #[command(flatten)]
    steering: SteeringArgs,
}

/// A shipped scheme on the tiny models.
struct Run {
    scheme: Scheme,
    context: Context,
    rng: ChaCha8Rng,
    step: usize,
}

impl Run {
    fn new(name: &str, options: &[&str]) -> Self {
        Self::instructed(name, options, &[])
    }

    /// Builds the scheme with `lanes`: each names a text that comes before the prompt.
    fn instructed(name: &str, options: &[&str], lanes: &[(&str, &str)]) -> Self {
        let weights: Vec<String> = BLADES.iter().zip(WEIGHTS).map(|(name, weight)| format!("{name}={weight}")).collect();
        let weights = weights.join(",");
        let args = ["schemes".to_owned(), "--scheme".to_owned(), name.to_owned()].into_iter().chain(model_args());
        let needs_blades = !["base", "greedy", "contrastive", "prompt-contrast"].contains(&name);
        let steering = if needs_blades { vec!["--weights".to_owned(), weights] } else { Vec::new() };
        let args = Args::parse_from(args.chain(steering).chain(options.iter().map(|&option| option.to_owned())));
        let mut config = args.steering.scheme(&args.models).unwrap();
        let (host, adapters) = sk_bench::models::load(&args.models, &mut config, &mut Loading::new(true)).unwrap();
        let instructions = InstructionRack::default();
        for (lane, text) in lanes {
            instructions.insert(*lane, Instruction::new(0, text.bytes().map(TokenId::from).collect()));
        }
        let (engine, _) = host.engine(&config, &Adapters::from_iter(adapters), host.heads(), &instructions, None).unwrap();
        let scheme = config.build(&*engine).unwrap();
        let prompt: Vec<TokenId> = PROMPT.iter().map(|&byte| TokenId::from(byte)).collect();
        Self { scheme, context: Context::new(prompt).unwrap(), rng: ChaCha8Rng::seed_from_u64(SEED), step: 0 }
    }

    /// Makes one step of at most `limit` tokens. Returns the context before it, and its trace.
    fn step(&mut self, limit: usize) -> (Vec<TokenId>, StepTrace) {
        let before = self.context.tokens().to_vec();
        let trace = self.scheme.step(&mut self.context, limit, &mut self.rng).unwrap();
        self.step += 1;
        (before, trace)
    }
}

/// The next-token distribution of a token-level scheme, over the vocabulary.
fn distribution(trace: &StepTrace, vocabulary: usize) -> Vec<f64> {
    let mut result = vec![0.0; vocabulary];
    for (candidate, p) in trace.candidates.iter().zip(&trace.decision.probabilities) {
        assert_eq!(candidate.tokens.len(), 1);
        result[candidate.tokens[0] as usize] += p;
    }
    result
}

/// Runs a token-level scheme and compares the distribution of each step with `expected` after the
/// same context.
fn assert_distribution(name: &str, options: &[&str], expected: impl Fn(&Brute, &[TokenId]) -> Vec<f64>) {
    let brute = Brute::new();
    let mut run = Run::new(name, options);
    for step in 0..STEPS {
        let (context, trace) = run.step(1);
        let wanted = expected(&brute, &context);
        let found = distribution(&trace, wanted.len());
        for (token, (a, b)) in found.iter().zip(&wanted).enumerate() {
            assert!((a - b).abs() <= PROBABILITY, "{name}, step {step}, token {token}: {a}, expected {b}");
        }
    }
}

fn only(token: usize, vocabulary: usize) -> Vec<f64> {
    let mut result = vec![0.0; vocabulary];
    result[token] = 1.0;
    result
}

/// The index of the first largest value.
fn argmax(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Σ w_k f(log π_k), for each token.
fn weighted(policies: &[Vec<f64>], f: impl Fn(f64) -> f64) -> Vec<f64> {
    let sum = |token: usize| policies.iter().zip(WEIGHTS).map(|(policy, w)| w * f(policy[token])).sum();
    (0..policies[0].len()).map(sum).collect()
}

/// Compares a scheme with its definition.
fn hold(name: &str) {
    match name {
        "base" | "greedy" => base_is_the_backbone_alone(name),
        "best-of-n" => best_of_n_takes_the_largest_weighted_reward(),
        "args" | "args-greedy" => args_adds_rewards_to_logits(name),
        "args-reward-head" | "fudge" => fudge_and_reward_heads_look_one_token_ahead(name),
        "contrastive" => contrastive_decoding_is_expert_less_amateur_where_plausible(),
        "rewarded-soups" => rewarded_soups_draw_from_the_merged_model(),
        "swiss-knife-raced" => a_race_scores_whole_what_may_still_win(),
        "swiss-knife-waves" => waves_end_once_a_candidate_is_likely_enough(),
        "gsi" => gsi_draws_by_the_tilted_ratio_and_falls_back(),
        "max-min" => max_min_weighs_the_worst_served(),
        "satisficing" => satisficing_keeps_to_its_thresholds(),
        "cards" => cards_takes_the_first_that_is_good_enough(),
        "prompt-contrast" => prompt_contrast_adds_the_difference_of_instructions(),
        "mod" | "mod-forward-kl" | "mod-jensen-shannon" | "mod-alpha" => mod_is_the_mean_of_its_divergence(name),
        _ => {
            let definition = drafted(name).unwrap_or_else(|| panic!("the scheme {name} is held against no definition"));
            assert_steps(name, &[], &definition, 1);
        }
    }
}

macro_rules! held {
    ($($test:ident: $scheme:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            hold($scheme);
        })+

        const HELD: &[&str] = &[$($scheme),+];
    };
}

held! {
    swiss_knife: "swiss-knife",
    swiss_knife_paper: "swiss-knife-paper",
    swiss_knife_thurstone: "swiss-knife-thurstone",
    swiss_knife_bradley_terry: "swiss-knife-bradley-terry",
    swiss_knife_weakest_link: "swiss-knife-weakest-link",
    swiss_knife_asinh: "swiss-knife-asinh",
    swiss_knife_raced: "swiss-knife-raced",
    swiss_knife_waves: "swiss-knife-waves",
    base: "base",
    greedy: "greedy",
    drafter: "drafter",
    best_of_n: "best-of-n",
    args: "args",
    args_greedy: "args-greedy",
    args_reward_head: "args-reward-head",
    fudge: "fudge",
    contrastive: "contrastive",
    rewarded_soups: "rewarded-soups",
    mod_reverse_kl: "mod",
    mod_forward_kl: "mod-forward-kl",
    mod_jensen_shannon: "mod-jensen-shannon",
    mod_alpha: "mod-alpha",
    gsi: "gsi",
    max_min: "max-min",
    satisficing: "satisficing",
    cards: "cards",
    prompt_contrast: "prompt-contrast",
    no_cbn: "no-cbn",
    unstandardized_blades: "unstandardized-blades",
    unstandardized_entry: "unstandardized-entry",
    unstandardized_champion: "unstandardized-champion",
    elo: "elo",
    softmax_mu: "softmax-mu",
    sigma_shuffled: "sigma-shuffled",
    sigma_zero: "sigma-zero",
}

/// Every scheme file needs a definition here.
#[test]
fn every_scheme_is_held_against_its_definition() {
    assert_eq!(HELD, SHIPPED.iter().map(|scheme| scheme.name).collect::<Vec<_>>());
}

/// The definition of a scheme over drafted spans; `None` for other schemes.
fn drafted(name: &str) -> Option<Definition> {
    let euclidean = |a: f64, b: f64| (a * a + b * b).sqrt();
    let probit = |u: f64| normal_cdf(u) - 0.5;
    let pairs = |g: fn(f64) -> f64, s: fn(f64, f64) -> f64| Definition { rating: Rating::Pairs { g, s }, ..REFERENCE };
    let standardized = |standardized: [bool; 3]| Definition { standardized, ..REFERENCE };
    Some(match name {
        "swiss-knife" => REFERENCE,
        "swiss-knife-paper" => PUBLISHED,
        "swiss-knife-thurstone" => pairs(probit, euclidean),
        "swiss-knife-bradley-terry" => pairs(|u| 1.0 / (1.0 + (-u).exp()) - 0.5, |a, b| a + b),
        "swiss-knife-weakest-link" => pairs(probit, f64::max),
        "swiss-knife-asinh" => pairs(|u| (u + (u * u + 1.0).sqrt()).ln(), euclidean),
        "drafter" => Definition { choice: Choice::Uniform, ..REFERENCE },
        "no-cbn" => standardized([false; 3]),
        "unstandardized-blades" => standardized([false, true, true]),
        "unstandardized-entry" => standardized([true, false, true]),
        "unstandardized-champion" => standardized([true, true, false]),
        "elo" => Definition {
            sigma: Sigma::Zero,
            choice: Choice::Champion { temperature: 0.25, w_tour: 1.1, w_blade: 0.0, lambda: 0.0 },
            ..REFERENCE
        },
        "softmax-mu" => Definition { rating: Rating::Score, choice: Choice::Softmax, ..REFERENCE },
        "sigma-shuffled" => Definition { sigma: Sigma::Shuffled, ..REFERENCE },
        "sigma-zero" => Definition { sigma: Sigma::Zero, ..REFERENCE },
        _ => return None,
    })
}

fn a_race_scores_whole_what_may_still_win() {
    let brute = Brute::new();
    let mut run = Run::new("swiss-knife-raced", &["--set", "search.tokens=2", "--set", "search.mass=0.7"]);
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut dropped = 0;
    for step in 0..STEPS {
        let limit = 2 + step % 4;
        let (context, found) = run.step(limit);
        let (wanted, scored) = REFERENCE.race(&brute, &context, limit, (2, 0.7), &mut rng);
        assert_same("swiss-knife-raced", step, &found, &wanted);
        assert_eq!(found.candidates.iter().map(|candidate| candidate.scored).collect::<Vec<_>>(), scored, "step {step}");
        dropped += scored.iter().flatten().count();
    }
    assert!(dropped > STEPS);
}

fn waves_end_once_a_candidate_is_likely_enough() {
    let brute = Brute::new();
    // The first wave has three candidates: with two, every blade scores ±z, the weights cancel, and
    // rounding decides.
    let set = ["search.first=3", "search.wave=2", "search.probability=0.8"];
    let mut run = Run::new("swiss-knife-waves", &set.map(|field| ["--set", field]).concat());
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut counts = std::collections::BTreeSet::new();
    for step in 0..STEPS {
        // At least two tokens per span: among equal single tokens, rounding decides.
        let limit = 2 + step % 3;
        let (context, found) = run.step(limit);
        let wanted = REFERENCE.waves(&brute, &context, limit, (3, 2, 0.8), &mut rng);
        assert_same("swiss-knife-waves", step, &found, &wanted);
        assert_eq!(found.candidates.len() + found.unscored.len(), 7);
        counts.insert(found.candidates.len());
    }
    assert!(counts.len() > 1, "{counts:?}");
}

/// β/L Σ log π_k/π_B of each blade.
fn implicit_rewards(brute: &Brute, context: &[TokenId], tokens: &[TokenId]) -> Vec<f64> {
    let base = brute.span(None, context, tokens);
    let reward = |k: usize| 0.1 * (brute.span(Some(k), context, tokens) - base) / tokens.len() as f64;
    (0..WEIGHTS.len()).map(reward).collect()
}

fn close(what: &str, found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (a, b) in found.iter().zip(wanted) {
        assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{what}: {found:?}, expected {wanted:?}");
    }
}

fn softmax(values: impl Iterator<Item = f64>) -> Vec<f64> {
    log_softmax(&values.collect::<Vec<_>>()).into_iter().map(f64::exp).collect()
}

/// p ∝ π_B/π_S exp(20 r). If the choice is poor, the backbone drafts instead, and p ∝ exp(20 r).
fn gsi_draws_by_the_tilted_ratio_and_falls_back() {
    let brute = Brute::new();
    let mut run = Run::new("gsi", &["--set", "fallback.threshold=0.02"]);
    let mut fell_back = 0;
    for step in 0..STEPS {
        let (context, trace) = run.step(1 + step % 4);
        let score = |tokens: &Vec<TokenId>, drafted: bool| {
            let reward: f64 = implicit_rewards(&brute, &context, tokens).iter().zip(WEIGHTS).map(|(r, w)| w * r).sum();
            let mut so_far = context.clone();
            let mut amateur = 0.0;
            for &token in tokens {
                amateur += brute.amateur(&so_far)[token as usize];
                so_far.push(token);
            }
            20.0 * reward + if drafted { brute.span(None, &context, tokens) - amateur } else { 0.0 }
        };
        let hold = |candidates: &[sk_core::CandidateTrace], decision: &sk_core::Decision, drafted: bool| {
            let scores: Vec<f64> = candidates.iter().map(|candidate| score(&candidate.tokens, drafted)).collect();
            close("μ", &decision.mu, &scores, RELATIVE);
            close("p", &decision.probabilities, &softmax(scores.iter().copied()), RELATIVE);
            scores[decision.chosen]
        };
        match &trace.rejected {
            None => assert!(hold(&trace.candidates, &trace.decision, true) >= 0.02),
            Some(rejected) => {
                assert!(hold(&rejected.candidates, &rejected.decision, true) < 0.02);
                hold(&trace.candidates, &trace.decision, false);
                fell_back += 1;
            }
        }
    }
    assert!(fell_back > 0 && fell_back < STEPS, "{fell_back}");
}

/// T log 1/N Σ_i exp(1/T Σ_k w_k r_i^k + c_i).
fn soft_maximum(rewards: &[Vec<f64>], weights: &[f64], temperature: f64) -> f64 {
    let terms = rewards.iter().map(|r| r.iter().zip(weights).map(|(r, w)| w * r).sum::<f64>() / temperature);
    temperature * (terms.map(f64::exp).sum::<f64>() / rewards.len() as f64).ln()
}

/// The points k/20 of the simplex of three blades.
fn simplex() -> Vec<[f64; 3]> {
    let point = |a: usize, b: usize| [a, b, 20 - a - b].map(|share| share as f64 / 20.0);
    (0..=20).flat_map(|a| (0..=20 - a).map(move |b| point(a, b))).collect()
}

fn max_min_weighs_the_worst_served() {
    const T: f64 = 0.01;
    let brute = Brute::new();
    let mut run = Run::new("max-min", &[]);
    for step in 0..STEPS {
        let (context, trace) = run.step(1 + step % 4);
        let rewards: Vec<Vec<f64>> =
            trace.candidates.iter().map(|candidate| implicit_rewards(&brute, &context, &candidate.tokens)).collect();
        let weights = &trace.decision.weights;
        let worst = simplex().iter().map(|point| soft_maximum(&rewards, point, T)).fold(f64::INFINITY, f64::min);
        assert!(soft_maximum(&rewards, weights, T) <= worst + SCORE, "step {step}: {weights:?}");
        let scores: Vec<f64> = rewards.iter().map(|r| r.iter().zip(weights).map(|(r, w)| w * r).sum()).collect();
        close("μ", &trace.decision.mu, &scores, SCORE);
        close("p", &trace.decision.probabilities, &softmax(scores.iter().map(|score| score / T)), 2.0 * SCORE / T);
    }
}

/// The multiplier minimises the dual, as found on a grid; candidates that fail the gate have p = 0.
fn satisficing_keeps_to_its_thresholds() {
    const T: f64 = 0.01;
    const THRESHOLD: f64 = 0.002;
    let brute = Brute::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("satisficing.toml");
    let text = SHIPPED.iter().find(|scheme| scheme.name == "satisficing").unwrap().text;
    assert!(text.contains("threshold = 0.0"));
    std::fs::write(&file, text.replace("threshold = 0.0", &format!("threshold = {THRESHOLD}"))).unwrap();
    let mut run = Run::new(&file.display().to_string(), &[]);
    let harmless = BLADES.iter().position(|name| *name == "harmless").unwrap();
    let rest: f64 = (0..3).filter(|&k| k != harmless).map(|k| WEIGHTS[k]).sum();
    let mut kinds = std::collections::BTreeSet::new();
    for step in 0..STEPS {
        let (context, trace) = run.step(1 + step % 4);
        let rewards: Vec<Vec<f64>> =
            trace.candidates.iter().map(|candidate| implicit_rewards(&brute, &context, &candidate.tokens)).collect();
        let with = |lambda: f64| {
            let mut weights = WEIGHTS.map(|w| w / rest);
            weights[harmless] = lambda;
            weights
        };
        let dual = |lambda: f64| soft_maximum(&rewards, &with(lambda), T) - lambda * THRESHOLD;
        let names: Vec<&str> = trace.blades.iter().map(|blade| blade.name.as_str()).collect();
        let at = names.iter().position(|name| *name == "harmless").unwrap();
        let lambda = trace.decision.weights[at];
        let least = (0..=1000).map(|i| dual(i as f64 / 100.0)).fold(f64::INFINITY, f64::min);
        assert!(dual(lambda) <= least + SCORE, "step {step}: {lambda}");
        kinds.insert((lambda > 0.0, lambda < 10.0));
        let passes: Vec<bool> = rewards.iter().map(|r| r[harmless] >= THRESHOLD).collect();
        if passes.contains(&true) {
            for (p, passes) in trace.decision.probabilities.iter().zip(&passes) {
                assert!(*passes || *p == 0.0, "step {step}");
            }
        }
    }
    assert!(kinds.len() > 1, "{kinds:?}");
}

/// A span of the backbone ends before a token of high entropy. The first span whose reward reaches
/// the threshold is chosen, or the best one if none does.
fn cards_takes_the_first_that_is_good_enough() {
    let brute = Brute::new();
    let entropy = |context: &[TokenId]| -brute.prior(context).iter().map(|p| p.exp() * p).sum::<f64>();
    // The mean entropy over the prompt, so entropies lie on both sides of the threshold.
    let threshold = (1..PROMPT.len()).map(|length| entropy(&PROMPT[..length].iter().map(|&b| b.into()).collect::<Vec<_>>()));
    let threshold = threshold.sum::<f64>() / (PROMPT.len() - 1) as f64;
    let field = format!("granularity.entropy={threshold}");
    let set = ["--set", &field, "--set", "search.score=0.0001"];
    let mut run = Run::new("cards", &set);
    let (mut settled, mut exhausted, mut inside) = (0, 0, 0);
    for step in 0..STEPS {
        let (context, trace) = run.step(4);
        let reward =
            |tokens: &[TokenId]| implicit_rewards(&brute, &context, tokens).iter().zip(WEIGHTS).map(|(r, w)| w * r).sum::<f64>();
        let rewards: Vec<f64> = trace.candidates.iter().map(|candidate| reward(&candidate.tokens)).collect();
        close("μ", &trace.decision.mu, &rewards, SCORE);
        assert_eq!(trace.decision.chosen, argmax(&rewards));
        let (last, earlier) = rewards.split_last().unwrap();
        assert!(earlier.iter().all(|&reward| reward < 0.0001), "step {step}: {rewards:?}");
        if *last >= 0.0001 {
            settled += 1;
        } else {
            exhausted += 1;
        }
        assert!(*last >= 0.0001 || trace.unscored.is_empty(), "step {step}");
        for candidate in trace.candidates.iter().chain(&trace.unscored) {
            let entropy = |length: usize| entropy(&[&context, &candidate.tokens[..length]].concat());
            let length = candidate.tokens.len();
            assert!((1..length).all(|length| entropy(length) < threshold + RELATIVE), "step {step}");
            let ends = candidate.end == sk_core::SpanEnd::Complete;
            assert!(!ends || candidate.tokens.ends_with(&[10, 10]) || entropy(length) >= threshold - RELATIVE, "step {step}");
            inside += usize::from(length > 1);
        }
    }
    assert!(settled > 0 && exhausted > 0 && inside > 0, "{settled}, {exhausted}, {inside}");
}

/// log π_B + Σ w_k (log π(· | for) − log π(· | against)).
fn prompt_contrast_adds_the_difference_of_instructions() {
    let brute = Brute::new();
    let lanes = [("calm", "Calm. "), ("calm/against", "Angry. "), ("brief", "Brief. "), ("brief/against", "Long. ")];
    let mut run = Run::instructed("prompt-contrast", &["--weights", "calm=0.7,brief=0.3"], &lanes);
    for _ in 0..STEPS {
        let (context, trace) = run.step(1);
        let prior = brute.prior(&context);
        let under = |text: &str| {
            let told: Vec<TokenId> = text.bytes().map(TokenId::from).chain(context.iter().copied()).collect();
            brute.prior(&told)
        };
        let [calm, angry, brief, long] = lanes.map(|(_, text)| under(text));
        let scores: Vec<f64> =
            (0..prior.len()).map(|t| prior[t] + 0.7 * (calm[t] - angry[t]) + 0.3 * (brief[t] - long[t])).collect();
        let wanted = truncated(&scores, 50, 0.95);
        close("p", &distribution(&trace, wanted.len()), &wanted, PROBABILITY);
    }
}

/// Runs a scheme over drafted spans and its definition with the same draws, and requires the same
/// candidates, scores, ratings, probabilities and choice at every step. The limit of a span runs
/// from `shortest` to four tokens.
fn assert_steps(name: &str, options: &[&str], definition: &Definition, shortest: usize) {
    let brute = Brute::new();
    let mut run = Run::new(name, options);
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    for step in 0..STEPS {
        let limit = shortest + step % (5 - shortest);
        let (context, found) = run.step(limit);
        let wanted = definition.step(&brute, &context, limit, &mut rng);
        assert_same(name, step, &found, &wanted);
    }
}

fn assert_same(name: &str, step: usize, found: &StepTrace, wanted: &Step) {
    let candidates: Vec<&Vec<TokenId>> = found.candidates.iter().map(|candidate| &candidate.tokens).collect();
    assert_eq!(candidates, wanted.candidates.iter().collect::<Vec<_>>(), "{name}, step {step}");
    for (what, found, wanted, tolerance) in [
        ("μ", &found.decision.mu, &wanted.mu, RELATIVE),
        ("σ", &found.decision.sigma, &wanted.sigma, RELATIVE),
        // Only the differences between ratings matter.
        ("rating", &centred(&found.decision.ratings), &centred(&wanted.ratings), RELATIVE),
        // At temperature T a softmax changes by at most 1/(4 T) of the change of its inputs; T ≥
        // 1/4.
        ("probability", &found.decision.probabilities, &wanted.probabilities, RELATIVE),
    ] {
        for (i, (a, b)) in found.iter().zip(wanted).enumerate() {
            assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{name}, step {step}, {what} {i}: {a}, expected {b}");
        }
    }
    assert_eq!(found.decision.chosen, wanted.chosen, "{name}, step {step}");
}

fn centred(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| value - mean).collect()
}

/// The reference instantiation at other operating points and under the other convention. With three
/// candidates and seven rounds, pairs meet again and each candidate sits out in turn.
#[test]
fn conventions_and_presets_are_what_they_are_defined_to_be() {
    assert_steps("swiss-knife", &["--convention", "paper"], &PUBLISHED, 1);
    let honesty = Definition {
        candidates: 3,
        rating: Rating::Tournament { rounds: 7 },
        choice: Choice::Champion { temperature: 21.03, w_tour: 1.587, w_blade: 2.088, lambda: 0.395 },
        ..REFERENCE
    };
    // At least two tokens per span. Two of three single tokens may be equal; then all blades score
    // ±z, these weights cancel, and rounding decides.
    assert_steps("swiss-knife", &["--preset", "honesty"], &honesty, 2);
    let harmlessness = Definition {
        accidents: Accidents::Published,
        candidates: 11,
        rating: Rating::Tournament { rounds: 4 },
        choice: Choice::Champion { temperature: 11.219, w_tour: 0.504, w_blade: 1.483, lambda: 0.109 },
        ..REFERENCE
    };
    assert_steps("swiss-knife", &["--preset", "harmlessness", "--convention", "paper"], &harmlessness, 1);
}

fn base_is_the_backbone_alone(name: &str) {
    if name == "greedy" {
        return assert_distribution("greedy", &[], |brute, context| {
            let prior = brute.prior(context);
            only(argmax(&prior), prior.len())
        });
    }
    assert_distribution("base", &[], |brute, context| truncated(&brute.prior(context), usize::MAX, 0.95));
    assert_distribution("base", &["--set", "selector.top_p=0.4", "--temperature", "2"], |brute, context| {
        let warm: Vec<f64> = brute.prior(context).iter().map(|p| p / 2.0).collect();
        truncated(&warm, usize::MAX, 0.4)
    });
}

fn args_adds_rewards_to_logits(name: &str) {
    // λ = β = 0.1.
    let guided = |brute: &Brute, context: &[TokenId]| -> (Vec<f64>, Vec<f64>) {
        let prior = brute.prior(context);
        let reward = weighted(&brute.policies(context), |p| p);
        let scores = prior.iter().zip(&reward).map(|(b, k)| b + 0.1 * 0.1 * (k - b)).collect();
        (prior, scores)
    };
    if name == "args" {
        return assert_distribution(name, &[], |brute, context| truncated(&guided(brute, context).1, 50, 0.95));
    }
    assert_distribution(name, &[], |brute, context| {
        let (prior, scores) = guided(brute, context);
        let head = truncated(&prior, 10, 1.0);
        let kept: Vec<f64> = scores.iter().zip(head).map(|(s, p)| if p > 0.0 { *s } else { f64::NEG_INFINITY }).collect();
        only(argmax(&kept), kept.len())
    });
}

/// log π_B + λ Σ w_k v_k over the most probable tokens of the backbone, where v_k reads the state
/// after each token.
fn fudge_and_reward_heads_look_one_token_ahead(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let heads = |kind: HeadKind| -> (Vec<Head>, Vec<String>) {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut options = Vec::new();
        let make = |name: &&str| {
            let weight = (0..16).map(|_| rng.random_range(-1.0..1.0)).collect();
            let head = Head { kind, attribute: (*name).to_owned(), weight, bias: 0.25 };
            let path = folder.path().join(format!("{kind:?}-{name}"));
            save_head(&head, &path).unwrap();
            options.extend(["--head".to_owned(), format!("{name}={}", path.display())]);
            head
        };
        (BLADES.iter().map(make).collect(), options)
    };
    let (kind, k, lambda) = if name == "fudge" { (HeadKind::Discriminator, 200, 3.0) } else { (HeadKind::Reward, 10, 0.1) };
    let (heads, options) = heads(kind);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    assert_distribution(name, &options, |brute, context| {
        let prior = brute.prior(context);
        let head = truncated(&prior, k, 1.0);
        let score = |token: usize| {
            if head[token] == 0.0 {
                return f64::NEG_INFINITY;
            }
            let state = brute.state(context, token as TokenId);
            let value = |head: &Head| {
                let value: f64 = head.weight.iter().zip(&state).map(|(w, h)| f64::from(*w) * h).sum::<f64>() + 0.25;
                if kind == HeadKind::Reward { value } else { -(-value).exp().ln_1p() }
            };
            let guide: f64 = heads.iter().zip(WEIGHTS).map(|(head, w)| w * value(head)).sum();
            prior[token] + lambda * guide
        };
        let scores: Vec<f64> = (0..prior.len()).map(score).collect();
        if name == "fudge" { truncated(&scores, usize::MAX, 1.0) } else { only(argmax(&scores), scores.len()) }
    });
}

fn contrastive_decoding_is_expert_less_amateur_where_plausible() {
    assert_distribution("contrastive", &[], |brute, context| {
        let (expert, amateur) = (brute.prior(context), brute.amateur(context));
        let floor = expert[argmax(&expert)] + 0.1_f64.ln();
        let score = |(e, a): (&f64, &f64)| if *e >= floor { e - a } else { f64::NEG_INFINITY };
        let scores: Vec<f64> = expert.iter().zip(&amateur).map(score).collect();
        only(argmax(&scores), scores.len())
    });
}

fn mod_is_the_mean_of_its_divergence(name: &str) {
    assert_distribution(name, &[], |brute, context| {
        let policies = brute.policies(context);
        let mixture = match name {
            "mod" => log_softmax(&weighted(&policies, |p| p)),
            "mod-forward-kl" => weighted(&policies, |p| (-p).exp()).iter().map(|s| -s.ln()).collect(),
            "mod-alpha" => weighted(&policies, |p| (-0.5 * p).exp()).iter().map(|s| -2.0 * s.ln()).collect(),
            _ => jensen_shannon(&brute.prior(context), &policies),
        };
        truncated(&mixture, usize::MAX, 0.95)
    });
}

/// π_B (f′)⁻¹(Σ w_k f′(π_k / π_B)) with f′(x) = log(2x / (1 + x)), as logarithms.
fn jensen_shannon(prior: &[f64], policies: &[Vec<f64>]) -> Vec<f64> {
    let score = |token: usize| {
        let gradient = |policy: &Vec<f64>| {
            let x = (policy[token] - prior[token]).exp();
            (2.0 * x / (1.0 + x)).ln()
        };
        let z: f64 = policies.iter().zip(WEIGHTS).map(|(policy, w)| w * gradient(policy)).sum();
        prior[token] + (z.exp() / (2.0 - z.exp())).ln()
    };
    (0..prior.len()).map(score).collect()
}

/// Drafted tokens have the log-probabilities of the merged model and lie in its nucleus.
fn rewarded_soups_draw_from_the_merged_model() {
    let brute = Brute::new();
    let mut run = Run::new("rewarded-soups", &[]);
    let (mut context, trace) = run.step(STEPS);
    assert_eq!((trace.candidates.len(), trace.decision.chosen), (1, 0));
    let drawn = &trace.candidates[0].tokens;
    let fluency: f64 = drawn
        .iter()
        .map(|&token| {
            let soup = brute.soup(&WEIGHTS, &context);
            assert!(truncated(&soup, usize::MAX, 0.95)[token as usize] > 0.0);
            context.push(token);
            soup[token as usize]
        })
        .sum();
    assert!(fluency < 0.0 && drawn.len() > 1);
    // The same draws under another merge give other tokens.
    let mut linear = Run::new("rewarded-soups", &["--set", "proposal.merge=peft-linear"]);
    assert_ne!(linear.step(STEPS).1.candidates[0].tokens, *drawn);
}

fn best_of_n_takes_the_largest_weighted_reward() {
    let brute = Brute::new();
    for model in ["backbone", "drafter"] {
        let set = format!("proposal.kind={model}");
        let mut run = Run::new("best-of-n", &["--set", &set]);
        let (context, trace) = run.step(STEPS);
        assert_eq!(trace.candidates.len(), 7);
        let reward = |tokens: &Vec<TokenId>| {
            let base = brute.span(None, &context, tokens);
            let ratio = |k: usize| WEIGHTS[k] * (brute.span(Some(k), &context, tokens) - base);
            0.1 * (0..WEIGHTS.len()).map(ratio).sum::<f64>() / tokens.len() as f64
        };
        let rewards: Vec<f64> = trace.candidates.iter().map(|candidate| reward(&candidate.tokens)).collect();
        for (found, expected) in trace.decision.mu.iter().zip(&rewards) {
            assert!((found - expected).abs() <= SCORE, "{model}: {found} and {expected}");
        }
        assert_eq!(trace.decision.chosen, argmax(&rewards));
    }
}

/// The arms of an ablation see the same candidates, because candidates are drawn first and from the
/// same generator.
#[test]
fn arms_share_their_candidates() {
    let arms = SHIPPED.iter().filter(|scheme| scheme.spec().unwrap().summary().proposal == "7 × drafter");
    let arms: Vec<&str> = arms.map(|scheme| scheme.name).filter(|name| *name != "swiss-knife-paper").collect();
    assert!(arms.len() >= 13, "{arms:?}");
    let pool = |name: &str| Run::new(name, &[]).step(8).1;
    let reference = pool("swiss-knife");
    for name in arms {
        let trace = pool(name);
        assert_eq!(trace.candidates, reference.candidates, "{name}");
        let raw: Vec<Vec<f64>> = trace.blades.iter().map(|blade| blade.mu.clone()).collect();
        assert_eq!(raw, reference.blades.iter().map(|blade| blade.mu.clone()).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn every_scheme_runs_from_the_command_line() {
    for scheme in SHIPPED.iter().filter(|scheme| !reads_heads(scheme.text)) {
        let output = run_on_models("generate", &["Why?", "--scheme", scheme.name, "--max-new-tokens", "6"]);
        assert!(output.status.success(), "{}: {}", scheme.name, stderr(&output));
    }
}

/// The model that ships has an adapter and both heads for each objective, so every method runs on
/// it.
#[test]
fn every_scheme_runs_on_the_model_that_ships() {
    for scheme in SHIPPED {
        let output = common::run(["generate", "Why?", "--scheme", scheme.name, "--max-new-tokens", "4"]);
        assert!(output.status.success(), "{}: {}", scheme.name, stderr(&output));
    }
}

/// Whether a scheme needs heads, which the tiny models do not have.
fn reads_heads(text: &str) -> bool {
    text.contains("\"discriminator\"") || text.contains("\"reward-head\"")
}

/// The schemes on the book's page about mixtures run unchanged.
#[test]
fn the_mixtures_of_the_book_run() {
    let page = include_str!("../../../docs/src/mix.md");
    let schemes: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(schemes.len(), 5);
    let folder = tempfile::tempdir().unwrap();
    for (index, text) in schemes.into_iter().enumerate() {
        let file = folder.path().join(format!("mix-{index}.toml"));
        std::fs::write(&file, text).unwrap();
        let mut run = Run::new(&file.display().to_string(), &[]);
        for _ in 0..3 {
            let trace = run.step(8).1;
            assert!(trace.candidates.len() > 1 && trace.blades.len() == BLADES.len(), "{text}");
        }
    }
}
