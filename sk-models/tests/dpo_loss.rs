//! The preference loss and its gradient agree with an independent PyTorch implementation.
//!
//! `reference/dpo_reference.py` wrote the fixture.

use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::Deserialize;
use sk_models::train::{
    loss::{sum_by_sequence, target_log_probs},
    preference::{LogProbs, PreferenceLoss},
};

/// f32 against f64 through a softmax, a sum of a dozen terms and a sigmoid.
const TOLERANCE: f64 = 1e-5;

#[derive(Deserialize)]
struct Fixture {
    vocab: usize,
    pairs: usize,
    owners: Vec<i32>,
    targets: Vec<i32>,
    policy: Vec<f32>,
    reference: Vec<f32>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    beta: f64,
    label_smoothing: f64,
    length_normalised: bool,
    loss: f64,
    gradient: Vec<f64>,
}

#[test]
fn loss_and_gradient_agree_with_pytorch() {
    let fixture: Fixture = serde_json::from_str(include_str!("fixtures/dpo.json")).unwrap();
    let rows = fixture.owners.len();
    let graph = Device::flex().autodiff();
    let ints = |values: &[i32]| Tensor::<1, Int>::from_data(TensorData::new(values.to_vec(), [rows]), &graph);
    let matrix = |values: &[f32]| Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, fixture.vocab]), &graph);
    let halves = |values: Tensor<1>| LogProbs {
        chosen: values.clone().slice(0..fixture.pairs),
        rejected: values.slice(fixture.pairs..2 * fixture.pairs),
    };
    let sequences = |logits: Tensor<2>| {
        let log_probs = target_log_probs(logits, ints(&fixture.targets));
        halves(sum_by_sequence(log_probs, ints(&fixture.owners), 2 * fixture.pairs))
    };
    let mut counts = vec![0.0_f32; 2 * fixture.pairs];
    for &owner in &fixture.owners {
        counts[owner as usize] += 1.0;
    }
    for case in &fixture.cases {
        let loss =
            PreferenceLoss { beta: case.beta, label_smoothing: case.label_smoothing, length_normalised: case.length_normalised };
        let policy = matrix(&fixture.policy).require_grad();
        let lengths = halves(Tensor::from_data(TensorData::new(counts.clone(), [2 * fixture.pairs]), &graph));
        let margins = loss.margins(sequences(policy.clone()), sequences(matrix(&fixture.reference)), lengths);
        let value = loss.loss(margins);
        let found = f64::from(value.clone().inner().into_scalar::<f32>());
        assert!((found - case.loss).abs() <= TOLERANCE * case.loss.abs(), "loss {found}, expected {}", case.loss);

        let gradient = policy.grad(&value.backward()).expect("the policy is tracked").into_data();
        let size = case.gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let error = gradient
            .iter::<f32>()
            .zip(&case.gradient)
            .map(|(found, expected)| (f64::from(found) - expected).powi(2))
            .sum::<f64>()
            .sqrt();
        assert!(error <= TOLERANCE * size, "gradient off by {:e} relative", error / size);
    }
}
