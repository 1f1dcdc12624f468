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
pub(super) use self::fluency::FluencyRow;
pub(super) use self::geometry::ShapeRow;
pub(super) use self::methods::MethodRow;
pub(super) use self::normalization::NormalizationRow;
pub(super) use self::steering::SteeringRow;
use super::contrast::LEVEL;
use super::published::{self, At, Ledger};
use super::{Cell, Comparison, Contrast, Mechanism, Method, RawResults, ReportError, Resampling, Sweep, Table};
use crate::objectives::Objectives;
use crate::stats::{Bootstrap, Interval, PUBLISHED_FLOOR, harmonic_mean};

/// What cells are compared by: a name, and the figure of a cell.
struct Measure {
    name: String,
    of: Box<Measured>,
}

/// A figure of a cell; `None` where it has none.
type Measured = dyn Fn(&Cell) -> Option<f64>;

impl Measure {
    fn new(name: impl Into<String>, of: impl Fn(&Cell) -> Option<f64> + 'static) -> Self {
        Self { name: name.into(), of: Box::new(of) }
    }

    /// The score on the rubric of that place.
    fn rubric(objectives: &Objectives, place: usize) -> Self {
        Self::new(objectives.rubrics[place].label(), move |cell| cell.scores.rubrics[place])
    }

    /// The score on the objective of that place.
    fn objective(objectives: &Objectives, place: usize) -> Self {
        let known = move |cell: &Cell| Some(cell.scores.objectives[place]).filter(|score| !score.is_nan());
        Self::new(objectives.objectives[place].name.as_str(), known)
    }
}

/// Everything the tables of a sweep are made from.
struct TableContext<'a> {
    sweep: &'a Sweep,
    reference: &'a Method,
    /// The same scheme without normalisation, if it was run.
    raw: Option<&'a Method>,
    /// Whether the results are the paper's own.
    of_the_paper: bool,
    resampling: Resampling,
}

/// What the tables hold, typed: charts and sentences are made from it.
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
    /// Of the paper's own results.
    pub(super) comparisons: Vec<Comparison>,
}

/// All tables, in reading order, and the rows that they and the charts are made from.
pub(super) fn all(results: &RawResults, reference: &str, resampling: Resampling) -> Result<(Vec<Table>, Rows), ReportError> {
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
        let (own, rows) = ablations::tables(ablation, &sweep.objectives, resampling, &mut ledger);
        tables.extend(own);
        ablations.push(rows);
    }
    let steering = steering::rows(&context, &mut ledger);
    tables.push(steering::table(&context, &steering));
    let cut = results.recorded.as_ref().map_or(&[][..], |recorded| &recorded.cut);
    let mechanisms = Mechanism::by_arm(&results.steps);
    tables.extend(mechanism::tables(&mechanisms, cut, &mut ledger));
    tables.extend(results.recorded.as_ref().map(throughput::table));
    tables.extend(results.recorded.as_ref().and_then(settings::table));
    tables.push(examples::table(&context));
    // A method of one's own may be called like one of the paper's.
    let comparisons = if of_the_paper { ledger.comparisons() } else { Vec::new() };
    tables.extend(published::tables(&comparisons));
    let rows = Rows { methods, fluency, shapes, points, normalization, leads, ablations, steering, mechanisms, comparisons };
    Ok((tables, rows))
}

impl TableContext<'_> {
    /// The methods that the reference is compared with, the arm without normalisation last.
    fn others(&self) -> Vec<&Method> {
        self.rivals().chain(self.raw).collect()
    }

    /// The methods that are not the reference scheme in another setting.
    fn rivals(&self) -> impl Iterator<Item = &Method> {
        self.sweep.rivals(&self.reference.name)
    }

    /// The harmonic F1 of a cell as contrasts take it: under the published floor in the paper's own
    /// results.
    fn f1(&self) -> fn(&Cell) -> Option<f64> {
        if self.of_the_paper { published_f1 } else { exact_f1 }
    }

    /// `first` minus `second` by what `measure` says of a cell. Ties are ties, but where the
    /// paper's own results are to give the published figures.
    fn pair(&self, first: &[Cell], second: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> Contrast {
        let contrast = Contrast::of(first, second, measure);
        if self.of_the_paper { contrast } else { contrast.snapped() }
    }

    /// Reference minus `other` in the harmonic F1 of a cell.
    fn contrast(&self, other: &Method) -> Contrast {
        self.pair(&self.reference.cells, &other.cells, self.f1())
    }

    /// The same under the published floor. What the floor makes of two cells with an axis at zero
    /// may lie 1e-15 apart, of some 1e-6: ties are those up to a share of the two.
    fn floored(&self, other: &Method) -> Contrast {
        /// Of F1: more than rounding errors, also those of a logarithm, and less than what a
        /// millionth of an axis makes.
        const SHARE: f64 = 1e-13;
        let of = |measure: &dyn Fn(&Cell) -> Option<f64>| Contrast::of(&self.reference.cells, &other.cells, measure);
        let mut contrast = of(&published_f1);
        let shares = of(&|cell| published_f1(cell).map(f64::ln));
        for (difference, share) in contrast.differences.iter_mut().zip(&shares.differences) {
            // Twelve digits, so that differences of one size have one rank.
            *difference = if share.abs() < SHARE { 0.0 } else { format!("{difference:.11e}").parse().unwrap_or(*difference) };
        }
        contrast
    }

    /// What is done with an axis at zero, for notes.
    fn floor(&self) -> &'static str {
        if self.of_the_paper { "axes floored at 1e-6" } else { "0 where an axis is" }
    }
}

/// The harmonic mean of a cell's axes, floored as published.
fn published_f1(cell: &Cell) -> Option<f64> {
    cell.scores.complete().map(|axes| harmonic_mean(axes, PUBLISHED_FLOOR))
}

/// The harmonic mean of a cell's axes, zero where one is.
fn exact_f1(cell: &Cell) -> Option<f64> {
    cell.scores.complete().map(|axes| harmonic_mean(axes, 0.0))
}

/// How far the end of a percentile interval may move between two sets of resamples.
///
/// The 2.5% quantile of B draws from a normal law of deviation s has the standard error
/// s·√(p(1−p)/B)/φ(z) = 2.67 s/√B; two sets differ by √2 of that, and three standard errors of the
/// difference are 11.3 s/√B.
fn noise(bootstrap: &Bootstrap, resampling: Resampling) -> f64 {
    11.3 * bootstrap.standard_error() / (resampling.resamples as f64).sqrt()
}

/// The mean of what `measure` says of cells, blanks left out.
fn mean_of(cells: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> f64 {
    crate::stats::mean(&cells.iter().filter_map(measure).collect::<Vec<_>>())
}

/// Notes mean and interval of a contrast, in the direction that is published.
fn note_contrast(ledger: &mut Ledger, at: &At<'_>, bootstrap: &Bootstrap, resampling: Resampling, sign: f64) -> Interval {
    let interval = bootstrap.percentile(LEVEL);
    let (low, high) = if sign < 0.0 { (-interval.high, -interval.low) } else { (interval.low, interval.high) };
    ledger.note(at, "delta", sign * bootstrap.estimate());
    ledger.note_noisy(at, "low", low, noise(bootstrap, resampling));
    ledger.note_noisy(at, "high", high, noise(bootstrap, resampling));
    interval
}
