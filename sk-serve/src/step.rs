//! Steps as clients see them.

use std::collections::BTreeMap;

use serde::Serialize;
use sk_core::{Arm, Composite, ScoreTable, ScoreTrace, Simplex, SpanEnd, StepTrace, TokenId, Traffic};
use sk_models::text::Tokenizer;
use sk_normalize::influence_shares;
use sk_scheme::Stability;

/// A step: its candidates, their scores, and the choice.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    step: usize,
    chosen: usize,
    /// The weight of each blade in this step.
    weights: BTreeMap<String, f64>,
    /// The share of each blade in the spread of the composite scores of the candidates.
    influence: BTreeMap<String, f64>,
    candidates: Vec<CandidateOf>,
    /// The number of candidates, if not all are described.
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<usize>,
    /// The number of tokens that the server returned, if it returned only the most likely ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<usize>,
    /// The network traffic to the servers of the models, if any.
    #[serde(skip_serializing_if = "Traffic::is_none")]
    traffic: Traffic,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<CertificateOf>,
}

#[derive(Debug, Clone, Serialize)]
struct CandidateOf {
    text: String,
    tokens: Vec<TokenId>,
    /// Whether it ends the answer.
    ends: bool,
    probability: f64,
    rating: f64,
    mu: f64,
    sigma: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fluency: Option<f64>,
    blades: BTreeMap<String, ScoreOf>,
}

#[derive(Debug, Clone, Serialize)]
struct ScoreOf {
    mu: f64,
    sigma: f64,
    /// The contribution of the blade to the composite μ.
    contribution: f64,
}

/// How stable the choice is.
#[derive(Debug, Clone, Serialize)]
struct CertificateOf {
    /// τ.
    tolerance: f64,
    /// The largest change of each composite μ, in units of μ, that changes the probability of any
    /// set of candidates by at most τ.
    radius: f64,
}

impl Step {
    /// Describes the step of `trace`, which `arm` decided, with its `most` most likely candidates:
    /// a step over a vocabulary has one for each token. `stability` holds the stability bounds of
    /// the scheme, if it has any, and the tolerance.
    pub(crate) fn new(
        trace: &StepTrace,
        arm: &Arm,
        stability: Option<&(Stability, f64)>,
        tokenizer: &Tokenizer,
        most: usize,
    ) -> Self {
        let weights = trace.weights();
        let contributions = contributions(trace, &weights, arm);
        let decision = &trace.decision;
        let shown = decision.most_likely(most, &[]);
        let candidate = |&place: &usize| CandidateOf {
            text: tokenizer.decode(&trace.candidates[place].tokens).unwrap_or_default(),
            tokens: trace.candidates[place].tokens.clone(),
            ends: trace.candidates[place].end == SpanEnd::EndOfText,
            probability: decision.probabilities[place],
            rating: decision.ratings[place],
            mu: decision.mu[place],
            sigma: decision.sigma[place],
            fluency: trace.fluency.as_ref().map(|fluency| fluency[place]),
            blades: trace
                .blades
                .iter()
                .zip(&contributions)
                .map(|(blade, added)| {
                    let score = ScoreOf { mu: blade.mu[place], sigma: blade.sigma[place], contribution: added[place] };
                    (blade.name.clone(), score)
                })
                .collect(),
        };
        Self {
            step: trace.step,
            chosen: shown.iter().position(|place| *place == decision.chosen).unwrap_or_default(),
            influence: influence(trace, &weights, arm),
            weights: trace.blades.iter().map(|blade| blade.name.clone()).zip(weights).collect(),
            candidates: shown.iter().map(candidate).collect(),
            n: Some(trace.candidates.len()).filter(|n| *n > shown.len()),
            head: trace.head,
            traffic: trace.traffic,
            certificate: stability.and_then(|(stability, tolerance)| certificate(trace, stability, *tolerance)),
        }
    }
}

/// Returns w_k·μ̂^(k) of each blade and candidate, where μ̂^(k) is the normalised score of blade k
/// alone.
fn contributions(trace: &StepTrace, weights: &[f64], arm: &Arm) -> Vec<Vec<f64>> {
    let added = |(blade, weight): (&ScoreTrace, &f64)| {
        let alone = ScoreTable::new([(blade.mu.clone(), blade.sigma.clone())]).ok().zip(Simplex::uniform(1).ok());
        let Some((table, whole)) = alone.filter(|_| *weight > 0.0) else { return vec![0.0; blade.mu.len()] };
        let mut out = Composite::default();
        arm.operators.normalizer.combine(&table, &whole, &mut out);
        out.mu.iter().map(|mu| mu * weight).collect()
    };
    trace.blades.iter().zip(weights).map(added).collect()
}

fn influence(trace: &StepTrace, weights: &[f64], arm: &Arm) -> BTreeMap<String, f64> {
    let weighed = || trace.blades.iter().zip(weights).filter(|(_, weight)| **weight > 0.0);
    let table = ScoreTable::new(weighed().map(|(blade, _)| (blade.mu.clone(), blade.sigma.clone())).collect::<Vec<_>>());
    let weights = Simplex::normalized(weighed().map(|(_, weight)| *weight).collect::<Vec<_>>());
    let (Ok(table), Ok(weights)) = (table, weights) else { return BTreeMap::new() };
    let shares = influence_shares(&*arm.operators.normalizer, &table, &weights);
    weighed().map(|(blade, _)| blade.name.clone()).zip(shares).collect()
}

fn certificate(trace: &StepTrace, stability: &Stability, tolerance: f64) -> Option<CertificateOf> {
    let radius = stability.certificate(&trace.batch()).ok()?.radius(tolerance).ok()?;
    radius.is_finite().then_some(CertificateOf { tolerance, radius })
}
