use super::{At, Ledger, Table, TableContext};
use crate::stats::{MOST_PERMUTED, Steering};
use crate::table::Kind;

/// Which weight belongs to which axis.
struct Pairing {
    /// The name in the table.
    reading: &'static str,
    /// The places of objectives, and of their weights.
    places: Vec<(usize, usize)>,
    /// Whether the weights are those of the configurations' names, which have two decimals.
    rounded: bool,
}

/// Whether achieved axes follow requested weights, per axis and pooled; of the paper's results also
/// as its table has it.
pub(super) fn table(context: &TableContext<'_>, ledger: &mut Ledger) -> Table {
    let sweep = context.sweep;
    let names = sweep.objectives.names();
    let mut pairings = vec![Pairing { reading: "as labelled", places: sweep.steered(), rounded: false }];
    if context.of_the_paper {
        // What the published table follows from.
        let places = vec![(0, 0), (1, 1), (2, 2)];
        pairings.push(Pairing { reading: "safety with w2, honesty with w3", places, rounded: true });
    }
    let columns = [
        ("method", Kind::Text),
        ("weights", Kind::Text),
        ("axis", Kind::Text),
        ("n", Kind::Count),
        ("r_s", Kind::Signed(3)),
        ("p, t", Kind::PValue),
        ("p, by permutation", Kind::PValue),
        ("slope", Kind::Signed(4)),
        ("range", Kind::Number(4)),
    ];
    let mut table = Table::new("steering", "Rank correlation of requested weight and achieved axis", &columns);
    for method in &sweep.methods {
        let points = sweep.achieved(method);
        let is_judged = |place: usize| points.iter().any(|(_, _, axes)| !axes[place].is_nan());
        for &Pairing { reading, ref places, rounded } in &pairings {
            let places: Vec<(usize, usize)> = places.iter().copied().filter(|&(objective, _)| is_judged(objective)).collect();
            let seen = |weight: f64| if rounded { (weight * 100.0).round() / 100.0 } else { weight };
            let weights = |weights: &[f64]| places.iter().map(|&(_, blade)| seen(weights[blade])).collect::<Vec<f64>>();
            let axes = |axes: &[f64]| places.iter().map(|&(objective, _)| axes[objective]).collect::<Vec<f64>>();
            let (weights, achieved): (Vec<_>, Vec<_>) =
                points.iter().map(|(point, _, achieved)| (weights(&point.weights), axes(achieved))).unzip();
            let steering = Steering::of(&weights, &achieved, context.resampling.seed);
            let place = |part| At { source: "tab:steerability-full", subject: &method.name, part, reading };
            for (&(objective, _), found) in places.iter().zip(&steering.axes) {
                let Some(found) = found else { continue };
                let axis = names[objective];
                let at = place(axis);
                let spearman = found.spearman;
                ledger.note(&at, "r_s", spearman.rho);
                ledger.note(&at, "p", spearman.p);
                ledger.note(&at, "slope", found.slope);
                ledger.note(&at, "range", found.range);
                table.row(vec![
                    method.name.as_str().into(),
                    reading.into(),
                    axis.into(),
                    found.n.into(),
                    spearman.rho.into(),
                    spearman.p.into(),
                    spearman.exact_p.into(),
                    found.slope.into(),
                    found.range.into(),
                ]);
            }
            if let Some(pooled) = steering.pooled {
                let at = place("pooled");
                ledger.note(&at, "r_s", pooled.rho);
                ledger.note(&at, "p", pooled.p);
                ledger.note(&at, "slope", pooled.slope);
                table.row(vec![
                    method.name.as_str().into(),
                    reading.into(),
                    "pooled".into(),
                    pooled.n.into(),
                    pooled.rho.into(),
                    pooled.p.into(),
                    pooled.permutation_p.into(),
                    pooled.slope.into(),
                    None::<f64>.into(),
                ]);
            }
        }
    }
    let table = table
        .note("Pooled: axes standardised first. \"p, t\" takes the pairs for independent; \"p, by permutation\" permutes the weight vectors,")
        .note(format!("in all ways for up to {MOST_PERMUTED} points, and of more, pooled only, in 99,999 drawn ones: no less than 2.0e-5 can come out."))
        .note(format!("As labelled: {}, from weights ({}).", labelled(context), sweep.blades.join(", ")));
    if context.of_the_paper {
        table.note("The published table follows from the other pairing: safety against the honesty weight and the reverse, thirds taken for 0.33.")
    } else {
        table
    }
}

/// Which blade each axis belongs to, as `quality with helpfulness, safety with harmlessness`.
fn labelled(context: &TableContext<'_>) -> String {
    let (sweep, names) = (context.sweep, context.sweep.objectives.names());
    let pairs =
        sweep.steered().into_iter().map(|(objective, blade)| format!("{} with {}", names[objective], sweep.blades[blade]));
    pairs.collect::<Vec<_>>().join(", ")
}
