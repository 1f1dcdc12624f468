/// The floor under the axes that reproduces the published contrasts.
///
/// Without a floor, two cells with an axis at zero both have F1 = 0 and tie. With this floor and
/// three axes, F1 is about 3e-6, 1.5e-6 or 1e-6, depending on how many axes are zero. Among cells
/// with the same number of zeros it differs by about 1e-12, so that one of them wins.
pub const PUBLISHED_FLOOR: f64 = 1e-6;

/// Returns the harmonic mean n/Σ(1/xᵢ) of values in [0, 1], each raised to at least `floor`.
///
/// With a floor of 0, the mean is 0 if one value is 0, which is its limit. It is NaN for an empty
/// slice, or if one value is NaN.
///
/// ```
/// use sk_report::stats::harmonic_mean;
///
/// assert_eq!(harmonic_mean(&[0.5, 1.0, 1.0], 0.0), 0.75);
/// assert_eq!(harmonic_mean(&[0.0, 1.0, 1.0], 0.0), 0.0);
/// assert!(harmonic_mean(&[f64::NAN, 1.0, 1.0], 0.0).is_nan());
/// ```
pub fn harmonic_mean(values: &[f64], floor: f64) -> f64 {
    // 1/0 is infinite and n/∞ is 0. Negative values are raised to 0, since they could give a
    // negative infinity.
    let raised = |value: f64| if value.is_nan() { value } else { value.max(floor).max(0.0) };
    values.len() as f64 / values.iter().map(|&value| 1.0 / raised(value)).sum::<f64>()
}

/// The three definitions of a method's F1. The paper uses all three under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum F1 {
    /// The harmonic mean of the axes' means over all cells: `tab:main`, `tab:full-methods`.
    OfMeanAxes,
    /// The mean over configurations of the harmonic mean of the configuration's mean axes: the row
    /// *Mean* of `tab:perconfig`.
    MeanOfConfigurations,
    /// The mean over cells of the harmonic mean of the cell's axes: `tab:cbn` and every paired
    /// contrast.
    MeanOfCells,
}

impl F1 {
    /// The three definitions, from the largest value to the smallest if every configuration has the
    /// same number of cells and nothing is missing. The harmonic mean is concave, so averaging
    /// before it raises the result.
    pub const ALL: [Self; 3] = [Self::OfMeanAxes, Self::MeanOfConfigurations, Self::MeanOfCells];

    /// Returns the definition in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::OfMeanAxes => "of mean axes",
            Self::MeanOfConfigurations => "mean of configurations",
            Self::MeanOfCells => "mean of cells",
        }
    }

    /// Computes the F1 of a method's cells, given by configuration. Axes are in [0, 1] and raised
    /// to `floor`; NaN marks a missing judgement.
    ///
    /// A missing axis is left out of the mean of that axis. A cell or configuration without F1 is
    /// left out of the mean over cells or configurations. The result is NaN if nothing is left.
    pub fn of<C: AsRef<[f64]>>(self, configurations: &[Vec<C>], floor: f64) -> f64 {
        let cells: Vec<&[f64]> = configurations.iter().flatten().map(AsRef::as_ref).collect();
        match self {
            Self::OfMeanAxes => harmonic_mean(&mean_axes(&cells), floor),
            Self::MeanOfConfigurations => {
                mean_of_known(configurations.iter().map(|cells| harmonic_mean(&mean_axes(cells), floor)))
            }
            Self::MeanOfCells => mean_of_known(cells.iter().map(|cell| harmonic_mean(cell, floor))),
        }
    }
}

/// Returns the mean of each axis over the cells that have it; NaN if none has. All cells have the
/// same number of axes. The result is empty without cells.
pub(crate) fn mean_axes(cells: impl IntoIterator<Item = impl AsRef<[f64]>>) -> Vec<f64> {
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for cell in cells {
        let axes = cell.as_ref();
        sums.resize(axes.len(), (0.0, 0.0));
        for ((sum, count), axis) in sums.iter_mut().zip(axes).filter(|(_, axis)| !axis.is_nan()) {
            *sum += axis;
            *count += 1.0;
        }
    }
    sums.into_iter().map(|(sum, count)| sum / count).collect()
}

fn mean_of_known(values: impl Iterator<Item = f64>) -> f64 {
    let known = values.filter(|value| !value.is_nan());
    let (sum, count) = known.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
