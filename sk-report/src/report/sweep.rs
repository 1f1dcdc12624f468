use super::{ReportError, grouped};
use crate::objectives::{Objectives, Scores};
use crate::stats::{F1, mean_axes, snap};
use sk_scheme::suggest;

/// One judged response.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The weight vector, by its place in the sweep.
    pub configuration: usize,
    /// The prompt.
    pub prompt: u32,
    /// What the judge said.
    pub scores: Scores,
    /// 1/perplexity, where it was measured.
    pub fluency: Option<f64>,
}

/// A point of the simplex at which schemes were run.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightVector {
    /// Its name in the records.
    pub name: String,
    /// The weights, in the order of [`Sweep::blades`].
    pub weights: Vec<f64>,
}

impl WeightVector {
    /// The weights to two decimals, as `0.5/0.5/0`.
    pub fn label(&self) -> String {
        let short = |weight: f64| {
            let text = format!("{weight:.2}");
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        };
        self.weights.iter().copied().map(short).collect::<Vec<_>>().join("/")
    }
}

/// A method's judged responses.
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
    /// What responses were judged by.
    pub objectives: Objectives,
    /// The blades, in the order of weights.
    pub blades: Vec<String>,
    /// The weight vectors: vertices first, then edges, then the inside, each by falling weights.
    pub points: Vec<WeightVector>,
    /// The methods, by falling F1.
    pub methods: Vec<Method>,
}

impl Sweep {
    /// Sorts rows of method, weight vector and cell into a sweep; the cells' own `configuration` is
    /// not looked at.
    ///
    /// Weights are in the order of `blades`. Those that are equal on paper, as thirds written in
    /// two ways, are one point.
    pub fn of(objectives: &Objectives, blades: Vec<String>, mut rows: Vec<(String, WeightVector, Cell)>) -> Self {
        for (_, point, _) in &mut rows {
            point.weights.iter_mut().for_each(|weight| *weight = snap(*weight));
        }
        let mut points: Vec<WeightVector> = Vec::new();
        for (_, point, _) in &rows {
            if !points.contains(point) {
                points.push(point.clone());
            }
        }
        let seated = |point: &WeightVector| point.weights.iter().filter(|&&weight| weight > 0.0).count();
        points.sort_by(|a, b| seated(a).cmp(&seated(b)).then_with(|| falling(&a.weights, &b.weights)));
        let placed = rows.into_iter().map(|(name, point, cell)| {
            let configuration = points.iter().position(|known| *known == point).unwrap_or_default();
            (name, Cell { configuration, ..cell })
        });
        let methods = grouped(placed).into_iter().map(|(name, cells)| Method { name, cells }).collect();
        let mut sweep = Self { objectives: objectives.clone(), blades, points, methods };
        let f1 = |method: &Method| F1::OfMeanAxes.of(&sweep.axes(method), 0.0);
        let mut ranked: Vec<(f64, Method)> = sweep.methods.iter().map(|method| (f1(method), method.clone())).collect();
        // What has no F1 comes last.
        ranked.sort_by(|a, b| b.0.max(f64::NEG_INFINITY).total_cmp(&a.0.max(f64::NEG_INFINITY)));
        sweep.methods = ranked.into_iter().map(|(_, method)| method).collect();
        sweep
    }

    /// The objectives of a method's cells, by weight vector, NaN where they are blank; cells of
    /// which all are blank are left out, and weight vectors without a cell.
    pub fn axes<'a>(&self, method: &'a Method) -> Vec<Vec<&'a [f64]>> {
        self.judged(method).into_iter().map(|(_, cells)| cells).collect()
    }

    /// The weights a method was run at, the cells that were judged there, and the mean objectives
    /// it achieved: each over the cells that have it, NaN where none has.
    ///
    /// Means equal on paper are made equal in floating point: otherwise the order of summation
    /// decides which of two points is ahead.
    pub fn achieved(&self, method: &Method) -> Vec<(&WeightVector, usize, Vec<f64>)> {
        let judged = self.judged(method).into_iter();
        judged.map(|(point, cells)| (point, cells.len(), mean_axes(&cells).into_iter().map(snap).collect())).collect()
    }

    /// The points that a method [achieved](Self::achieved), less those that lack an objective.
    pub fn frontier(&self, method: &Method) -> Vec<(&WeightVector, Vec<f64>)> {
        let whole = |axes: &[f64]| axes.iter().all(|axis| !axis.is_nan());
        self.achieved(method).into_iter().map(|(point, _, axes)| (point, axes)).filter(|(_, axes)| whole(axes)).collect()
    }

    fn judged<'a, 'b>(&'a self, method: &'b Method) -> Vec<(&'a WeightVector, Vec<&'b [f64]>)> {
        let known = |cell: &&Cell| cell.scores.objectives.iter().any(|score| !score.is_nan());
        let at = |(place, point)| {
            let cells = method.cells.iter().filter(|cell| cell.configuration == place).filter(known);
            (point, cells.map(|cell| &cell.scores.objectives[..]).collect::<Vec<_>>())
        };
        self.points.iter().enumerate().map(at).filter(|(_, cells)| !cells.is_empty()).collect()
    }

    /// What the weights of a point are, as `helpfulness/honesty/harmlessness`: the heading over
    /// labels.
    pub fn weights_heading(&self) -> String {
        self.blades.join("/")
    }

    /// The objectives that a blade of the sweep asks for: their places, and those of their blades.
    pub fn steered(&self) -> Vec<(usize, usize)> {
        let blade = |name: &str| self.blades.iter().position(|blade| blade == name);
        let objectives = self.objectives.objectives.iter().enumerate();
        objectives.filter_map(|(place, objective)| Some((place, blade(objective.blade())?))).collect()
    }

    /// The methods that a reference is compared with: those that are not the same scheme in another
    /// setting.
    pub fn rivals(&self, reference: &str) -> impl Iterator<Item = &Method> {
        let raw = self.without_normalization(reference);
        self.methods.iter().filter(move |method| method.name != reference && raw.is_none_or(|raw| raw.name != method.name))
    }

    /// The reference scheme without normalisation, if it was run: `REFERENCE_no_cbn`, or for
    /// `swiss-knife` the scheme that ships as `no-cbn`.
    pub fn without_normalization(&self, reference: &str) -> Option<&Method> {
        let shipped = (reference == "swiss-knife").then(|| "no-cbn".to_owned());
        let names = std::iter::once(format!("{reference}_no_cbn")).chain(shipped);
        names.into_iter().find_map(|name| self.methods.iter().find(|method| method.name == name))
    }

    /// The method of a name.
    ///
    /// # Errors
    /// When there is none.
    pub fn method(&self, name: &str) -> Result<&Method, ReportError> {
        self.methods.iter().find(|method| method.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.methods.iter().map(|method| method.name.as_str()).collect();
            ReportError::Reference { name: name.to_owned(), hint: suggest::hint(name, &known) }
        })
    }
}

/// Larger weights first.
fn falling(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| b.total_cmp(a)).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}
