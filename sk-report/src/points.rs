//! Points of the probability simplex to use as weight vectors.

/// Returns the paper's points for K objectives: the vertices, the midpoints of the edges, and the
/// centroid. There are seven for three objectives. For fewer objectives, coinciding points are
/// listed once.
pub fn paper_points(k: usize) -> Vec<Vec<f64>> {
    let equal = |members: &[usize]| {
        let mut point = vec![0.0; k];
        members.iter().for_each(|&i| point[i] = 1.0 / members.len() as f64);
        point
    };
    let mut points: Vec<Vec<f64>> = (0..k).map(|i| equal(&[i])).collect();
    points.extend((0..k).flat_map(|i| (i + 1..k).map(move |j| [i, j])).map(|edge| equal(&edge)));
    if k > 2 {
        points.push(equal(&(0..k).collect::<Vec<_>>()));
    }
    points
}

/// Returns the number of [`paper_points`].
pub fn paper_size(k: usize) -> f64 {
    let k = k as f64;
    k + k * (k - 1.0) / 2.0 + if k > 2.0 { 1.0 } else { 0.0 }
}

/// Returns the simplex lattice {K, m}: the C(m+K−1, K−1) points whose coordinates are multiples of
/// 1/m. The first coordinate varies slowest, in descending order. Three objectives at density 6
/// give 28 points. Without objectives or at density 0, there are none.
pub fn lattice(k: usize, density: usize) -> Vec<Vec<f64>> {
    if k == 0 || density == 0 {
        return Vec::new();
    }
    let left = |shares: &[usize]| density - shares.iter().sum::<usize>();
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 1..k {
        all = all.iter().flat_map(|shares| (0..=left(shares)).rev().map(move |share| [&shares[..], &[share]].concat())).collect();
    }
    all.iter().map(|shares| shares.iter().chain([&left(shares)]).map(|&share| share as f64 / density as f64).collect()).collect()
}

/// Returns C(m+K−1, K−1), the size of a [`lattice`] for K, m > 0; infinity if it exceeds the range of
/// f64.
pub fn lattice_size(k: usize, density: usize) -> f64 {
    (1..k).map(|i| (density as f64 + i as f64) / i as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_has_seven_points() {
        let (half, third) = (0.5, 1.0 / 3.0);
        let expected = [
            [1.0, 0.0, 0.0],
            [0.0, 1.0, 0.0],
            [0.0, 0.0, 1.0],
            [half, half, 0.0],
            [half, 0.0, half],
            [0.0, half, half],
            [third, third, third],
        ];
        assert_eq!(paper_points(3), expected);
        assert_eq!(paper_points(2), [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]);
        assert_eq!(paper_points(1), [[1.0]]);
        for k in 0..9 {
            assert_eq!(paper_points(k).len() as f64, paper_size(k));
        }
    }

    #[test]
    fn a_lattice_covers_the_simplex_once() {
        for (k, density, size) in [(3, 6, 28), (3, 1, 3), (2, 10, 11), (4, 3, 20), (1, 5, 1)] {
            let points = lattice(k, density);
            assert_eq!((points.len(), lattice_size(k, density).round() as usize), (size, size), "{k} {density}");
            for (i, point) in points.iter().enumerate() {
                assert!((point.iter().sum::<f64>() - 1.0).abs() < 1e-12 && point.iter().all(|&w| w >= 0.0));
                assert!(!points[..i].contains(point), "{point:?}");
            }
        }
        assert!(lattice(3, 0).is_empty() && lattice(0, 3).is_empty());
    }
}
