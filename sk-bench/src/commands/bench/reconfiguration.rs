//! The cost of changing Ω during a response (`prop:cost`).

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use sk_core::{AlignmentSpec, Seat, SpecError, SpecHandle};

use super::Subject;
use crate::ruler::{Figure, Floors, Spread, Steered};
use crate::{Error, memory};

/// The blade for measurements of seating and unseating. Its adapter is loaded, but it is not seated
/// at the start.
const RESIDENT: &str = "resident";

/// Number of edits of each kind per repetition, so that their mean is finer than the clock's
/// resolution.
const EDITS: u32 = 1000;

/// Times of edits of Ω and of the steps after them, in seconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reconfiguration {
    /// Setting the weights of the seated blades by name.
    pub(super) weight_edit: Spread,
    /// Seating a blade whose adapter is loaded.
    pub(super) seat: Spread,
    /// Unseating a blade.
    pub(super) unseat: Spread,
    /// Swapping the blade in a seat.
    pub(super) swap: Spread,
    /// A step with unchanged Ω.
    pub(super) step: Figure,
    /// The step after a swap, in which the new blade prefills the context.
    pub(super) step_after_swap: Figure,
    /// Resident memory added by all edits, in bytes (Linux).
    pub(super) resident_bytes_added: Option<i64>,
}

/// The mean times of one repetition.
struct Edits {
    weights: f64,
    seat: f64,
    unseat: f64,
    swap: f64,
}

impl Subject<'_> {
    /// Measures edits of Ω, if the scheme has adapters and no slot that refers to a blade by name.
    pub(super) fn reconfiguration(&self, floors: &Floors) -> Result<Option<Reconfiguration>, Error> {
        let named = self.config.selector.build().is_ok_and(|selector| !selector.blades().is_empty());
        if self.blades == 0 || named {
            return Ok(None);
        }
        let adapter = self.models.random_adapter(self.adapters.len(), self.args.random.random_seed, &self.args.random.rank);
        let at = self.operating();
        let step_floor = floors.step(at);
        let floor_after_swap = step_floor.map(|step| step + floors.newcomer(at.prefix, adapter.parameters()));
        let mut adapters = self.own_adapters().to_vec();
        adapters.push((RESIDENT.to_owned(), adapter));
        let mut with_resident = self.config.clone();
        with_resident.weights = None;
        with_resident.seat(RESIDENT);
        let with_resident = with_resident.alignment()?;
        let Some(resident) = with_resident.seats().iter().find(|seat| &**seat.name() == RESIDENT) else { return Ok(None) };

        let mut steered = Steered::new(&self.models, &self.config, &adapters, self.args.seed)?;
        let spec = steered.spec().clone();
        let before = spec.snapshot();
        let (mut edits, mut steps, mut after) = (Vec::new(), Vec::new(), Vec::new());
        let resident_before = memory::resident();
        for _ in 0..self.args.repeat {
            edits.push(Edits::measure(&spec, resident)?);
        }
        let added = resident_before.zip(memory::resident()).map(|(before, after)| after as i64 - before as i64);
        steered.step(&self.prompt)?;
        for _ in 0..self.args.repeat {
            steps.push(steered.step(&self.prompt)?.total());
            swap_in(&spec, resident)?;
            after.push(steered.step(&self.prompt)?.total());
            restore(&spec, &before)?;
            steered.step(&self.prompt)?;
        }
        Ok(Some(Reconfiguration {
            weight_edit: Spread::of(edits.iter().map(|edit| edit.weights)),
            seat: Spread::of(edits.iter().map(|edit| edit.seat)),
            unseat: Spread::of(edits.iter().map(|edit| edit.unseat)),
            swap: Spread::of(edits.iter().map(|edit| edit.swap)),
            step: Figure::seconds(steps, step_floor),
            step_after_swap: Figure::seconds(after, floor_after_swap),
            resident_bytes_added: added,
        }))
    }
}

impl Edits {
    /// Measures the mean over many edits of each kind. Restores Ω afterwards.
    fn measure(spec: &SpecHandle, resident: &Seat) -> Result<Self, SpecError> {
        let before = spec.snapshot();
        let names: Vec<Arc<str>> = before.seats().iter().map(|seat| Arc::clone(seat.name())).collect();
        let mut edits = Self { weights: 0.0, seat: 0.0, unseat: 0.0, swap: 0.0 };
        for i in 0..EDITS {
            // Weights differ from edit to edit.
            let weights = (1..).map(|k| f64::from(1 + (i + k) % 7));
            edits.weights += timed(|| spec.edit(|spec| spec.with_named_weights(names.iter().map(|name| &**name).zip(weights))))?;
        }
        restore(spec, &before)?;
        for _ in 0..EDITS {
            // A new seat each time, as a user would make it.
            edits.seat += timed(|| spec.edit(|spec| spec.seat(anew(resident), 0.5)))?;
            edits.unseat += timed(|| spec.edit(|spec| spec.unseat(resident.name())))?;
        }
        for _ in 0..EDITS {
            edits.swap += timed(|| swap_in(spec, resident))?;
            restore(spec, &before)?;
        }
        let each = |sum: f64| sum / f64::from(EDITS);
        Ok(Self { weights: each(edits.weights), seat: each(edits.seat), unseat: each(edits.unseat), swap: each(edits.swap) })
    }
}

fn anew(seat: &Seat) -> Seat {
    Seat::new(&**seat.name(), Arc::clone(seat.blade()))
}

/// Swaps `resident` into the first seat with a positive weight.
fn swap_in(spec: &SpecHandle, resident: &Seat) -> Result<Arc<AlignmentSpec>, SpecError> {
    spec.edit(|spec| match spec.active().next() {
        Some((first, _)) => spec.swap(first.name(), anew(resident)),
        None => Ok(spec.clone()),
    })
}

fn restore(spec: &SpecHandle, before: &AlignmentSpec) -> Result<(), SpecError> {
    spec.edit(|_| Ok(before.clone())).map(drop)
}

fn timed(edit: impl FnOnce() -> Result<Arc<AlignmentSpec>, SpecError>) -> Result<f64, SpecError> {
    let start = Instant::now();
    edit()?;
    Ok(start.elapsed().as_secs_f64())
}
