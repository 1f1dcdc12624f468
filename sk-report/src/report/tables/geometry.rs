use super::{At, Ledger, Table, TableContext};
use crate::stats::{Distance, front, hypervolume, spacing};
use crate::table::Kind;

/// Maximum number of axes for which hypervolumes are computed. The time grows exponentially with it.
const MOST_AXES: usize = 8;

/// Hypervolume and spacing of a method's frontier.
#[derive(Debug, Clone)]
pub(in crate::report) struct ShapeRow {
    pub(in crate::report) method: String,
    points: usize,
    on_front: usize,
    /// NaN if the frontier has no point or too many axes.
    pub(in crate::report) hypervolume: f64,
    /// The spacing as published, and that of Schott.
    spacings: [Option<f64>; 2],
}

/// Computes one row per method.
pub(super) fn rows(context: &TableContext<'_>, ledger: &mut Ledger) -> Vec<ShapeRow> {
    let origin = vec![0.0; context.sweep.objectives.objectives.len()];
    let row = |method: &crate::report::Method| {
        let points: Vec<Vec<f64>> = context.sweep.frontier(method).into_iter().map(|(_, axes)| axes).collect();
        let on_front = front(&points).len();
        // An empty frontier has no volume, rather than a volume of zero.
        let has_volume = !points.is_empty() && origin.len() <= MOST_AXES;
        let volume = if has_volume { hypervolume(&points, &origin) } else { f64::NAN };
        let [published, schott] = [Distance::Published, Distance::Schott].map(|distance| spacing(&points, distance));
        for source in ["tab:frontier-geometry", "tab:main"] {
            let at = At { source, subject: &method.name, part: "", reading: "" };
            ledger.note(&at, "on front", on_front as f64);
            ledger.note(&At { reading: "reference at the origin", ..at }, "hypervolume", volume);
            ledger.note(&At { reading: "L2, population std", ..at }, "spacing", published.unwrap_or(f64::NAN));
            ledger.note(&At { reading: "Schott: L1, n − 1", ..at }, "spacing", schott.unwrap_or(f64::NAN));
        }
        ShapeRow {
            method: method.name.clone(),
            points: points.len(),
            on_front,
            hypervolume: volume,
            spacings: [published, schott],
        }
    };
    context.sweep.methods.iter().map(row).collect()
}

/// The table of frontier shapes.
pub(super) fn table(context: &TableContext<'_>, rows: &[ShapeRow]) -> Table {
    let table = Table::of("geometry", "Frontiers of mean axes, one point per weight vector", rows)
        .column("method", Kind::Text, |row| row.method.as_str())
        .column("points", Kind::Count, |row| row.points)
        .column("on front", Kind::Count, |row| row.on_front)
        .column("hypervolume", Kind::Number(4), |row| row.hypervolume)
        .columns(["spacing, as published", "spacing, Schott"], Kind::Number(4), |row, rule| row.spacings[rule])
        .build();
    let volumes = if context.of_the_paper {
        "Hypervolume above the origin; the published ones follow from no reference point with non-negative coordinates."
            .to_owned()
    } else if context.sweep.objectives.objectives.len() > MOST_AXES {
        format!("Hypervolumes are computed for up to {MOST_AXES} objectives.")
    } else {
        "Hypervolume above the origin.".to_owned()
    };
    table.note(volumes).note(
        "Spacing over all points. As published: deviation (n) of L2 distances to the nearest neighbour; Schott's: L1 and n − 1.",
    )
}
