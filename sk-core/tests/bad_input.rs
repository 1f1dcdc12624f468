//! Numbers that are not valid scores or weights are refused on entry, with the index of the fault.

use sk_core::{Batch, Score, ScoreError, ScoreTable, Simplex, SimplexError};

/// The three kinds of numbers that are not finite.
const NOT_FINITE: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

fn said(error: impl std::error::Error) -> String {
    error.to_string()
}

#[test]
fn a_batch_says_which_candidate_is_at_fault() {
    assert_eq!(Batch::<f64>::new(&[], &[]).unwrap_err(), ScoreError::Empty);
    let short = Batch::new(&[1.0, 2.0], &[0.0]).unwrap_err();
    assert_eq!(short, ScoreError::Length { quantity: "dispersions", expected: 2, got: 1 });
    for value in NOT_FINITE {
        let mu = Batch::new(&[0.0, 0.0, value], &[0.0; 3]).unwrap_err();
        assert_eq!(said(mu), format!("score of candidate 2 is {value}; scores must be finite"));
        let sigma = Batch::new(&[0.0; 3], &[0.0, value, 0.0]).unwrap_err();
        assert_eq!(said(sigma), format!("dispersion of candidate 1 is {value}; dispersions must be finite and not negative"));
    }
    assert!(matches!(Batch::new(&[0.0f32], &[-1e-30]), Err(ScoreError::Value { quantity: "dispersion", candidate: 0, .. })));
    let batch = Batch::new(&[3.0, -1.0], &[0.0, 2.0]).unwrap();
    assert_eq!((batch.mu(), batch.sigma(), batch.fluency(), batch.len()), (&[3.0, -1.0][..], &[0.0, 2.0][..], None, 2));
    assert!(batch.blades().is_none());
}

#[test]
fn a_batch_says_whose_fluency_is_at_fault() {
    let batch = Batch::new(&[1.0, 2.0], &[0.0, 0.0]).unwrap();
    let short = batch.with_fluency(&[0.0]).unwrap_err();
    assert_eq!(short, ScoreError::Length { quantity: "fluency scores", expected: 2, got: 1 });
    for value in NOT_FINITE {
        let refused = batch.with_fluency(&[0.0, value]).unwrap_err();
        assert_eq!(said(refused), format!("fluency of candidate 1 is {value}; scores must be finite"));
    }
    assert_eq!(batch.with_fluency(&[-1.0, -2.0]).unwrap().fluency(), Some(&[-1.0, -2.0][..]));
}

/// Trusted values are checked in debug builds only.
#[cfg(debug_assertions)]
#[test]
fn trust_is_checked_in_debug_builds() {
    let caught = |work: fn() -> usize| std::panic::catch_unwind(work).is_err();
    assert!(caught(|| Batch::trusted(&[0.0, f64::NAN], &[0.0; 2]).len()));
    assert!(caught(|| Batch::trusted(&[0.0], &[-1.0]).len()));
    assert!(caught(|| Batch::trusted(&[0.0], &[0.0]).with_trusted_fluency(&[f64::NAN]).len()));
    assert!(!caught(|| Batch::trusted(&[0.0], &[0.0]).with_trusted_fluency(&[-1.0]).len()));
}

#[test]
#[should_panic(expected = "at least one candidate")]
fn a_batch_is_not_empty() {
    let _ = Batch::<f64>::trusted(&[], &[]);
}

#[test]
#[should_panic(expected = "as many as the candidates")]
fn dispersions_are_as_many_as_the_candidates() {
    let _ = Batch::trusted(&[1.0, 2.0], &[0.0]);
}

#[test]
#[should_panic(expected = "as many as the candidates")]
fn fluency_scores_are_as_many_as_the_candidates() {
    let _ = Batch::trusted(&[1.0, 2.0], &[0.0, 0.0]).with_trusted_fluency(&[0.0]);
}

#[test]
#[should_panic(expected = "all candidates")]
fn blades_score_all_candidates() {
    let table = ScoreTable::new([([1.0], [0.0])]).unwrap();
    let _ = Batch::trusted(&[1.0, 2.0], &[0.0, 0.0]).with_blades(&table);
}

#[test]
fn a_table_says_which_blade_and_which_candidate() {
    for value in NOT_FINITE {
        let mu = ScoreTable::new([([1.0, 2.0], [0.0, 0.1]), ([3.0, value], [0.2, 0.3])]).unwrap_err();
        assert_eq!(said(mu), format!("blade 1: score of candidate 1 is {value}; scores must be finite"));
    }
    let sigma = ScoreTable::new([([1.0, 2.0], [0.0, -0.1])]).unwrap_err();
    assert_eq!(said(sigma), "blade 0: dispersion of candidate 1 is -0.1; dispersions must be finite and not negative");
    assert_eq!(
        ScoreTable::new([([1.0; 3].as_slice(), [0.0; 3].as_slice()), (&[1.0; 3], &[0.0; 2])]).unwrap_err(),
        ScoreError::Shape { blade: 1, expected: 3, got: 2 }
    );
    let none = ScoreTable::<f64>::new(Vec::<([f64; 0], [f64; 0])>::new()).unwrap_err();
    assert_eq!(said(none), "the table has no blade; at least one is needed");
    let empty = ScoreTable::<f64>::new([([], [])]).unwrap_err();
    assert_eq!(said(empty), "blade 0 scores 0 candidates where 1 were expected");
}

#[test]
fn the_names_of_a_table_are_those_of_its_blades() {
    let table = || ScoreTable::new([([1.0, 2.0], [0.0, 0.1]), ([3.0, 4.0], [0.2, 0.3])]).unwrap();
    assert_eq!((table().name(0), table().find("a")), (None, None));
    assert_eq!(table().with_names(["a"]), Err(ScoreError::Names { expected: 2, got: 1 }));
    assert_eq!(said(table().with_names(["a", "a"]).unwrap_err()), "two blades are called \"a\"; names must differ");
    let named = table().with_names(["a", "b"]).unwrap();
    assert_eq!((named.name(0), named.name(1), named.name(2)), (Some("a"), Some("b"), None));
    assert_eq!((named.find("a"), named.find("b"), named.find("c")), (Some(0), Some(1), None));
}

#[test]
fn some_of_the_candidates_of_a_batch_keep_their_scores() {
    let table = ScoreTable::new([([1.0, 2.0, 3.0], [0.1, 0.2, 0.3]), ([4.0, 5.0, 6.0], [0.4, 0.5, 0.6])]).unwrap();
    let table = table.with_names(["a", "b"]).unwrap();
    let batch = Batch::new(&[7.0, 8.0, 9.0], &[0.7, 0.8, 0.9]).unwrap();
    let full = batch.with_fluency(&[-1.0, -2.0, -3.0]).unwrap().with_blades(&table);
    for batch in [batch, full] {
        let picked = batch.pick(&[2, 0]);
        let picked = picked.batch();
        assert_eq!((picked.len(), picked.mu(), picked.sigma()), (2, &[9.0, 7.0][..], &[0.9, 0.7][..]));
        assert_eq!(picked.fluency(), batch.fluency().map(|_| &[-3.0, -1.0][..]));
        let expected = ScoreTable::new([([3.0, 1.0], [0.3, 0.1]), ([6.0, 4.0], [0.6, 0.4])]).unwrap();
        let expected = expected.with_names(["a", "b"]).unwrap();
        assert_eq!(picked.blades(), batch.blades().map(|_| &expected));
    }
}

#[test]
#[should_panic(expected = "at least one candidate")]
fn a_batch_of_nobody_is_not_picked() {
    let _ = Batch::new(&[1.0], &[0.0]).unwrap().pick(&[]);
}

#[test]
fn weights_off_the_simplex_are_refused() {
    for (index, value) in NOT_FINITE.into_iter().enumerate() {
        let mut weights = [0.25; 4];
        weights[index] = value;
        for refused in [Simplex::new(weights).unwrap_err(), Simplex::normalized(weights).unwrap_err()] {
            assert_eq!(said(refused), format!("weight {index} is {value}; weights must be finite"));
        }
    }
    assert_eq!(
        Simplex::normalized([1.0, 2.0, -1e-300]),
        Err(SimplexError::Value { index: 2, value: -1e-300, expected: "not be negative" })
    );
    assert_eq!(Simplex::<f64>::normalized([]), Err(SimplexError::Empty));
    assert_eq!(Simplex::<f64>::uniform(0), Err(SimplexError::Empty));
    assert_eq!(Simplex::new([0.0, 0.0]), Err(SimplexError::Sum { sum: 0.0, expected: "1" }));
    assert_eq!(said(Simplex::new([0.5, 0.25]).unwrap_err()), "weights sum to 0.75; they must sum to 1");
    let zero = Simplex::normalized([0.0, 0.0]).unwrap_err();
    assert_eq!(said(zero), "weights sum to 0; they must sum to a positive number");
    // A sum within 1e-6 of 1 is accepted, and the weights are divided by it.
    assert!(Simplex::new([0.5, 0.5 + 2e-6]).is_err());
    assert_eq!(Simplex::new([0.5, 0.5 + 9e-7]).unwrap().as_slice(), Simplex::normalized([0.5, 0.5 + 9e-7]).unwrap().as_slice());
}

#[test]
fn a_score_is_finite_and_its_dispersion_not_negative() {
    for value in NOT_FINITE {
        assert_eq!(said(Score::new(value, 0.0).unwrap_err()), format!("score is {value}; it must be finite"));
        let sigma = Score::new(0.0, value).unwrap_err();
        assert_eq!(said(sigma), format!("dispersion is {value}; it must be finite and not negative"));
        assert!(matches!(Score::of(3, value, 0.0), Err(ScoreError::Value { quantity: "score", candidate: 3, .. })));
        assert!(matches!(Score::of(3, 0.0, value), Err(ScoreError::Value { quantity: "dispersion", candidate: 3, .. })));
    }
    assert_eq!(Score::new(f64::MAX, f64::MAX).unwrap().mu(), f64::MAX);
    assert!(Score::new(0.0, -0.0).is_ok());
}
