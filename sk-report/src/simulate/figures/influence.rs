use crate::chart::{Axis, Lines, Series};
use crate::page::{Figure, Section};
use crate::simulate::figures::Exhibit;
use crate::simulate::influence::{InfluenceSettings, Voice};
use crate::table::{Kind, Table};

/// The blades whose spreads the paper prints, in its order.
const BLADES: [&str; 3] = ["harmlessness", "helpfulness", "honesty"];

/// The exhibit on Theorem 3 (i) and (ii): the influence of each blade as one blade is rescaled.
pub(in crate::simulate) fn exhibit(settings: &InfluenceSettings, raw: &[Voice], normalized: &[Voice]) -> Exhibit {
    let drawn = format!(
        "{} batches of N = {} candidates at equal weights; the blades' scores are normal with the published spreads, .0050 : .0035 : .0008, and \
         the {} blade is multiplied by the scale. ",
        settings.batches, settings.candidates, BLADES[settings.rescaled]
    );
    let voices: Vec<(&Voice, &Voice)> = raw.iter().zip(normalized).collect();
    let table = Table::of("influence", "Influence as one blade is rescaled (Theorem 3(i), (ii))", &voices)
        .column("scale", Kind::Number(4), |(raw, _)| raw.scale)
        .column("blade", Kind::Text, |(raw, _)| BLADES[raw.blade])
        .column("share, raw (%)", Kind::Percent, |(raw, _)| raw.share)
        .column("share, CBN (%)", Kind::Percent, |(_, even)| even.share)
        .column("decides, raw (%)", Kind::Percent, |(raw, _)| raw.decides)
        .column("decides, CBN (%)", Kind::Percent, |(_, even)| even.decides)
        .build()
        .note(format!(
            "{drawn}Share: of the composite's coefficients. Decides: how often the composite's best candidate is the blade's own."
        ));
    let chart = |ordinate: &str, of: fn(&Voice) -> f64| {
        let rescaled = format!("scale of the {} blade", BLADES[settings.rescaled]);
        let series = [("without CBN", raw), ("with CBN", normalized)].map(|(name, voices)| {
            let own = voices.iter().filter(|voice| voice.blade == settings.rescaled);
            let (x, y) = own.map(|voice| (voice.scale, of(voice))).unzip();
            Series::line(name, x, y)
        });
        let share = Axis { range: Some([-0.02, 1.02]), percent: true, ..Axis::new(ordinate) };
        Lines::new(Axis { log: true, ..Axis::new(rescaled) }, share, series.to_vec())
    };
    let panels = [
        ("Its share of the composite", chart("share of the sum", |voice| voice.share)),
        ("How often its best candidate is chosen", chart("share of batches", |voice| voice.decides)),
    ];
    let figure = Figure::panels("influence", "Without CBN the loudest blade decides; with it, the weights do", panels)
        .caption(format!(
            "Theorem 3. {drawn}(i) Without CBN its share is w·std(μ) over the sum of all three; (ii) with CBN it is its weight, ⅓, and \
             composites do not change at all. Both were checked in every batch at every scale, for every blade."
        ))
        .behind(table.clone());
    let section = Section::new("influence", "Influence with and without CBN").figure(figure);
    Exhibit { section, tables: vec![table] }
}
