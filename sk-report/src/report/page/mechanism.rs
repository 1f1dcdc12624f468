use super::{PageContext, with_tables};
use crate::chart::{Axis, Bars};
use crate::page::{Figure, Section};
use crate::report::{BladeSpread, Mechanism, distinct};

/// The section on the spread of blades and the resulting influence.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let mut section = Section::new("mechanism", "Mechanism");
    let mechanisms = &context.report.rows.mechanisms;
    if context.report.table("spreads").is_some() {
        section = section
            .paragraph(
                "A blade whose raw scores spread further within a batch weighs more in their sum, whatever its weight: its share of influence is \
                 w·std(μ) over the sum of all (Theorem 3(i)). Normalisation makes the shares equal to the weights.",
            )
            .figure(spread(context, mechanisms));
    } else {
        section = section.missing(
            "No spreads: there are neither candidate steps nor traces of steps in which several candidates were scored.",
        );
    }
    if context.report.table("spreads").is_some() && context.report.table("scales").is_none() {
        section = section.missing(
            "No scale ratio of tournament and blade terms: traces of a sweep do not hold the two terms of the champion's logit.",
        );
    }
    with_tables(section, context, &["spreads", "scales"])
}

fn spread(context: &PageContext<'_>, mechanisms: &[Mechanism]) -> Figure {
    // A single blade has all the influence, and its scores may have another unit.
    let several: Vec<&Mechanism> = mechanisms.iter().filter(|mechanism| mechanism.blades.len() > 1).collect();
    let arms = if several.is_empty() { mechanisms.iter().collect() } else { several };
    let blades = distinct(arms.iter().flat_map(|arm| &arm.blades).map(|spread| spread.blade.clone()));
    let chart = |of: fn(&BladeSpread) -> f64, axis: Axis| {
        arms.iter().enumerate().fold(Bars::new(&blades, axis), |chart, (i, arm)| {
            let at = |blade: &String| arm.blades.iter().find(|spread| spread.blade == *blade).map_or(f64::NAN, of);
            chart.series(&arm.arm, context.style(&arm.arm, i), &blades.iter().map(at).collect::<Vec<_>>(), &[])
        })
    };
    let share_axis = Axis { percent: true, ..Axis::new("share of the sum") };
    let panels = [
        ("Spread of raw scores", chart(|spread| spread.median_std, Axis::new("median std(μ), reward units"))),
        ("Influence share at equal weights", chart(|spread| spread.share.unwrap_or(f64::NAN), share_axis)),
    ];
    Figure::panels("spread-and-influence", "Spread and influence of each blade", panels)
        .caption("Median standard deviation (n − 1) of a blade's raw scores within a batch, over the steps it was seated at, and the mean share of influence it implies, where there are several.")
        .see("spreads")
}
