//! Adapters without a checkpoint.

use burn::tensor::{Device, Tensor, TensorData};

use super::{LoraAdapter, LowRank, Target};
use crate::config::Qwen2Config;
use crate::device::block_recording;
use crate::device::persistent;
use crate::model::initial::uniform;

/// The standard deviation of B. It is small, so that the adapter changes the model little, as early
/// in training.
const B_STD: f64 = 0.01;

impl LoraAdapter {
    /// Returns an adapter with random matrices of rank `rank` on all seven targets of every layer,
    /// which depend only on `seed`: uniform, with standard deviations of `1/√in` for A and 0.01 for
    /// B, and a scale of 2.
    ///
    /// For tests and benchmarks without a checkpoint. O(r·(in + out)) per target on the CPU.
    ///
    /// ```
    /// use sk_models::lora::LoraAdapter;
    /// use sk_models::{Qwen2Config, device::Device};
    ///
    /// let config = Qwen2Config::from_json(
    ///     "inline",
    ///     r#"{"vocab_size": 8, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2}"#,
    /// )?;
    /// let adapter = LoraAdapter::random(&config, 3, 1, &Device::flex());
    /// // Four targets map 4 to 4, two 4 to 6 and one 6 to 4.
    /// assert_eq!(adapter.parameters(), 3 * (4 * 8 + 3 * 10));
    /// # Ok::<(), sk_models::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the rank is zero.
    #[must_use]
    pub fn random(config: &Qwen2Config, rank: usize, seed: u64, device: &Device) -> Self {
        assert!(rank > 0, "an adapter has a rank of at least one");
        let _blocked = block_recording(device);
        let mut adapter = Self::empty(config);
        let mut stream = 0;
        let mut draw = |shape: [usize; 2], std: f64| {
            let values = uniform(seed, stream, shape[0] * shape[1], std);
            stream += 1;
            persistent(Tensor::<2>::from_data(TensorData::new(values, shape), device))
        };
        for layer in &mut adapter.layers {
            for target in Target::ALL {
                let (input, output) = target.dims(config);
                let a = draw([input, rank], 1.0 / (input as f64).sqrt());
                let b = draw([rank, output], B_STD);
                layer.set(target, LowRank { a, b, scale: 2.0 });
            }
        }
        adapter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_repeated_and_matrices_differ() {
        let config = Qwen2Config::small([8, 4, 6, 2, 2, 2]);
        let values = |seed: u64, layer: usize, target: Target| {
            let adapter = LoraAdapter::random(&config, 2, seed, &Device::flex());
            adapter.layers[layer].get(target).unwrap().a.clone().try_into_vec_as::<f32>().unwrap()
        };
        let first = values(7, 0, Target::Query);
        assert_eq!(first, values(7, 0, Target::Query));
        for other in [values(8, 0, Target::Query), values(7, 1, Target::Query), values(7, 0, Target::Key)] {
            assert_ne!(first, other);
        }
    }
}
