use crate::chart::{Axis, Lines, Series};
use crate::page::{Figure, Section};
use crate::simulate::Mean;
use crate::simulate::dispersion::{DispersionSettings, Worth};
use crate::simulate::figures::Exhibit;
use crate::stats::Interval;
use crate::table::{Kind, Table};

/// Half the width of a 95% normal confidence interval, in standard errors.
const NINETY_FIVE: f64 = 1.96;
const ARMS: [&str; 3] = ["real σ", "shuffled σ", "zero σ"];

/// The exhibit on the decomposition: the value of the scale and of the coupling of σ under
/// increasing informativeness.
pub(in crate::simulate) fn exhibit(settings: &DispersionSettings, worths: &[Worth], signed: &Worth) -> Exhibit {
    let drawn = format!(
        "{} worlds of N = {} candidates per point; quality standard normal, rewards that err with a deviation of 0.2 or 3, and σ that is the own \
         deviation with a probability from 0 to 1. Thurstone ratings, softmax at T = {}. ",
        settings.worlds, settings.candidates, settings.temperature
    );
    let table = table(worths, signed).note(format!("{drawn}Differences are of the same worlds; intervals are 95%."));
    let x: Vec<f64> = worths.iter().map(|worth| worth.informativeness).collect();
    let series = |name: &str, means: Vec<Mean>| {
        let of = |shift: f64| means.iter().map(|m| m.mean + shift * NINETY_FIVE * m.error).collect::<Vec<_>>();
        Series { band: Some([of(-1.0), of(1.0)]), ..Series::line(name, x.clone(), of(0.0)) }
    };
    let abscissa = || Axis::new("σ-informativeness 𝓘(σ)");
    let outcome = |(arm, name): (usize, &&str)| series(name, worths.iter().map(|worth| worth.outcomes[arm]).collect());
    let arms = ARMS.iter().enumerate().map(outcome).collect();
    let outcomes = Lines::new(abscissa(), Axis::new("quality of the choice (std)"), arms);
    let worths = vec![
        series("real − shuffled: coupling", worths.iter().map(|worth| worth.coupling_worth).collect()),
        series("shuffled − zero: scale", worths.iter().map(|worth| worth.scale_worth).collect()),
    ];
    let differences = Lines {
        rule: Some((0.0, "no change".to_owned())),
        ..Lines::new(abscissa(), Axis::new("difference in quality (std)"), worths)
    };
    let panels = [("Outcome under each arm", outcomes), ("Differences", differences)];
    let title = "Where σ tells nothing, shuffling it changes nothing, and dropping it does";
    let figure = Figure::panels("dispersion", title, panels)
        .caption(format!(
            "The decomposition (Corollary 4 of the supplement) and Corollary 2. {drawn}Checked: at 𝓘(σ) ≈ 0, where σ is exchangeable, real and shuffled \
             do not differ by 5 standard errors, and shuffled and zero do; at the right end real is better than shuffled; and no permutation of \
             σ changed a bound of Theorem 2 in any world. Bands are 95% intervals."
        ))
        .behind(table.clone());
    let warning = format!(
        "𝓘(σ) = 0 alone does not make shuffling free. Where σ is large for rewards that are too high and small for those that are too low, 𝓘(σ) = \
         {:.3} and shuffling costs {:+.3} ± {:.3}: what the corollary needs is that σ be exchangeable.",
        signed.informativeness,
        signed.coupling_worth.mean,
        NINETY_FIVE * signed.coupling_worth.error
    );
    let section = Section::new("dispersion", "Real, shuffled and zero dispersions").figure(figure).paragraph(warning);
    Exhibit { section, tables: vec![table] }
}

fn table(worths: &[Worth], signed: &Worth) -> Table {
    let interval = |m: Mean| Interval::around(m.mean, NINETY_FIVE * m.error);
    let rows: Vec<(&str, &Worth)> =
        worths.iter().map(|worth| ("size of the error", worth)).chain([("sign of the error", signed)]).collect();
    Table::of("dispersion", "Quality of the choice by what σ tells (Corollary 4 of the supplement)", &rows)
        .column("σ", Kind::Text, |(what, _)| *what)
        .column("coupling", Kind::Number(2), |(_, worth)| worth.coupling)
        .column("𝓘(σ)", Kind::Number(3), |(_, worth)| worth.informativeness)
        .columns(["real", "shuffled", "zero"], Kind::Number(4), |(_, worth), arm| worth.outcomes[arm].mean)
        .column("real − shuffled", Kind::Interval(4), |(_, worth)| interval(worth.coupling_worth))
        .column("shuffled − zero", Kind::Interval(4), |(_, worth)| interval(worth.scale_worth))
        .build()
}
