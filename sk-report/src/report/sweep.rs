use std::cmp::Ordering;
use std::collections::HashSet;

use super::{ReportError, grouped};
use crate::objectives::{Objectives, Scores};
use crate::stats::{F1, harmonic_mean, mean_axes, snap};
use sk_scheme::suggest;

/// One judged response.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The index of the weight vector in the sweep.
    pub configuration: usize,
    /// The prompt.
    pub prompt: u32,
    /// The judge's scores.
    pub scores: Scores,
    /// 1/perplexity, if it was measured.
    pub fluency: Option<f64>,
}

impl Cell {
    /// Returns what identifies the cell within a method: the weight vector and the prompt.
    pub fn key(&self) -> (usize, u32) {
        (self.configuration, self.prompt)
    }

    /// Returns whether any axis was judged.
    pub fn is_judged(&self) -> bool {
        self.scores.objectives.iter().any(|score| !score.is_nan())
    }

    /// Returns the harmonic mean of the axes, each raised to at least `floor`; `None` if an axis
    /// was not judged.
    pub fn f1(&self, floor: f64) -> Option<f64> {
        self.scores.complete().map(|axes| harmonic_mean(axes, floor))
    }
}

/// A point of the weight simplex at which methods were run.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightVector {
    /// Its name in the records, the first if there are several.
    pub name: String,
    /// The weights, in the order of [`Sweep::blades`].
    pub weights: Vec<f64>,
}

/// The least and the most decimals of a weight in a label. Weights are rounded to the most.
const LEAST: usize = 2;
const MOST: usize = 9;

impl WeightVector {
    /// Formats the weights with at most `decimals` decimals.
    fn label(&self, decimals: usize) -> String {
        let short = |weight: &f64| format!("{weight:.decimals$}").trim_end_matches('0').trim_end_matches('.').to_owned();
        self.weights.iter().map(short).collect::<Vec<_>>().join("/")
    }
}

/// The judged responses of a method, or of an arm of an ablation.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// Methods × weight vectors × prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The objectives by which responses were judged.
    pub objectives: Objectives,
    /// The blades, in the order of weights.
    pub blades: Vec<String>,
    /// The weight vectors: vertices, then edges, then the interior, each in descending order of
    /// weights.
    pub points: Vec<WeightVector>,
    /// The methods, in descending order of the F1 of mean axes, those without one last.
    pub methods: Vec<Method>,
    /// Decimals of the weights in labels.
    decimals: usize,
}

/// Returns the least number of decimals, from [`LEAST`] to [`MOST`], with which no two points have
/// the same label; `MOST` if there is none.
fn decimals(points: &[WeightVector]) -> usize {
    let tells_apart = |decimals: &usize| {
        let mut seen = HashSet::new();
        points.iter().all(|point| seen.insert(point.label(*decimals)))
    };
    (LEAST..MOST).find(tells_apart).unwrap_or(MOST)
}

impl Sweep {
    /// Builds a sweep from rows of method, weight vector and cell. The `configuration` of the cells
    /// is ignored and assigned anew.
    ///
    /// The weights are in the order of `blades`. Weight vectors that differ only by rounding, such
    /// as thirds written with different digits, are merged, as are names of the same weights.
    pub fn of(objectives: &Objectives, blades: Vec<String>, mut rows: Vec<(String, WeightVector, Cell)>) -> Self {
        for (_, point, _) in &mut rows {
            point.weights.iter_mut().for_each(|weight| *weight = snap(*weight));
        }
        let named = grouped(rows.iter().map(|(_, point, _)| (&point.weights, &point.name)));
        let point =
            |(weights, names): (&Vec<f64>, Vec<&String>)| WeightVector { name: names[0].clone(), weights: weights.clone() };
        let mut points: Vec<WeightVector> = named.into_iter().map(point).collect();
        let seated = |point: &WeightVector| point.weights.iter().filter(|&&weight| weight > 0.0).count();
        // Weights are numbers, so they always compare.
        let falling = |a: &WeightVector, b: &WeightVector| b.weights.partial_cmp(&a.weights).unwrap_or(Ordering::Equal);
        points.sort_by(|a, b| seated(a).cmp(&seated(b)).then_with(|| falling(a, b)));
        let placed = rows.into_iter().map(|(name, point, cell)| {
            let configuration = points.iter().position(|known| known.weights == point.weights).unwrap_or_default();
            (name, Cell { configuration, ..cell })
        });
        let methods = grouped(placed).into_iter().map(|(name, cells)| Method { name, cells }).collect();
        let decimals = decimals(&points);
        let mut sweep = Self { objectives: objectives.clone(), blades, points, methods, decimals };
        let f1 = |method: &Method| F1::OfMeanAxes.of(&sweep.axes(method), 0.0);
        let f1s: Vec<f64> = sweep.methods.iter().map(f1).collect();
        let mut ranked: Vec<(f64, Method)> = f1s.into_iter().zip(std::mem::take(&mut sweep.methods)).collect();
        // Methods without F1 come last.
        ranked.sort_by(|a, b| b.0.max(f64::NEG_INFINITY).total_cmp(&a.0.max(f64::NEG_INFINITY)));
        sweep.methods = ranked.into_iter().map(|(_, method)| method).collect();
        sweep
    }

    /// Formats the weights of a point as `0.5/0.5/0`, with two decimals, or with as many as tell the
    /// points of the sweep apart.
    pub fn label(&self, point: &WeightVector) -> String {
        point.label(self.decimals)
    }

    /// Returns the objective scores of a method's cells by weight vector, NaN where one is missing.
    /// Cells without any score are left out, as are weight vectors without cells.
    pub fn axes<'a>(&self, method: &'a Method) -> Vec<Vec<&'a [f64]>> {
        self.judged(method).into_iter().map(|(_, cells)| cells).collect()
    }

    /// Returns the indices of the weight vectors of a method, each with the number of judged cells
    /// and the mean of each objective. A mean is over the cells that have the objective, NaN if
    /// none has.
    ///
    /// Means are rounded by [`snap`], so that mathematically equal means do not differ by the order
    /// of summation.
    pub fn achieved(&self, method: &Method) -> Vec<(usize, usize, Vec<f64>)> {
        let round = |axes: Vec<f64>| axes.into_iter().map(snap).collect();
        self.means(method).into_iter().map(|(place, n, axes)| (place, n, round(axes))).collect()
    }

    /// Returns what a method [achieved](Self::achieved), not rounded.
    pub(super) fn means(&self, method: &Method) -> Vec<(usize, usize, Vec<f64>)> {
        self.judged(method).into_iter().map(|(place, cells)| (place, cells.len(), mean_axes(&cells))).collect()
    }

    /// Returns the points that a method [achieved](Self::achieved), except those that lack an
    /// objective.
    pub fn frontier(&self, method: &Method) -> Vec<(&WeightVector, Vec<f64>)> {
        let achieved = self.achieved(method).into_iter();
        let whole = achieved.filter(|(_, _, axes)| axes.iter().all(|axis| !axis.is_nan()));
        whole.map(|(place, _, axes)| (&self.points[place], axes)).collect()
    }

    fn judged<'a>(&self, method: &'a Method) -> Vec<(usize, Vec<&'a [f64]>)> {
        let at = |place| {
            let cells = method.cells.iter().filter(|cell| cell.configuration == place && cell.is_judged());
            (place, cells.map(|cell| &cell.scores.objectives[..]).collect::<Vec<_>>())
        };
        (0..self.points.len()).map(at).filter(|(_, cells)| !cells.is_empty()).collect()
    }

    /// Returns the pairs of an objective's index and the index of the blade that steers it, for the
    /// objectives with a blade in the sweep.
    pub fn steered(&self) -> Vec<(usize, usize)> {
        let blade = |name: &str| self.blades.iter().position(|blade| blade == name);
        let objectives = self.objectives.objectives.iter().enumerate();
        objectives.filter_map(|(place, objective)| Some((place, blade(objective.blade())?))).collect()
    }

    /// Returns the methods that a reference is compared with: all but itself and its variant
    /// without normalisation.
    pub fn rivals(&self, reference: &str) -> impl Iterator<Item = &Method> {
        let raw = self.without_normalization(reference);
        self.methods.iter().filter(move |method| method.name != reference && raw.is_none_or(|raw| raw.name != method.name))
    }

    /// Returns the reference scheme without normalisation, if it was run: `REFERENCE_no_cbn`, or
    /// the shipped scheme `no-cbn` for `swiss-knife`.
    pub fn without_normalization(&self, reference: &str) -> Option<&Method> {
        let shipped = (reference == "swiss-knife").then(|| "no-cbn".to_owned());
        let names = std::iter::once(format!("{reference}_no_cbn")).chain(shipped);
        names.into_iter().find_map(|name| self.methods.iter().find(|method| method.name == name))
    }

    /// Returns the method of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn method(&self, name: &str) -> Result<&Method, ReportError> {
        self.methods.iter().find(|method| method.name == name).ok_or_else(|| {
            let hint = suggest::hint(name, self.methods.iter().map(|method| &method.name));
            ReportError::Reference { name: name.to_owned(), hint }
        })
    }
}
