//! Next-token logits, in host memory or on the engine's device.

use burn::tensor::Tensor;
use sk_core::TokenId;

use super::cpu::grid::Grid;
use super::gpu::draw::{argmax, read};
use crate::device::DeviceFailure;
use crate::kernels::logits::{self, are_numbers};

/// Next-token logits `[M, V]`, one row for each state.
pub(crate) enum Logits {
    /// In host memory.
    Host(HostLogits),
    /// On a device, from which it is slow to copy whole rows.
    Device(Box<Tensor<2>>),
}

/// Logits `[M, V]` in host memory.
pub(crate) struct HostLogits {
    rows: Grid,
    vocabulary: usize,
}

impl HostLogits {
    /// Wraps rows that may be padded.
    pub(super) fn new(rows: Grid, vocabulary: usize) -> Self {
        Self { rows, vocabulary }
    }

    /// Copies row-major values.
    pub(crate) fn copied(values: &[f32], vocabulary: usize) -> Self {
        Self { rows: Grid::of_rows(values, vocabulary), vocabulary }
    }

    /// Returns one row.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.rows.row(row)[..self.vocabulary]
    }

    /// Iterates over the rows.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let vocabulary = self.vocabulary;
        self.rows.rows_mut().map(move |row| &mut row[..vocabulary])
    }
}

impl Logits {
    /// Returns the logits in host memory. Copies them only if they are on a device.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(crate) fn into_host(self, vocabulary: usize) -> Result<HostLogits, DeviceFailure> {
        match self {
            Self::Host(logits) => Ok(logits),
            Self::Device(logits) => Ok(HostLogits::copied(&read(*logits)?, vocabulary)),
        }
    }

    /// Copies the logits to the host, row-major and without padding.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(super) fn into_values(self) -> Result<Vec<f32>, DeviceFailure> {
        match self {
            Self::Host(logits) => Ok(logits.rows.to_values(logits.vocabulary)),
            Self::Device(logits) => read(*logits),
        }
    }

    /// Returns the argmax of each row, or `None` for a row with a NaN or +∞. Among equal logits,
    /// the first wins.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub(super) fn argmax(self) -> Result<Vec<Option<TokenId>>, DeviceFailure> {
        match self {
            Self::Host(host) => {
                let first = |row: usize| Some(host.row(row)).filter(|row| are_numbers(row)).map(logits::argmax);
                Ok((0..host.rows.rows()).map(first).collect())
            }
            Self::Device(logits) => argmax(*logits),
        }
    }
}
