use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::kernel::into_contiguous;

use super::kernels::draw::{BITS, DIGITS, PEAKS, STATE, digits_kernel, find_kernel, peaks_kernel, penalise_kernel};
use super::{UNITS, cubes_of, empty, floats, integers, launch, tensor, units};
use crate::decoder::gpu::operands::Selection;

/// Chunks of a row. A cube reads one of them, so that a few rows keep most of a GPU busy.
const CHUNKS: usize = 32;

/// See [`penalise`](crate::decoder::gpu::ops::penalise).
pub(in crate::decoder::gpu) fn penalise(logits: Tensor<2>, tokens: Tensor<2, Int>, penalty: f32) -> Tensor<2> {
    let rated = into_contiguous(floats(logits.mul_scalar(1.0)));
    let [rows, most] = tokens.dims();
    let tokens = into_contiguous(integers(tokens.reshape([rows * most])));
    let [_, vocabulary] = rated.meta.shape().dims();
    let count = rows * most;
    launch!(penalise_kernel, rated, units(&rated, count), [tokens, rated], most, vocabulary, penalty, count);
    tensor(rated)
}

/// See [`select`](crate::decoder::gpu::ops::select).
pub(in crate::decoder::gpu) fn select(
    logits: Tensor<2>,
    rated: Tensor<2>,
    selections: &[Selection],
    shares: Tensor<2>,
) -> Tensor<2> {
    let [logits, rated, shares] = [logits, rated, shares].map(|tensor| into_contiguous(floats(tensor)));
    let [rows, vocabulary] = logits.meta.shape().dims();
    let width = vocabulary.div_ceil(CHUNKS);
    // A sum of each digit for every unit has to fit in the memory of a cube.
    let memory = logits.client.properties().hardware.max_shared_memory_size;
    let most = if memory < 2 * DIGITS * UNITS as usize * size_of::<f32>() { UNITS / 2 } else { UNITS };
    let (count, dim, units) = cubes_of(&logits, rows * CHUNKS, most);
    let units = units as usize;
    let peaks = empty(&logits, [rows, CHUNKS, PEAKS], DType::F32);
    launch!(peaks_kernel, logits, (count.clone(), dim), [logits, rated, peaks], rows, width, vocabulary, CHUNKS, units);

    // The sums and states of two passes, which take turns.
    let sums = [(); 2].map(|()| empty(&logits, [rows, CHUNKS, DIGITS], DType::F32));
    let states = [(); 2].map(|()| empty(&logits, [rows, STATE], DType::U32));
    let mut turn = 0;
    let mut before: Option<(usize, bool)> = None;
    for (index, selection) in selections.iter().enumerate() {
        for shift in (0..u32::BITS).step_by(BITS as usize).rev() {
            let opens = shift + BITS == u32::BITS;
            let (of, was_first) = before.unwrap_or((0, false));
            let earlier = &selections[of];
            launch!(
                digits_kernel,
                logits,
                (count.clone(), dim),
                [rated, peaks, shares, sums[1 - turn], states[1 - turn], sums[turn], states[turn]],
                rows,
                width,
                vocabulary,
                selection.rate(),
                shift,
                earlier.rate(),
                of,
                u32::from(was_first),
                u32::from(earlier.counts()),
                u32::from(earlier.is_strict()),
                before.is_none(),
                opens,
                CHUNKS,
                units,
            );
            before = Some((index, opens));
            turn = 1 - turn;
        }
    }
    let last = selections.len() - 1;
    let out = empty(&logits, [rows, 3], DType::F32);
    launch!(
        find_kernel,
        logits,
        (count, dim),
        [logits, rated, peaks, shares, sums[1 - turn], states[1 - turn], out],
        rows,
        width,
        vocabulary,
        selections[last].rate(),
        last,
        u32::from(selections[last].counts()),
        u32::from(selections[last].is_strict()),
        CHUNKS,
        units,
    );
    tensor(out)
}
