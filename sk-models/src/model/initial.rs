//! Initial weights.

use std::convert::Infallible;

use burn::tensor::{Device, Distribution, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::parts::ModelParts;
use super::{Layer, Norm, Projection};
use crate::config::Qwen2Config;
use crate::lora::Target;

/// Standard deviation of the initial weights, as in GPT-2.
const STD: f64 = 0.02;
/// Values that one task draws at a time.
const CHUNK: usize = 1 << 16;

/// Draws the matrices of a decoder, one after the other.
pub(crate) struct Initial<'a> {
    source: Generator,
    config: &'a Qwen2Config,
    /// The device of the weights.
    device: &'a Device,
}

enum Generator {
    /// The device's own generator: normal values.
    Device,
    /// ChaCha8, a stream per matrix: uniform values, the same on every device.
    Seed { seed: u64, matrices: u64 },
}

impl<'a> Initial<'a> {
    pub(super) fn from_device(config: &'a Qwen2Config, device: &'a Device) -> Self {
        Self { source: Generator::Device, config, device }
    }

    pub(crate) fn from_seed(seed: u64, config: &'a Qwen2Config, device: &'a Device) -> Self {
        Self { source: Generator::Seed { seed, matrices: 0 }, config, device }
    }

    /// Draws a matrix with standard deviation `std`.
    fn draw(&mut self, shape: [usize; 2], std: f64) -> Tensor<2> {
        match &mut self.source {
            Generator::Device => Tensor::random(shape, Distribution::Normal(0.0, std), self.device),
            Generator::Seed { seed, matrices } => {
                let values = uniform(*seed, *matrices, shape[0] * shape[1], std);
                *matrices += 1;
                Tensor::from_data(TensorData::new(values, shape), self.device)
            }
        }
    }
}

impl ModelParts for Initial<'_> {
    type Error = Infallible;

    fn embedding(&mut self) -> Result<Tensor<2>, Infallible> {
        Ok(self.draw([self.config.vocab_size, self.config.hidden_size], STD))
    }

    fn layer(&mut self, _: usize) -> Result<Layer, Infallible> {
        let (config, device) = (self.config, self.device);
        let norms = [(); 2].map(|()| Norm::ones(config.hidden_size, config.rms_norm_eps, device));
        // The standard deviation of matrices whose products are added to the residual stream.
        let residual = STD / (2.0 * config.num_hidden_layers as f64).sqrt();
        Layer::assemble(config, norms, |target| {
            let (input, output) = target.dims(config);
            let std = if matches!(target, Target::Output | Target::Down) { residual } else { STD };
            let bias = target.has_bias().then(|| Tensor::zeros([output], device));
            Ok(Projection::new(self.draw([input, output], std), bias))
        })
    }

    fn norm(&mut self) -> Result<Norm, Infallible> {
        Ok(Norm::ones(self.config.hidden_size, self.config.rms_norm_eps, self.device))
    }

    fn head(&mut self) -> Result<Option<Tensor<2>>, Infallible> {
        let shape = [self.config.hidden_size, self.config.vocab_size];
        Ok((!self.config.tie_word_embeddings).then(|| self.draw(shape, STD)))
    }
}

/// Draws uniform values with mean 0 and the given standard deviation.
///
/// The values do not depend on the number of threads, since each chunk begins at its own place in
/// the stream.
pub(crate) fn uniform(seed: u64, stream: u64, count: usize, std: f64) -> Vec<f32> {
    // The standard deviation of a uniform distribution is its half width over √3.
    let half_width = (std * 3.0_f64.sqrt()) as f32;
    let mut values = vec![0.0; count];
    values.par_chunks_mut(CHUNK).enumerate().for_each(|(index, chunk)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        // A value takes one word.
        rng.set_word_pos((index * CHUNK) as u128);
        for value in chunk {
            *value = half_width * (2.0 * rng.random::<f32>() - 1.0);
        }
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_requested_deviation() {
        let count = 3 * CHUNK + 5;
        let values = uniform(1, 0, count, STD);
        let moment = |power: i32| values.iter().map(|&v| f64::from(v).powi(power)).sum::<f64>() / count as f64;
        // Six standard errors: that of the mean is σ/√n, and of the mean square σ²·√(4/5)/√n for a
        // uniform distribution.
        let error = 6.0 / (count as f64).sqrt();
        assert!(moment(1).abs() < error * STD, "{}", moment(1));
        assert!((moment(2) / (STD * STD) - 1.0).abs() < error, "{}", moment(2));
    }

    #[test]
    fn drawing_in_chunks_is_drawing_in_one_go() {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        rng.set_stream(4);
        let half_width = (STD * 3.0_f64.sqrt()) as f32;
        let expected: Vec<f32> = (0..CHUNK + 100).map(|_| half_width * (2.0 * rng.random::<f32>() - 1.0)).collect();
        assert_eq!(uniform(9, 4, CHUNK + 100, STD), expected);
    }
}
