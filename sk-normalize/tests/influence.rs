//! Influence shares: `thm:cbn` (i) and (ii) as numbers.

use proptest::collection::vec;
use proptest::prelude::*;
use sk_core::{Deviation, Moments, Normalizer, ScoreTable, Simplex};
use sk_normalize::{CandidateBatch, Rank, Raw, Robust, influence_shares};

/// Rounding of a standard deviation and two divisions.
const TOLERANCE: f64 = 1e-12;

fn table(rows: &[Vec<f64>]) -> ScoreTable {
    ScoreTable::new(rows.iter().map(|mu| (mu.clone(), vec![0.5; mu.len()]))).unwrap()
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= TOLERANCE)
}

/// The published run without normalisation: reward spreads of 0.0050, 0.0035 and 0.0008 at a third
/// of the weight each.
#[test]
fn the_quietest_published_blade_keeps_a_twelfth() {
    let blade = |spread: f64| vec![-spread, 0.0, spread];
    let scores = table(&[blade(0.0050), blade(0.0035), blade(0.0008)]);
    let even = Simplex::uniform(3).unwrap();
    let shares = influence_shares(&Raw::default(), &scores, &even);
    assert!(close(&shares, &[50.0 / 93.0, 35.0 / 93.0, 8.0 / 93.0]), "{shares:?}");
    // The paper gives 52.2%, 39.0% and 8.9%: medians of the shares of each batch, not shares of the
    // medians.
    for (share, published) in shares.iter().zip([0.522, 0.390, 0.089]) {
        assert!((share - published).abs() < 0.02, "{share} {published}");
    }
    assert!(close(&influence_shares(&CandidateBatch::sound(), &scores, &even), &[1.0 / 3.0; 3]));
}

#[test]
fn blades_that_tell_nobody_apart_have_no_share() {
    let scores = table(&[vec![1.0, 2.0, 4.0], vec![7.0; 3]]);
    let weights = Simplex::new([0.25, 0.75]).unwrap();
    let normalizers: [&dyn Normalizer; 4] = [&Raw::default(), &CandidateBatch::sound(), &Rank::default(), &Robust::default()];
    for normalizer in normalizers {
        assert_eq!(influence_shares(normalizer, &scores, &weights), [1.0, 0.0]);
        assert_eq!(influence_shares(normalizer, &table(&[vec![7.0; 3], vec![1.0; 3]]), &weights), [0.0, 0.0]);
        assert_eq!(influence_shares(normalizer, &table(&[vec![7.0], vec![1.0]]), &weights), [0.0, 0.0]);
    }
    // Spreads whose sum overflows.
    let wide = table(&[vec![1e308, -1e308], vec![-1e308, 1e308]]);
    assert_eq!(influence_shares(&Raw::default(), &wide, &Simplex::uniform(2).unwrap()), [0.5, 0.5]);
}

proptest! {
    #[test]
    fn shares_are_weights_after_normalisation_and_weighted_spreads_before(
        rows in (1usize..5, 2usize..8).prop_flat_map(|(k, n)| vec(vec(-1e3f64..1e3, n), k)), raw in vec(0.0f64..1.0, 4),
    ) {
        let spread = |row: &Vec<f64>| Moments::of(row, Deviation::Sample).std();
        prop_assume!(rows.iter().all(|row| spread(row) > 1e-3) && raw[0] > 0.0);
        let weights = Simplex::normalized(&raw[..rows.len()]).unwrap();
        let normalised = influence_shares(&CandidateBatch::sound(), &table(&rows), &weights);
        prop_assert!(normalised.iter().zip(weights.as_slice()).all(|(a, b)| (a - b).abs() < 1e-9), "{normalised:?} {weights:?}");
        let products: Vec<f64> = weights.as_slice().iter().zip(&rows).map(|(w, row)| w * spread(row)).collect();
        let total: f64 = products.iter().sum();
        let expected: Vec<f64> = products.iter().map(|p| p / total).collect();
        prop_assert!(close(&influence_shares(&Raw::default(), &table(&rows), &weights), &expected));
    }
}
