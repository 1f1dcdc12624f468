//! The loop of a process that sweeps.

use std::time::Duration;

use super::{Next, Store, SweepError, Worker};
use crate::interrupt;

/// Between two looks at what other processes have left.
const POLL: Duration = Duration::from_millis(250);

/// How a sweep stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Cells that are done, by whichever process.
    pub done: usize,
    /// All cells of the plan.
    pub total: usize,
    /// Whether this process waits for others, who have the cells that are left.
    pub waiting: bool,
}

/// Answers cells until all are done, by this process or others, or Ctrl-C; what another process
/// leaves behind is taken over.
///
/// # Errors
/// When a cell fails or the output cannot be kept.
pub fn run(store: &mut Store<'_>, worker: &Worker<'_>, mut watch: impl FnMut(Standing)) -> Result<(), SweepError> {
    let cells = &store.ledger().grid().cells;
    let standing = |store: &Store<'_>, waiting| Standing { done: store.ledger().finished(), total: cells.len(), waiting };
    watch(standing(store, false));
    while !interrupt::requested() {
        match store.claim()? {
            Next::Done => return store.tidy(),
            Next::Wait => {
                watch(standing(store, true));
                std::thread::sleep(POLL);
            }
            Next::Cell(claim) => match worker.answer(&cells[claim.cell()]) {
                Ok(Some((record, steps))) => {
                    store.append(claim, record, &steps)?;
                    watch(standing(store, false));
                }
                Ok(None) => return store.release(claim),
                Err(error) => {
                    store.release(claim)?;
                    return Err(error);
                }
            },
        }
    }
    Ok(())
}
