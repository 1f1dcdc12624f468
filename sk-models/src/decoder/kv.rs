//! KV caches: the context of each lane, and the tokens that rows add to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::engine::{PrefixCache, SuffixCache};

/// Keys and values of a context, one sequence per lane.
#[derive(Debug)]
pub struct Prefix {
    pub(super) cache: Box<dyn PrefixCache>,
    /// The number of the valid suffix; `None` if the prefix has changed since.
    latest: Option<u64>,
    held: Held,
}

/// Keys and values of the tokens that each row has added to the [`Prefix`] of its lane.
///
/// A suffix is valid until the prefix changes or another suffix continues it: on a GPU, a suffix
/// lies in the prefix's own buffers.
#[derive(Debug)]
pub struct Suffix {
    pub(super) cache: Box<dyn SuffixCache>,
    number: u64,
    /// Whether all rows hold the same number of tokens.
    even: bool,
    lanes: usize,
    rows: usize,
    held: Held,
}

/// The part of a decoder's count of tokens in memory that belongs to one cache.
#[derive(Debug)]
struct Held {
    all: Arc<AtomicUsize>,
    tokens: usize,
}

impl Held {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        Self { all: Arc::clone(all), tokens: 0 }
    }

    /// Updates the count of the cache to `tokens`, summed over its lanes and rows.
    fn count(&mut self, tokens: usize) {
        self.all.fetch_add(tokens, Ordering::Relaxed);
        self.all.fetch_sub(self.tokens, Ordering::Relaxed);
        self.tokens = tokens;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}

const STALE: &str = "the prefix has changed since the suffix continued it";

impl Prefix {
    /// Returns an empty prefix, whose tokens are counted in `all`.
    pub(super) fn new(cache: Box<dyn PrefixCache>, all: &Arc<AtomicUsize>) -> Self {
        Self { cache, latest: None, held: Held::new(all) }
    }

    /// Returns the number of tokens held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns whether the cache holds no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.cache.lanes()
    }

    /// Returns the number of leading tokens whose keys and values are known to be bit-identical to
    /// those that [`Decoder::prefill`](super::Decoder::prefill) computes.
    pub(crate) fn canonical_len(&self) -> usize {
        self.cache.canonical_len()
    }

    /// Keeps the first `length` tokens.
    ///
    /// # Panics
    ///
    /// If the prefix holds fewer tokens.
    pub fn truncate(&mut self, length: usize) {
        self.change();
        self.cache.truncate(length);
        self.count();
    }

    /// Appends, in every lane, the first `tokens` tokens of row `row` of a suffix. O(`tokens`).
    ///
    /// # Panics
    ///
    /// If the suffix has another number of lanes, no such row or fewer tokens, or is no longer
    /// valid.
    pub fn adopt(&mut self, suffix: &Suffix, row: usize, tokens: usize) {
        assert!(row < suffix.rows, "row {row} of {}", suffix.rows);
        assert_eq!(suffix.lanes, self.lanes(), "the suffix is of another number of lanes");
        assert!(suffix.is_empty() || self.latest == Some(suffix.number), "{STALE}");
        assert!(tokens <= suffix.len(), "{tokens} tokens of a suffix of {}", suffix.len());
        self.change();
        self.cache.adopt(&*suffix.cache, row, tokens);
        self.count();
    }

    /// Keeps the given lanes in the given order. An index may occur more than once.
    ///
    /// # Panics
    ///
    /// If `lanes` is empty or an index is out of range.
    pub(crate) fn select_lanes(&mut self, lanes: &[usize]) {
        assert!(!lanes.is_empty(), "a prefix needs at least one lane");
        self.change();
        self.cache.select_lanes(lanes);
        self.count();
    }

    /// Appends the lanes of another prefix of the same tokens.
    ///
    /// # Panics
    ///
    /// If the two hold different numbers of tokens.
    pub(crate) fn join_lanes(&mut self, other: Self) {
        self.change();
        self.cache.join_lanes(other.cache);
        self.count();
    }

    /// Updates the token count after a change.
    pub(super) fn count(&mut self) {
        self.held.count(self.len() * self.lanes());
    }

    /// Invalidates every suffix.
    pub(super) fn change(&mut self) {
        self.latest = None;
    }

    /// Invalidates every suffix but `suffix`.
    pub(super) fn continue_with(&mut self, suffix: &Suffix) {
        assert!(suffix.is_empty() || self.latest == Some(suffix.number), "{STALE}");
        self.latest = Some(suffix.number);
    }
}

impl Suffix {
    /// Returns an empty suffix of `rows` rows in each of `lanes` lanes, whose tokens are counted in
    /// `all`.
    pub(super) fn new(cache: Box<dyn SuffixCache>, [lanes, rows]: [usize; 2], all: &Arc<AtomicUsize>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Self { cache, number: NUMBER.fetch_add(1, Ordering::Relaxed), even: true, lanes, rows, held: Held::new(all) }
    }

    /// Returns the number of tokens of the longest row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns whether the cache holds no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the number of rows of a lane.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Keeps the given rows in the given order. A row may occur more than once. Returns `false` and
    /// leaves the suffix unchanged if the engine does not support this.
    ///
    /// # Panics
    ///
    /// If an index is out of range.
    pub(crate) fn select_rows(&mut self, rows: &[usize]) -> bool {
        assert!(rows.iter().all(|&row| row < self.rows), "rows {rows:?} of {}", self.rows);
        let selected = self.cache.select_rows(self.lanes, rows);
        if selected {
            self.rows = rows.len();
            self.count();
        }
        selected
    }

    /// Updates the token count after a change. Every row counts as the longest.
    pub(super) fn count(&mut self) {
        self.held.count(self.len() * self.lanes * self.rows);
    }

    /// Records that rows are about to grow, and whether all grow by the same number of tokens.
    pub(super) fn grow(&mut self, even: bool) {
        assert!(self.even, "a suffix of rows of different lengths is not extended again");
        self.even = even;
    }
}
