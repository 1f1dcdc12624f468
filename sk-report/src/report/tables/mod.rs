//! The tables of a report, one file each.

mod ablations;
mod axes;
mod classifiers;
mod clustering;
mod configurations;
mod contrasts;
mod conventions;
mod examples;
mod fluency;
mod geometry;
mod mechanism;
mod methods;
mod normalization;
mod settings;
mod steering;
mod throughput;

pub(super) use self::ablations::{AblationRows, ArmRow};
pub(super) use self::axes::PointRow;
pub(super) use self::clustering::LeadRow;
pub(super) use self::configurations::SUMMARY;
pub(super) use self::fluency::FluencyRow;
pub(super) use self::geometry::ShapeRow;
pub(super) use self::methods::MethodRow;
pub(super) use self::normalization::NormalizationRow;
pub(super) use self::steering::SteeringRow;
use super::contrast::LEVEL;
use super::published::{self, At, Comparison, Ledger};
use super::{Cell, Contrast, Mechanism, Method, RawResults, Report, ReportError, Resampling, Sweep, Table};
use crate::objectives::Objectives;
use crate::stats::{Bootstrap, Interval, PUBLISHED_FLOOR};

/// A measure by which cells are compared: its name, and its value for a cell.
struct Measure {
    name: String,
    of: Box<Measured>,
}

/// The value of a measure for a cell; `None` if the cell lacks it.
type Measured = dyn Fn(&Cell) -> Option<f64>;

impl Measure {
    fn new(name: impl Into<String>, of: impl Fn(&Cell) -> Option<f64> + 'static) -> Self {
        Self { name: name.into(), of: Box::new(of) }
    }

    /// Creates the measure of the rubric at this index.
    fn rubric(objectives: &Objectives, place: usize) -> Self {
        Self::new(objectives.rubrics[place].label(), move |cell| cell.scores.rubrics[place])
    }

    /// Creates the measure of the objective at this index.
    fn objective(objectives: &Objectives, place: usize) -> Self {
        let known = move |cell: &Cell| Some(cell.scores.objectives[place]).filter(|score| !score.is_nan());
        Self::new(objectives.objectives[place].name.as_str(), known)
    }
}

/// The inputs of the tables.
struct TableContext<'a> {
    sweep: &'a Sweep,
    reference: &'a Method,
    /// The same scheme without normalisation, if it was run.
    raw: Option<&'a Method>,
    /// Whether the results are the paper's own.
    of_the_paper: bool,
    resampling: Resampling,
}

/// The typed rows of the tables, from which charts and sentences are made.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) methods: Vec<MethodRow>,
    pub(super) fluency: Vec<FluencyRow>,
    pub(super) shapes: Vec<ShapeRow>,
    pub(super) points: Vec<PointRow>,
    pub(super) normalization: Vec<NormalizationRow>,
    pub(super) leads: Vec<LeadRow>,
    pub(super) ablations: Vec<AblationRows>,
    pub(super) steering: Vec<SteeringRow>,
    pub(super) mechanisms: Vec<Mechanism>,
    /// Empty unless the results are the paper's own.
    pub(super) comparisons: Vec<Comparison>,
}

impl Report {
    /// Computes every table for which the results suffice.
    ///
    /// # Errors
    /// If `reference` is not among the methods.
    pub fn of(results: &RawResults, reference: &str, resampling: Resampling) -> Result<Self, ReportError> {
        let sweep = &results.sweep;
        let raw = sweep.without_normalization(reference);
        let of_the_paper = results.is_of_the_paper();
        let context = TableContext { sweep, reference: sweep.method(reference)?, raw, of_the_paper, resampling };
        let mut ledger = Ledger::default();
        let methods = methods::rows(&context, &mut ledger);
        let mut tables = vec![methods::table(&context, &methods)];
        tables.extend(contrasts::table(&context, &mut ledger));
        let fluency = fluency::rows(&context);
        tables.extend(fluency::table(&context, &fluency));
        tables.extend(classifiers::table(&context, &results.classified));
        let shapes = geometry::rows(&context, &mut ledger);
        tables.push(geometry::table(&context, &shapes));
        let points = axes::rows(&context, &mut ledger);
        tables.push(configurations::table(&context, &points, &mut ledger));
        tables.push(axes::table(&context, &points));
        let normalization = normalization::rows(&context, &mut ledger);
        tables.extend(normalization::table(&context, &normalization));
        let leads = clustering::rows(&context);
        tables.extend(clustering::table(&context, &leads));
        tables.extend(conventions::table(&context));
        let mut ablations = Vec::new();
        for ablation in &results.ablations {
            let id = ablations::id(&ablation.name, &tables);
            let (own, rows) = ablations::tables(ablation, id, &sweep.objectives, resampling, &mut ledger);
            tables.extend(own);
            ablations.push(rows);
        }
        let steering = steering::rows(&context, &mut ledger);
        tables.extend((!steering.is_empty()).then(|| steering::table(&context, &steering)));
        let cut = results.recorded.as_ref().map_or(&[][..], |recorded| &recorded.cut);
        let mechanisms = Mechanism::by_arm(&results.steps);
        tables.extend(mechanism::tables(&mechanisms, cut, &mut ledger));
        tables.extend(results.recorded.as_ref().map(throughput::table));
        tables.extend(results.recorded.as_ref().and_then(settings::table));
        tables.push(examples::table(&context));
        // The user's own methods may have the names of the paper's.
        let comparisons = if of_the_paper { ledger.comparisons() } else { Vec::new() };
        tables.extend(published::tables(&comparisons));
        let rows = Rows { methods, fluency, shapes, points, normalization, leads, ablations, steering, mechanisms, comparisons };
        Ok(Self { reference: reference.to_owned(), resamples: resampling.resamples, seed: resampling.seed, tables, rows })
    }
}

impl TableContext<'_> {
    /// Returns the methods that the reference is compared with, the arm without normalisation last.
    fn others(&self) -> Vec<&Method> {
        self.rivals().chain(self.raw).collect()
    }

    /// Returns the methods that are not the reference scheme in another setting.
    fn rivals(&self) -> impl Iterator<Item = &Method> {
        self.sweep.rivals(&self.reference.name)
    }

    /// Returns the heading of a column of weight vectors, which differs from the name of any
    /// objective or blade.
    fn weights_heading(&self) -> String {
        format!("weights of {}", self.sweep.blades.join("/"))
    }

    /// Returns the floor under the axes in the F1 of cells: the published one for the paper's own
    /// results.
    fn floor(&self) -> f64 {
        if self.of_the_paper { PUBLISHED_FLOOR } else { 0.0 }
    }

    /// Pairs `first` minus `second` by `measure`. Differences are rounded so that ties are exact,
    /// except for the paper's own results, which must give the published numbers.
    fn pair(&self, first: &[Cell], second: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> Contrast {
        let contrast = Contrast::of(first, second, measure);
        if self.of_the_paper { contrast } else { contrast.snapped() }
    }

    /// Returns the contrast reference minus `other` in the harmonic F1 of a cell.
    fn contrast(&self, other: &Method) -> Contrast {
        self.pair(&self.reference.cells, &other.cells, |cell| cell.f1(self.floor()))
    }

    /// Returns the same contrast without a floor: F1 is 0 where an axis is.
    fn exact(&self, other: &Method) -> Contrast {
        Contrast::of(&self.reference.cells, &other.cells, |cell| cell.f1(0.0)).snapped()
    }

    /// Returns the same contrast under the published floor. Two cells with an axis at zero have F1
    /// of about 1e-6, so that rounding errors of 1e-15 are not caught by an absolute tolerance.
    /// Ties are therefore decided by relative difference.
    fn floored(&self, other: &Method) -> Contrast {
        /// The relative difference of F1 below which cells tie. It exceeds rounding errors,
        /// including those of the logarithm, and is below the effect of a floor of 1e-6.
        const SHARE: f64 = 1e-13;
        let of = |measure: &dyn Fn(&Cell) -> Option<f64>| Contrast::of(&self.reference.cells, &other.cells, measure);
        let mut contrast = of(&|cell| cell.f1(PUBLISHED_FLOOR));
        let shares = of(&|cell| cell.f1(PUBLISHED_FLOOR).map(f64::ln));
        for (difference, share) in contrast.differences.iter_mut().zip(&shares.differences) {
            // Rounding to twelve digits gives equal differences equal ranks.
            *difference = if share.abs() < SHARE { 0.0 } else { format!("{difference:.11e}").parse().unwrap_or(*difference) };
        }
        contrast
    }

    /// Describes the treatment of an axis at zero, for notes.
    fn treatment(&self) -> &'static str {
        if self.of_the_paper { "axes floored at 1e-6" } else { "0 where an axis is" }
    }
}

/// Returns the note that percentile intervals over few prompts are too narrow, if one of these
/// numbers of prompts is below 20. A single prompt has no interval.
pub(super) fn few_prompts(mut prompts: impl Iterator<Item = usize>) -> Option<&'static str> {
    prompts.any(|count| (2..20).contains(&count)).then_some(
        "Percentile intervals over fewer than 20 prompts are too narrow. In simulations, 95% intervals contained the mean in 90% of \
         samples of 10 prompts, and in 80% of samples of 4.",
    )
}

/// Returns the mean of `measure` over cells, missing values left out.
fn mean_of(cells: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> f64 {
    crate::stats::mean(&cells.iter().filter_map(measure).collect::<Vec<_>>())
}

/// Records mean and confidence interval of a contrast, with the published sign.
fn note_contrast(ledger: &mut Ledger, at: &At<'_>, bootstrap: &Bootstrap, resampling: Resampling, sign: f64) -> Interval {
    let interval = bootstrap.percentile(LEVEL);
    let Interval { low, high } = if sign < 0.0 { -interval } else { interval };
    // The 2.5% quantile of B draws from a normal distribution with standard deviation s has the
    // standard error s·√(p(1−p)/B)/φ(z) = 2.67 s/√B. The difference of two such quantiles has √2
    // times that. Three standard errors of the difference are 11.3 s/√B.
    let noise = 11.3 * bootstrap.standard_error() / (resampling.resamples as f64).sqrt();
    ledger.note(at, "delta", sign * bootstrap.estimate());
    ledger.note_noisy(at, "low", low, noise);
    ledger.note_noisy(at, "high", high, noise);
    interval
}
