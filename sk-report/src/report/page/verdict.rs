//! The findings in words.

use super::{PageContext, listed};
use crate::report::tables::{LeadRow, SteeringRow};
use crate::stats::Interval;

/// The significance level of every test.
const ALPHA: f64 = 0.05;

/// Returns the sentences at the top of the page: whether responses follow the weights, and how the
/// reference compares with the other methods.
pub(super) fn sentences(context: &PageContext<'_>) -> Vec<String> {
    let reference = &context.report.reference;
    if context.report.rows.methods.iter().all(|row| row.name != *reference || row.n == 0) {
        return [format!("No answer of {reference} was judged.")].into_iter().chain(steering(context)).collect();
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

/// Formats a number with a minus sign instead of a hyphen.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    // A number that rounds to zero has no sign.
    if text == "-0.00" { "0.00".to_owned() } else { text.replace('-', "−") }
}

/// Formats a value and its interval, as `0.69 [0.60, 0.77]`.
fn with_interval(value: f64, interval: Interval) -> String {
    match interval.is_none() {
        true => number(value),
        false => format!("{} [{}, {}]", number(value), number(interval.low), number(interval.high)),
    }
}

/// Formats an estimate that cannot be told from zero, as `0.69 [−0.10, 0.77], p = 0.06`. Without a
/// test there is no p-value.
fn with_test(value: f64, interval: Interval, p: f64) -> String {
    let p = if p.is_nan() { String::new() } else { format!(", {}", p_value(p)) };
    with_interval(value, interval) + &p
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
    let sweep = &context.results.sweep;
    let found: Vec<(&str, Option<&SteeringRow>)> = context.methods().map(|name| (name, context.pooled(name))).collect();
    if found.iter().all(|(_, row)| row.is_none()) {
        let why = match sweep.points.len() {
            _ if sweep.steered().is_empty() => "no objective has a blade among the weights".to_owned(),
            1 => "all answers were asked for at one weight vector".to_owned(),
            2 => "there are two weight vectors only".to_owned(),
            _ => "no axis that was judged moves".to_owned(),
        };
        return vec![format!("Whether the answers follow the weights is not known: {why}.")];
    }
    let those = |sign: Sign| {
        let own = found.iter().filter_map(|(name, row)| Some((name, (*row)?)));
        let own = own.filter(|(_, row)| Sign::of(row.found.rho, row.holm, row.interval) == sign);
        let said = own.map(|(name, row)| {
            let found = match sign {
                Sign::Open => with_test(row.found.rho, row.interval, row.holm),
                _ => with_interval(row.found.rho, row.interval),
            };
            format!("{} (ρ = {found})", setting(context, name))
        });
        any_listed(said)
    };
    let unknown = any_listed(found.iter().filter(|(_, row)| row.is_none()).map(|(name, _)| *name));
    let sentences = [
        those(Sign::Positive).map(|those| format!("The answers of {those} follow the weights.")),
        those(Sign::Open).map(|those| format!("Steering cannot be told from chance for {those}.")),
        those(Sign::Negative).map(|those| format!("The answers of {those} go against the weights.")),
        unknown.map(|those| format!("Of {those} it is not known: no axis that was judged moves.")),
    ];
    sentences.into_iter().flatten().collect()
}

/// Names a method with its temperature, if the settings beside the records have one.
fn setting(context: &PageContext<'_>, name: &str) -> String {
    let kept = context.results.recorded.iter().flat_map(|recorded| &recorded.settings);
    let mut temperatures: Vec<Option<f64>> =
        kept.filter(|(scheme, _)| scheme == name).map(|(_, kept)| kept.of.numbers.get("temperature").copied()).collect();
    temperatures.dedup();
    match temperatures[..] {
        [Some(temperature)] => format!("{name} at T = {temperature}"),
        _ => name.to_owned(),
    }
}

fn comparison(context: &PageContext<'_>) -> Vec<String> {
    let reference = &context.report.reference;
    let (apart, leads): (Vec<&LeadRow>, Vec<&LeadRow>) =
        context.report.rows.leads.iter().filter(|row| row.is_rival).partition(|row| row.difference.is_nan());
    let those = |sign: Sign| {
        let own = leads.iter().filter(|row| Sign::of(row.difference, row.holm, row.by_prompt) == sign);
        any_listed(own.map(|row| match sign {
            Sign::Positive => format!("ahead of {} by {}", row.other, with_interval(row.difference, row.by_prompt)),
            Sign::Negative => format!("behind {} by {}", row.other, with_interval(-row.difference, -row.by_prompt)),
            Sign::Open => format!("{} ({})", row.other, with_test(row.difference, row.by_prompt, row.holm)),
        }))
    };
    let parts = [
        those(Sign::Positive).map(|those| format!("is {those}")),
        those(Sign::Negative).map(|those| format!("is {those}")),
        those(Sign::Open).map(|those| format!("cannot be told from {those}")),
    ];
    let sentences = [
        any_listed(parts.into_iter().flatten()).map(|parts| format!("In F1, {reference} {parts}.")),
        any_listed(apart.iter().map(|row| &row.other)).map(|those| format!("With {those} it shares no judged prompt.")),
    ];
    sentences.into_iter().flatten().collect()
}

fn normalization(context: &PageContext<'_>) -> Option<String> {
    let row = context.report.rows.leads.iter().find(|row| !row.is_rival && row.measure == "f1")?;
    Some(match Sign::of(row.difference, row.holm, row.by_prompt) {
        Sign::Positive => format!("Normalisation raises its F1 by {}.", with_interval(row.difference, row.by_prompt)),
        Sign::Negative => format!("Normalisation lowers its F1 by {}.", with_interval(-row.difference, -row.by_prompt)),
        Sign::Open if row.difference.is_nan() => return None,
        Sign::Open => format!(
            "Whether normalisation changes its F1 cannot be told ({}).",
            with_test(row.difference, row.by_prompt, row.holm)
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
        assert_eq!(with_interval(-0.3, interval), "−0.30 [0.00, 0.77]");
        assert_eq!(with_interval(0.3, Interval { low: f64::NAN, high: 1.0 }), "0.30");
        assert_eq!([0.0004, 0.0474, 0.341].map(p_value), ["p < 0.001", "p = 0.047", "p = 0.34"]);
    }
}
