//! The findings in words.

use super::{PageContext, isolated, listed};
use crate::report::grouped;
use crate::report::tables::{LeadRow, SteeringRow};
use crate::stats::Interval;

/// The significance level of every test.
const ALPHA: f64 = 0.05;

/// The least number of weight vectors whose permutations can give a p-value below [`ALPHA`] in a
/// single test: that of n is at least 2/n!, and more if some have the same weights of the judged
/// blades.
const FEWEST: usize = 5;
/// The same of prompts in a signed-rank test: the p-value of n is at least 2/2ⁿ.
const FEWEST_PROMPTS: usize = 6;

/// Returns the sentences at the top of the page: whether responses follow the weights, and how the
/// reference compares with the other methods.
pub(super) fn sentences(context: &PageContext<'_>) -> Vec<String> {
    let reference = &context.report.reference;
    if context.report.rows.methods.iter().all(|row| row.name != *reference || row.n == 0) {
        return [format!("No answer of {} was judged.", isolated(reference))].into_iter().chain(steering(context)).collect();
    }
    steering(context).into_iter().chain(comparison(context)).chain(normalization(context)).collect()
}

/// The sign of an effect, judged by a test and a confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Positive,
    Negative,
    /// Not significantly different from zero.
    Open,
}

impl Sign {
    /// Returns a definite sign if the corrected p-value is below [`ALPHA`] and the confidence
    /// interval, if there is one, excludes zero.
    fn of(value: f64, p: f64, interval: Interval) -> Self {
        let told = p < ALPHA && (interval.is_none() || interval.excludes_zero());
        match told {
            true if value > 0.0 => Self::Positive,
            true if value < 0.0 => Self::Negative,
            _ => Self::Open,
        }
    }
}

/// The decimals of a correlation, and of a difference in F1.
const RHO: usize = 2;
const F1: usize = 3;

/// Formats a number with a minus sign instead of a hyphen.
fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    // A number that rounds to zero has no sign.
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| matches!(c, '0' | '.')) => zero.to_owned(),
        _ => text.replace('-', "−"),
    }
}

/// Formats a value and its interval, as `0.69 [0.60, 0.77]`.
fn with_interval(value: f64, interval: Interval, decimals: usize) -> String {
    let [value, low, high] = [value, interval.low, interval.high].map(|value| number(value, decimals));
    if interval.is_none() { value } else { format!("{value} [{low}, {high}]") }
}

/// Formats an estimate that cannot be told from zero, as `0.69 [−0.10, 0.77], p = 0.06`. Without a
/// test there is no p-value.
fn with_test(value: f64, interval: Interval, p: f64, decimals: usize) -> String {
    let p = if p.is_nan() { String::new() } else { format!(", {}", p_value(p)) };
    with_interval(value, interval, decimals) + &p
}

/// Joins names as [`listed`] does; `None` if there is none.
fn any_listed<S: AsRef<str>>(names: impl Iterator<Item = S>) -> Option<String> {
    let names: Vec<S> = names.collect();
    (!names.is_empty()).then(|| listed(&names))
}

/// Formats a p-value, as `p = 0.031`; small ones as an upper bound.
pub(super) fn p_value(p: f64) -> String {
    match p {
        p if p < 0.001 => "p < 0.001".to_owned(),
        p if p < 0.1 => format!("p = {p:.3}"),
        p => format!("p = {p:.2}"),
    }
}

fn steering(context: &PageContext<'_>) -> Vec<String> {
    let (told, untold): (Vec<_>, Vec<_>) =
        context.methods().map(|name| (name, rank_correlation(context, name))).partition(|(_, found)| found.is_ok());
    let reasons = grouped(untold.into_iter().filter_map(|(name, found)| Some((found.err()?, isolated(name)))));
    if let ([], [(why, _)]) = (&told[..], &reasons[..]) {
        return vec![format!("Whether the answers follow the weights is not known: {why}.")];
    }
    let those = |sign: Sign| {
        let own = told.iter().filter_map(|(name, found)| Some((name, found.ok()?)));
        let own = own.filter(|(_, row)| Sign::of(row.found.rho, row.holm, row.interval) == sign);
        let said = own.map(|(name, row)| {
            let found = match sign {
                Sign::Open => with_test(row.found.rho, row.interval, row.holm, RHO),
                _ => with_interval(row.found.rho, row.interval, RHO),
            };
            format!("{} (ρ = {found}{})", setting(context, name), pooled_over(context, name))
        });
        any_listed(said)
    };
    let sentences = [
        those(Sign::Positive).map(|those| format!("The answers of {those} follow the weights.")),
        those(Sign::Open).map(|those| format!("Steering cannot be told from chance for {those}.")),
        those(Sign::Negative).map(|those| format!("The answers of {those} go against the weights.")),
    ];
    let unknown = reasons.iter().map(|(why, those)| format!("Of {} it is not known: {why}.", listed(those)));
    sentences.into_iter().flatten().chain(unknown).collect()
}

/// The pooled points of a method.
struct Pooled {
    /// The steered objectives that were judged at any weight vector.
    judged: Vec<usize>,
    /// Whether others were not.
    is_partial: bool,
    /// The number of weight vectors with a score.
    points: usize,
    /// The number of weight vectors with a score for every axis in `judged`. Pooled ρ is over these.
    whole: usize,
}

impl Pooled {
    fn of(context: &PageContext<'_>, name: &str) -> Self {
        let sweep = &context.results.sweep;
        let points = sweep.method(name).map_or_else(|_| Vec::new(), |method| sweep.achieved(method));
        let is_judged = |axis: &usize| points.iter().any(|(_, _, axes)| !axes[*axis].is_nan());
        let (judged, others): (Vec<usize>, Vec<usize>) = sweep.steered().into_iter().map(|(axis, _)| axis).partition(is_judged);
        let is_whole = |axes: &[f64]| judged.iter().all(|&axis| !axes[axis].is_nan());
        let whole = points.iter().filter(|(_, _, axes)| is_whole(axes)).count();
        Self { judged, is_partial: !others.is_empty(), points: points.len(), whole }
    }
}

/// Returns what ρ is over, such as `, over quality and safety, at the 5 of 10 weight vectors with
/// every axis`; nothing if it is over all axes at all weight vectors.
fn pooled_over(context: &PageContext<'_>, name: &str) -> String {
    let objectives = &context.results.sweep.objectives.objectives;
    let Pooled { judged, is_partial, points, whole } = Pooled::of(context, name);
    let names: Vec<&str> = judged.iter().map(|&axis| objectives[axis].name.as_str()).collect();
    let axes = if is_partial { format!(", over {}", listed(&names)) } else { String::new() };
    if whole < points { format!("{axes}, at the {whole} of {points} weight vectors with every axis") } else { axes }
}

/// Returns how the axes of a method, pooled, follow the weights, or why no test could tell.
fn rank_correlation<'a>(context: &PageContext<'a>, name: &str) -> Result<&'a SteeringRow, &'static str> {
    let sweep = &context.results.sweep;
    if sweep.steered().is_empty() {
        return Err("no objective has a blade among the weights");
    }
    if sweep.points.len() == 1 {
        return Err("all answers were asked for at one weight vector");
    }
    let Pooled { points, whole, .. } = Pooled::of(context, name);
    match whole {
        _ if points == 0 => Err("no answer was judged"),
        _ if 2 * whole < points => Err("fewer than half of the weight vectors have every axis"),
        0..FEWEST => Err("fewer than five weight vectors"),
        _ => match context.pooled(name) {
            None => Err("no axis that was judged moves"),
            Some(row) if row.is_on_different_prompts() => Err("some weight vectors share fewer than half of their prompts"),
            Some(row) if row.lacks_interval() => Err("some resamples of the prompts have no ρ, so it has no interval"),
            Some(row) if row.alone >= ALPHA => Err("too few weight vectors"),
            Some(row) if row.least >= ALPHA => Err("too few weight vectors for so many methods"),
            Some(row) => Ok(row),
        },
    }
}

/// Names a method with its temperature, if the settings beside the records have one.
fn setting(context: &PageContext<'_>, name: &str) -> String {
    let kept = context.results.recorded.iter().flat_map(|recorded| &recorded.settings);
    let mut temperatures: Vec<Option<f64>> =
        kept.filter(|(scheme, _)| scheme == name).map(|(_, kept)| kept.of.numbers.get("temperature").copied()).collect();
    temperatures.dedup();
    match temperatures[..] {
        [Some(temperature)] => format!("{} at T = {temperature}", isolated(name)),
        _ => isolated(name).into_owned(),
    }
}

fn comparison(context: &PageContext<'_>) -> Vec<String> {
    let reference = isolated(&context.report.reference);
    let (apart, leads): (Vec<&LeadRow>, Vec<&LeadRow>) =
        context.report.rows.leads.iter().filter(|row| row.is_rival).partition(|row| row.difference.is_nan());
    let (untestable, leads): (Vec<&LeadRow>, Vec<&LeadRow>) = leads.into_iter().partition(|row| row.least >= ALPHA);
    let untestable = grouped(untestable.into_iter().map(|row| (too_few(row, "methods"), isolated(&row.other))));
    let those = |sign: Sign| {
        let own = leads.iter().filter(|row| Sign::of(row.difference, row.holm, row.by_prompt) == sign);
        any_listed(own.map(|row| match sign {
            Sign::Positive => {
                format!("ahead of {} by {}", isolated(&row.other), with_interval(row.difference, row.by_prompt, F1))
            }
            Sign::Negative => {
                format!("behind {} by {}", isolated(&row.other), with_interval(-row.difference, -row.by_prompt, F1))
            }
            Sign::Open => format!("{} ({})", isolated(&row.other), with_test(row.difference, row.by_prompt, row.holm, F1)),
        }))
    };
    let parts = [
        those(Sign::Positive).map(|those| format!("is {those}")),
        those(Sign::Negative).map(|those| format!("is {those}")),
        those(Sign::Open).map(|those| format!("cannot be told from {those}")),
    ];
    let sentences = [
        any_listed(parts.into_iter().flatten()).map(|parts| format!("In F1, {reference} {parts}.")),
        any_listed(apart.iter().map(|row| isolated(&row.other))).map(|those| {
            format!("F1 of {those} cannot be compared: no prompt has every axis judged in both at the same weights.")
        }),
    ];
    let untestable = untestable
        .iter()
        .map(|(why, those)| format!("Whether F1 of {reference} differs from that of {} is not known: {why}.", listed(those)));
    sentences.into_iter().flatten().chain(untestable).collect()
}

/// Returns why no prompts could show this difference among so many `tests`.
fn too_few(row: &LeadRow, tests: &str) -> String {
    match row.contrast.clusters().len() {
        0..FEWEST_PROMPTS => "fewer than six prompts".to_owned(),
        _ => format!("too few prompts for so many {tests}"),
    }
}

fn normalization(context: &PageContext<'_>) -> Option<String> {
    let row = context.report.rows.leads.iter().find(|row| !row.is_rival && row.measure == "f1")?;
    Some(match Sign::of(row.difference, row.holm, row.by_prompt) {
        Sign::Positive => format!("Normalisation raises its F1 by {}.", with_interval(row.difference, row.by_prompt, F1)),
        Sign::Negative => format!("Normalisation lowers its F1 by {}.", with_interval(-row.difference, -row.by_prompt, F1)),
        Sign::Open if row.difference.is_nan() => {
            let reason = "no prompt has every axis judged with and without it at the same weights";
            format!("Whether normalisation changes its F1 is not known: {reason}.")
        }
        Sign::Open if row.least >= ALPHA => {
            format!("Whether normalisation changes its F1 is not known: {}.", too_few(row, "measures"))
        }
        Sign::Open => format!(
            "Whether normalisation changes its F1 cannot be told ({}).",
            with_test(row.difference, row.by_prompt, row.holm, F1)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_needs_a_test_and_an_interval() {
        let interval = |low, high| Interval { low, high };
        assert_eq!(Sign::of(0.7, 0.01, interval(0.6, 0.8)), Sign::Positive);
        assert_eq!(Sign::of(-0.7, 0.01, interval(-0.8, -0.6)), Sign::Negative);
        assert_eq!(Sign::of(0.7, 0.05, interval(0.6, 0.8)), Sign::Open);
        assert_eq!(Sign::of(0.3, 0.01, interval(-0.01, 0.4)), Sign::Open);
        // A single prompt gives no interval.
        assert_eq!(Sign::of(0.7, 0.01, interval(f64::NAN, f64::NAN)), Sign::Positive);
        assert_eq!(Sign::of(f64::NAN, f64::NAN, interval(f64::NAN, f64::NAN)), Sign::Open);
    }

    #[test]
    fn numbers_in_words() {
        let interval = Interval { low: -0.004, high: 0.765 };
        assert_eq!(with_interval(-0.3, interval, RHO), "−0.30 [0.00, 0.77]");
        assert_eq!(with_interval(0.3, interval, F1), "0.300 [−0.004, 0.765]");
        assert_eq!(with_interval(0.3, Interval { low: f64::NAN, high: 1.0 }, RHO), "0.30");
        assert_eq!([0.0004, 0.0474, 0.341].map(p_value), ["p < 0.001", "p = 0.047", "p = 0.34"]);
    }
}
