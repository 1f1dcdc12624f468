use super::{At, Context, Ledger, Table};
use crate::report::AXES;
use crate::stats::{MOST_PERMUTED, Steering};
use crate::table::Kind;

/// Which weight belongs to which axis: a name, per axis of [`AXES`] the place in (helpfulness, honesty, harmlessness), and whether the weights
/// are those of the configurations' names, which have two decimals.
const PAIRINGS: [(&str, [usize; 3], bool); 2] = [
    // Quality, safety, honesty follow helpfulness, harmlessness, honesty.
    ("as labelled", [0, 2, 1], false),
    // What the published table follows from.
    ("safety with w2, honesty with w3", [0, 1, 2], true),
];

/// Whether achieved axes follow requested weights, per axis and pooled; of the paper's results also as its table has it.
pub(super) fn table(context: &Context<'_>, ledger: &mut Ledger) -> Table {
    let pairings = if context.of_the_paper { &PAIRINGS[..] } else { &PAIRINGS[..1] };
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
    for method in &context.sweep.methods {
        let frontier = context.sweep.frontier(method);
        let achieved: Vec<[f64; 3]> = frontier.iter().map(|(_, axes)| *axes).collect();
        for &(reading, pairing, rounded) in pairings {
            let seen = |weight: f64| if rounded { (weight * 100.0).round() / 100.0 } else { weight };
            let weights: Vec<[f64; 3]> = frontier.iter().map(|(point, _)| pairing.map(|k| seen(point.weights[k]))).collect();
            let steering = Steering::of(&weights, &achieved, context.resampling.seed);
            let place = |part| At { source: "tab:steerability-full", subject: &method.name, part, reading };
            for (axis, found) in AXES.into_iter().zip(&steering.axes) {
                let Some(found) = found else { continue };
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
                    weights.len().into(),
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
        .note("As labelled: quality with helpfulness, safety with harmlessness, honesty with honesty, from weights (help, honest, harmless).");
    if context.of_the_paper {
        table.note("The published table follows from the other pairing: safety against the honesty weight and the reverse, thirds taken for 0.33.")
    } else {
        table
    }
}
