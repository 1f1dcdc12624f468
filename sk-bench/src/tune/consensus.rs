//! The paper's method to combine several operating points into one.

use super::{Point, Space};
use crate::scheme::parameters::Scale;

/// Returns the mean of points of a space: the geometric mean for numbers searched on a logarithmic
/// scale, the arithmetic mean for the others, rounded for whole numbers. Returns `None` if there
/// are no points.
///
/// The paper takes it over the optima of one search per objective, "geometric for T, which acts
/// multiplicatively on a log-probability scale". The result is one number per parameter and needs
/// no further responses. It is not an optimum of any objective.
pub fn consensus(space: &Space, points: &[&[f64]]) -> Option<Point> {
    if points.is_empty() {
        return None;
    }
    let count = points.len() as f64;
    let mean = |place: usize, of: fn(f64) -> f64| points.iter().map(|point| of(point[place])).sum::<f64>() / count;
    let means = space.dimensions().iter().enumerate().map(|(place, dimension)| match dimension.scale() {
        Scale::Log => mean(place, f64::ln).exp(),
        Scale::Linear => mean(place, |value| value),
        Scale::Whole => mean(place, |value| value).round(),
    });
    Some(means.collect())
}

#[cfg(test)]
mod tests {
    use sk_core::OperatingPoint;

    use super::*;
    use crate::scheme::{Base, Convention, SchemeSpec};

    #[test]
    fn the_published_optima_give_the_published_point() {
        let space = Space::default();
        let of = |point: &OperatingPoint| space.point_of(&SchemeSpec::reference(Base::new(Convention::Sound, point))).unwrap();
        let optima = [OperatingPoint::HARMLESSNESS, OperatingPoint::HELPFULNESS, OperatingPoint::HONESTY].map(|point| of(&point));
        let optima: Vec<&[f64]> = optima.iter().map(Vec::as_slice).collect();
        let found = consensus(&space, &optima).unwrap();
        // The paper's arithmetic, before it rounds: (11.219·1.69·21.03)^⅓ = 7.36, (.504 + 1.170 +
        // 1.587)/3 = 1.087, (1.483 + 1.707 + 2.088)/3 = 1.759, (.109 + .158 + .395)/3 = .2207, (4 +
        // 3 + 7)/3 → 5, (11 + 7 + 3)/3 = 7.
        for (found, expected) in found.iter().zip([7.36, 1.087, 1.759, 0.2207, 5.0, 7.0, 0.5]) {
            assert!((found - expected).abs() < 5e-3 * expected, "{found} {expected}");
        }
        assert_eq!(consensus(&space, &[]), None);
    }
}
