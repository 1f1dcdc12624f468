use super::{PageContext, counted, with_tables};
use crate::chart::{Axis, Bars, Lines, Series, Style};
use crate::page::{Figure, Section};
use crate::report::{CandidateStep, Mechanism};

/// The section on selection: how concentrated the probabilities were, and how often the best
/// candidate was selected.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let mut section = Section::new("choice", "The champion's choice");
    let cut = context.results.recorded.iter().flat_map(|recorded| &recorded.cut).map(String::as_str).collect::<Vec<_>>();
    if !cut.is_empty() {
        section = section.missing(format!(
            "Left out: {}, which choose among a whole vocabulary, of which traces keep the most likely tokens only.",
            cut.join(", ")
        ));
    }
    let mechanisms = &context.report.rows.mechanisms;
    if mechanisms.is_empty() {
        if !cut.is_empty() {
            return section;
        }
        return section.missing(
            "Neither champion entropy nor how often the best μ was chosen: there are no candidate steps and no traces, which lie beside the \
             records of a sweep.",
        );
    }
    section = section.figure(best(mechanisms));
    if mechanisms.iter().any(|mechanism| !mechanism.choice.entropy.is_nan()) {
        section = section.figure(entropy(context, mechanisms));
    } else {
        section = section
            .missing("No champion entropy: the candidate steps do not hold the probabilities that champions were drawn with.");
    }
    with_tables(section, context, &["choice"])
}

fn best(mechanisms: &[Mechanism]) -> Figure {
    let of = |read: fn(&Mechanism) -> f64| mechanisms.iter().map(read).collect::<Vec<f64>>();
    let share = Axis { percent: true, range: Some([0.0, 1.0]), ..Axis::new("share of steps") };
    let chart = Bars::new(mechanisms.iter().map(|mechanism| &mechanism.arm), share)
        .series("drawn", Style::Tone(1), &of(|mechanism| mechanism.choice.best), &[])
        .series("by chance", Style::Tone(3), &of(|mechanism| mechanism.choice.best_by_chance), &[]);
    Figure::new("best-chosen", "How often the candidate of the best composite μ was chosen", chart)
        .caption(format!(
            "Share of steps with at least two candidates, beside what a uniform draw would give; n = {} steps.",
            steps(mechanisms)
        ))
        .see("choice")
}

fn entropy(context: &PageContext<'_>, mechanisms: &[Mechanism]) -> Figure {
    let curve = |(i, Mechanism { arm, .. }): (usize, &Mechanism)| {
        let own = context.results.steps.iter().filter(|step| step.arm == *arm);
        let (x, y) = distribution(own.filter_map(CandidateStep::relative_entropy).collect());
        (!x.is_empty()).then(|| Series { style: Some(context.style(arm, i)), ..Series::steps(arm, x, y) })
    };
    let entropy = Axis { range: Some([0.0, 1.02]), ..Axis::new("entropy of the draw / ln N (0: certain, 1: uniform)") };
    let share = Axis { percent: true, range: Some([0.0, 1.02]), ..Axis::new("share of steps at or below") };
    let chart = Lines::new(entropy, share, mechanisms.iter().enumerate().filter_map(curve).collect());
    Figure::new("champion-entropy", "Entropy of the champion's draw", chart)
        .caption(format!("Distribution over steps of −Σ p ln p over ln N; n = {} steps. A curve at the left decides, one at the right draws lots.", steps(mechanisms)))
        .see("choice")
}

fn steps(mechanisms: &[Mechanism]) -> String {
    counted(mechanisms.iter().map(|own| (&own.arm, own.choice.steps)))
}

/// Returns the empirical distribution function, thinned to at most `POINTS` points.
fn distribution(mut values: Vec<f64>) -> (Vec<f64>, Vec<f64>) {
    const POINTS: usize = 200;
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    let places = (0..n.min(POINTS)).map(|i| if n <= POINTS { i } else { i * (n - 1) / (POINTS - 1) });
    places.map(|place| (values[place], (place + 1) as f64 / n as f64)).unzip()
}

#[cfg(test)]
mod tests {
    use super::distribution;

    #[test]
    fn a_distribution_ends_at_one() {
        assert_eq!(distribution(vec![0.5, 0.1]), (vec![0.1, 0.5], vec![0.5, 1.0]));
        let (x, y) = distribution((0..1000).map(f64::from).collect());
        assert_eq!((x.len(), x[0], y[0], x[199], y[199]), (200, 0.0, 0.001, 999.0, 1.0));
        assert!(distribution(Vec::new()).0.is_empty());
    }
}
