use burn::module::Module;
use burn::tensor::{Tensor, TensorData};

use super::*;

/// Returns a decoder with the GPU engine.
fn on_tensors(config: &Qwen2Config, device: &Device, precision: Precision) -> Decoder {
    let mut parts = Initial::from_seed(3, config, device);
    let Ok(embedding) = parts.embedding();
    let format = (precision == Precision::Bf16).then_some(DType::BF16);
    let Ok(engine) = gpu::GpuEngine::assemble(embedding, config, parts, format);
    Decoder { engine: Box::new(engine), scheduler: None, prefixes: None, held: Arc::default() }
}

/// Returns the logits of a row that continues a context, under the backbone and an adapter.
fn logits(decoder: &Decoder) -> Vec<f32> {
    let config = decoder.config();
    let adapter = Arc::new(LoraAdapter::random(config, 4, 9, &decoder.device()));
    let seats = decoder.seat(&[None, Some(adapter)]).unwrap();
    let mut prefix = decoder.prefix(2);
    decoder.prefill(&[3, 1, 4, 1, 5], &seats, &mut prefix);
    let mut suffix = decoder.suffix(2, 1);
    let hidden = decoder.extend(&[[9, 2]], &seats, &mut prefix, &mut suffix);
    decoder.logits(&hidden, &seats).unwrap()
}

#[test]
fn tensors_with_matrices_of_bf16_are_near_panels_of_f32() {
    /// A few roundings of 1/512 on average, through two layers, relative to logits with a deviation
    /// of one.
    const TOLERANCE: f32 = 0.03;
    let device = Device::flex();
    for tied in [true, false] {
        let config = Qwen2Config { tie_word_embeddings: tied, ..Qwen2Config::small([40, 32, 48, 2, 4, 2]) };
        let panels = Decoder::random(&config, 3, &device, Precision::F32).unwrap();
        let [whole, half] = [Precision::F32, Precision::Bf16].map(|precision| on_tensors(&config, &device, precision));
        assert_eq!([whole.precision(), half.precision()], [Precision::F32, Precision::Bf16]);
        assert_eq!(half.formats(), Formats { weights: DType::BF16, keys: DType::BF16, states: DType::F32 });
        let parameters = Qwen2::random(&config, 3, &device).num_params();
        assert_eq!(whole.bytes(), 4 * parameters);
        assert!((2 * parameters..3 * parameters).contains(&half.bytes()), "norms and biases stay as they are");
        let [exact, same, near] = [&panels, &whole, &half].map(logits);
        let scale = (exact.iter().map(|x| x * x).sum::<f32>() / exact.len() as f32).sqrt();
        let off = |other: &[f32]| exact.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale;
        // Only the order of sums differs.
        assert!(off(&same) < 1e-4, "{}", off(&same));
        assert!(off(&near) < TOLERANCE && off(&near) > 1e-4, "{}", off(&near));
    }
}

#[test]
fn joined_generations_equal_separate_ones() {
    let device = Device::flex();
    let config = Qwen2Config::small([40, 32, 48, 2, 4, 4]);
    let adapter = Some(Arc::new(LoraAdapter::random(&config, 2, 1, &device)));
    // On tensors, sums of 32 terms have another order, about a dozen times. In panels, texts also
    // fill passes of their own, and the bits are the same.
    let panels = Decoder::random(&config, 3, &device, Precision::F32).unwrap();
    for (decoder, length, tolerance) in [(on_tensors(&config, &device, Precision::F32), 6, 1e-4), (panels, 300, 0.0)] {
        let scheduler = Scheduler::new();
        let decoder = decoder.scheduled(&scheduler);
        side_by_side(&decoder, &scheduler, &adapter, length, tolerance);
    }
}

/// Checks three generations that begin with texts of `length` to `length + 2` tokens.
fn side_by_side(decoder: &Decoder, scheduler: &Scheduler, adapter: &Option<Arc<LoraAdapter>>, length: u32, tolerance: f32) {
    // Two generations run under the backbone and an adapter, the third under the backbone alone.
    // Their texts differ in length.
    let generate = |index: u32| {
        let seats = decoder.seat(&[None, adapter.clone()][..if index == 2 { 1 } else { 2 }]).unwrap();
        let mut prefix = decoder.prefix(seats.count());
        let text: Vec<TokenId> = (0..length + index).map(|i| (7 * index + 5 * i) % 40).collect();
        decoder.prefill(&text, &seats, &mut prefix);
        let mut suffix = decoder.suffix(seats.count(), 3);
        let mut all = Vec::new();
        for step in 0..4 {
            let rows: Vec<[TokenId; 1]> = (0..3).map(|row| [(index + 3 * row + 11 * step) % 40]).collect();
            let hidden = decoder.extend(&rows, &seats, &mut prefix, &mut suffix);
            all.extend(decoder.logits(&hidden, &seats).unwrap());
        }
        prefix.adopt(&suffix, 1, 2);
        let hidden = decoder.advance(3, &seats, &mut prefix);
        all.extend(decoder.logits(&hidden, &seats).unwrap());
        all
    };
    let alone: Vec<Vec<f32>> = (0..3).map(generate).collect();
    let gate = std::sync::Barrier::new(3);
    let beside: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let start = |index| {
            let (gate, generate) = (&gate, &generate);
            scope.spawn(move || {
                let _member = scheduler.join(&Stop::new());
                gate.wait();
                generate(index)
            })
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (alone, beside) in alone.iter().zip(&beside) {
        let off = alone.iter().zip(beside).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(alone.len() == beside.len() && off <= tolerance, "{off}");
    }
}

#[test]
fn equal_rows_that_are_read_in_pieces_have_keys_of_their_own() {
    /// Only the order of sums differs. The deviation of the logits is about one.
    const TOLERANCE: f32 = 1e-4;
    let config = Qwen2Config::small([40, 32, 48, 2, 8, 2]);
    let decoder = Decoder::random(&config, 3, &Device::flex(), Precision::F32).unwrap();
    let seats = decoder.alone();
    // Attention takes the queries of 24 tokens at a time here. So the first row is two pieces, and
    // the second row, which equals it, is none.
    let row: Vec<TokenId> = (0..48).map(|i| (7 * i + i * i) % 40).collect();
    let mut prefix = decoder.prefix(1);
    decoder.prefill(&[3, 1, 4], &seats, &mut prefix);
    let mut suffix = decoder.suffix(1, 2);
    let _ = decoder.extend(&[&row[..], &row[..]], &seats, &mut prefix, &mut suffix);
    prefix.adopt(&suffix, 1, row.len());
    let after = decoder.advance(9, &seats, &mut prefix);
    let found = decoder.logits(&after, &seats).unwrap();
    let mut plain = decoder.prefix(1);
    decoder.prefill(&[&[3, 1, 4], &row[..]].concat(), &seats, &mut plain);
    let after = decoder.advance(9, &seats, &mut plain);
    let expected = decoder.logits(&after, &seats).unwrap();
    let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < TOLERANCE, "{off}");
}

#[test]
#[should_panic(expected = "the prefix has changed")]
fn a_suffix_is_invalid_after_another_continues_the_prefix() {
    let decoder = on_tensors(&Qwen2Config::small([40, 32, 48, 1, 4, 4]), &Device::flex(), Precision::F32);
    let (seats, mut prefix) = (decoder.alone(), decoder.prefix(1));
    let [mut first, mut second] = [1, 1].map(|rows| decoder.suffix(1, rows));
    let _ = decoder.extend(&[[3]], &seats, &mut prefix, &mut first);
    let _ = decoder.extend(&[[4]], &seats, &mut prefix, &mut second);
    prefix.adopt(&first, 0, 1);
}

#[test]
fn argmax_is_the_first_of_equals_and_none_of_rows_with_nan() {
    let rows: [([f32; 4], Option<TokenId>); 6] = [
        ([0.0, 2.0, 1.0, 2.0], Some(1)),
        ([-3.0; 4], Some(0)),
        ([f32::NEG_INFINITY, f32::NEG_INFINITY, -1e30, f32::NEG_INFINITY], Some(2)),
        ([1.0, f32::NAN, 3.0, 0.0], None),
        ([1.0, f32::INFINITY, 3.0, 0.0], None),
        ([f32::MAX, 0.0, f32::MAX, f32::MAX], Some(0)),
    ];
    let values = rows.map(|(row, _)| row).concat();
    let device = Tensor::<2>::from_data(TensorData::new(values.clone(), [rows.len(), 4]), &Device::flex());
    let expected = rows.map(|(_, token)| token);
    assert_eq!(Logits::Device(Box::new(device)).argmax().unwrap(), expected);
    assert_eq!(Logits::Host(HostLogits::copied(&values, 4)).argmax().unwrap(), expected);
}

#[test]
#[should_panic(expected = "outside the vocabulary")]
fn a_token_beyond_the_vocabulary_is_not_read_as_padding() {
    let config = Qwen2Config { tie_word_embeddings: true, ..Qwen2Config::small([40, 32, 48, 1, 4, 4]) };
    let decoder = Decoder::random(&config, 3, &Device::flex(), Precision::F32).unwrap();
    let (seats, mut prefix) = (decoder.alone(), decoder.prefix(1));
    decoder.prefill(&[41], &seats, &mut prefix);
}

#[test]
fn draws_and_readings_take_turns_with_passes() {
    let config = Qwen2Config::small([40, 32, 48, 2, 4, 4]);
    let scheduler = Scheduler::new();
    let decoder = Decoder::random(&config, 3, &Device::flex(), Precision::F32).unwrap().scheduled(&scheduler);
    let at_work = Arc::new(AtomicUsize::new(0));
    let (of_passes, passes) = (Arc::clone(&at_work), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&passes);
    scheduler.observe(move |pass| {
        assert_eq!(of_passes.load(Ordering::SeqCst), 0, "a pass of {pass:?} during other work");
        counted.fetch_add(pass.requests, Ordering::SeqCst);
    });
    let gate = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for own in 0..4 {
            let (decoder, scheduler, at_work, gate) = (&decoder, &scheduler, &at_work, &gate);
            scope.spawn(move || {
                let _here = scheduler.join(&Stop::new());
                let (seats, mut prefix) = (decoder.alone(), decoder.prefix(1));
                gate.wait();
                for round in 0..10 {
                    decoder.prefill(&[own, round], &seats, &mut prefix);
                    let kind = if own % 2 == 0 { HostWork::Draw } else { HostWork::Read };
                    let found = decoder.in_turn(kind, 1, || {
                        at_work.fetch_add(1, Ordering::SeqCst);
                        // Longer than requests wait for each other.
                        std::thread::sleep(2 * LONGEST_WAIT);
                        at_work.fetch_sub(1, Ordering::SeqCst)
                    });
                    assert_eq!(found, 1, "work of one request at a time");
                }
            });
        }
    });
    assert_eq!(passes.load(Ordering::SeqCst), 40, "observers receive passes only");
}

#[test]
fn a_panic_of_a_draw_reaches_its_request_only() {
    let config = Qwen2Config::small([40, 32, 48, 2, 4, 4]);
    let scheduler = Scheduler::new();
    let decoder = Decoder::random(&config, 3, &Device::flex(), Precision::F32).unwrap().scheduled(&scheduler);
    let waiting = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let draw = |own: usize| {
            let _here = scheduler.join(&Stop::new());
            if own > 0 {
                waiting.fetch_add(1, Ordering::SeqCst);
            }
            decoder.in_turn(HostWork::Draw, 1, || {
                // The others share the next turn.
                while own == 0 && waiting.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                std::thread::sleep(20 * LONGEST_WAIT);
                assert_ne!(own, 1, "broken");
                own
            })
        };
        let draws = [0, 1, 2].map(|own| scope.spawn(move || draw(own)));
        assert_eq!(draws.map(|thread| thread.join().ok()), [Some(0), None, Some(2)]);
    });
}
