use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{Int, Tensor, TensorData};
use sk_core::{Backbone, BoxError, Candidate, Candidates, Policy, Reading, Readings, TokenId};

use super::EngineError;
use super::drafter::inputs_of;
use super::follower::{Follower, check_context, check_vocabulary, read, token_rows};
use super::heads::HeadRack;
use crate::lora::{AdapterStack, Lanes, LoraAdapter};
use crate::model::cache::Suffix;
use crate::model::{Cache, Qwen2};

const ROLE: &str = "backbone";

/// Logits held at once while a span is read: 64 MiB of f32. Larger batches are read in pieces.
const LOGITS_AT_ONCE: usize = 16 << 20;

/// The adapters a backbone can read with, by name. Clones address the same rack, so blades can be loaded, replaced and dropped while
/// a generation runs; the backbone's weights are not touched.
#[derive(Clone, Default)]
pub struct AdapterRack(Arc<Mutex<BTreeMap<Arc<str>, Arc<LoraAdapter>>>>);

impl AdapterRack {
    /// Adds an adapter, or replaces the one of that name. Takes effect at the next step.
    pub fn insert(&self, name: impl Into<Arc<str>>, adapter: LoraAdapter) {
        self.lock().insert(name.into(), Arc::new(adapter));
    }

    /// Drops an adapter. A step that still asks for it fails and says so.
    pub fn remove(&self, name: &str) -> bool {
        self.lock().remove(name).is_some()
    }

    /// The names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Result<Arc<LoraAdapter>, EngineError> {
        let rack = self.lock();
        rack.get(name).cloned().ok_or_else(|| EngineError::UnknownAdapter {
            name: name.to_owned(),
            loaded: rack.keys().map(|k| &**k).collect::<Vec<_>>().join(", "),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<LoraAdapter>>> {
        // Every change is one insertion or removal, so a panic elsewhere cannot have left it torn.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One policy under which candidates are read; the backbone itself has no adapter.
type Lane = Option<Arc<LoraAdapter>>;

/// The lanes of the last reading, with the prefix each keeps.
struct Bench {
    lanes: Vec<Lane>,
    stack: Option<AdapterStack>,
    follower: Follower,
}

/// What a reading leaves for the commit: the keys and values of all rows, and the tokens each row read.
struct Pending {
    suffix: Suffix,
    inputs: Vec<Vec<TokenId>>,
    /// Whether one row serves all candidates, each of which is one token.
    shared: bool,
}

/// The next-token distributions after a context, one per lane: all that there is to know of one-token candidates.
struct Ahead {
    context: Vec<TokenId>,
    lanes: Vec<Lane>,
    /// log π in nats, `[V]` per lane.
    log_probs: Vec<Vec<f32>>,
    /// logsumexp − max in nats, one per lane.
    min_entropy: Vec<f32>,
}

/// π_B: the frozen backbone, which reads N candidates under itself and its adapters in one forward pass.
///
/// All rows share one product with each frozen weight; the adapters add two small batched ones. Per lane the context's keys and values
/// are kept once, and the winner's are appended, so that a step costs the same at any length but for attention itself. No logits leave
/// the device: two numbers per token do.
///
/// Heads are read off the same pass, in which every row then reads its last token too: one position per candidate and lane more, and no
/// product with the vocabulary where nothing but heads is asked for.
pub struct Verifier {
    model: Arc<Qwen2>,
    rack: AdapterRack,
    heads: HeadRack,
    bench: Option<Bench>,
    pending: Option<Pending>,
    ahead: Option<Ahead>,
    /// The policies that one-token candidates were last read under: those worth looking ahead with.
    habit: Vec<Policy>,
}

impl Verifier {
    /// The backbone `model`, with no adapter and no head.
    #[must_use]
    pub fn new(model: Arc<Qwen2>) -> Self {
        Self {
            model,
            rack: AdapterRack::default(),
            heads: HeadRack::default(),
            bench: None,
            pending: None,
            ahead: None,
            habit: Vec::new(),
        }
    }

    /// The rack its adapters are taken from.
    #[must_use]
    pub fn adapters(&self) -> AdapterRack {
        self.rack.clone()
    }

    /// The rack its heads are taken from.
    #[must_use]
    pub fn heads(&self) -> HeadRack {
        self.heads.clone()
    }

    /// A lane for each policy that predicts tokens, in their order.
    fn lanes(&self, policies: &[Policy]) -> Result<Vec<Lane>, EngineError> {
        let lane = |policy: &Policy| match policy {
            Policy::Backbone => Some(Ok(None)),
            Policy::Variant(name) => Some(self.rack.get(name).map(Some)),
            Policy::Head(_) => None,
        };
        policies.iter().filter_map(lane).collect()
    }

    /// Makes the bench hold exactly `lanes` and follow `context`.
    fn seat(&mut self, lanes: Vec<Lane>, context: &[TokenId]) -> Result<Bench, BoxError> {
        let mut bench = match self.bench.take() {
            Some(bench) if same(&bench.lanes, &lanes) => bench,
            previous => self.reseat(previous, lanes, context)?,
        };
        bench.follower.follow(&self.model, bench.stack.as_ref().map_or(Lanes::backbone(), Lanes::of), context);
        Ok(bench)
    }

    /// A bench of other lanes. Lanes that stay keep their prefix; a newly seated one reads the context once.
    fn reseat(&self, previous: Option<Bench>, lanes: Vec<Lane>, context: &[TokenId]) -> Result<Bench, BoxError> {
        let stack = self.stack(&lanes)?;
        let find = |lane: &Lane, bench: &Bench| bench.lanes.iter().position(|l| identical(l, lane));
        let Some(mut previous) = previous else {
            return Ok(Bench { follower: Follower::new(&self.model, lanes.len()), lanes, stack });
        };
        let (stay, join): (Vec<&Lane>, Vec<&Lane>) = lanes.iter().partition(|&lane| find(lane, &previous).is_some());
        if stay.is_empty() {
            return Ok(Bench { follower: Follower::new(&self.model, lanes.len()), lanes, stack });
        }
        let kept: Vec<usize> = stay.iter().filter_map(|&lane| find(lane, &previous)).collect();
        previous.follower.select_lanes(&kept);
        let stay: Vec<Lane> = stay.into_iter().cloned().collect();
        let stay_stack = self.stack(&stay)?;
        let stay_lanes = stay_stack.as_ref().map_or(Lanes::backbone(), Lanes::of);
        previous.follower.follow(&self.model, stay_lanes, context);
        let mut order = stay;
        if !join.is_empty() {
            let join: Vec<Lane> = join.into_iter().cloned().collect();
            let join_stack = self.stack(&join)?;
            let mut newcomers = Follower::new(&self.model, join.len());
            newcomers.follow(&self.model, join_stack.as_ref().map_or(Lanes::backbone(), Lanes::of), context);
            previous.follower.join_lanes(&newcomers);
            order.extend(join);
        }
        let place: Vec<usize> = lanes.iter().filter_map(|lane| order.iter().position(|other| identical(other, lane))).collect();
        if !place.iter().copied().eq(0..place.len()) {
            previous.follower.select_lanes(&place);
        }
        Ok(Bench { lanes, stack, follower: previous.follower })
    }

    fn stack(&self, lanes: &[Lane]) -> Result<Option<AdapterStack>, BoxError> {
        if lanes.len() == 1 && lanes[0].is_none() {
            return Ok(None);
        }
        let adapters: Vec<Option<&LoraAdapter>> = lanes.iter().map(Option::as_deref).collect();
        Ok(Some(AdapterStack::new(&self.model.config, &adapters, &self.model.device())?))
    }

    /// Reads the rows of every lane: per lane and candidate one [`Reading`].
    fn read_rows(
        &self,
        lanes: Lanes<'_>,
        hidden: Tensor<2>,
        rows: &[&[TokenId]],
        width: usize,
    ) -> Result<Vec<Vec<Reading>>, EngineError> {
        let device = self.model.device();
        let (count, size) = (lanes.count(), self.model.config.hidden_size);
        // Positions that hold a token and not padding, the same in each lane.
        let real: Vec<i64> =
            rows.iter().enumerate().flat_map(|(row, tokens)| (0..tokens.len()).map(move |t| (row * width + t) as i64)).collect();
        let targets: Vec<i64> = rows.iter().flat_map(|tokens| tokens.iter().map(|&t| i64::from(t))).collect();
        let hidden = hidden.reshape([count, rows.len() * width, size]);
        let piece = (LOGITS_AT_ONCE / (self.model.config.vocab_size * count)).max(1);
        let mut read_lanes = vec![Vec::with_capacity(2 * targets.len()); count];
        for (positions, targets) in real.chunks(piece).zip(targets.chunks(piece)) {
            let m = positions.len();
            let ints = |values: Vec<i64>, shape: &[usize]| TensorData::new(values, shape.to_vec());
            let index = Tensor::<1, Int>::from_data(ints(positions.to_vec(), &[m]), &device);
            let states = hidden.clone().select(1, index).reshape([count * m, size]);
            let logits = self.model.logits(states, lanes);
            let target = Tensor::<2, Int>::from_data(ints(targets.repeat(count), &[count * m, 1]), &device);
            let max = logits.clone().max_dim(1);
            let picked = logits.clone().gather(1, target) - max.clone();
            // logsumexp − max: the min-entropy itself, and what turns the picked logit into a log-probability.
            let entropy = (logits - max).exp().sum_dim(1).log();
            let pairs = read(Tensor::cat(vec![picked - entropy.clone(), entropy], 1))?;
            for (lane, pairs) in read_lanes.iter_mut().zip(pairs.chunks_exact(2 * m)) {
                lane.extend_from_slice(pairs);
            }
        }
        read_lanes
            .into_iter()
            .map(|pairs| {
                let mut pairs = pairs.chunks_exact(2);
                rows.iter()
                    .map(|tokens| {
                        let mut reading = Reading::default();
                        for (&token, pair) in tokens.iter().zip(&mut pairs) {
                            if pair.iter().any(|value| value.is_nan()) {
                                return Err(EngineError::NotANumber { role: ROLE, token });
                            }
                            reading.log_probs.push(pair[0]);
                            reading.min_entropy.push(pair[1].max(0.0));
                        }
                        Ok(reading)
                    })
                    .collect()
            })
            .collect()
    }

    /// The backbone's own next-token distribution after `context`: log π_B in nats, `[V]`.
    ///
    /// The policies that will be read next, by the habit of the last step, are computed in the same pass, so that a proposal that looks
    /// at the distribution and the reading of its one-token candidates cost one pass of one row per lane.
    ///
    /// # Errors
    /// When the context does not fit the model, or the device fails.
    pub fn next_token(&mut self, context: &[TokenId]) -> Result<&[f32], BoxError> {
        let mut policies = self.habit.clone();
        if !policies.contains(&Policy::Backbone) {
            policies.insert(0, Policy::Backbone);
        }
        let lanes = match self.lanes(&policies) {
            Ok(lanes) => lanes,
            // An adapter was dropped since.
            Err(_) => vec![None],
        };
        let ahead = self.look_ahead(context, lanes)?;
        let backbone = ahead.lanes.iter().position(Option::is_none).unwrap_or(0);
        Ok(&ahead.log_probs[backbone])
    }

    /// The distributions of `lanes` after `context`: those at hand if they hold these lanes, else computed.
    fn look_ahead(&mut self, context: &[TokenId], lanes: Vec<Lane>) -> Result<&Ahead, BoxError> {
        let at_hand = |ahead: &Ahead| {
            ahead.context == context && lanes.iter().all(|lane| ahead.lanes.iter().any(|other| identical(other, lane)))
        };
        match self.ahead.take().filter(at_hand) {
            Some(ahead) => Ok(self.ahead.insert(ahead)),
            None => {
                let ahead = self.compute_ahead(context, lanes)?;
                Ok(self.ahead.insert(ahead))
            }
        }
    }

    fn compute_ahead(&mut self, context: &[TokenId], lanes: Vec<Lane>) -> Result<Ahead, BoxError> {
        self.pending = None;
        check_context(&self.model, ROLE, context, 1)?;
        let bench = self.seat(lanes, context)?;
        let (count, last) = (bench.lanes.len(), context[context.len() - 1]);
        let device = self.model.device();
        let tokens = token_rows(&vec![[last]; count], 1, &device);
        let mut suffix = Suffix::new(&self.model.config, count, 1, 1, &device);
        let seated = bench.stack.as_ref().map_or(Lanes::backbone(), Lanes::of);
        let cache = Cache::Extend { prefix: bench.follower.prefix(), suffix: &mut suffix };
        let logits = self.model.logits(self.model.forward(tokens, seated, cache), seated);
        let max = logits.clone().max_dim(1);
        let entropy = (logits.clone() - max.clone()).exp().sum_dim(1).log();
        let log_probs = read(logits - max - entropy.clone())?;
        let min_entropy: Vec<f32> = read(entropy)?.into_iter().map(|h| h.max(0.0)).collect();
        if log_probs.iter().chain(&min_entropy).any(|value| value.is_nan()) {
            return Err(EngineError::NotANumber { role: ROLE, token: last }.into());
        }
        let log_probs = log_probs.chunks_exact(self.model.config.vocab_size).map(<[f32]>::to_vec).collect();
        let ahead = Ahead { context: context.to_vec(), lanes: bench.lanes.clone(), log_probs, min_entropy };
        self.bench = Some(bench);
        self.pending = Some(Pending { suffix, inputs: vec![vec![last]], shared: true });
        Ok(ahead)
    }

    /// Reads candidates of one token each: they share their only input, so one row per lane serves all of them.
    fn read_tokens(&mut self, context: &[TokenId], tokens: &[TokenId], policies: &[Policy]) -> Result<Readings, BoxError> {
        let lanes = self.lanes(policies)?;
        self.habit = policies.to_vec();
        let ahead = self.look_ahead(context, lanes.clone())?;
        let mut readings = Readings::new();
        for (policy, lane) in policies.iter().zip(&lanes) {
            let at = ahead.lanes.iter().position(|other| identical(other, lane)).unwrap_or(0);
            let (log_probs, entropy) = (&ahead.log_probs[at], ahead.min_entropy[at]);
            let reading = |&token: &TokenId| Reading {
                log_probs: vec![log_probs[token as usize]],
                min_entropy: vec![entropy],
                ..Reading::default()
            };
            readings.insert(policy.clone(), tokens.iter().map(reading).collect());
        }
        Ok(readings)
    }
}

impl Backbone for Verifier {
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        if policies.is_empty() {
            return Ok(Readings::new());
        }
        let single: Option<Vec<TokenId>> =
            candidates.iter().map(|c| if let [token] = c.tokens[..] { Some(token) } else { None }).collect();
        // A head looks at what a token leaves behind, which takes a row for each.
        let heads = policies.iter().any(|policy| matches!(policy, Policy::Head(_)));
        if let Some(tokens) = single.filter(|_| !heads) {
            check_vocabulary(&self.model, ROLE, &tokens)?;
            return self.read_tokens(context, &tokens, policies);
        }
        self.pending = None;
        let longest = candidates.iter().map(|c| c.tokens.len()).max().unwrap_or(0);
        check_context(&self.model, ROLE, context, longest)?;
        for candidate in candidates {
            check_vocabulary(&self.model, ROLE, &candidate.tokens)?;
        }
        let heads = self.heads.asked(policies, self.model.config.hidden_size)?;
        let mut lanes = self.lanes(policies)?;
        let predicting = lanes.len();
        // Heads look at the backbone's own states, so its lane is there whether or not its log-probabilities are asked for.
        if !heads.is_empty() && lanes.iter().all(Option::is_some) {
            lanes.push(None);
        }
        let bench = self.seat(lanes, context)?;

        let last = context[context.len() - 1];
        let inputs: Vec<Vec<TokenId>> = candidates.iter().map(|c| inputs_of(last, &c.tokens)).collect();
        let count = bench.lanes.len();
        let width = longest + heads.extra_tokens();
        let reach = |(input, c): (&Vec<TokenId>, &Candidate)| {
            let extra = &c.tokens[c.tokens.len() - heads.extra_tokens()..];
            input.iter().chain(extra).copied().collect::<Vec<_>>()
        };
        let reads: Vec<Vec<TokenId>> = inputs.iter().zip(candidates).map(reach).collect();
        let rows: Vec<&Vec<TokenId>> = (0..count).flat_map(|_| &reads).collect();
        let tokens = token_rows(&rows, width, &self.model.device());
        let mut suffix = Suffix::new(&self.model.config, count, candidates.len(), width, &self.model.device());
        let seated = bench.stack.as_ref().map_or(Lanes::backbone(), Lanes::of);
        let cache = Cache::Extend { prefix: bench.follower.prefix(), suffix: &mut suffix };
        let hidden = self.model.forward(tokens, seated, cache);
        let mut readings = Readings::new();
        if let Some(lane) = bench.lanes.iter().position(Option::is_none) {
            let (rows, size) = (candidates.len() * width, self.model.config.hidden_size);
            let own = hidden.clone().slice([lane * rows..(lane + 1) * rows, 0..size]);
            heads.read_into(&mut readings, own, candidates, width)?;
        }
        if predicting > 0 {
            let spans: Vec<&[TokenId]> = candidates.iter().map(|c| &c.tokens[..]).collect();
            let read = self.read_rows(seated, hidden, &spans, width)?;
            let policies = policies.iter().filter(|policy| !matches!(policy, Policy::Head(_)));
            for (policy, lane) in policies.zip(read) {
                readings.insert(policy.clone(), lane);
            }
        }

        self.bench = Some(bench);
        self.pending = Some(Pending { suffix, inputs, shared: false });
        Ok(readings)
    }

    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        if let (Some(pending), Some(bench)) = (self.pending.take(), &mut self.bench) {
            let row = if pending.shared { 0 } else { chosen };
            bench.follower.adopt(&pending.suffix, row, &pending.inputs[row]);
        }
        self.ahead = None;
        Ok(())
    }
}

/// Whether two lanes run the very same weights: a replaced adapter of the same name is another lane.
fn identical(a: &Lane, b: &Lane) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn same(a: &[Lane], b: &[Lane]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(a, b))
}
