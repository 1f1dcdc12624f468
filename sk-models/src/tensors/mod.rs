//! The decoder on Burn's tensors, laid out for a GPU.
//!
//! What a GPU is short of while it decodes is launches: a kernel that reads a matrix for a few rows takes microseconds, and so does
//! telling the device about it. So products that read the same input are one product, what lies between two products is one kernel, and
//! what rows add lies behind the context they share, where one attention sees both.
//!
//! Rows of one pass lie by lane, then by group, then by token, then by row: row n of token t of a group of N rows is place `t·N + n` of its
//! lane. Matrices lie by columns.

mod attention;
mod cache;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod gpu;
mod layer;
pub(crate) mod ops;
mod recording;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use burn::tensor::{DType, Device, Int, Tensor, TensorData, module::embedding};
use sk_core::TokenId;

pub(crate) use cache::{Prefix, Suffix};

use crate::config::Qwen2Config;
use crate::device::settled;
use crate::lora::Lanes;
use crate::model::Norm;
use crate::model::parts::Parts;
use attention::{Pass, numbers};
use layer::{Layer, low_rank};
use ops::{multiply, product};
pub(crate) use recording::pause;
use recording::{Key, Recording};

/// A decoder of tensors.
#[derive(Debug)]
pub(crate) struct Tensors {
    /// `[V, H]`.
    embedding: Tensor<2>,
    layers: Vec<Layer>,
    norm: Norm,
    /// `[H, V]`; none where it is the embedding.
    head: Option<Tensor<2>>,
    config: Qwen2Config,
    /// `[positions, D]`: cosines and sines of each, for as many as were needed.
    angles: Mutex<Tensor<2>>,
    /// By which it is told from others.
    number: u64,
    /// Whether its device records passes, once that has been tried.
    records: OnceLock<bool>,
}

/// Positions whose angles are computed at first.
const POSITIONS: usize = 512;

/// Rows that are read in every lane of one prefix.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// Their tokens, short rows filled up to the longest.
    pub(crate) rows: Vec<&'a [TokenId]>,
    pub(crate) cache: Cache<'a>,
}

/// Where the keys and values of a group are found and kept.
#[derive(Debug)]
pub(crate) enum Cache<'a> {
    /// The only row of each lane continues its prefix.
    Prefill(&'a mut Prefix),
    /// Each row sees its lane's prefix and what it has added itself.
    Extend { prefix: &'a mut Prefix, suffix: &'a mut Suffix },
}

impl Group<'_> {
    /// Whether each row reads a token, as it will while a response grows.
    pub(crate) fn is_step(&self) -> bool {
        self.width() == 1
    }

    /// Tokens of the longest row.
    fn width(&self) -> usize {
        self.rows.iter().map(|row| row.len()).max().unwrap_or(0)
    }

    /// Places in each lane.
    fn places(&self) -> usize {
        self.width() * self.rows.len()
    }
}

/// The columns of a matrix: as in a file, what is summed lies together. Products with a single row on a GPU are fast in no other layout.
fn by_columns(matrix: Tensor<2>) -> Tensor<2> {
    let columns = matrix.transpose();
    // An element-wise product writes a new, contiguous tensor; a transpose alone is a view.
    settled(columns.ones_like() * columns).transpose()
}

/// Matrices `[in, out]` side by side, by columns.
fn side_by_side(matrices: impl IntoIterator<Item = Tensor<2>>) -> Tensor<2> {
    settled(Tensor::cat(matrices.into_iter().map(Tensor::transpose).collect(), 0)).transpose()
}

impl Tensors {
    /// Puts a decoder together whose matrices are in `format`, or as the parts have them.
    pub(crate) fn assemble<P: Parts>(
        embedding: Tensor<2>,
        config: &Qwen2Config,
        mut parts: P,
        format: Option<DType>,
    ) -> Result<Self, P::Error> {
        let cast = |matrix: Tensor<2>| match format {
            Some(format) => matrix.cast(format),
            None => matrix,
        };
        let embedding = settled(cast(embedding));
        let layers = (0..config.num_hidden_layers)
            .map(|index| Ok(Layer::new(parts.layer(index)?, config, cast)))
            .collect::<Result<_, _>>()?;
        let norm = parts.norm()?.settled();
        let head = parts.head()?.map(|head| by_columns(cast(head)));
        let angles = Mutex::new(angles(config, POSITIONS, &embedding.device()));
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self { embedding, layers, norm, head, config: config.clone(), angles, number, records: OnceLock::new() })
    }

    pub(crate) fn config(&self) -> &Qwen2Config {
        &self.config
    }

    pub(crate) fn device(&self) -> Device {
        self.embedding.device()
    }

    /// The format of the matrices.
    pub(crate) fn weight_format(&self) -> DType {
        self.embedding.dtype()
    }

    /// The format of keys and values: they are rounded as the matrices are.
    pub(crate) fn key_format(&self) -> DType {
        self.weight_format()
    }

    /// The format of everything else: adapters, states.
    pub(crate) fn state_format(&self) -> DType {
        self.norm.weight.val().dtype()
    }

    /// An empty prefix for `lanes` lanes with room for `capacity` tokens; it doubles as needed.
    pub(crate) fn prefix(&self, lanes: usize, capacity: usize) -> Prefix {
        Prefix::new(&self.config, lanes, capacity, self.key_format(), &self.device())
    }

    /// Bytes of the weights.
    pub(crate) fn bytes(&self) -> usize {
        let size = |count: usize, format: DType| count * format.size();
        let matrix = |matrix: &Tensor<2>| size(matrix.dims().iter().product(), matrix.dtype());
        let norm = |norm: &Norm| size(norm.weight.val().dims()[0], norm.weight.val().dtype());
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        matrix(&self.embedding) + layers + norm(&self.norm) + self.head.as_ref().map_or(0, matrix)
    }

    /// One pass over all groups, all of them under the same lanes: the final-norm states of each, `[G·places, H]`.
    ///
    /// # Panics
    ///
    /// If a prefix has another number of lanes.
    pub(crate) fn forward(&self, groups: &mut [Group<'_>], lanes: Lanes<'_>) -> Vec<Tensor<2>> {
        recording::arrive(&self.device());
        let positions = groups.iter().map(|group| group.sight().last() + 1).max().unwrap_or(0);
        let pass = Pass::new(&self.config, lanes.count(), groups, self.tell(groups, lanes), self.angles(positions), None);
        let states = self.read(&pass, groups, lanes);
        advance(groups);
        let places: Vec<usize> = groups.iter().map(Group::places).collect();
        apart(states, lanes.count(), &places)
    }

    /// The same of one group whose rows read a token each, as they have before and will again: such a pass is recorded where a device can do that.
    ///
    /// While it is recorded, nothing else may use the device.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub(crate) fn repeat(&self, group: Group<'_>, lanes: Lanes<'_>) -> Tensor<2> {
        recording::arrive(&self.device());
        let groups = &mut [group];
        let [group] = groups;
        let key = Key::new(group.rows.len(), self.number, lanes.number());
        let heads = attention::heads(&self.config);
        if !ops::reads_place(&self.device(), heads, lanes.count(), group.rows.len()) || !group.prefix().repeats().is_due(key) {
            return self.forward(groups, lanes).remove(0);
        }
        let (sight, numbers) = (group.sight(), self.tell(std::slice::from_ref(group), lanes));
        let room = group.prefix().make_room(sight.keys() - sight.places, sight.places);
        if let Some(states) = group.prefix().repeats().replay(&numbers) {
            advance(groups);
            return states;
        }
        let recording = recording::quietly(|| {
            let can = *self.records.get_or_init(|| self.rehearse(sight.rows, lanes));
            can.then(|| self.record(&numbers, room, groups, lanes)).flatten()
        });
        let [group] = groups;
        let repeats = group.prefix().repeats();
        repeats.keep(recording.flatten());
        match repeats.replay(&numbers) {
            None => self.forward(groups, lanes).remove(0),
            Some(states) => {
                advance(groups);
                states
            }
        }
    }

    /// A recording of a pass over groups whose caches have so much room.
    fn record(&self, numbers: &Tensor<1, Int>, room: usize, groups: &mut [Group<'_>], lanes: Lanes<'_>) -> Option<Recording> {
        let angles = self.angles(room);
        Recording::new(numbers, |numbers| {
            let pass = Pass::new(&self.config, lanes.count(), groups, numbers.clone(), angles.clone(), Some(room));
            self.read(&pass, groups, lanes)
        })
    }

    /// Whether the device records passes and then does what it recorded: tried with so many rows on caches that nothing is lost with.
    fn rehearse(&self, rows: usize, lanes: Lanes<'_>) -> bool {
        let [first, second] = [0, 1].map(|token| vec![[token as TokenId]; rows]);
        let room = rows.next_power_of_two();
        let (mut prefix, mut suffix) = (self.prefix(lanes.count(), room), Suffix::new(rows));
        let mut group = |rows: &[[TokenId; 1]], work: &mut dyn FnMut(&mut [Group<'_>]) -> Option<Tensor<2>>| {
            let cache = Cache::Extend { prefix: &mut prefix, suffix: &mut suffix };
            work(&mut [Group { rows: rows.iter().map(<[TokenId; 1]>::as_slice).collect(), cache }])
        };
        let mut recording = None;
        let _ = group(&first, &mut |groups| {
            recording = self.record(&self.tell(groups, lanes), room, groups, lanes);
            None
        });
        let Some(mut recording) = recording else { return false };
        let replayed = group(&second, &mut |groups| {
            // SAFETY: the cache is there still, and nothing has happened since.
            unsafe { recording.replay(&self.tell(groups, lanes)) }.ok()
        });
        let expected = group(&second, &mut |groups| {
            let pass = Pass::new(&self.config, lanes.count(), groups, self.tell(groups, lanes), self.angles(room), None);
            Some(self.read(&pass, groups, lanes))
        });
        let bits = |states: Option<Tensor<2>>| {
            let values = states?.try_into_vec_as::<f32>().ok()?;
            Some(values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let (replayed, expected) = (bits(replayed), bits(expected));
        replayed.is_some() && replayed == expected
    }

    /// What a pass is told, on the device.
    fn tell(&self, groups: &[Group<'_>], lanes: Lanes<'_>) -> Tensor<1, Int> {
        let numbers = numbers(groups, lanes.count());
        let count = numbers.len();
        Tensor::from_data(TensorData::new(numbers, [count]), (&self.device(), DType::I32))
    }

    /// The angles of at least so many positions.
    fn angles(&self, positions: usize) -> Tensor<2> {
        // Either all of a table is there or the one before.
        let mut known = self.angles.lock().unwrap_or_else(PoisonError::into_inner);
        if known.dims()[0] < positions {
            *known = angles(&self.config, positions.next_power_of_two(), &self.device());
        }
        known.clone()
    }

    /// The states of a pass, `[G·M, H]`.
    fn read(&self, pass: &Pass, groups: &mut [Group<'_>], lanes: Lanes<'_>) -> Tensor<2> {
        let tokens = pass.tokens();
        let [count, total] = tokens.dims();
        let x = embedding(self.embedding.clone(), tokens.clone()).reshape([count * total, self.config.hidden_size]);
        let mut x = x.cast(self.state_format());
        if let Some(delta) = lanes.embedding(tokens, product) {
            x = x + delta;
        }
        let mut change = None;
        for (index, layer) in self.layers.iter().enumerate() {
            let next = layer.forward((x, change), index, pass, groups, lanes.layer(index));
            (x, change) = (next.0, Some(next.1));
        }
        ops::add_norm(x, change, &self.norm, self.state_format()).1
    }

    /// Logits of states in the order of lanes: `[M, H]` to `[M, V]`, in f32 for a few states and where a lane changes the head, else in its
    /// format.
    pub(crate) fn logits(&self, states: &Tensor<2>, lanes: Lanes<'_>) -> Tensor<2> {
        let head = match &self.head {
            Some(head) => head.clone(),
            // Row by row it is the head column by column.
            None => self.embedding.clone().transpose(),
        };
        let logits = multiply(states, &head);
        match low_rank(lanes.head(), states) {
            None => logits,
            Some(delta) => logits.cast(delta.dtype()) + delta,
        }
    }

    /// The logits of each of several states, whose rows divide into the same lanes.
    pub(crate) fn logits_of(&self, states: &[&Tensor<2>], lanes: Lanes<'_>) -> Vec<Tensor<2>> {
        let count = lanes.count();
        let places: Vec<usize> = states.iter().map(|states| states.dims()[0] / count).collect();
        let joined = together(states.iter().map(|states| (*states).clone()).collect(), count);
        apart(self.logits(&joined, lanes), count, &places)
    }
}

/// Of each position its cosines and then its sines: computed in f64 and rounded once.
fn angles(config: &Qwen2Config, positions: usize, device: &Device) -> Tensor<2> {
    let (half, width) = (config.head_dim / 2, config.head_dim);
    let rates: Vec<f64> = (0..half).map(|j| config.rope_theta.powf(-2.0 * j as f64 / width as f64)).collect();
    let line = |position: usize| {
        let turns = rates.iter().map(move |rate| position as f64 * rate);
        turns.clone().map(|x| x.cos() as f32).chain(turns.map(|x| x.sin() as f32))
    };
    let angles: Vec<f32> = (0..positions).flat_map(line).collect();
    Tensor::from_data(TensorData::new(angles, [positions, width]), device)
}

/// Notes that the groups have been read.
fn advance(groups: &mut [Group<'_>]) {
    for group in groups {
        let tokens = group.width();
        match &mut group.cache {
            Cache::Prefill(prefix) => prefix.advance(tokens),
            Cache::Extend { suffix, .. } => suffix.advance(tokens),
        }
    }
}

/// `[G·mᵢ, W]` for each i, joined in each lane: `[G·Σmᵢ, W]`.
fn together(mut parts: Vec<Tensor<2>>, lanes: usize) -> Tensor<2> {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let width = parts[0].dims()[1];
    let total: usize = parts.iter().map(|part| part.dims()[0]).sum();
    let by_lane = |part: Tensor<2>| {
        let rows = part.dims()[0];
        part.reshape([lanes, rows / lanes, width])
    };
    Tensor::cat(parts.into_iter().map(by_lane).collect(), 1).reshape([total, width])
}

/// The reverse.
fn apart(joined: Tensor<2>, lanes: usize, places: &[usize]) -> Vec<Tensor<2>> {
    if places.len() == 1 {
        return vec![joined];
    }
    let [total, width] = joined.dims();
    let joined = joined.reshape([lanes, total / lanes, width]);
    let mut start = 0;
    let part = |&places: &usize| {
        start += places;
        joined.clone().slice([0..lanes, start - places..start, 0..width]).reshape([lanes * places, width])
    };
    places.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use burn::module::{Module, ModuleMapper, Param};

    use super::*;
    use crate::lora::{AdapterStack, LoraAdapter, LowRank};
    use crate::model::Qwen2;
    use crate::model::parts::Apart;

    /// f32 through two layers, sums in another order.
    const TOLERANCE: f32 = 1e-5;

    fn config(tied: bool) -> Qwen2Config {
        let json = format!(
            r#"{{"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
                "num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": {tied}}}"#
        );
        Qwen2Config::from_json("inline", &json).unwrap()
    }

    /// A model whose weights are ten times as large as at the start of training, so that attention is not uniform, and whose biases are not
    /// zero; and the same in tensors.
    fn models(tied: bool, device: &Device) -> (Qwen2, Tensors) {
        struct Enlarge;
        impl ModuleMapper for Enlarge {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                param.map(|value| if D == 2 { value.mul_scalar(10.0) } else { value })
            }
        }
        let config = config(tied);
        let mut model = Qwen2::random(&config, 1, device).map(&mut Enlarge);
        for (index, layer) in model.layers.iter_mut().enumerate() {
            let attention = &mut layer.self_attn;
            for (offset, projection) in
                [&mut attention.q_proj, &mut attention.k_proj, &mut attention.v_proj].into_iter().enumerate()
            {
                let bias = projection.bias.take().expect("projections of the input have biases");
                let values = |size: usize| (0..size).map(|i| ((i + 5 * offset + 3 * index) as f32).sin()).collect::<Vec<_>>();
                projection.bias = Some(bias.map(|bias| {
                    let size = bias.dims()[0];
                    Tensor::from_data(TensorData::new(values(size), [size]), device)
                }));
            }
        }
        let mut parts = Apart::from(model.clone());
        let Ok(embedding) = parts.embedding();
        let tensors: Result<Tensors, Infallible> = Tensors::assemble(embedding, &config, parts, None);
        let Ok(tensors) = tensors;
        (model, tensors)
    }

    /// An adapter of every projection that `keeps` names, the embedding and the head.
    fn adapter(rank: usize, seed: u64, keeps: impl Fn(usize) -> bool, device: &Device) -> LoraAdapter {
        let config = config(true);
        let mut adapter = LoraAdapter::random(&config, rank, seed, device);
        let wide = LoraAdapter::random(&config, rank, seed + 100, device);
        for layer in &mut adapter.layers {
            let kept = crate::lora::Target::ALL.into_iter().enumerate().filter(|(index, _)| keeps(*index));
            let mut other = crate::lora::LayerAdapter::default();
            for (_, target) in kept {
                other.set(target, layer.get(target).expect("a random adapter has every target").clone());
            }
            *layer = other;
        }
        let rows = |of: &LowRank, rows: usize| of.a.clone().repeat_dim(0, 3).slice([0..rows, 0..rank]);
        let query = wide.layers[0].get(crate::lora::Target::Query).expect("as above");
        let out = query.b.clone().slice([0..rank, 0..config.hidden_size]);
        adapter.embed_tokens = Some(LowRank { a: rows(query, config.vocab_size), b: out.clone(), scale: 0.5 });
        let wide_out = out.repeat_dim(1, 3).slice([0..rank, 0..config.vocab_size]);
        adapter.lm_head = Some(LowRank { a: rows(query, config.hidden_size), b: wide_out, scale: 0.7 });
        adapter
    }

    fn text(seed: u32, length: usize) -> Vec<TokenId> {
        (0..length as u32).map(|i| (seed * 31 + i * i * 7 + i) % 61).collect()
    }

    /// States and logits of a whole sequence under an adapter, in one pass of the module.
    fn whole(model: &Qwen2, sequence: &[TokenId], adapter: Option<&LoraAdapter>) -> [Tensor<2>; 2] {
        let device = model.device();
        let ids: Vec<i64> = sequence.iter().map(|&token| i64::from(token)).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, sequence.len()]), &device);
        let stack = AdapterStack::new(&model.config, &[adapter], &device).unwrap();
        let states = model.forward(ids, Lanes::of(&stack));
        [states.clone(), model.logits(states, Lanes::of(&stack))]
    }

    fn assert_close(name: &str, found: Tensor<2>, expected: Tensor<2>) {
        assert_eq!(found.dims(), expected.dims(), "{name}");
        let size = expected.clone().abs().max().into_scalar::<f32>().max(1.0);
        let error = (found - expected).abs().max().into_scalar::<f32>();
        assert!(error < TOLERANCE * size, "{name}: off by {error:e} at size {size}");
    }

    fn line(of: &Tensor<2>, row: usize) -> Tensor<2> {
        of.clone().slice([row..row + 1, 0..of.dims()[1]])
    }

    fn prefill<'a>(tokens: &'a [TokenId], prefix: &'a mut Prefix) -> [Group<'a>; 1] {
        [Group { rows: vec![tokens], cache: Cache::Prefill(prefix) }]
    }

    fn extend<'a>(rows: &'a [Vec<TokenId>], prefix: &'a mut Prefix, suffix: &'a mut Suffix) -> Group<'a> {
        Group { rows: rows.iter().map(Vec::as_slice).collect(), cache: Cache::Extend { prefix, suffix } }
    }

    #[test]
    fn cached_decoding_is_one_pass() {
        let device = Device::flex();
        for tied in [true, false] {
            let (model, tensors) = models(tied, &device);
            let sequence = text(1, 13);
            let [states, logits] = whole(&model, &sequence, None);
            // In pieces of several sizes, through a prefix that must grow.
            let mut prefix = tensors.prefix(1, 2);
            let mut start = 0;
            for size in [1, 5, 1, 4, 2] {
                let found =
                    tensors.forward(&mut prefill(&sequence[start..start + size], &mut prefix), Lanes::backbone()).remove(0);
                let expected = |of: &Tensor<2>| of.clone().slice([start..start + size, 0..of.dims()[1]]);
                assert_close("logits", tensors.logits(&found, Lanes::backbone()), expected(&logits));
                assert_close("states", found, expected(&states));
                start += size;
                assert_eq!(prefix.len(), start);
            }
            // A prefix of six, then a single row token by token and in spans.
            prefix.truncate(6);
            let mut suffix = Suffix::new(1);
            start = 6;
            for size in [1, 1, 3, 2] {
                let row = [sequence[start..start + size].to_vec()];
                let found = tensors.forward(&mut [extend(&row, &mut prefix, &mut suffix)], Lanes::backbone()).remove(0);
                assert_close("suffix", found, states.clone().slice([start..start + size, 0..24]));
                start += size;
                assert_eq!((prefix.len(), suffix.len()), (6, start - 6));
            }
        }
    }

    #[test]
    fn rows_of_every_lane_are_each_alone() {
        let device = Device::flex();
        let (model, tensors) = models(true, &device);
        // Ranks and targets differ, so that what is smaller or missing is filled up; the first lane is the backbone.
        let adapters = [adapter(3, 1, |_| true, &device), adapter(1, 2, |index| index % 2 == 1, &device)];
        let lanes = [None, Some(&adapters[0]), Some(&adapters[1])];
        let stack = AdapterStack::new(tensors.config(), &lanes, &device).unwrap();
        let context = text(4, 6);
        let rows: Vec<Vec<TokenId>> = (10..14).map(|seed| text(seed, 5)).collect();

        let mut prefix = tensors.prefix(3, 8);
        let _ = tensors.forward(&mut prefill(&context, &mut prefix), Lanes::of(&stack));
        let mut suffix = Suffix::new(4);
        // Two tokens, then three: what was added before is seen again.
        let parts: [Vec<Vec<TokenId>>; 2] = [0..2, 2..5].map(|part| rows.iter().map(|row| row[part.clone()].to_vec()).collect());
        let mut steps: Vec<[Tensor<2>; 3]> = Vec::new();
        for part in &parts {
            let found = tensors.forward(&mut [extend(part, &mut prefix, &mut suffix)], Lanes::of(&stack)).remove(0);
            let logits = tensors.logits(&found, Lanes::of(&stack));
            let width = part[0].len();
            for step in 0..width {
                let lane = |of: &Tensor<2>, lane: usize| {
                    let start = lane * width * 4 + step * 4;
                    of.clone().slice([start..start + 4, 0..of.dims()[1]])
                };
                steps.push([0, 1, 2].map(|g| Tensor::cat(vec![lane(&found, g), lane(&logits, g)], 1)));
            }
        }
        for (lane, adapter) in lanes.into_iter().enumerate() {
            for (row, span) in rows.iter().enumerate() {
                let [states, logits] = whole(&model, &[context.clone(), span.clone()].concat(), adapter);
                let expected = Tensor::cat(vec![states, logits], 1);
                for (step, found) in steps.iter().enumerate() {
                    assert_close(
                        &format!("lane {lane}, row {row}, token {step}"),
                        line(&found[lane], row),
                        line(&expected, 6 + step),
                    );
                }
            }
        }

        // Three of the five tokens of the third row stay; a lane leaves and one that has read the same joins.
        prefix.adopt(&suffix, 2, 3);
        prefix.select_lanes(&[2, 0]);
        let kept = [context, rows[2][..3].to_vec()].concat();
        let alone = AdapterStack::new(tensors.config(), &[lanes[1]], &device).unwrap();
        let mut other = tensors.prefix(1, 4);
        let _ = tensors.forward(&mut prefill(&kept, &mut other), Lanes::of(&alone));
        prefix.join_lanes(&other);
        let order = [lanes[2], lanes[0], lanes[1]];
        let stack = AdapterStack::new(tensors.config(), &order, &device).unwrap();
        let rest = text(9, 2);
        let found = tensors.forward(&mut prefill(&rest, &mut prefix), Lanes::of(&stack)).remove(0);
        for (lane, adapter) in order.into_iter().enumerate() {
            let [states, _] = whole(&model, &[kept.clone(), rest.clone()].concat(), adapter);
            let found = found.clone().slice([lane * 2..lane * 2 + 2, 0..24]);
            assert_close("after adoption", found, states.slice([9..11, 0..24]));
        }
    }

    #[test]
    fn groups_of_one_pass_are_each_alone() {
        let device = Device::flex();
        let (model, tensors) = models(false, &device);
        let adapter = adapter(2, 5, |_| true, &device);
        let lanes = [Some(&adapter), None];
        let stack = AdapterStack::new(tensors.config(), &lanes, &device).unwrap();
        // Contexts and numbers of rows differ; one group is a prefill.
        let contexts = [text(1, 7), text(2, 3), Vec::new()];
        let rows = [vec![text(3, 2), text(4, 2), text(5, 2)], vec![text(6, 4)], vec![text(7, 5)]];
        let mut prefixes = contexts.clone().map(|context| {
            let mut prefix = tensors.prefix(2, 4);
            if !context.is_empty() {
                let _ = tensors.forward(&mut prefill(&context, &mut prefix), Lanes::of(&stack));
            }
            prefix
        });
        let [first, second, third] = &mut prefixes;
        let (mut three, mut one) = (Suffix::new(3), Suffix::new(1));
        let mut groups = [
            extend(&rows[0], first, &mut three),
            extend(&rows[1], second, &mut one),
            Group { rows: vec![&rows[2][0]], cache: Cache::Prefill(third) },
        ];
        let states = tensors.forward(&mut groups, Lanes::of(&stack));
        let logits = tensors.logits_of(&states.iter().collect::<Vec<_>>(), Lanes::of(&stack));
        for (group, (context, rows)) in contexts.iter().zip(&rows).enumerate() {
            let (count, width) = (rows.len(), rows[0].len());
            for (lane, adapter) in lanes.into_iter().enumerate() {
                for (row, span) in rows.iter().enumerate() {
                    let expected = whole(&model, &[context.clone(), span.clone()].concat(), adapter);
                    for step in 0..width {
                        let place = (lane * width + step) * count + row;
                        for (found, expected) in [&states[group], &logits[group]].into_iter().zip(&expected) {
                            assert_close(&format!("group {group}"), line(found, place), line(expected, context.len() + step));
                        }
                    }
                }
            }
        }
        assert_eq!(prefixes[2].len(), 5);
    }
}
