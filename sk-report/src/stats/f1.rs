use super::mean;

/// The floor under the axes that the published contrasts follow from.
///
/// Without one, two cells in which any axis is zero both have F1 = 0 and tie. With one and three
/// axes they have 3e-6, 1.5e-6 or 1e-6, by how many are zero, and among those of as many they
/// differ by some 1e-12, by which one of them wins.
pub const PUBLISHED_FLOOR: f64 = 1e-6;

/// The harmonic mean n/Σ(1/xᵢ) of values in [0, 1], each raised to at least `floor`.
///
/// With a floor of 0 the mean is 0 as soon as one value is, its limit. NaN of no values, and where
/// one is NaN.
///
/// ```
/// use sk_report::stats::harmonic_mean;
///
/// assert_eq!(harmonic_mean(&[0.5, 1.0, 1.0], 0.0), 0.75);
/// assert_eq!(harmonic_mean(&[0.0, 1.0, 1.0], 0.0), 0.0);
/// assert!(harmonic_mean(&[f64::NAN, 1.0, 1.0], 0.0).is_nan());
/// ```
pub fn harmonic_mean(values: &[f64], floor: f64) -> f64 {
    // 1/0 is infinite and n/∞ is 0; a negative value must not turn into a negative infinity.
    let raised = |value: f64| if value.is_nan() { value } else { value.max(floor).max(0.0) };
    values.len() as f64 / values.iter().map(|&value| 1.0 / raised(value)).sum::<f64>()
}

/// What "the F1 of a method" is the harmonic mean of. The paper uses all three, under one name.
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
    /// The three, from the largest to the smallest: the harmonic mean is concave, so each average
    /// taken before it raises it.
    pub const ALL: [Self; 3] = [Self::OfMeanAxes, Self::MeanOfConfigurations, Self::MeanOfCells];

    /// What it is, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::OfMeanAxes => "of mean axes",
            Self::MeanOfConfigurations => "mean of configurations",
            Self::MeanOfCells => "mean of cells",
        }
    }

    /// F1 of a method's cells, given by configuration; axes in [0, 1], floored at `floor`, NaN
    /// where they were not judged.
    ///
    /// An axis of a cell that was not judged is left out of the mean of its axis; a cell or
    /// configuration without an F1 of its own is left out of the mean over cells or configurations.
    /// NaN where nothing is left.
    pub fn of<C: AsRef<[f64]>>(self, configurations: &[Vec<C>], floor: f64) -> f64 {
        let cells: Vec<&[f64]> = configurations.iter().flatten().map(AsRef::as_ref).collect();
        let each: Vec<f64> = match self {
            Self::OfMeanAxes => return harmonic_mean(&mean_axes(&cells), floor),
            Self::MeanOfConfigurations => configurations.iter().map(|cells| harmonic_mean(&mean_axes(cells), floor)).collect(),
            Self::MeanOfCells => cells.iter().map(|cell| harmonic_mean(cell, floor)).collect(),
        };
        mean(&known(each))
    }
}

/// The mean of each axis over the cells that have it; NaN where none has. All cells have as many
/// axes; of no cells there are none.
pub(crate) fn mean_axes<C: AsRef<[f64]>>(cells: &[C]) -> Vec<f64> {
    let axes = cells.first().map_or(0, |cell| cell.as_ref().len());
    (0..axes).map(|axis| mean(&known(cells.iter().map(|cell| cell.as_ref()[axis]).collect()))).collect()
}

fn known(mut values: Vec<f64>) -> Vec<f64> {
    values.retain(|value| !value.is_nan());
    values
}
