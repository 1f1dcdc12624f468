use std::collections::BTreeSet;

use crate::chart::{Axis, Lines, Plot, Series, Ternary};
use crate::page::{Figure, Section};
use crate::simulate::figures::Exhibit;
use crate::simulate::frontier::{Frontier, FrontierSettings, Reach};
use crate::table::{Kind, Table};

const CORNERS: [&str; 3] = ["blade 1", "blade 2", "blade 3"];

/// The exhibit on Theorem 3 (iii): the candidates that weights select, for two objectives and for
/// three.
pub(in crate::simulate) fn exhibit(studies: &[(FrontierSettings, Frontier); 2]) -> Exhibit {
    let [(two_settings, two), (three_settings, three)] = studies;
    let counts = counts(studies);
    let ratio = |spreads: &[f64]| spreads.iter().map(|spread| format!("{spread}")).collect::<Vec<_>>().join(" : ");
    let (before, after) = (two.selected(|reach| reach.raw).len(), two.selected(|reach| reach.normalized).len());
    let plane = Figure::new("hull", "Weights reach the corners of the hull, and only those", plane(two))
        .caption(format!(
            "Theorem 3(iii) with two objectives. {} candidates with spreads {}; weights in steps of 1/{}. Checked: all that is selected is on the \
             Pareto front and a corner of its convex hull, and every such corner is selected by the weights between the normals of its edges, \
             with CBN and, at w̃/std(μ), without. Of the lattice itself, {} are found before CBN and {} with it{}.",
            two_settings.candidates,
            ratio(&two_settings.spreads),
            two_settings.density,
            before,
            after,
            if before < after { ": before it the first blade drowns the second" } else { "" },
        ))
        .behind(counts.clone());
    let list = list(three);
    let panels = [("Without CBN", triangle(three, |reach| reach.raw)), ("With CBN", triangle(three, |reach| reach.normalized))];
    let triangle = Figure::panels("weights", "The same candidates, reached by other weights", panels)
        .caption(format!(
            "Theorem 3(iii) with three objectives. {} candidates whose spreads under the blades are {}; each point is a weight vector, marked by the \
             candidate it selects. Checked at every point: what is selected is on the Pareto front, and w̃ after CBN selects what w̃/std(μ) \
             selects before it.",
            three_settings.candidates,
            ratio(&three_settings.spreads)
        ))
        .behind(list.clone());
    let section = Section::new("frontier", "Which weights reach which frontier points").figure(plane).figure(triangle);
    Exhibit { section, tables: vec![counts, list] }
}

fn plane(found: &Frontier) -> Plot {
    let (raw, even) = (found.selected(|reach| reach.raw), found.selected(|reach| reach.normalized));
    let all: BTreeSet<usize> = (0..found.scores.len()).collect();
    let front: BTreeSet<usize> = found.front.iter().copied().collect();
    let series = |name: &str, of: &mut dyn Iterator<Item = usize>| {
        let chosen: Vec<usize> = of.collect();
        let axis = |k: usize| chosen.iter().map(|&i| found.scores[i][k]).collect::<Vec<_>>();
        let labels = chosen.iter().map(|i| format!("candidate {i}")).collect();
        Series { labels, ..Series::points(name, axis(0), axis(1)) }
    };
    let both: BTreeSet<usize> = raw.union(&even).copied().collect();
    let series = vec![
        series("dominated", &mut all.difference(&front).copied()),
        series("on the front, reached by no weights", &mut front.difference(&both).copied()),
        series("reached with CBN alone", &mut even.difference(&raw).copied()),
        series("reached with and without CBN", &mut even.intersection(&raw).copied()),
        series("reached without CBN alone", &mut raw.difference(&even).copied()),
    ];
    Lines::new(Axis::new("score under blade 1"), Axis::new("score under blade 2"), series).into()
}

/// Plots the lattice coloured by the selected candidate. A candidate has the same colour and marker
/// in both panels.
fn triangle(found: &Frontier, of: fn(&Reach) -> usize) -> Plot {
    let candidates: BTreeSet<usize> = found.reached.iter().flat_map(|reach| [reach.raw, reach.normalized]).collect();
    let chart = candidates.into_iter().fold(Ternary::new(CORNERS), |chart, candidate| {
        let points: Vec<[f64; 3]> = found
            .reached
            .iter()
            .filter(|reach| of(reach) == candidate)
            .map(|reach| std::array::from_fn(|k| reach.weights[k]))
            .collect();
        chart.series(&format!("#{candidate}"), &points, &vec![format!("candidate {candidate}"); points.len()])
    });
    chart.into()
}

fn counts(studies: &[(FrontierSettings, Frontier)]) -> Table {
    Table::of("frontier", "Candidates that a lattice of weights reaches (Theorem 3(iii))", studies)
        .column("objectives", Kind::Count, |(settings, _)| settings.spreads.len())
        .column("candidates", Kind::Count, |(settings, _)| settings.candidates)
        .column("weights", Kind::Count, |(_, found)| found.reached.len())
        .column("on the front", Kind::Count, |(_, found)| found.front.len())
        .column("reached, raw", Kind::Count, |(_, found)| found.selected(|reach| reach.raw).len())
        .column("reached, CBN", Kind::Count, |(_, found)| found.selected(|reach| reach.normalized).len())
        .build()
}

fn list(found: &Frontier) -> Table {
    let table = Table::of("weights", "What each weight vector selects (Theorem 3(iii))", &found.reached)
        .columns(["w1", "w2", "w3"], Kind::Number(4), |reach, blade| reach.weights[blade])
        .column("selected, raw", Kind::Count, |reach| reach.raw)
        .column("selected, CBN", Kind::Count, |reach| reach.normalized)
        .build();
    Table { appendix: true, ..table }
}
