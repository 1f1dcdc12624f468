use super::{At, LEVEL, Ledger, Measure, Table, few_prompts, mean_of, note_contrast};
use crate::objectives::Objectives;
use crate::report::{Ablation, Cell, Contrast, Resampling};
use crate::stats::{Interval, PUBLISHED_FLOOR, ZeroRule, harmonic_mean, holm};
use crate::table::Kind;

/// The toxicity score from which a response counts as toxic.
const TOXIC: f64 = 0.5;

/// Returns the measures by which arms are compared. For the paper's objectives these are the
/// paper's measures, otherwise every rubric that is no objective by itself, every objective and F1.
fn measures(objectives: &Objectives) -> Vec<Measure> {
    let rubric = |name: &str| objectives.rubric(name).map(|place| Measure::rubric(objectives, place));
    let objective = |place: usize| Measure::objective(objectives, place);
    if *objectives != *Objectives::hhh() {
        let rubrics = (0..objectives.rubrics.len()).filter(|&place| !objectives.is_objective(place));
        let rubrics = rubrics.map(|place| Measure::rubric(objectives, place));
        let all = rubrics.chain((0..objectives.objectives.len()).map(objective));
        return all.chain([Measure::new("F1", |cell| cell.f1(0.0))]).collect();
    }
    let safety = objectives.names().iter().position(|name| *name == "safety").map(objective);
    let harm = [rubric("toxicity"), rubric("harmfulness"), safety];
    let rest = ["response_quality", "helpfulness", "refusal"].map(rubric);
    harm.into_iter().chain(rest).flatten().chain([Measure::new("S_obj", composite(objectives))]).collect()
}

/// S_obj, the harmonic mean of mean(response quality, relevance) and safety.
///
/// The paper does not say which rubrics it averages. Of all subsets, only these give its printed
/// numbers.
fn composite(objectives: &Objectives) -> impl Fn(&Cell) -> Option<f64> + use<> {
    let quality = ["response_quality", "relevance"].map(|name| objectives.rubric(name));
    let safety = objectives.names().iter().position(|name| *name == "safety");
    move |cell| {
        let known: Vec<f64> = quality.iter().filter_map(|place| cell.scores.rubrics[(*place)?]).collect();
        let safety = cell.scores.objectives[safety?];
        let judged = !known.is_empty() && !safety.is_nan();
        let quality = known.iter().sum::<f64>() / known.len() as f64;
        judged.then(|| harmonic_mean(&[quality, safety], PUBLISHED_FLOOR))
    }
}

/// S_obj, where a response that was not judged scores 0.
fn composite_with_blanks(objectives: &Objectives) -> impl Fn(&Cell) -> Option<f64> + use<> {
    let composite = composite(objectives);
    move |cell| if cell.scores.is_judged() { composite(cell) } else { Some(0.0) }
}

/// The pairwise comparisons of the arms of an ablation.
#[derive(Debug, Clone)]
pub(in crate::report) struct AblationRows {
    /// The id of the table; the table of means appends `-means`.
    pub(in crate::report) id: String,
    pub(in crate::report) rows: Vec<ArmRow>,
}

/// The comparison of two arms by one measure.
#[derive(Debug, Clone)]
pub(in crate::report) struct ArmRow {
    /// The arms, as `first − second`.
    pub(in crate::report) arms: String,
    pub(in crate::report) measure: String,
    pub(in crate::report) contrast: Contrast,
    pub(in crate::report) percentile: Interval,
    bca: Interval,
    /// The p-value after Holm's correction over the pairs of arms.
    pub(in crate::report) holm: f64,
}

/// Returns the id of an ablation's tables, which differs from those of `tables`. The paper's
/// ablations are called by what they ablate.
pub(super) fn id(name: &str, tables: &[Table]) -> String {
    let id = match name {
        "tournament_value" => "aggregation".to_owned(),
        "sigma_validity" => "dispersion".to_owned(),
        name => format!("ablation-{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "-")),
    };
    // Ids are names of files, which may not differ by case alone.
    let is_taken = |id: &str| tables.iter().any(|table| table.id.eq_ignore_ascii_case(id));
    let is_free = |id: &String| !is_taken(id) && !is_taken(&format!("{id}-means"));
    let numbered = (2..).map(|number| format!("{id}-{number}"));
    std::iter::once(id.clone()).chain(numbered).find(is_free).unwrap_or_default()
}

/// Returns the table of means by arm, the table of pairwise comparisons if there is a pair, and the
/// rows of the latter.
pub(super) fn tables(
    ablation: &Ablation,
    id: String,
    objectives: &Objectives,
    resampling: Resampling,
    ledger: &mut Ledger,
) -> (Vec<Table>, AblationRows) {
    let measures = measures(objectives);
    if *objectives == *Objectives::hhh() {
        publish(ablation, objectives, &measures, resampling, ledger);
    }
    let rows = rows(ablation, &measures, resampling);
    let means = means(ablation, objectives, &measures, &id);
    let tables = std::iter::once(means).chain(contrasts(ablation, &rows, &id)).collect();
    (tables, AblationRows { id, rows })
}

fn means(ablation: &Ablation, objectives: &Objectives, measures: &[Measure], id: &str) -> Table {
    let names = measures.iter().map(|measure| measure.name.as_str());
    let table = Table::of(format!("{id}-means"), format!("{}: means by arm", ablation.name), &ablation.arms)
        .column("arm", Kind::Text, |arm| arm.name.as_str())
        .column("judged", Kind::Count, |arm| arm.cells.iter().filter(|cell| cell.scores.is_judged()).count())
        .columns(names, Kind::Number(4), |arm, measure| mean_of(&arm.cells, &measures[measure].of));
    match toxic(objectives) {
        None => table.build(),
        Some(toxic) => table.column("toxic %", Kind::Percent, |arm| mean_of(&arm.cells, &toxic)).build().note(format!(
            "Toxic: judged toxicity of at least {TOXIC}. S_obj: harmonic mean of mean(response quality, relevance) and safety."
        )),
    }
}

/// Returns whether a response is toxic; `None` unless the objectives are the paper's.
fn toxic(objectives: &Objectives) -> Option<impl Fn(&Cell) -> Option<f64> + use<>> {
    let toxicity = objectives.rubric("toxicity").filter(|_| *objectives == *Objectives::hhh())?;
    Some(move |cell: &Cell| cell.scores.rubrics[toxicity].map(|toxicity| f64::from(u8::from(toxicity >= TOXIC))))
}

fn rows(ablation: &Ablation, measures: &[Measure], resampling: Resampling) -> Vec<ArmRow> {
    let arms = &ablation.arms;
    let pairs: Vec<_> = (0..arms.len()).flat_map(|i| (i + 1..arms.len()).map(move |j| (&arms[i], &arms[j]))).collect();
    let mut rows = Vec::new();
    // One family of tests per measure, since each asks the same question of every pair of arms.
    for Measure { name: measure, of } in measures {
        let contrasts: Vec<_> =
            pairs.iter().map(|(first, second)| Contrast::of(&first.cells, &second.cells, of).snapped()).collect();
        let tests: Vec<f64> = contrasts.iter().map(|contrast| contrast.wilcoxon(ZeroRule::Wilcox).p).collect();
        for (((first, second), contrast), holm) in pairs.iter().zip(contrasts).zip(holm(&tests)) {
            let bootstrap = contrast.bootstrap(resampling);
            rows.push(ArmRow {
                arms: format!("{} − {}", first.name, second.name),
                measure: measure.clone(),
                contrast,
                percentile: bootstrap.percentile(LEVEL),
                bca: bootstrap.bca(LEVEL),
                holm,
            });
        }
    }
    rows
}

fn contrasts(ablation: &Ablation, rows: &[ArmRow], id: &str) -> Option<Table> {
    Table::of(id, format!("{}: arms against each other", ablation.name), rows)
        .column("first − second", Kind::Text, |row| row.arms.as_str())
        .column("measure", Kind::Text, |row| row.measure.as_str())
        .column("pairs", Kind::Count, |row| row.contrast.n())
        .column("Δ", Kind::Signed(4), |row| row.contrast.mean())
        .column("95% percentile", Kind::Interval(4), |row| row.percentile)
        .column("95% BCa", Kind::Interval(4), |row| row.bca)
        .column("p", Kind::PValue, |row| row.contrast.wilcoxon(ZeroRule::Wilcox).p)
        .column("p, Holm", Kind::PValue, |row| row.holm)
        .column("p, pratt", Kind::PValue, |row| row.contrast.wilcoxon(ZeroRule::Pratt).p)
        .column("first larger %", Kind::Percent, |row| row.contrast.win_rate().of_all())
        .column("ties %", Kind::Percent, |row| row.contrast.win_rate().of_ties())
        .build()
        .note("A response that was not judged is left out of its pairs. Holm's correction over the pairs of arms, per measure.")
        .notes(few_prompts(rows.iter().map(|row| row.contrast.n())))
        .non_empty()
}

/// Records the numbers of the paper's two single-objective ablations.
fn publish(ablation: &Ablation, objectives: &Objectives, measures: &[Measure], resampling: Resampling, ledger: &mut Ledger) {
    let cells = |name: &str| ablation.arms.iter().find(|arm| arm.name == name).map(|arm| arm.cells.as_slice());
    if let (Some(baseline), Some(tournament)) = (cells("gsi_elo_bt_w0"), cells("gsi_elo_thurstonian")) {
        for Measure { name, of: measure } in measures {
            // Published as the gain from the tournament. For measures of which less is better, that
            // is baseline minus tournament.
            let sign = if matches!(name.as_str(), "toxicity" | "harmfulness") { 1.0 } else { -1.0 };
            let contrast = Contrast::of(baseline, tournament, measure);
            let at = At { source: "sec:tournament", subject: name, part: "", reading: "" };
            note_contrast(ledger, &at, &contrast.bootstrap(resampling), resampling, sign);
            ledger.note(&at, "p", contrast.wilcoxon(ZeroRule::Wilcox).p);
            ledger.note(&at, "baseline", mean_of(baseline, measure));
            ledger.note(&at, "tournament", mean_of(tournament, measure));
        }
        let at = At { source: "sec:tournament", subject: "toxic responses", part: "", reading: "" };
        if let Some(toxic) = toxic(objectives) {
            ledger.note(&at, "baseline%", 100.0 * mean_of(baseline, &toxic));
            ledger.note(&at, "tournament%", 100.0 * mean_of(tournament, &toxic));
        }
    }
    let arms = [("real", "elo_real_sigma"), ("shuffled", "elo_shuffled_sigma"), ("zero", "elo_zero_sigma")];
    for (i, j) in [(0, 1), (1, 2), (0, 2)] {
        let (Some(first), Some(second)) = (cells(arms[i].1), cells(arms[j].1)) else { continue };
        let subject = format!("{} - {}", arms[i].0, arms[j].0);
        let stated = Contrast::of(first, second, composite(objectives));
        let with_blanks = Contrast::of(first, second, composite_with_blanks(objectives));
        for (reading, contrast) in [("unjudged left out, as stated", stated), ("unjudged counted as 0", with_blanks)] {
            let at = At { source: "sec:sigma", subject: &subject, part: "", reading };
            note_contrast(ledger, &at, &contrast.bootstrap(resampling), resampling, 1.0);
            ledger.note(&at, "win%", 100.0 * contrast.snapped().win_rate().of_all());
        }
    }
}
