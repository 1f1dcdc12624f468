use crate::chart::{Axis, Lines, Series};
use crate::page::{Figure, Section};
use crate::simulate::contamination::{ContaminationSettings, Flip, Reading};
use crate::simulate::figures::Exhibit;
use crate::table::{Kind, Table};

/// The exhibit on Theorem 2: one figure that compares the operators, and one for the bounds of each
/// member.
pub(in crate::simulate) fn exhibit(
    settings: &ContaminationSettings,
    flips: &[Flip],
    members: &[(&str, Vec<Reading>)],
) -> Exhibit {
    let (batches, candidates) = (settings.batches, settings.candidates);
    let drawn = format!(
        "{batches} batches of N = {candidates} candidates, μ standard normal, log σ normal with deviation ½; T = {}. ",
        settings.temperature
    );
    let operators = flip_table(flips).note(format!("{drawn}Argmax on the scores of each batch."));
    let bounds = bound_table(members).note(format!(
        "{drawn}Means over the batches of the largest total variation that a search of {} distributions found from any scores, and of the \
         bounds; closest is the largest share of its sharpened bound that was found in any one batch. The published bound says nothing past 1.",
        settings.evaluations
    ));
    let lines = |series| {
        let variation = Axis { range: Some([0.0, 1.05]), ..Axis::new("total variation of the choice") };
        Lines::new(Axis::new("contamination D (std of μ)"), variation, series)
    };
    let curve = |name: &str, readings: &[Reading], of: fn(&Reading) -> f64| {
        let (x, y) = readings.iter().map(|reading| (reading.radius, of(reading))).unzip();
        Series::line(name, x, y)
    };
    let (x, y) = flips.iter().map(|flip| (flip.radius, flip.flipped)).unzip();
    let found = members.iter().map(|(name, readings)| curve(name, readings, |reading| reading.found));
    let side_by_side = lines(std::iter::once(Series::line("argmax", x, y)).chain(found).collect());
    let first = Figure::new("contamination", "Argmax flips; the family bends", side_by_side)
        .caption(format!(
            "Theorem 2. {drawn}Under argmax (i) the choice of a batch flips wholly once D passes half the gap of its two best scores: drawn is \
             the share of batches that flipped, which was checked to be the share with a smaller half gap at every D. Members of the family \
             (ii): the mean of the largest total variation found from any scores; their \
             ratings are on scales of their own, so that one T is not equally cold for all of them."
        ))
        .behind(operators.clone());
    let panels = members.iter().map(|(name, readings)| {
        let curves = [
            ("found", (|r| r.found) as fn(&Reading) -> f64),
            ("sharpened bound", |r| r.sharpened),
            ("uniform bound", |r| r.uniform),
            // The bound is vacuous above 1, and the axis ends there.
            ("published bound", |r| if r.published <= 1.05 { r.published } else { f64::NAN }),
        ];
        (*name, lines(curves.map(|(label, of)| curve(label, readings, of)).to_vec()))
    });
    let second = Figure::panels("bounds", "Every contamination stays under its bounds", panels)
        .caption(format!(
            "Theorem 2(ii), as published (2(N−1)·L_g·D/(T·s_min)), uniform in σ (tanh(N·L_g·D/(2T·s_min))) and sharpened (tanh(L_g·D·C(σ)/2T)). {drawn}In every \
             batch and at every D, what was found was checked against all three; means over the batches are drawn. The published bound leaves the figure where it \
             exceeds 1."
        ))
        .behind(bounds.clone());
    let section = Section::new("stability", "Contamination against total variation").figure(first).figure(second);
    Exhibit { section, tables: vec![operators, bounds] }
}

fn flip_table(flips: &[Flip]) -> Table {
    Table::of("argmax", "Batches whose choice argmax flips (Theorem 2(i))", flips)
        .column("D", Kind::Number(4), |flip| flip.radius)
        .column("flipped (%)", Kind::Percent, |flip| flip.flipped)
        .column("half gap below D (%)", Kind::Percent, |flip| flip.predicted)
        .build()
}

fn bound_table(members: &[(&str, Vec<Reading>)]) -> Table {
    let all: Vec<(&str, &Reading)> =
        members.iter().flat_map(|(operator, readings)| readings.iter().map(|reading| (*operator, reading))).collect();
    Table::of("bounds", "Total variation found, and its bounds (Theorem 2(ii))", &all)
        .column("operator", Kind::Text, |(operator, _)| *operator)
        .column("D", Kind::Number(4), |(_, reading)| reading.radius)
        .column("found", Kind::Number(4), |(_, reading)| reading.found)
        .column("sharpened", Kind::Number(4), |(_, reading)| reading.sharpened)
        .column("uniform", Kind::Number(4), |(_, reading)| reading.uniform)
        .column("published", Kind::Number(4), |(_, reading)| reading.published)
        .column("closest (%)", Kind::Percent, |(_, reading)| reading.closest)
        .build()
}
