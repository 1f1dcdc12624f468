use std::sync::Arc;

use sk_core::{Backbone, BoxError, Candidate, Candidates, Policy, Reading, Readings, TokenId};

use super::EngineError;
use super::drafter::inputs_of;
use super::error::proceed;
use super::follower::{Follower, check_context, check_vocabulary};
use super::heads::AskedHeads;
use super::rack::{self, Racks};
use super::sampling::log_softmax;
use crate::decoder::{Decoder, Hidden, Seats, Suffix};
use crate::lora::LoraAdapter;

const ROLE: &str = "backbone";

/// The adapter of a policy; `None` is the backbone itself.
type Lane = Option<Arc<LoraAdapter>>;

/// The lanes of the last reading, and the prefix of each.
struct Seated {
    lanes: Vec<Lane>,
    seats: Seats,
    follower: Follower,
}

/// The part of a reading that a commit needs: the keys and values of all rows, and each row's
/// tokens.
struct Pending {
    suffix: Suffix,
    /// One row serves all candidates if each is one token.
    inputs: Vec<Vec<TokenId>>,
    /// The beginnings of candidates, if only these were read, so that a reading of the whole
    /// candidates can continue.
    beginnings: Option<ReadBeginnings>,
}

/// The beginnings of candidates, and their readings.
struct ReadBeginnings {
    context: Vec<TokenId>,
    policies: Vec<Policy>,
    /// The tokens of each row.
    spans: Vec<Vec<TokenId>>,
    /// Tokens of the longest row. The suffix holds this many tokens of every row.
    width: usize,
    readings: Readings,
}

impl ReadBeginnings {
    /// Returns the row that `tokens` equal or, if the row has full width, begin with.
    fn row(&self, tokens: &[TokenId]) -> Option<usize> {
        let continues = |span: &[TokenId]| tokens == span || (span.len() == self.width && tokens.starts_with(span));
        self.spans.iter().position(|span| continues(span))
    }
}

/// The next-token distributions after a context, one per lane, from which one-token candidates are
/// read.
struct Ahead {
    context: Vec<TokenId>,
    lanes: Vec<Lane>,
    /// log π in nats, `[V]` per lane.
    log_probs: Vec<Vec<f32>>,
    /// logsumexp − max in nats, one per lane.
    min_entropy: Vec<f32>,
}

/// π_B: the frozen backbone, which reads N candidates under itself and its adapters in one forward
/// pass.
///
/// All rows share one product with each frozen weight; the adapters add two small batched products.
/// Per lane, the keys and values of the context are kept once, and those of the chosen candidate
/// are appended. So the cost of a step grows with the context in attention only. Two numbers per
/// token leave the device, and no logits.
///
/// Heads use the same pass, in which every row then reads its last token too. This takes one more
/// position per candidate and lane. If only heads are asked for, there is no product with the
/// vocabulary.
///
/// A variant with an instruction, or with a model other than the backbone, is read in a separate
/// pass, in a lane with its own context or model, under the adapter of its name if there is one.
pub struct Verifier {
    model: Arc<Decoder>,
    racks: Racks,
    /// The lanes of the last reading that have a context or a model of their own.
    apart: Vec<SeparateLane>,
    seated: Option<Seated>,
    pending: Option<Pending>,
    /// Only with the pending pass that computed it.
    ahead: Option<Ahead>,
    /// The policies under which one-token candidates were read last. The next look-ahead computes
    /// them too.
    last_policies: Vec<Policy>,
}

/// A lane with a context or a model of its own.
struct SeparateLane {
    name: Arc<str>,
    verifier: Verifier,
}

impl Verifier {
    /// Returns the backbone `model`, whose policies read with the parts of `racks`.
    #[must_use]
    pub fn new(model: Arc<Decoder>, racks: Racks) -> Self {
        Self { model, racks, apart: Vec::new(), seated: None, pending: None, ahead: None, last_policies: Vec::new() }
    }

    /// Returns a lane for each policy that predicts tokens, in order.
    fn lanes(&self, policies: &[Policy]) -> Result<Vec<Lane>, EngineError> {
        let lane = |policy: &Policy| match policy {
            Policy::Backbone => Some(Ok(None)),
            Policy::Variant(name) => Some(rack::find(&self.racks.adapters, "adapter", name).map(Some)),
            Policy::Head(_) => None,
        };
        policies.iter().filter_map(lane).collect()
    }

    /// Seats exactly `lanes` and makes their prefix follow `context`.
    fn seat(&mut self, lanes: Vec<Lane>, context: &[TokenId]) -> Result<Seated, BoxError> {
        let mut seated = match self.seated.take() {
            Some(seated) if same(&seated.lanes, &lanes) => seated,
            previous => self.reseat(previous, lanes, context)?,
        };
        seated.follower.follow(&self.model, &seated.seats, context)?;
        Ok(seated)
    }

    /// Seats other lanes. Lanes that stay keep their prefix; new ones read the context.
    fn reseat(&self, previous: Option<Seated>, lanes: Vec<Lane>, context: &[TokenId]) -> Result<Seated, BoxError> {
        let seats = self.model.seat(&lanes)?;
        let find = |lane: &Lane, seated: &Seated| seated.lanes.iter().position(|l| identical(l, lane));
        let fresh = |lanes: Vec<Lane>, seats| Seated { follower: Follower::new(&self.model, lanes.len()), lanes, seats };
        let Some(mut previous) = previous else { return Ok(fresh(lanes, seats)) };
        let (stay, join): (Vec<Lane>, Vec<Lane>) = lanes.iter().cloned().partition(|lane| find(lane, &previous).is_some());
        if stay.is_empty() {
            return Ok(fresh(lanes, seats));
        }
        let kept: Vec<usize> = stay.iter().filter_map(|lane| find(lane, &previous)).collect();
        previous.follower.prefix.select_lanes(&kept);
        // On a GPU, other seats copy all adapters.
        if !previous.follower.holds(context) {
            previous.follower.follow(&self.model, &self.model.seat(&stay)?, context)?;
        }
        let mut order = stay;
        if !join.is_empty() {
            let mut newcomers = Follower::new(&self.model, join.len());
            newcomers.follow(&self.model, &self.model.seat(&join)?, context)?;
            previous.follower.join_lanes(newcomers);
            order.extend(join);
        }
        let place: Vec<usize> = lanes.iter().filter_map(|lane| order.iter().position(|other| identical(other, lane))).collect();
        if !place.iter().copied().eq(0..place.len()) {
            previous.follower.prefix.select_lanes(&place);
        }
        Ok(Seated { lanes, seats, follower: previous.follower })
    }

    /// Returns the error of a lane that returned NaN or infinity.
    fn not_a_number(&self, lane: &Lane, token: TokenId) -> EngineError {
        let name = lane.as_ref().and_then(|adapter| self.racks.adapters.name_of(adapter));
        let policy = name.map_or_else(|| ROLE.to_owned(), |name| format!("{ROLE} under adapter \"{name}\""));
        EngineError::NotANumber { policy, token }
    }

    /// Reads the rows of every lane: per lane and candidate one [`Reading`].
    fn read_rows(&self, seated: &Seated, hidden: &Hidden, spans: &[&[TokenId]]) -> Result<Vec<Vec<Reading>>, EngineError> {
        let reading = |lane: &Lane, tokens: &[TokenId], pairs: Vec<[f32; 2]>| {
            if let Some(broken) = pairs.iter().position(|pair| pair.iter().any(|value| value.is_nan())) {
                return Err(self.not_a_number(lane, tokens[broken]));
            }
            Ok(Reading {
                log_probs: pairs.iter().map(|pair| pair[0]).collect(),
                min_entropy: pairs.iter().map(|pair| pair[1].max(0.0)).collect(),
                ..Reading::default()
            })
        };
        let lanes = seated.lanes.iter().zip(self.model.read(hidden, &seated.seats, spans)?);
        lanes.map(|(lane, rows)| spans.iter().zip(rows).map(|(tokens, pairs)| reading(lane, tokens, pairs)).collect()).collect()
    }

    /// Returns the backbone's next-token distribution after `context`: log π_B in nats, `[V]`.
    ///
    /// The policies of the last step are computed in the same pass, since they will probably be
    /// read next. A proposal from this distribution and the reading of its one-token candidates
    /// then take one pass of one row per lane.
    ///
    /// # Errors
    /// If the context does not fit the model, or the device fails.
    pub fn next_token(&mut self, context: &[TokenId]) -> Result<&[f32], BoxError> {
        let mut policies = self.last_policies.clone();
        if !policies.contains(&Policy::Backbone) {
            policies.insert(0, Policy::Backbone);
        }
        // An adapter may have been removed from the rack since.
        let lanes = self.lanes(&policies).unwrap_or_else(|_| vec![None]);
        let ahead = self.look_ahead(context, lanes)?;
        let backbone = ahead.lanes.iter().position(Option::is_none).unwrap_or(0);
        Ok(&ahead.log_probs[backbone])
    }

    /// Returns the distributions of `lanes` after `context`, computed unless they are cached.
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
        let mut seated = self.seat(lanes, context)?;
        let (count, last) = (seated.lanes.len(), context[context.len() - 1]);
        proceed()?;
        let mut suffix = self.model.suffix(count, 1);
        let hidden = self.model.extend(&[[last]], &seated.seats, &mut seated.follower.prefix, &mut suffix);
        let logits = self.model.logits(&hidden, &seated.seats)?;
        let log_probs: Vec<Vec<f32>> = logits.chunks_exact(self.model.config().vocab_size).map(log_softmax).collect();
        // The argmax's log-probability is max − logsumexp.
        let largest = |log_probs: &Vec<f32>| log_probs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let min_entropy: Vec<f32> = log_probs.iter().map(|lane| (-largest(lane)).max(0.0)).collect();
        let broken = |(log_probs, entropy): (&Vec<f32>, &f32)| entropy.is_nan() || log_probs.iter().any(|value| value.is_nan());
        if let Some(lane) = log_probs.iter().zip(&min_entropy).position(broken) {
            return Err(self.not_a_number(&seated.lanes[lane], last).into());
        }
        let ahead = Ahead { context: context.to_vec(), lanes: seated.lanes.clone(), log_probs, min_entropy };
        self.seated = Some(seated);
        self.pending = Some(Pending { suffix, inputs: vec![vec![last]], beginnings: None });
        Ok(ahead)
    }

    /// Reads candidates of one token each. They share their only input, so one row per lane serves
    /// all.
    fn read_tokens(&mut self, context: &[TokenId], tokens: &[TokenId], policies: &[Policy]) -> Result<Readings, BoxError> {
        let lanes = self.lanes(policies)?;
        self.last_policies = policies.to_vec();
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

    fn read_all(
        &mut self,
        context: &[TokenId],
        candidates: &Candidates,
        policies: &[Policy],
        are_beginnings: bool,
    ) -> Result<Readings, BoxError> {
        let is_apart = |name: &str| self.racks.instructions.get(name).is_some() || self.racks.readers.get(name).is_some();
        let (mut names, mut plain) = (Vec::new(), Vec::new());
        for policy in policies {
            match policy {
                Policy::Variant(name) if is_apart(name) => names.push(name),
                _ => plain.push(policy.clone()),
            }
        }
        self.apart.retain(|lane| names.contains(&&lane.name));
        let mut readings = self.read_plain(context, candidates, &plain, are_beginnings)?;
        for name in names {
            let lane = self.read_apart(name, context, candidates, are_beginnings)?;
            readings.insert(Policy::Variant(Arc::clone(name)), lane);
        }
        Ok(readings)
    }

    /// Reads under policies without a context or a model of their own. `are_beginnings` is true if
    /// the candidates are the beginnings of others, which will probably be read next.
    fn read_plain(
        &mut self,
        context: &[TokenId],
        candidates: &Candidates,
        policies: &[Policy],
        are_beginnings: bool,
    ) -> Result<Readings, BoxError> {
        if policies.is_empty() {
            (self.pending, self.ahead) = (None, None);
            return Ok(Readings::new());
        }
        let single: Option<Vec<TokenId>> =
            candidates.iter().map(|c| if let [token] = c.tokens[..] { Some(token) } else { None }).collect();
        // A head needs the state after each token, and thus a row for each.
        let has_heads = policies.iter().any(|policy| matches!(policy, Policy::Head(_)));
        if let Some(tokens) = single.filter(|_| !has_heads) {
            check_vocabulary(&self.model, ROLE, &tokens)?;
            return self.read_tokens(context, &tokens, policies);
        }
        if let Some(readings) = self.read_on(context, candidates, policies)? {
            return Ok(readings);
        }
        (self.pending, self.ahead) = (None, None);
        let longest = self.check_candidates(context, candidates)?;
        let heads = AskedHeads::of(&self.racks.heads, policies, self.model.config().hidden_size)?;
        let mut lanes = self.lanes(policies)?;
        let predicting = lanes.len();
        // Heads read the backbone's states, so the backbone has a lane even if no policy needs it.
        if !heads.is_empty() && lanes.iter().all(Option::is_some) {
            lanes.push(None);
        }
        let mut seated = self.seat(lanes, context)?;

        let last = context[context.len() - 1];
        let inputs: Vec<Vec<TokenId>> = candidates.iter().map(|c| inputs_of(last, &c.tokens)).collect();
        let count = seated.lanes.len();
        let reach = |(input, c): (&Vec<TokenId>, &Candidate)| {
            let extra = &c.tokens[c.tokens.len() - heads.extra_tokens()..];
            input.iter().chain(extra).copied().collect::<Vec<_>>()
        };
        let mut rows: Vec<Vec<TokenId>> = inputs.iter().zip(candidates).map(reach).collect();
        let are_beginnings = are_beginnings && heads.is_empty();
        if are_beginnings {
            // Rows of one length can be extended.
            rows.iter_mut().for_each(|row| row.resize(longest, last));
        }
        proceed()?;
        let mut suffix = self.model.suffix(count, candidates.len());
        let hidden = self.model.extend(&rows, &seated.seats, &mut seated.follower.prefix, &mut suffix);
        let mut readings = Readings::new();
        if let Some(lane) = seated.lanes.iter().position(Option::is_none) {
            heads.read_into(&mut readings, (&self.model, &hidden, &seated.seats), lane, candidates)?;
        }
        if predicting > 0 {
            let spans: Vec<&[TokenId]> = candidates.iter().map(|c| &c.tokens[..]).collect();
            let read = self.read_rows(&seated, &hidden, &spans)?;
            let policies = policies.iter().filter(|policy| !matches!(policy, Policy::Head(_)));
            for (policy, lane) in policies.zip(read) {
                readings.insert(policy.clone(), lane);
            }
        }

        let beginnings = are_beginnings.then(|| ReadBeginnings {
            context: context.to_vec(),
            policies: policies.to_vec(),
            spans: candidates.iter().map(|candidate| candidate.tokens.clone()).collect(),
            width: longest,
            readings: readings.clone(),
        });
        self.seated = Some(seated);
        self.pending = Some(Pending { suffix, inputs, beginnings });
        Ok(readings)
    }

    /// Checks that candidates of known tokens fit after `context`. Returns the length of the
    /// longest.
    fn check_candidates(&self, context: &[TokenId], candidates: &Candidates) -> Result<usize, EngineError> {
        let longest = candidates.iter().map(|candidate| candidate.tokens.len()).max().unwrap_or(0);
        check_context(&self.model, ROLE, context, longest)?;
        candidates.iter().try_for_each(|candidate| check_vocabulary(&self.model, ROLE, &candidate.tokens))?;
        Ok(longest)
    }

    /// Continues the reading of candidates whose beginnings were read last. Returns `None` if
    /// they were not read, or the engine does not support this.
    fn read_on(
        &mut self,
        context: &[TokenId],
        candidates: &Candidates,
        policies: &[Policy],
    ) -> Result<Option<Readings>, BoxError> {
        let begun = self.pending.as_ref().and_then(|pending| pending.beginnings.as_ref());
        let Some(begun) = begun.filter(|begun| begun.context == context && begun.policies == policies) else { return Ok(None) };
        let rows: Option<Vec<usize>> = candidates.iter().map(|candidate| begun.row(&candidate.tokens)).collect();
        let Some(rows) = rows else { return Ok(None) };
        let (Some(mut pending), Some(mut seated)) = (self.pending.take(), self.seated.take()) else { return Ok(None) };
        let Some(begun) = pending.beginnings.take().filter(|_| pending.suffix.select_rows(&rows)) else {
            self.seated = Some(seated);
            return Ok(None);
        };
        self.check_candidates(context, candidates)?;
        let rest = |candidate: &Candidate| candidate.tokens.len().saturating_sub(begun.width);
        let input = |candidate: &Candidate| match rest(candidate) {
            // A row takes part in the pass even if all of its tokens have been read.
            0 => vec![candidate.tokens[candidate.tokens.len() - 1]],
            more => candidate.tokens[begun.width - 1..][..more].to_vec(),
        };
        let inputs: Vec<Vec<TokenId>> = candidates.iter().map(input).collect();
        proceed()?;
        let hidden = self.model.extend(&inputs, &seated.seats, &mut seated.follower.prefix, &mut pending.suffix);
        let spans: Vec<&[TokenId]> =
            candidates.iter().map(|candidate| &candidate.tokens[candidate.tokens.len() - rest(candidate)..]).collect();
        let mut readings = Readings::new();
        for (policy, lane) in policies.iter().zip(self.read_rows(&seated, &hidden, &spans)?) {
            let beginnings = begun.readings.get(policy).unwrap_or_default();
            let whole = rows.iter().zip(lane).map(|(&row, more)| {
                let mut reading = beginnings[row].clone();
                reading.log_probs.extend(more.log_probs);
                reading.min_entropy.extend(more.min_entropy);
                reading
            });
            readings.insert(policy.clone(), whole.collect());
        }
        let last = context[context.len() - 1];
        let inputs = candidates.iter().map(|candidate| inputs_of(last, &candidate.tokens)).collect();
        self.seated = Some(seated);
        self.pending = Some(Pending { suffix: pending.suffix, inputs, beginnings: None });
        Ok(Some(readings))
    }

    /// Reads under the variant `name`, which has an instruction or a model of its own.
    fn read_apart(
        &mut self,
        name: &Arc<str>,
        context: &[TokenId],
        candidates: &Candidates,
        are_beginnings: bool,
    ) -> Result<Vec<Reading>, BoxError> {
        let model = self.racks.readers.get(name).unwrap_or_else(|| Arc::clone(&self.model));
        let place = self.apart.iter().position(|lane| lane.name == *name && Arc::ptr_eq(&lane.verifier.model, &model));
        let place = place.unwrap_or(self.apart.len());
        if place == self.apart.len() {
            let racks = Racks { adapters: self.racks.adapters.clone(), ..Racks::default() };
            let verifier = Self::new(model, racks);
            self.apart.push(SeparateLane { name: Arc::clone(name), verifier });
        }
        let instruction = self.racks.instructions.get(name);
        let context = instruction.map_or_else(|| context.to_vec(), |instruction| instruction.context(context));
        let verifier = &mut self.apart[place].verifier;
        let policy = if self.racks.adapters.get(name).is_some() { Policy::Variant(Arc::clone(name)) } else { Policy::Backbone };
        let readings = verifier.read_plain(&context, candidates, std::slice::from_ref(&policy), are_beginnings)?;
        Ok(readings.get(&policy).unwrap_or_default().to_vec())
    }
}

impl Backbone for Verifier {
    fn read(&mut self, context: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        self.read_all(context, candidates, policies, false)
    }

    fn read_beginnings(
        &mut self,
        context: &[TokenId],
        beginnings: &Candidates,
        policies: &[Policy],
    ) -> Result<Readings, BoxError> {
        self.read_all(context, beginnings, policies, true)
    }

    fn commit(&mut self, chosen: usize) -> Result<(), BoxError> {
        for lane in &mut self.apart {
            lane.verifier.commit(chosen)?;
        }
        if let (Some(pending), Some(seated)) = (self.pending.take(), &mut self.seated) {
            let row = if pending.inputs.len() == 1 { 0 } else { chosen };
            seated.follower.adopt(&self.model, &seated.seats, (&pending.suffix, row), &pending.inputs[row]);
        }
        self.ahead = None;
        Ok(())
    }
}

/// Returns whether two lanes run the same weights. A replaced adapter with the same name is another
/// lane.
fn identical(a: &Lane, b: &Lane) -> bool {
    a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr)
}

fn same(a: &[Lane], b: &[Lane]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(a, b))
}
