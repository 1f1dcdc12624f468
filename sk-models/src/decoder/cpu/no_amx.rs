//! The replacement for `amx.rs` on processors other than x86-64. No value of [`Tiles`] exists here,
//! so its methods are never called.

use std::convert::Infallible;
use std::num::NonZero;

use super::tile::Strided;

pub(super) const SIDE: usize = 32;

pub(super) const HEIGHT: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Line(());

impl Line {
    pub(super) fn of_bytes(_: [i8; 64]) -> Self {
        Self(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tiles(Infallible);

#[derive(Debug)]
pub(super) struct Configured(Infallible);

impl Tiles {
    pub(super) fn get() -> Option<Self> {
        None
    }

    pub(super) fn configure(self) -> Configured {
        match self.0 {}
    }

    pub(super) fn split_row<const TERMS: usize>(self, _: &[f32], _: &mut [Line]) {
        match self.0 {}
    }

    pub(super) fn split_panel(self, _: &[f32], _: &mut [Line]) {
        match self.0 {}
    }

    pub(super) fn round_block(self, _: &[f32], _: usize, _: &mut [Line]) {
        match self.0 {}
    }
}

// No value of this type exists, so no call is unsafe.
impl Configured {
    pub(super) fn products(&self, _: usize, _: bool) -> usize {
        match self.0 {}
    }

    pub(super) unsafe fn three_by_three(&self, _: [*const u8; 3], _: NonZero<usize>, _: Strided<*mut f32>, _: bool) {
        match self.0 {}
    }

    pub(super) unsafe fn two_by_one(&self, _: [*const u8; 3], _: NonZero<usize>, _: Strided<*mut f32>, _: bool) {
        match self.0 {}
    }
}
