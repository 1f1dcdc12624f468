//! Reference computation of each policy: one pass over the whole sequence for every token, one
//! adapter at a time, no cache, in f64 after the logits.

use burn::tensor::{Device, Int, Tensor, TensorData};
use sk_core::TokenId;
use sk_models::hf::Checkpoint;
use sk_models::lora::{AdapterStack, Lanes, LoraAdapter};
use sk_models::model::Qwen2;

use crate::common::{BLADES, models};

/// The tiny models and their adapters.
pub(crate) struct Brute {
    pub(crate) backbone: Qwen2,
    pub(crate) drafter: Qwen2,
    pub(crate) adapters: Vec<LoraAdapter>,
}

impl Brute {
    pub(crate) fn new() -> Self {
        let device = "cpu".parse::<sk_models::device::DeviceName>().unwrap().open().unwrap();
        let checkpoint = |part: &str| Checkpoint::from_directory(&models().join(part)).unwrap();
        let backbone = checkpoint("backbone");
        let adapter = |name: &&str| {
            let path = models().join("blades").join(name);
            backbone.adapter(&path.display().to_string(), &device, &mut Quiet).unwrap()
        };
        Self {
            adapters: BLADES.iter().map(adapter).collect(),
            drafter: checkpoint("drafter").model(&device).unwrap(),
            backbone: backbone.model(&device).unwrap(),
        }
    }

    /// log π of the next token under each adapter, by blade.
    pub(crate) fn policies(&self, context: &[TokenId]) -> Vec<Vec<f64>> {
        self.adapters.iter().map(|adapter| next(&self.backbone, Some(adapter), context)).collect()
    }

    pub(crate) fn prior(&self, context: &[TokenId]) -> Vec<f64> {
        next(&self.backbone, None, context)
    }

    pub(crate) fn amateur(&self, context: &[TokenId]) -> Vec<f64> {
        log_softmax(&self.amateur_logits(context))
    }

    pub(crate) fn amateur_logits(&self, context: &[TokenId]) -> Vec<f64> {
        last(&self.drafter, None, context).1
    }

    /// The backbone's final-norm state after `context` and one more token.
    pub(crate) fn state(&self, context: &[TokenId], token: TokenId) -> Vec<f64> {
        let tokens: Vec<TokenId> = context.iter().copied().chain([token]).collect();
        last(&self.backbone, None, &tokens).0
    }

    /// The backbone with Σ w_k s_k A_k B_k added to it.
    pub(crate) fn soup(&self, weights: &[f64], context: &[TokenId]) -> Vec<f64> {
        let parts: Vec<(f64, &LoraAdapter)> = weights.iter().copied().zip(&self.adapters).collect();
        next(&self.backbone, Some(&sk_models::lora::merge(sk_core::Merge::Exact, &parts).unwrap()), context)
    }

    /// Σ_t log π(y_t | x, y_<t) under an adapter, or the backbone.
    pub(crate) fn span(&self, blade: Option<usize>, context: &[TokenId], span: &[TokenId]) -> f64 {
        let mut context = context.to_vec();
        let mut sum = 0.0;
        for &token in span {
            sum += next(&self.backbone, blade.map(|k| &self.adapters[k]), &context)[token as usize];
            context.push(token);
        }
        sum
    }

    /// The means over a span of log π(y_t | x, y_<t) and of the min-entropy −max_v log π(v | x,
    /// y_<t), under an adapter or the backbone.
    pub(crate) fn read(&self, blade: Option<usize>, context: &[TokenId], span: &[TokenId]) -> (f64, f64) {
        let whole: Vec<TokenId> = context.iter().chain(span).copied().collect();
        // The logits at a position predict the next token.
        let logits = tail(&self.backbone, blade.map(|k| &self.adapters[k]), &whole[..whole.len() - 1], span.len()).1;
        let (mut log_prob, mut entropy) = (0.0, 0.0);
        for (logits, &token) in logits.chunks_exact(logits.len() / span.len()).zip(span) {
            let log_probs = log_softmax(logits);
            log_prob += log_probs[token as usize];
            entropy -= log_probs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
        (log_prob / span.len() as f64, entropy / span.len() as f64)
    }
}

/// log softmax of the logits after `context`.
fn next(model: &Qwen2, adapter: Option<&LoraAdapter>, context: &[TokenId]) -> Vec<f64> {
    log_softmax(&last(model, adapter, context).1)
}

/// Final-norm state and logits at the last position of `context`.
fn last(model: &Qwen2, adapter: Option<&LoraAdapter>, context: &[TokenId]) -> (Vec<f64>, Vec<f64>) {
    tail(model, adapter, context, 1)
}

/// Final-norm states and logits at the last `count` positions of `context`, in order.
fn tail(model: &Qwen2, adapter: Option<&LoraAdapter>, context: &[TokenId], count: usize) -> (Vec<f64>, Vec<f64>) {
    let device: Device = model.device();
    let ids: Vec<i64> = context.iter().map(|&token| i64::from(token)).collect();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, context.len()]), &device);
    let stack = adapter.map(|adapter| AdapterStack::new(&model.config, &[Some(adapter)], &device).unwrap());
    let lanes = stack.as_ref().map_or(Lanes::backbone(), Lanes::of);
    let state = model.forward(tokens, lanes).slice(context.len() - count..context.len());
    let numbers = |tensor: Tensor<2>| tensor.into_data().iter::<f32>().map(f64::from).collect();
    (numbers(state.clone()), numbers(model.logits(state, lanes)))
}

pub(crate) fn log_softmax(values: &[f64]) -> Vec<f64> {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = max + values.iter().map(|value| (value - max).exp()).sum::<f64>().ln();
    values.iter().map(|value| value - total).collect()
}

/// The probabilities of a softmax over the `k` largest scores, cut to a nucleus of mass `p`. Sorts
/// everything.
pub(crate) fn truncated(scores: &[f64], k: usize, p: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.truncate(k);
    let kept: Vec<f64> = order.iter().map(|&i| scores[i]).collect();
    let weights: Vec<f64> = log_softmax(&kept).into_iter().map(f64::exp).collect();
    let mut mass = 0.0;
    let reached = weights.iter().position(|weight| {
        mass += weight;
        mass >= p
    });
    let count = reached.map_or(order.len(), |last| last + 1);
    let total: f64 = weights[..count].iter().sum();
    let mut result = vec![0.0; scores.len()];
    for (&token, weight) in order.iter().zip(&weights).take(count) {
        result[token] = weight / total;
    }
    result
}

struct Quiet;

impl sk_models::hf::Progress for Quiet {}
