//! Estimates of the memory that a generation takes, and the account of what all generations take.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sk_core::TimeLeft;

use super::{FIRST_TOKENS, Models};
use crate::Qwen2Config;
use crate::decoder::{PANEL, QUERIES, Scheduler, low_rank_bytes};
use crate::device::is_cpu;
use crate::engine::chunk;
use crate::lora::{LoraAdapter, LowRank};
use crate::memory::{Shortage, free_memory, release_freed};
use crate::team::Team;

/// The sizes that determine the memory of a generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Contexts that the backbone keeps: one per policy, and one if it drafts.
    pub lanes: usize,
    /// Whether the drafter keeps the context.
    pub drafter: bool,
    /// Tokens of the longest context: the instruction, the prompt and the response.
    pub context: usize,
    /// N, the candidates that are drafted; 0 where they are the tokens of the vocabulary.
    pub candidates: usize,
    /// The largest number of tokens of a candidate.
    pub span: usize,
    /// Tokens of the vocabulary that a head reads, each in a row of its own.
    pub ahead: usize,
}

impl Models {
    /// Returns an estimate from above of the bytes that a generation takes besides the weights: keys
    /// and values of the contexts and of the candidates, the states of a pass, the logits and the
    /// probabilities. It leaves out what generations share: the scores of attention on a CPU, and on
    /// a GPU what kernels keep.
    #[must_use]
    pub fn footprint(&self, extent: Extent) -> u64 {
        let Extent { lanes, drafter, candidates, span, ahead, .. } = extent;
        // Each row of a pass has its states before and after the norms, q, k, v, the mixed values,
        // the inner activations, and their terms for products in tiles.
        let width = self.most(|config| {
            let widest = config.intermediate_size.max(config.hidden_size).max(config.query_size());
            let terms = (TERM_BYTES * widest).div_ceil(size_of::<f32>());
            4 * config.hidden_size + 2 * config.query_size() + 2 * config.key_value_size() + config.intermediate_size + terms
        });
        let read = lanes.max(usize::from(drafter));
        let rows = times(read, candidates.saturating_mul(span).max(chunk(read.max(1))));
        let logits = size_of::<f32>() * self.most(|config| config.vocab_size);
        // A row that reads one token more adds its keys, its values and its state in each lane.
        let state = times(size_of::<f32>(), self.most(|config| config.hidden_size));
        let row = times(self.allocated(2), self.lane_bytes()).saturating_add(state);
        self.kept(extent, self.allocated(span))
            .saturating_add(rows.saturating_mul(times(width, size_of::<f32>())))
            .saturating_add(times(2 * candidates.max(lanes), logits))
            .saturating_add(row.saturating_mul(times(ahead, lanes)))
    }

    /// Returns the bytes of the keys and values of the contexts and of candidates of `span` tokens.
    fn kept(&self, extent: Extent, span: usize) -> u64 {
        let Extent { lanes, drafter, context, candidates, .. } = extent;
        let drafted = if drafter { self.drafter.bytes_per_token() as u64 } else { 0 };
        let tokens = times(candidates, span).saturating_add(context as u64);
        times(lanes, self.lane_bytes()).saturating_add(drafted).saturating_mul(tokens)
    }

    /// Returns the bytes of the keys and values of a token in a lane.
    fn lane_bytes(&self) -> usize {
        let others = self.others.iter().map(|(.., model)| model.bytes_per_token());
        others.fold(self.backbone.bytes_per_token(), usize::max)
    }

    /// Returns the largest of a size over the models.
    fn most(&self, size: fn(&Qwen2Config) -> usize) -> usize {
        self.decoders().map(|model| size(model.config())).max().unwrap_or(0)
    }

    /// Returns the tokens for which the cache of a candidate of `tokens` tokens has memory. On a
    /// CPU, it is allocated in panels, and doubled to grow.
    fn allocated(&self, tokens: usize) -> usize {
        if is_cpu(&self.device) { tokens.div_ceil(PANEL).next_power_of_two().saturating_mul(PANEL) } else { tokens }
    }

    /// Checks that a generation that takes `needed` bytes of the CPU's memory could run alone, unless
    /// others are under way. The free memory of a GPU is unknown and not checked.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), Shortage> {
        self.account.check(needed, |shrink| self.measure(shrink))
    }

    /// Claims the CPU's memory for a generation. Waits while other generations hold the memory; returns
    /// `None` if the generation has no time left before its turn comes. On a GPU, the free memory is
    /// unknown and claims are not limited.
    ///
    /// # Errors
    /// If its keys and values, with candidates of up to 32 tokens, do not fit into the memory that is
    /// free when no other generation is under way.
    pub fn claim(&self, extent: Extent, left: Option<&TimeLeft>) -> Result<Option<Claim>, Shortage> {
        let bytes = [self.kept(extent, extent.span.min(FIRST_TOKENS)), self.footprint(extent)];
        let is_late = || left.is_some_and(|left| left().is_zero());
        self.account.claim(bytes, &self.scheduler, is_late, |shrink| self.measure(shrink))
    }

    /// Claims `bytes` more of the CPU's memory for a generation that has a claim or waits for one.
    /// Does not wait: returns `None` if other claims leave too little.
    #[must_use]
    pub fn claim_more(&self, bytes: u64) -> Option<Claim> {
        self.account.claim_more(bytes)
    }

    /// Measures the CPU's memory after `shrink` is freed. Call it while no generation runs.
    fn measure(&self, shrink: Shrink) -> Measured {
        if shrink == Shrink::Prefixes {
            self.decoders().for_each(|decoder| decoder.forget_prefixes());
        }
        if shrink != Shrink::Nothing {
            self.decoders().for_each(|decoder| decoder.free_buffers());
            release_freed();
        }
        let Some(free) = free_memory().filter(|_| is_cpu(&self.device)) else {
            return Measured { free: u64::MAX, room: u64::MAX };
        };
        // Without a claim, only a session between two replies holds contexts, which its next reply
        // continues or replaces.
        let held: usize = self.decoders().map(|decoder| decoder.held_bytes()).sum();
        let free = free.saturating_add(held as u64);
        let unfilled: usize = self.decoders().map(|decoder| decoder.shared_limit().saturating_sub(decoder.shared_bytes())).sum();
        let context = self.most(|config| config.max_position_embeddings).min(1 << 15);
        Measured { free, room: free.saturating_sub(unfilled as u64).saturating_sub(scores(context)) }
    }

    /// Returns the bytes of the CPU's memory that generations can take together: the free memory
    /// less the room for further keys and values of shared prefixes and for the scores of attention,
    /// for which contexts count as at most 32,768 tokens. Call it while no generation is under way.
    /// Returns `None` if the models are not on the CPU or the system does not report its free memory.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        Some(self.measure(Shrink::Nothing).room).filter(|room| *room < u64::MAX)
    }
}

/// What is freed before memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shrink {
    Nothing,
    /// Memory that the models keep for later passes, and the allocator for later allocations.
    Freed,
    /// That, and the keys and values of shared prefixes.
    Prefixes,
}

/// The memory of the CPU in bytes.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// What one generation alone may take.
    free: u64,
    /// What generations may take together, beside what they share.
    room: u64,
}

/// The account of the memory that generations claim, in the order in which they ask for it. What they
/// have allocated is not known, so memory is measured only while none is under way.
#[derive(Default)]
pub(super) struct Account {
    ledger: Mutex<Ledger>,
    /// Signalled when a claim or a wait for one ends.
    changed: Condvar,
}

#[derive(Default)]
struct Ledger {
    /// The number of generations with a claim, and the bytes of all claims.
    claims: usize,
    claimed: u64,
    /// The bytes that could be claimed when there was no claim.
    room: u64,
    /// The largest room since kept memory was last freed.
    freed: u64,
    /// The tickets of those who wait, and the next ticket.
    waiting: VecDeque<u64>,
    next: u64,
}

/// Memory that a generation has claimed, until this is dropped.
pub struct Claim {
    account: Arc<Account>,
    bytes: u64,
    /// Whether it is the first of its generation.
    is_first: bool,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut ledger = self.account.lock();
        ledger.claims -= usize::from(self.is_first);
        ledger.claimed -= self.bytes;
        self.account.changed.notify_all();
    }
}

/// Interval at which a thread that waits for memory checks whether its generation has time left.
const POLL: Duration = Duration::from_millis(100);

impl Account {
    /// Checks that a generation alone may take `needed` bytes, if there is no claim.
    fn check(&self, needed: u64, measure: impl Fn(Shrink) -> Measured) -> Result<(), Shortage> {
        let mut ledger = self.lock();
        if ledger.claims > 0 { Ok(()) } else { ledger.measure([needed; 2], measure) }
    }

    /// Waits its turn and claims `most` bytes; without other claims, at most the room. Returns `None`
    /// if it is late before.
    fn claim(
        self: &Arc<Self>,
        [least, most]: [u64; 2],
        scheduler: &Scheduler,
        is_late: impl Fn() -> bool,
        measure: impl Fn(Shrink) -> Measured,
    ) -> Result<Option<Claim>, Shortage> {
        let mut ledger = self.lock();
        let ticket = ledger.next;
        ledger.next += 1;
        ledger.waiting.push_back(ticket);
        let is_turn = loop {
            if is_late() {
                break false;
            }
            if ledger.waiting.front() == Some(&ticket) && (ledger.claims == 0 || most <= ledger.left()) {
                break true;
            }
            let wait = || self.changed.wait_timeout(ledger, POLL).unwrap_or_else(PoisonError::into_inner).0;
            ledger = scheduler.while_away(wait);
        };
        ledger.waiting.retain(|other| *other != ticket);
        self.changed.notify_all();
        if !is_turn {
            return Ok(None);
        }
        let mut bytes = most;
        if ledger.claims == 0 {
            ledger.measure([least, most], measure)?;
            bytes = most.min(ledger.room);
        }
        Ok(Some(self.enter(&mut ledger, bytes, true)))
    }

    /// Claims `bytes` beside the other claims, unless they leave less. Until a generation has a claim,
    /// the room is unknown and not checked.
    fn claim_more(self: &Arc<Self>, bytes: u64) -> Option<Claim> {
        let mut ledger = self.lock();
        (ledger.claims == 0 || bytes <= ledger.left()).then(|| self.enter(&mut ledger, bytes, false))
    }

    fn enter(self: &Arc<Self>, ledger: &mut Ledger, bytes: u64, is_first: bool) -> Claim {
        ledger.claims += usize::from(is_first);
        ledger.claimed += bytes;
        Claim { account: Arc::clone(self), bytes, is_first }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // No method panics between two changes that belong together.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// Returns the bytes that can be claimed beside the claims.
    fn left(&self) -> u64 {
        self.room.saturating_sub(self.claimed)
    }

    /// Measures the memory for a generation that takes from `least` to `most` bytes. Frees what is
    /// only kept if `most` does not fit otherwise, or if the room has become an eighth smaller:
    /// generations that come later could wait for memory that nothing uses.
    ///
    /// # Errors
    /// If less than `least` bytes are free.
    fn measure(&mut self, [least, most]: [u64; 2], measure: impl Fn(Shrink) -> Measured) -> Result<(), Shortage> {
        let mut measured = measure(Shrink::Nothing);
        self.freed = self.freed.max(measured.room);
        if most > measured.room || measured.room < self.freed - self.freed / 8 {
            measured = measure(Shrink::Freed);
            self.freed = measured.room;
        }
        if most > measured.free {
            measured = measure(Shrink::Prefixes);
        }
        self.room = measured.room;
        if least > measured.free { Err(Shortage { needed: least, free: measured.free }) } else { Ok(()) }
    }
}

impl LoraAdapter {
    /// Returns the most bytes that the adapter takes: those of its matrices and, on a CPU, those of a
    /// packed copy, in which the columns of A and of B are padded to whole panels.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = |LowRank { a, b, .. }: &LowRank| low_rank_bytes([a.dims()[0], a.dims()[1], b.dims()[1]]);
        self.updates().map(bytes).sum()
    }
}

/// Maximum size in bytes of an activation that is prepared for products in tiles: three bf16
/// numbers.
const TERM_BYTES: usize = 6;

/// Returns the bytes of the scores that the threads of all passes hold for a context of `tokens`.
fn scores(tokens: usize) -> u64 {
    // The memory doubles to grow.
    times(Team::global().threads() * QUERIES, 2 * size_of::<f32>()).saturating_mul(tokens as u64)
}

fn times(a: usize, b: usize) -> u64 {
    (a as u64).saturating_mul(b as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use super::*;
    use crate::device::Device;

    fn measured(free: u64, room: u64) -> Measured {
        Measured { free, room }
    }

    #[test]
    fn a_claim_waits_for_those_that_it_does_not_fit_beside() {
        let (account, scheduler) = (Arc::new(Account::default()), Scheduler::new());
        let free = AtomicU64::new(10);
        let measure = |_| measured(free.load(Ordering::Relaxed), free.load(Ordering::Relaxed));
        let try_claim = |bytes| account.claim([bytes; 2], &scheduler, || false, measure);
        assert_eq!(try_claim(11).err(), Some(Shortage { needed: 11, free: 10 }));
        let claim = |bytes| try_claim(bytes).unwrap().unwrap();
        let first = claim(6);
        // A part of the first claim is allocated now.
        free.store(5, Ordering::Relaxed);
        let beside = claim(4);
        let order = Mutex::new(Vec::new());
        let is_late = AtomicBool::new(false);
        thread::scope(|scope| {
            let wait = |waiting: usize, bytes| {
                let (order, claim) = (&order, &claim);
                let thread = scope.spawn(move || {
                    let claim = claim(bytes);
                    order.lock().unwrap().push(claim.bytes);
                });
                while account.lock().waiting.len() < waiting {
                    assert!(!thread.is_finished(), "it does not wait");
                    thread::yield_now();
                }
                thread
            };
            let large = wait(1, 10);
            // It would fit, and does not overtake.
            let small = wait(2, 1);
            // One whose time ends does not wait longer.
            let late = scope.spawn(|| account.claim([5; 2], &scheduler, || is_late.load(Ordering::Relaxed), measure));
            while account.lock().waiting.len() < 3 {
                thread::yield_now();
            }
            is_late.store(true, Ordering::Relaxed);
            assert!(late.join().unwrap().unwrap().is_none());
            drop(beside);
            let are_waiting = !large.is_finished() && !small.is_finished();
            free.store(10, Ordering::Relaxed);
            drop(first);
            assert!(are_waiting);
        });
        assert_eq!(*order.lock().unwrap(), [10, 1]);
        let ledger = account.lock();
        assert_eq!((ledger.claims, ledger.claimed, ledger.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn a_generation_claims_more_beside_other_claims() {
        let (account, scheduler) = (Arc::new(Account::default()), Scheduler::new());
        let claim = || account.claim([6; 2], &scheduler, || false, |_| measured(10, 10)).unwrap().unwrap();
        // The generation itself still waits, and measures the room when its turn comes.
        let waiting = account.claim_more(3).unwrap();
        let first = claim();
        assert!(account.claim_more(2).is_none());
        let more = account.claim_more(1).unwrap();
        assert_eq!(account.lock().left(), 0);
        drop((waiting, first));
        assert_eq!(account.lock().claims, 0, "what is left belongs to no generation");
        drop(claim());
        drop(more);
        assert_eq!(account.lock().claimed, 0);
    }

    #[test]
    fn memory_that_is_only_kept_does_not_hold_up_later_generations() {
        let (account, scheduler) = (Arc::new(Account::default()), Scheduler::new());
        let free = AtomicU64::new(80);
        let measure = |shrink| match shrink {
            Shrink::Nothing => measured(free.load(Ordering::Relaxed), free.load(Ordering::Relaxed)),
            Shrink::Freed | Shrink::Prefixes => measured(75, 75),
        };
        let room = |bytes| {
            let _claim = account.claim([bytes; 2], &scheduler, || false, measure).unwrap();
            account.lock().room
        };
        assert_eq!(room(10), 80);
        free.store(70, Ordering::Relaxed);
        assert_eq!(room(10), 70, "little is kept");
        free.store(69, Ordering::Relaxed);
        assert_eq!(room(10), 75);
        free.store(66, Ordering::Relaxed);
        assert_eq!(room(10), 66, "it is not freed for less than an eighth of what was left the last time");
    }

    #[test]
    fn what_is_only_kept_gives_way_to_a_generation() {
        let (account, scheduler) = (Arc::new(Account::default()), Scheduler::new());
        let measure = |shrink| match shrink {
            Shrink::Nothing => measured(5, 4),
            Shrink::Freed => measured(8, 6),
            Shrink::Prefixes => measured(12, 6),
        };
        let claim = |bytes| account.claim(bytes, &scheduler, || false, measure).unwrap().unwrap();
        let claimed = |least, most| claim([least, most]).bytes;
        assert_eq!(claimed(3, 4), 4);
        assert_eq!(claimed(3, 5), 5);
        // A generation that may take more than there is runs alone.
        assert_eq!(claimed(8, 11), 6);
        let alone = claim([12, 13]);
        assert!(account.check(99, measure).is_ok(), "it is checked when the claim has ended");
        drop(alone);
        assert_eq!(account.check(13, measure), Err(Shortage { needed: 13, free: 12 }));
    }

    #[test]
    fn an_adapter_counts_with_its_padded_copy() {
        let config = Qwen2Config::small([8, 4, 6, 2, 2, 2]);
        let adapter = LoraAdapter::random(&config, 3, 1, &Device::flex());
        // Of seven targets, four map 4 to 4, two 4 to 6 and one 6 to 4. Ranks and outputs are padded
        // to 32 columns.
        let layer = 3 * (4 * 8 + 3 * 10) + (6 * 4 + 6) * 32 + 3 * 7 * 32;
        assert_eq!(adapter.bytes(), 4 * 2 * layer);
    }
}
