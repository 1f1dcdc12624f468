use super::{population_std, sample_std};

/// The distance between two points, and the divisor in the standard deviation of distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distance {
    /// Σ|aₖ − bₖ|, with the sample standard deviation (n − 1): Schott (1995).
    Schott,
    /// √Σ(aₖ − bₖ)², with the population standard deviation (n). The paper's "Schott's spacing"
    /// follows from this definition.
    Published,
}

/// Returns the standard deviation of the distances from each point to its nearest neighbour; 0 for
/// evenly spread points.
///
/// All points count, including dominated ones. `None` for fewer than two points. O(n²·D).
///
/// ```
/// use sk_report::stats::{Distance, spacing};
///
/// // The nearest-neighbour distances are 1, 1 and 4.
/// let points = [[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]];
/// assert_eq!(spacing(&points, Distance::Published), Some(2.0_f64.sqrt()));
/// assert_eq!(spacing(&points, Distance::Schott), Some(3.0_f64.sqrt()));
/// ```
pub fn spacing<P: AsRef<[f64]>>(points: &[P], distance: Distance) -> Option<f64> {
    if points.len() < 2 {
        return None;
    }
    let between = |a: &P, b: &P| -> f64 {
        let gaps = a.as_ref().iter().zip(b.as_ref()).map(|(a, b)| (a - b).abs());
        match distance {
            Distance::Schott => gaps.sum(),
            Distance::Published => gaps.map(|gap| gap * gap).sum::<f64>().sqrt(),
        }
    };
    let nearest: Vec<f64> = (0..points.len())
        .map(|i| {
            let others = points.iter().enumerate().filter(|&(j, _)| j != i);
            others.map(|(_, other)| between(&points[i], other)).fold(f64::INFINITY, f64::min)
        })
        .collect();
    Some(match distance {
        Distance::Schott => sample_std(&nearest),
        Distance::Published => population_std(&nearest),
    })
}
