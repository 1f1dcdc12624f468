//! Tests that compare each kernel with the equivalent operations of Burn. They run if
//! `SWISS_KNIFE_TEST_DEVICE` names a GPU.

use std::ops::Deref;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use sk_core::TokenId;

use super::super::operands::{AttentionGroup, Changed, Selection};
use super::super::ops::{
    add_norm, adopt, argmax, attend, by_place, gate, low_rank, multiply, multiply_whole, penalise, product, read, refresh,
    rotate, select, softmax,
};
use super::super::shape::Visibility;
use crate::config::Qwen2Config;
use crate::decoder::engine::{Cache, Group, PrefixCache};
use crate::decoder::gpu::GpuEngine;
use crate::decoder::gpu::cache::DeviceSuffix;
use crate::decoder::gpu::engine::StackSeats;
use crate::decoder::gpu::tests::advance;
use crate::decoder::heads::Heads;
use crate::device::DeviceName;
use crate::lora::{AdapterStack, Lanes, LoraAdapter, Reads};
use crate::model::Norm;
use crate::model::initial::Initial;
use crate::model::parts::ModelParts;
use crate::precision::Precision;

/// A dozen roundings of f32, in sums of a few hundred terms in another order.
const WHOLE: f32 = 2e-5;

/// One step of bf16, for a sum in another order that rounds to the other side.
const HALF: f32 = 1.0 / 128.0;

/// The device under test. No other test uses it until this is dropped, since nothing else may while
/// a pass is recorded.
struct Turn {
    device: Device,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Turn {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

/// Waits for the device under test; `None` if it is the CPU.
fn device() -> Option<Turn> {
    static TURNS: Mutex<()> = Mutex::new(());
    let name: DeviceName = std::env::var("SWISS_KNIFE_TEST_DEVICE").ok()?.parse().expect("the name of a device");
    // A failed test leaves no state behind.
    let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    (name != DeviceName::Cpu).then(|| Turn { device: name.open().expect("a device of this machine"), _turn: turn })
}

/// Returns the weight formats that a device supports.
fn formats(device: &Device) -> Vec<DType> {
    let half = Precision::Bf16.check(device).is_ok().then_some(DType::BF16);
    [DType::F32].into_iter().chain(half).collect()
}

/// Returns numbers between −1 and 1 without a pattern that could hide wrong sums.
fn numbers<const D: usize>(shape: [usize; D], seed: usize, device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + seed * 104_729) as f64 * 0.618_033_988_749).sin() as f32;
    Tensor::from_data(TensorData::new((0..count).map(number).collect::<Vec<_>>(), shape), device)
}

/// Asserts that `make` gives the same tensor on the device and on the CPU, up to `tolerance`
/// relative to its size.
fn agree<const D: usize>(name: &str, device: &Device, tolerance: f32, make: impl Fn(&Device) -> Tensor<D>) {
    let [found, expected] = [device, &Device::flex()].map(|device| {
        let made = make(device);
        (made.dims(), made.dtype(), made.cast(DType::F32).into_data().try_into_vec::<f32>().unwrap())
    });
    assert_eq!((found.0, found.1), (expected.0, expected.1), "{name}");
    let size = expected.2.iter().fold(0.0_f32, |size, x| size.max(x.abs()));
    assert!(size > 0.0, "{name}: nothing to compare");
    for (place, (found, expected)) in found.2.iter().zip(&expected.2).enumerate() {
        // Written so that a NaN fails.
        let close = (found - expected).abs() <= tolerance * size;
        assert!(close, "{name}: {found} at {place} in place of {expected}, of numbers up to {size}");
    }
}

#[test]
fn rows_times_a_matrix() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        for rows in [1, 2, 7, 8, 15, 16, 17, 40] {
            // Numbers of columns that are not multiples of a cube's span, or less than it; depths
            // with and without whole lines.
            for (depth, columns) in [(64, 61), (896, 130), (1000, 4), (52, 9), (2056, 7), (128, 3)] {
                for entry in [DType::F32, format] {
                    let name = format!("{rows} rows of {entry:?}, {depth} by {columns} of {format:?}");
                    let tolerance = if rows > 16 && format == DType::BF16 { HALF } else { WHOLE };
                    agree(&name, &device, tolerance, |device| {
                        // A view with row padding, of numbers that both formats represent exactly.
                        let x = numbers([rows, depth + 8], 1, device).cast(format).cast(entry).slice([0..rows, 0..depth]);
                        let weight = numbers([columns, depth], 2, device).cast(format).transpose();
                        if *device != Device::flex() {
                            return multiply(&x, &weight);
                        }
                        // On the CPU the product is rounded to the format of the matrix; a few rows
                        // on a GPU are not.
                        let exact = x.cast(DType::F32).matmul(weight.cast(DType::F32));
                        if rows > 16 { exact.cast(format) } else { exact }
                    });
                }
            }
        }
    }
}

/// A logit does not depend on the number of rows and is not rounded to the format of the head.
#[test]
fn logits_are_not_rounded_for_any_number_of_rows() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        for rows in [3, 16, 17, 90] {
            agree(&format!("{rows} rows, {format:?}"), &device, WHOLE, |device| {
                let x = numbers([rows, 256], 5, device);
                multiply_whole(&x, &numbers([300, 256], 6, device).cast(format).transpose())
            });
        }
    }
}

#[test]
fn products_are_in_f32() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        for (queries, keys, width) in [(1, 5, 8), (6, 33, 16), (40, 70, 64)] {
            agree(&format!("{format:?}"), &device, WHOLE, |device| {
                let a = numbers([2, 3, queries, width], 3, device).cast(format);
                let b = numbers([2, 3, keys, width], 4, device).cast(format);
                product(a, b.swap_dims(2, 3))
            });
        }
    }
}

#[test]
fn sums_and_norms() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        let tolerance = if format == DType::F32 { WHOLE } else { HALF };
        for (rows, width) in [(1, 8), (3, 24), (9, 300), (2, 2048)] {
            for (change, delta) in [(false, false), (true, false), (true, true)] {
                let run = |device: &Device| {
                    let changed = change.then(|| Changed {
                        frozen: numbers([rows, width], 6, device).cast(format),
                        delta: delta.then(|| numbers([rows, width], 7, device)),
                    });
                    let norm = Norm::new(numbers([width], 8, device), 1e-6);
                    add_norm(numbers([rows, width], 5, device), changed, &norm, format)
                };
                let name = format!("{rows} by {width}, {change}, {delta}, {format:?}");
                agree(&name, &device, WHOLE, |device| run(device).0);
                agree(&name, &device, tolerance, |device| run(device).1);
            }
        }
    }
}

/// Returns three groups, with heads of odd and even widths, in lanes with other groups before and
/// after: the number of lanes, the group's first place, all places of a lane.
fn shapes() -> [(Heads, [usize; 3], Visibility); 3] {
    let visibility = |places, shared, earlier, rows| Visibility { places, shared, earlier, rows };
    [
        (Heads { queries: 6, keys: 2, width: 10 }, [2, 3, 9], visibility(4, 3, 1, 2)),
        (Heads { queries: 7, keys: 1, width: 64 }, [1, 0, 1], visibility(1, 5, 0, 1)),
        (Heads { queries: 3, keys: 3, width: 16 }, [3, 0, 21], visibility(21, 0, 2, 7)),
    ]
}

/// Returns a group at the beginning of its lanes, whose place follows the numbers of others.
fn group(heads: Heads, lanes: usize, visibility: Visibility, room: usize, device: &Device) -> AttentionGroup {
    let [shared, earlier] = visibility.lengths();
    let numbers = TensorData::new(vec![71, 72, 73, shared, earlier], [5]);
    let numbers = Tensor::from_data(numbers, (device, DType::I32));
    AttentionGroup { heads, lanes, start: 0, visibility, numbers, at: 3, room }
}

#[test]
fn heads_are_rotated() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        let tolerance = if format == DType::F32 { WHOLE } else { HALF };
        for (heads, [lanes, start, total], visibility) in shapes() {
            for adapted in [false, true] {
                let run = |device: &Device| {
                    let width = heads.count() * heads.width;
                    let rows = lanes * total;
                    let projected = Changed {
                        frozen: numbers([rows, width], 9, device).cast(format),
                        delta: adapted.then(|| numbers([rows, width], 10, device)),
                    };
                    let angles = numbers([visibility.last() + 1, heads.width], 11, device);
                    let cache = numbers([lanes, 2 * heads.keys, visibility.keys() + 2, heads.width], 13, device).cast(format);
                    let group = AttentionGroup { start, ..group(heads, lanes, visibility, visibility.keys(), device) };
                    rotate(projected, numbers([width], 12, device), angles, &group, cache)
                };
                agree("queries", &device, tolerance, |device| run(device).0);
                agree("the cache", &device, tolerance, |device| run(device).1);
            }
            agree("by place", &device, tolerance, |device| {
                let shape = [lanes, heads.keys, heads.queries_per_key() * visibility.places, heads.width];
                by_place(numbers(shape, 13, device), heads, lanes, visibility.places, format)
            });
        }
    }
}

/// From one query and one key to several rows that have added tokens before.
const VISIBILITIES: [Visibility; 6] = [
    Visibility { places: 1, shared: 0, earlier: 0, rows: 1 },
    Visibility { places: 1, shared: 70, earlier: 0, rows: 1 },
    Visibility { places: 6, shared: 0, earlier: 0, rows: 1 },
    Visibility { places: 6, shared: 300, earlier: 2, rows: 3 },
    Visibility { places: 7, shared: 40, earlier: 5, rows: 7 },
    Visibility { places: 40, shared: 33, earlier: 0, rows: 5 },
];

#[test]
fn scores_become_softmax_weights() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        let tolerance = if format == DType::F32 { WHOLE } else { HALF };
        // The scores also lie so far apart that exponentials overflow if the maximum is wrong.
        for (visibility, size) in VISIBILITIES.into_iter().flat_map(|visibility| [(visibility, 8.0), (visibility, 300.0)]) {
            agree(&format!("{visibility:?}, {size}"), &device, tolerance, |device| {
                let scores = numbers([2, 2, 3 * visibility.places, visibility.keys()], 14, device);
                softmax(scores.mul_scalar(size), visibility, format)
            });
        }
    }
}

#[test]
fn keys_are_attended_to() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        // Only one of the two computations rounds weights to the format of the keys.
        let tolerance = if format == DType::F32 { WHOLE } else { HALF };
        // Room for exactly the keys, and for more, which are masked.
        for (visibility, spare) in
            VISIBILITIES.into_iter().flat_map(|visibility| [(visibility, 0), (visibility, 3), (visibility, 90)])
        {
            for (lanes, heads) in [
                (2, Heads { queries: 6, keys: 2, width: 10 }),
                (1, Heads { queries: 7, keys: 1, width: 64 }),
                (1, Heads { queries: 2, keys: 2, width: 128 }),
            ] {
                agree(&format!("{lanes}, {heads:?}, {visibility:?}, {spare}"), &device, tolerance, |device| {
                    let number = heads.queries_per_key() * visibility.places;
                    let queries = numbers([lanes, heads.keys, number, heads.width], 21, device).mul_scalar(2.0).cast(format);
                    let room = visibility.keys() + spare;
                    let cache = numbers([lanes, 2 * heads.keys, room, heads.width], 22, device).cast(format);
                    attend(queries, &cache, &group(heads, lanes, visibility, room, device), DType::F32)
                });
            }
        }
    }
}

#[test]
fn an_adopted_row_moves_to_the_front() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        for (tokens, rows, row) in [(1, 3, 2), (5, 3, 0), (5, 3, 2), (24, 7, 1), (4, 1, 0)] {
            agree(&format!("{tokens}, {rows}, {row}"), &device, 0.0, |device| {
                let cache = numbers([2, 4, 3 + tokens * rows + 2, 10], 23, device).cast(format);
                adopt(cache, 3, tokens, rows, row)
            });
        }
    }
}

#[test]
fn refresh_writes_in_place() {
    let Some(device) = device() else { return };
    let integers = |numbers: [i32; 3]| Tensor::<1, Int>::from_data(TensorData::from(numbers), (&*device, DType::I32));
    let old = integers([1, 2, 3]);
    let held = old.clone();
    let _ = refresh(old, integers([5, -6, 7]));
    assert_eq!(held.into_data().try_into_vec::<i32>().unwrap(), [5, -6, 7]);
}

/// Returns a model whose matrix rows are whole lines.
fn model(device: &Device) -> GpuEngine {
    let config = Qwen2Config::small([61, 64, 96, 2, 4, 2]);
    let mut parts = Initial::from_seed(7, &config, device);
    let Ok(embedding) = parts.embedding();
    let Ok(tensors) = GpuEngine::assemble(embedding, &config, parts, None);
    tensors
}

/// Runs a pass over one group, which is not recorded.
fn forward(model: &GpuEngine, mut group: Group<'_, GpuEngine>) -> Tensor<2> {
    let states = model.forward_all(slice::from_mut(&mut group)).remove(0);
    advance(&mut group);
    states
}

/// Runs a pass over one group, which is recorded if it repeats.
fn repeat(model: &GpuEngine, mut group: Group<'_, GpuEngine>) -> Tensor<2> {
    let states = model.repeat(&mut group);
    advance(&mut group);
    states
}

/// A pass gives bit-identical results whether it is recorded or not. The test extends several rows
/// and adopts one, extends a single row, and repeats both with caches that grow and change, under
/// the backbone and under adapters.
#[test]
fn a_recording_gives_the_bits_of_the_pass() {
    let Some(device) = device() else { return };
    let model = model(&device);
    let adapters = [3, 4].map(|seed| LoraAdapter::random(&model.config, 4, seed, &device));
    let stack = AdapterStack::new(&model.config, &[None, Some(&adapters[0]), Some(&adapters[1])], &device).unwrap();
    // The last case has too many rows for kernels that read their position from device memory. A
    // single row is not too many.
    let (alone, stacked) = (StackSeats(None), StackSeats(Some(Arc::new(stack))));
    for (seats, width) in [(&alone, 5), (&stacked, 5), (&alone, 20)] {
        let [mut live, mut repeated] = [(); 2].map(|()| model.prefix_with(seats.lanes().count(), 8));
        let context: Vec<TokenId> = (0..6).collect();
        for prefix in [&mut live, &mut repeated] {
            let _ = forward(&model, Group { rows: vec![&context], seats, cache: Cache { prefix, suffix: None } });
        }
        let mut recorded = 0;
        let mut held: Vec<[Tensor<2>; 2]> = Vec::new();
        for step in 0..3_u32 {
            let mut suffixes = [(); 2].map(|()| DeviceSuffix::new(width));
            for token in 0..9_u32 {
                let rows: Vec<[TokenId; 1]> = (0..width as u32).map(|row| [(7 * step + 3 * token + 11 * row) % 61]).collect();
                let rows: Vec<&[TokenId]> = rows.iter().map(<[TokenId; 1]>::as_slice).collect();
                let [own, other] = &mut suffixes;
                let cache = Cache { prefix: &mut live, suffix: Some(own) };
                let expected = forward(&model, Group { rows: rows.clone(), seats, cache });
                let cache = Cache { prefix: &mut repeated, suffix: Some(other) };
                held.push([expected, repeat(&model, Group { rows, seats, cache })]);
                // If there are too many rows, an existing recording is of a single row.
                recorded += usize::from(width == 5 && repeated.repeats.is_recorded());
            }
            live.adopt(&suffixes[0], 3, 7);
            repeated.adopt(&suffixes[1], 3, 7);
            for token in 0..9_u32 {
                if token == 6 {
                    // Reorder the lanes, in the same way for both. A single lane stays where it is.
                    let lanes: Vec<usize> = (0..seats.lanes().count()).rev().collect();
                    live.select_lanes(&lanes);
                    repeated.select_lanes(&lanes);
                }
                let row = [(5 * step + token) % 61];
                let group = |prefix| Group { rows: vec![&row], seats, cache: Cache { prefix, suffix: None } };
                let expected = forward(&model, group(&mut live));
                held.push([expected, repeat(&model, group(&mut repeated))]);
                recorded += usize::from(repeated.repeats.is_recorded());
            }
        }
        // Of the nine passes of a kind, the first four are not recorded. A recording of a single
        // row is kept while no other pass is recorded.
        assert_eq!(recorded, if width == 5 { 6 * 5 } else { 5 + 2 * 9 });
        // Compare only at the end, so that a state that a later pass overwrites is found.
        for (pass, [expected, found]) in held.into_iter().enumerate() {
            let [expected, found] = [expected, found].map(|states| states.into_data().try_into_vec::<f32>().unwrap());
            assert!(expected.iter().all(|x| x.is_finite()) && expected == found, "pass {pass}");
        }
    }
}

#[test]
fn gates_are_applied() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        let tolerance = if format == DType::F32 { WHOLE } else { HALF };
        for adapted in [false, true] {
            agree(&format!("{adapted}"), &device, tolerance, |device| {
                let frozen = numbers([5, 74], 15, device).mul_scalar(4.0).cast(format);
                gate(Changed { frozen, delta: adapted.then(|| numbers([5, 74], 16, device)) }, format)
            });
        }
    }
}

/// Test one, two and three targets, in lanes with and without an adapter, with numbers of rows and
/// columns that cubes do not divide.
#[test]
fn updates_are_applied_per_lane() {
    let Some(device) = device() else { return };
    // More inputs than a piece of a sum has terms, and more columns than the units of a cube handle
    // at once: 512 each.
    let config = Qwen2Config { head_dim: 190, ..Qwen2Config::small([11, 1062, 701, 1, 3, 1]) };
    // Ranks below, at and above the number of terms that are shared at a time. The smaller of two
    // is padded.
    for (ranks, rows) in [([1, 3], 1), ([16, 16], 15), ([32, 8], 16), ([5, 70], 33)] {
        let stack = |device: &Device| {
            let [some, other] = ranks.map(|rank| LoraAdapter::random(&config, rank, rank as u64, device));
            AdapterStack::new(&config, &[Some(&some), None, Some(&other)], device).unwrap()
        };
        for (reads, input) in [(Reads::State, 1062), (Reads::Mixed, 570), (Reads::Between, 1062), (Reads::Gated, 701)] {
            for format in formats(&device) {
                agree(&format!("{reads:?}, ranks {ranks:?}, {rows} rows of {format:?}"), &device, WHOLE, |device| {
                    let stack = stack(device);
                    // Numbers that both formats represent exactly.
                    let x = numbers([3 * rows, input], 24, device).mul_scalar(64.0).round().div_scalar(64.0);
                    let x = if *device == Device::flex() { x } else { x.cast(format) };
                    low_rank(&x, Lanes::of(&stack).layer(0).unwrap().of(reads).unwrap())
                });
            }
        }
    }
}

#[test]
fn logits_are_summarised() {
    let Some(device) = device() else { return };
    for format in formats(&device) {
        // Logits lie far apart, so that rounding changes no order. Every row has another scale, and
        // the largest logit is near the end.
        let logits = |rows: usize, vocabulary: usize, device: &Device| {
            let number = |i: usize| {
                let (row, place) = (i / vocabulary, (i % vocabulary) as f32 / vocabulary as f32);
                10.0 * (row + 1) as f32 * place * (i as f32 * 7.3).sin()
            };
            let numbers: Vec<f32> = (0..rows * vocabulary).map(number).collect();
            Tensor::<2>::from_data(TensorData::new(numbers, [rows, vocabulary]), device).cast(format)
        };
        for (rows, vocabulary) in [(1, 64), (3, 61), (7, 1000)] {
            agree("readings", &device, WHOLE, |device| {
                let targets: Vec<i64> = (0..rows).map(|row| (row * 17 % vocabulary) as i64).collect();
                let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [rows]), device);
                read(logits(rows, vocabulary, device), targets)
            });
            agree("the argmax", &device, 0.0, |device| argmax(logits(rows, vocabulary, device)));
            agree("how many are no numbers", &device, 0.0, |device| {
                // Of row n 3·n + 1, every other one from the end on; −∞, between the first two, is
                // a number.
                let odd = |row: usize, i: usize| match vocabulary - 1 - i {
                    1 => f32::NEG_INFINITY,
                    back if back % 2 == 0 && back / 2 <= 3 * row => [f32::NAN, f32::INFINITY][back / 2 % 2],
                    _ => i as f32,
                };
                let odd: Vec<f32> = (0..rows * vocabulary).map(|i| odd(i / vocabulary, i % vocabulary)).collect();
                let odd = Tensor::<2>::from_data(TensorData::new(odd, [rows, vocabulary]), device).cast(format);
                argmax(odd).slice([0..rows, 1..2])
            });
        }
    }
}

#[test]
fn tokens_are_penalised() {
    let Some(device) = device() else { return };
    agree("penalties", &device, WHOLE, |device| {
        let tokens = TensorData::new(vec![5_i32, 0, 11, -1, 60, 2, -1, -1, 7], [3, 3]);
        penalise(numbers([3, 61], 35, device), Tensor::from_data(tokens, (device, DType::I32)), 1.25)
    });
}

/// The kernels select the tokens that sorting selects, for peaked and flat rows, with equal logits
/// and −∞ among them, and a vocabulary that chunks do not divide.
#[test]
fn tokens_are_selected() {
    let Some(device) = device() else { return };
    let (count, mass, draw) = (Selection::Count, |rate| Selection::Mass { rate }, |rate| Selection::Draw { rate });
    let cases: [(&[Selection], &[f32]); 6] = [
        (&[count], &[1.0]),
        (&[draw(1.0)], &[0.43]),
        (&[mass(1.0), draw(1.0)], &[0.95, 0.71]),
        (&[mass(0.7), draw(0.7)], &[0.9, 0.997]),
        (&[count, mass(1.5), draw(1.5)], &[40.0, 0.8, 0.31]),
        (&[count, draw(1.0)], &[700.0, 0.97]),
    ];
    for (rows, vocabulary, spread) in [(1, 5, 2.0), (3, 1000, 0.01), (7, 4001, 1.0), (2, 9000, 6.0)] {
        for (selections, shares) in cases {
            let found = [&*device, &Device::flex()].map(|device| {
                // Half of the numbers occur several times.
                let coarse: Tensor<2> = numbers([rows, vocabulary], 31, device).mul_scalar(64.0).round().div_scalar(64.0);
                let odd = numbers::<2>([rows, vocabulary], 32, device).greater_elem(0.0).float();
                let fine: Tensor<2> = numbers([rows, vocabulary], 33, device);
                let logits = (fine.clone() + (coarse - fine) * odd).mul_scalar(spread);
                let hidden = numbers::<2>([rows, vocabulary], 34, device).greater_elem(0.8);
                let rated = logits.clone().mask_fill(hidden, f32::NEG_INFINITY);
                let shares = (shares.iter().flat_map(|&share| vec![share.min(vocabulary as f32); rows])).collect::<Vec<_>>();
                let shares = Tensor::from_data(TensorData::new(shares, [selections.len(), rows]), device);
                select(logits, rated, selections, shares).into_data().try_into_vec::<f32>().unwrap()
            });
            let [found, expected] = &found;
            for (found, expected) in found.chunks_exact(3).zip(expected.chunks_exact(3)) {
                let name = format!("{rows} rows of {vocabulary}, {spread}, {selections:?}: {found:?}, not {expected:?}");
                assert!(found[0] == expected[0] && found[2] == 0.0, "{name}");
                // Log-probabilities are sums of a few tens.
                assert!((found[1] - expected[1]).abs() < 1e-5, "{name}");
            }
        }
    }
}

/// Zeros of both signs are equal. A row without a token to select, and NaN or +∞, are reported.
#[test]
fn special_logits_are_selected_from() {
    const LOWEST: f32 = f32::NEG_INFINITY;
    let Some(device) = device() else { return };
    let logits = [[-1.0, -0.0, 0.0, -2.0, -3.0], [LOWEST; 5], [f32::NAN, 1.0, LOWEST, f32::INFINITY, 0.0]];
    for device in [&*device, &Device::flex()] {
        let logits = Tensor::<2>::from_data(TensorData::from(logits), device);
        let shares = Tensor::from_data(TensorData::from([[1.0_f32; 3]]), device);
        let found = select(logits.clone(), logits, &[Selection::Count], shares).into_data().try_into_vec::<f32>().unwrap();
        assert_eq!((found[0], [found[2], found[5], found[8]]), (1.0, [0.0, 1.0, 2.0]), "{device:?}");
    }
}

/// Prints the time of a kernel, and checks that its results are finite.
fn timed<const D: usize>(device: &Device, what: &str, work: impl Fn() -> Tensor<D>) {
    const TIMES: u32 = 50;
    let round = |times: u32| {
        let start = Instant::now();
        (0..times).for_each(|_| drop(work()));
        device.sync().expect("the device answers");
        start.elapsed() / times
    };
    round(1);
    let best = (0..4).map(|_| round(TIMES)).min().expect("four rounds");
    println!("{what}: {best:.1?}");
    assert!(work().into_data().iter::<f32>().all(f32::is_finite), "{what}");
}

/// Prints the times of products and of attention with the shapes of Qwen2.5-7B and Qwen2.5-3B.
#[test]
#[ignore = "it measures a GPU, and takes 4 GB of its memory"]
fn kernels_timed() {
    let Some(device) = device() else { return };
    let half = DType::BF16;
    for (rows, depth, columns) in
        [(672, 3584, 37_888), (672, 18_944, 3584), (1, 3584, 37_888), (7, 3584, 37_888), (7, 18_944, 3584), (7, 2048, 22_016)]
    {
        let (x, weight) =
            (numbers([rows, depth], 1, &device).cast(half), numbers([columns, depth], 2, &device).cast(half).transpose());
        timed(&device, &format!("{rows} rows × [{depth}, {columns}]"), || multiply(&x, &weight));
    }
    for (rows, depth, columns) in [(672, 3584, 152_064), (7, 2048, 151_936)] {
        let (x, head) =
            (numbers([rows, depth], 1, &device).cast(half), numbers([columns, depth], 2, &device).cast(half).transpose());
        timed(&device, &format!("{rows} rows × a head [{depth}, {columns}]"), || multiply_whole(&x, &head));
    }
    let heads = Heads { queries: 16, keys: 2, width: 128 };
    for shared in [72, 2184] {
        let visibility = Visibility { places: 7, shared, earlier: 7, rows: 7 };
        let room = visibility.keys();
        let queries = numbers([1, 2, 56, 128], 3, &device).cast(half);
        let cache = numbers([1, 4, room, 128], 4, &device).cast(half);
        let group = group(heads, 1, visibility, room, &device);
        timed(&device, &format!("attention of 7 rows, {room} keys"), || attend(queries.clone(), &cache, &group, half));
    }
    let config = Qwen2Config::small([11, 3584, 18_944, 1, 28, 4]);
    let adapters = [(); 3].map(|()| LoraAdapter::random(&config, 16, 1, &device));
    let lanes: Vec<_> = [None].into_iter().chain(adapters.iter().map(Some)).collect();
    let stack = AdapterStack::new(&config, &lanes, &device).unwrap();
    for (reads, input) in [(Reads::State, 3584), (Reads::Mixed, 3584), (Reads::Between, 3584), (Reads::Gated, 18_944)] {
        let x = numbers([672, input], 5, &device).cast(half);
        timed(&device, &format!("low-rank update, {reads:?}"), || {
            low_rank(&x, Lanes::of(&stack).layer(0).unwrap().of(reads).unwrap())
        });
    }
}
