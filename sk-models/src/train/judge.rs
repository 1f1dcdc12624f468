//! Training of a judge's preference model on pairs that no blade was trained on.

use std::{fmt, path::PathBuf};

use half::f16;

use super::{
    data::{DataOptions, Excluded, MEASURED, Row, Source, TRAINED, Tally},
    error::TrainError,
    lbfgs,
    logistic::{sigmoid, softplus},
    preference::wilson,
    state::OutputFolder,
};
use crate::judge::{Features, MANNERS, MOST_BITS, PreferenceModel, Splitter, WEIGHTS_FILE, Weights};

/// Norm of the gradient, in nats, at which the minimum is reached.
const TOLERANCE: f64 = 1e-5;
/// Sides whose log-lengths differ by less are of about equal length.
const ABOUT: f32 = 0.1;

/// Settings of a judge.
#[derive(Debug, Clone)]
pub struct JudgeOptions {
    /// The judged attribute, stored in `judge_config.json`.
    pub attribute: String,
    /// Preference pairs.
    pub data: DataOptions,
    /// Files of pairs for measurement, besides the held-out pairs. They are not part of the fit.
    /// Excluded questions are left out of them too.
    pub tests: Vec<PathBuf>,
    /// Directory for the model.
    pub output: PathBuf,
    /// Words share 2^bits buckets.
    pub bits: u32,
    /// λ of the penalty λ/2·(‖w‖² + ‖u‖²).
    pub l2: f64,
    /// The largest number of iterations.
    pub iterations: usize,
}

/// The accuracy of a judge on pairs outside the fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The name of the pairs.
    pub name: String,
    /// The number of pairs.
    pub pairs: usize,
    /// Share of pairs whose better side has the higher score at equal length. A tie counts as
    /// wrong.
    pub accuracy: f64,
    /// 95% interval of the accuracy, by Wilson's score.
    pub interval: (f64, f64),
    /// The accuracy if scores included length as in the fit.
    pub with_length: f64,
    /// The accuracy of preferring the longer side, or the shorter one if that is more accurate.
    pub length_alone: f64,
    /// Pairs of about equal length, and the accuracy on them.
    pub equal_length: (usize, f64),
}

/// The result of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeReport {
    /// Pairs of the fit.
    pub pairs: usize,
    /// Why rows were left out, each reason with their number.
    pub left_out: Vec<(&'static str, usize)>,
    /// Penalised loss of the fit, in nats.
    pub training_loss: f64,
    /// Iterations of the optimiser.
    pub iterations: usize,
    /// The measurements on the held-out pairs, then on each test file.
    pub measured: Vec<Measurement>,
}

impl fmt::Display for JudgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs, {} iterations, training loss {:.4}", self.pairs, self.iterations, self.training_loss)?;
        for (reason, count) in &self.left_out {
            write!(f, "\nleft out: {count} {} {reason}", if *count == 1 { "pair" } else { "pairs" })?;
        }
        for Measurement { name, pairs, accuracy, interval: (low, high), with_length, length_alone, equal_length } in
            &self.measured
        {
            write!(f, "\n{name}: {pairs} pairs, accuracy {accuracy:.3} [{low:.3}, {high:.3}]")?;
            write!(f, ", with length {with_length:.3}, length alone {length_alone:.3}")?;
            match equal_length {
                (0, _) => write!(f, ", no pairs of about equal length")?,
                (pairs, accuracy) => write!(f, ", {pairs} pairs of about equal length {accuracy:.3}")?,
            }
        }
        Ok(())
    }
}

/// Fits a judge and writes it. Returns its measurements on pairs outside the fit.
///
/// ```text
/// min_{w,u,c} mean over pairs of log(1 + e^{−Δ}) + λ/2·(‖w‖² + ‖u‖²),   Δ = s(x, y_c) − s(x, y_r) + c·(ℓ_c − ℓ_r)
/// ```
///
/// with s as in [`PreferenceModel`] and ℓ = log(1 + n). The covariate c·(ℓ_c − ℓ_r) absorbs the
/// effect of length. Scores omit it, as in length-controlled AlpacaEval (Dubois et al. 2024). A
/// source's weight multiplies its pairs. The problem is convex, so the result depends on the
/// options alone. O(iterations·words).
///
/// # Errors
///
/// If the pairs are unusable, a setting is out of range, or a file cannot be written.
pub fn train_judge(options: &JudgeOptions) -> Result<JudgeReport, TrainError> {
    check(options)?;
    let _output = OutputFolder::claim(&options.output, None, &[WEIGHTS_FILE])?;
    let splitter = Splitter::new();
    let excluded = Excluded::load(&options.data.exclude)?;
    let (mut train, mut held_out) = (FeaturePairs::default(), FeaturePairs::default());
    let (mut tally, mut asked, mut held) = (Tally::default(), Excluded::default(), Vec::new());
    for Source { path, weight } in &options.data.sources {
        for row in excluded.pairs(path, &mut tally)? {
            if row.is_held_out(options.data.held_out) {
                held.push((row, *weight));
            } else {
                asked.add([&row]);
                let pushed = train.push(&row, *weight, &splitter, options.bits);
                tally.count(if pushed { TRAINED } else { WORDLESS });
            }
        }
    }
    for (row, weight) in asked.independent(held, &mut tally) {
        if !held_out.push(&row, weight, &splitter, options.bits) {
            tally.count(WORDLESS);
        }
    }
    tally.check("pairs to fit to", train.deltas.is_empty())?;
    tally.check("held-out pairs", held_out.deltas.is_empty())?;
    let buckets = 1 << options.bits;
    let mut theta = vec![0.0; buckets + MANNERS + 1];
    let function = |at: &[f64], gradient: &mut [f64]| train.loss(options.l2, at, gradient);
    let end = lbfgs::minimize(function, &mut theta, TOLERANCE, options.iterations, |_| {});
    let mut manner = [0.0; MANNERS];
    manner.iter_mut().zip(&theta[buckets..]).for_each(|(to, from)| *to = *from as f32);
    // Rounded as stored, so that the stored model is measured.
    let words = theta[..buckets].iter().map(|&w| f16::from_f64(w).to_f32()).collect();
    let mut weights = Weights { words, manner, length: theta[buckets + MANNERS] as f32, mean: 0.0 };
    weights.mean = train.mean(&weights) as f32;

    let mut measured = vec![held_out.measure("held out".to_owned(), &weights)];
    for path in &options.tests {
        let (mut pairs, mut tally, mut fitted) = (FeaturePairs::default(), Tally::default(), 0);
        for row in excluded.pairs(path, &mut tally)? {
            fitted += usize::from(asked.shares(&row));
            if !pairs.push(&row, 1.0, &splitter, options.bits) {
                tally.count(WORDLESS);
            }
        }
        tally.check(MEASURED, pairs.deltas.is_empty())?;
        let mut name = path.display().to_string();
        let left_out: usize = tally.left_out().map(|(_, count)| count).sum();
        let notes = [(fitted, "with a question of the training data"), (left_out, "left out")];
        for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
            name += &format!(" ({count} {what})");
        }
        measured.push(pairs.measure(name, &weights));
    }
    PreferenceModel::new(options.attribute.clone(), weights).save(&options.output)?;
    let left_out = tally.left_out().collect();
    Ok(JudgeReport { pairs: train.deltas.len(), left_out, training_loss: end.value, iterations: end.iteration, measured })
}

fn check(options: &JudgeOptions) -> Result<(), TrainError> {
    TrainError::check_counts(&[("iterations", options.iterations as u64)])?;
    TrainError::check("bits", options.bits, (1..=MOST_BITS).contains(&options.bits), "must lie between 1 and 24")?;
    TrainError::check_number("l2", options.l2, false)?;
    TrainError::check_split("held-out", options.data.held_out)
}

/// What a pair is that is left out since one of its sides has no word, in a tally.
const WORDLESS: &str = "with an answer without words";

/// Pairs as features.
#[derive(Default)]
struct FeaturePairs {
    sides: Vec<[Features; 2]>,
    deltas: Vec<FeatureDifference>,
}

/// The better side's features minus the worse side's.
struct FeatureDifference {
    words: Vec<(u32, f32)>,
    /// The manners, then log-length.
    dense: [f32; MANNERS + 1],
    weight: f64,
}

impl FeaturePairs {
    /// Adds a pair if both sides have words. Returns whether it was added.
    fn push(&mut self, row: &Row, weight: f64, splitter: &Splitter, bits: u32) -> bool {
        let Row::Pair { prompt, chosen, rejected } = row else { return false };
        let of = |side| Features::of(splitter, prompt, side, bits);
        let (Some(chosen), Some(rejected)) = (of(chosen), of(rejected)) else { return false };
        self.deltas.push(FeatureDifference::of(&chosen, &rejected, weight));
        self.sides.push([chosen, rejected]);
        true
    }

    /// Returns the penalised loss and writes its gradient for words, manners and length.
    fn loss(&self, l2: f64, theta: &[f64], gradient: &mut [f64]) -> f64 {
        let penalised = theta.len() - 1;
        let dense = penalised - MANNERS;
        for (j, (gradient, theta)) in gradient.iter_mut().zip(theta).enumerate() {
            *gradient = if j < penalised { l2 * theta } else { 0.0 };
        }
        let total = self.total();
        let mut loss = 0.0;
        for delta in &self.deltas {
            let share = delta.weight / total;
            let words = delta.words.iter().map(|(bucket, x)| theta[*bucket as usize] * f64::from(*x));
            let rest = theta[dense..].iter().zip(delta.dense).map(|(theta, x)| theta * f64::from(x));
            let z = words.sum::<f64>() + rest.sum::<f64>();
            loss += share * softplus(-z);
            let residual = -share * sigmoid(-z);
            for (bucket, x) in &delta.words {
                gradient[*bucket as usize] += residual * f64::from(*x);
            }
            for (gradient, x) in gradient[dense..].iter_mut().zip(delta.dense) {
                *gradient += residual * f64::from(x);
            }
        }
        loss + 0.5 * l2 * theta[..penalised].iter().map(|theta| theta * theta).sum::<f64>()
    }

    /// Returns the sum of the weights of the pairs.
    fn total(&self) -> f64 {
        self.deltas.iter().map(|delta| delta.weight).sum()
    }

    /// Returns the mean score over both sides, by the weights of the pairs.
    fn mean(&self, weights: &Weights) -> f64 {
        let pairs = self.sides.iter().zip(&self.deltas);
        let scores = pairs.map(|([c, r], delta)| delta.weight * (weights.logit(c) + weights.logit(r)));
        scores.sum::<f64>() / (2.0 * self.total())
    }

    fn measure(&self, name: String, weights: &Weights) -> Measurement {
        let margins: Vec<(f64, f32)> =
            self.sides.iter().map(|[c, r]| (weights.logit(c) - weights.logit(r), c.length - r.length)).collect();
        let pairs = margins.len();
        let share = |hits: usize, of: usize| hits as f64 / of.max(1) as f64;
        let right = margins.iter().filter(|(margin, _)| *margin > 0.0).count();
        let with_length = margins.iter().filter(|(margin, longer)| margin + f64::from(weights.length * longer) > 0.0).count();
        let longer = margins.iter().filter(|(_, longer)| *longer > 0.0).count();
        let shorter = margins.iter().filter(|(_, longer)| *longer < 0.0).count();
        let equal: Vec<_> = margins.iter().filter(|(_, longer)| longer.abs() < ABOUT).collect();
        let right_of_equal = equal.iter().filter(|(margin, _)| *margin > 0.0).count();
        Measurement {
            name,
            pairs,
            accuracy: share(right, pairs),
            interval: wilson(right, pairs),
            with_length: share(with_length, pairs),
            length_alone: share(longer.max(shorter), pairs),
            equal_length: (equal.len(), share(right_of_equal, equal.len())),
        }
    }
}

impl FeatureDifference {
    fn of(chosen: &Features, rejected: &Features, weight: f64) -> Self {
        let mut words: Vec<(u32, f32)> = chosen.words.clone();
        words.extend(rejected.words.iter().map(|(bucket, value)| (*bucket, -value)));
        words.sort_by_key(|(bucket, _)| *bucket);
        // A bucket of both sides occurs twice, adjacently.
        words.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        let mut dense = [0.0; MANNERS + 1];
        for (j, dense) in dense[..MANNERS].iter_mut().enumerate() {
            *dense = chosen.manner[j] - rejected.manner[j];
        }
        dense[MANNERS] = chosen.length - rejected.length;
        Self { words, dense, weight }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use super::super::data::read_rows;
    use super::*;

    /// The words of the better sides of the synthetic pairs, and of the worse sides.
    const GOOD: [&str; 3] = ["gladly", "certainly", "carefully"];
    const BAD: [&str; 3] = ["never", "whatever", "nonsense"];

    /// Writes pairs whose sides differ in their words. The better side is the longer one in two
    /// thirds of the pairs.
    fn write_synthetic(path: &Path, count: usize) {
        let mut text = String::new();
        for i in 0..count {
            let filler = |seed: usize, words: usize| -> String {
                (0..words).map(|k| format!("w{} ", (seed * 31 + k * 7 + seed * k) % 50)).collect()
            };
            let (long, short) = (12, 8);
            let (c, r) = if i % 3 < 2 { (long, short) } else { (short, long) };
            let chosen = format!("{}{}", filler(i, c), GOOD[i % 3]);
            let rejected = format!("{}{}", filler(i + 1, r), BAD[i % 3]);
            text += &serde_json::json!({"prompt": format!("Question {i}?"), "chosen": chosen, "rejected": rejected}).to_string();
            text.push('\n');
        }
        fs::write(path, text).unwrap();
    }

    fn options(folder: &Path) -> JudgeOptions {
        JudgeOptions {
            attribute: "kind".to_owned(),
            data: DataOptions {
                sources: vec![Source { path: folder.join("pairs.jsonl"), weight: 1.0 }],
                exclude: Vec::new(),
                held_out: 0.3,
            },
            tests: Vec::new(),
            output: folder.join("judge"),
            bits: 12,
            l2: 1e-3,
            iterations: 100,
        }
    }

    #[test]
    fn fitting_beats_both_chance_and_length() {
        let folder = tempfile::tempdir().unwrap();
        write_synthetic(&folder.path().join("pairs.jsonl"), 300);
        let options = options(folder.path());
        let report = train_judge(&options).unwrap();
        let held = &report.measured[0];
        assert!(held.length_alone < 0.8 && held.accuracy > 0.95, "{report}");
        assert!(held.pairs + report.pairs == 300 && held.pairs > 50, "{report}");
        // One iteration has a higher loss.
        let hasty = JudgeOptions { iterations: 1, output: folder.path().join("hasty"), ..options.clone() };
        assert!(train_judge(&hasty).unwrap().training_loss > report.training_loss);
        let judge = PreferenceModel::load(&options.output).unwrap();
        let p = |text| judge.win_probability("Question?", text).unwrap();
        assert!(p("w1 gladly") > 0.5 && p("w1 nonsense") < 0.5);
    }

    #[test]
    fn rows_that_are_left_out_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (pairs, excluded) = (folder.path().join("pairs.jsonl"), folder.path().join("excluded.jsonl"));
        write_synthetic(&pairs, 100);
        let text = fs::read_to_string(&pairs).unwrap();
        fs::write(&excluded, text.lines().next().unwrap()).unwrap();
        let wordless = (0..40).map(|row| format!("{{\"prompt\": \"{row}?\", \"chosen\": \"...\", \"rejected\": \"w1\"}}\n"));
        fs::write(&pairs, text + &wordless.collect::<String>()).unwrap();
        let mut options = options(folder.path());
        options.data.exclude.push(excluded);
        let report = train_judge(&options).unwrap();
        let left_out: BTreeMap<_, _> = report.left_out.iter().copied().collect();
        assert_eq!(left_out[WORDLESS], 40);
        assert_eq!(left_out["with an excluded question"], 1);
        assert_eq!(report.pairs + report.measured[0].pairs + left_out.values().sum::<usize>(), 140, "{report}");
        assert!(report.to_string().contains("left out: 40 pairs with an answer without words"), "{report}");
    }

    #[test]
    fn the_same_options_give_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        write_synthetic(&folder.path().join("pairs.jsonl"), 100);
        let written = |name: &str| {
            let options = JudgeOptions { output: folder.path().join(name), ..options(folder.path()) };
            train_judge(&options).unwrap();
            fs::read(options.output.join("judge.safetensors")).unwrap()
        };
        assert_eq!(written("a"), written("b"));
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let folder = tempfile::tempdir().unwrap();
        write_synthetic(&folder.path().join("pairs.jsonl"), 20);
        let (splitter, mut pairs) = (Splitter::new(), FeaturePairs::default());
        let rows = read_rows(&folder.path().join("pairs.jsonl")).unwrap();
        rows.iter().enumerate().for_each(|(i, row)| assert!(pairs.push(row, 1.0 + i as f64, &splitter, 5)));
        let size = 32 + MANNERS + 1;
        let theta: Vec<f64> = (0..size).map(|j| 0.1 * j as f64 - 1.5).collect();
        lbfgs::check_gradient(|theta, gradient| pairs.loss(0.3, theta, gradient), &theta);
    }

    #[test]
    fn a_pair_of_weight_three_counts_as_three_pairs() {
        let folder = tempfile::tempdir().unwrap();
        write_synthetic(&folder.path().join("pairs.jsonl"), 20);
        let splitter = Splitter::new();
        let (mut weighted, mut repeated) = (FeaturePairs::default(), FeaturePairs::default());
        for (i, row) in read_rows(&folder.path().join("pairs.jsonl")).unwrap().iter().enumerate() {
            let copies = if i % 3 == 0 { 3 } else { 1 };
            assert!(weighted.push(row, f64::from(copies), &splitter, 5));
            (0..copies).for_each(|_| assert!(repeated.push(row, 1.0, &splitter, 5)));
        }
        let theta: Vec<f64> = (0..32 + MANNERS + 1).map(|j| 0.1 * j as f64 - 1.5).collect();
        let words = theta[..32].iter().map(|&w| w as f32).collect();
        let weights = Weights { words, manner: [0.5; MANNERS], length: 0.0, mean: 0.0 };
        let of = |pairs: &FeaturePairs| {
            let mut gradient = vec![0.0; theta.len()];
            [pairs.loss(0.3, &theta, &mut gradient), pairs.mean(&weights)]
        };
        for (weighted, repeated) in of(&weighted).into_iter().zip(of(&repeated)) {
            assert!((weighted - repeated).abs() < 1e-9, "{weighted} is not {repeated}");
        }
    }

    #[test]
    fn errors_name_the_fault() {
        let folder = tempfile::tempdir().unwrap();
        let good = options(folder.path());
        let says = |options: &JudgeOptions| train_judge(options).unwrap_err().to_string();
        assert!(says(&good).contains("pairs.jsonl"), "{}", says(&good));
        let file = folder.path().join("pairs.jsonl");
        fs::write(&file, "{\"text\": \"no pair\"}\n").unwrap();
        let message = says(&good);
        assert!(message.contains("pairs.jsonl:1: ") && message.contains("`chosen` with `rejected`"), "{message}");
        write_synthetic(&file, 40);
        let data = good.data.clone();
        let excluding = DataOptions { exclude: vec![file.clone()], ..data.clone() };
        assert!(says(&JudgeOptions { data: excluding, ..good.clone() }).contains("no pairs"));
        assert!(says(&JudgeOptions { bits: 25, ..good.clone() }).contains("`bits` is 25"));
        assert!(says(&JudgeOptions { l2: f64::NAN, ..good.clone() }).contains("`l2`"));
        assert!(says(&JudgeOptions { data: DataOptions { held_out: 0.0, ..data }, ..good.clone() }).contains("`held-out`"));
        assert!(says(&JudgeOptions { iterations: 0, ..good }).contains("`iterations`"));
    }
}
