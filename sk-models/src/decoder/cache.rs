use std::sync::atomic::{AtomicU64, Ordering};

use super::{Decoder, Network};
use crate::packed::Store;
use crate::tensors;

/// Room for tokens in a new prefix of tensors; it doubles as needed.
const CAPACITY: usize = 256;

/// Keys and values in the form of a decoder.
#[derive(Debug)]
pub(super) enum Keys<T> {
    Tensors(T),
    Packed(Store),
}

/// Keys and values of a context, one sequence per lane.
#[derive(Debug)]
pub struct Prefix {
    pub(super) keys: Keys<tensors::Prefix>,
    /// The suffix that goes on from it; none once it has changed otherwise.
    latest: Option<u64>,
}

/// Keys and values of what each row has added to its lane's [`Prefix`].
///
/// It is of use for as long as the prefix is neither changed nor gone on from with another suffix: on a GPU, what rows add lies behind
/// what they share.
#[derive(Debug)]
pub struct Suffix {
    pub(super) keys: Keys<tensors::Suffix>,
    number: u64,
    /// Whether all rows hold the same number of tokens.
    even: bool,
    lanes: usize,
    rows: usize,
}

const STALE: &str = "the prefix has changed since the suffix went on from it";

impl Decoder {
    /// An empty prefix for `lanes` lanes.
    #[must_use]
    pub fn prefix(&self, lanes: usize) -> Prefix {
        let keys = match &self.network {
            Network::Tensors(model) => Keys::Tensors(model.prefix(lanes, CAPACITY)),
            Network::Packed(packed) => Keys::Packed(Store::new(packed.config(), lanes)),
        };
        Prefix { keys, latest: None }
    }

    /// An empty suffix for `rows` rows in each of `lanes` lanes.
    #[must_use]
    pub fn suffix(&self, lanes: usize, rows: usize) -> Suffix {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let keys = match &self.network {
            Network::Tensors(_) => Keys::Tensors(tensors::Suffix::new(rows)),
            Network::Packed(packed) => Keys::Packed(Store::new(packed.config(), lanes * rows)),
        };
        Suffix { keys, number: NUMBER.fetch_add(1, Ordering::Relaxed), even: true, lanes, rows }
    }
}

impl Prefix {
    /// Tokens held.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::Tensors(prefix) => prefix.len(),
            Keys::Packed(store) => store.length(),
        }
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        match &self.keys {
            Keys::Tensors(prefix) => prefix.lanes(),
            Keys::Packed(store) => store.sequences(),
        }
    }

    /// Forgets all but the first `length` tokens.
    ///
    /// # Panics
    ///
    /// If fewer are held.
    pub fn truncate(&mut self, length: usize) {
        self.change();
        match &mut self.keys {
            Keys::Tensors(prefix) => prefix.truncate(length),
            Keys::Packed(store) => store.truncate(length),
        }
    }

    /// Appends, in every lane, the first `tokens` tokens of row `row` of a suffix. O(`tokens`).
    ///
    /// # Panics
    ///
    /// If the suffix belongs to another number of lanes, or has no such row or not as many tokens, or is no longer of use.
    pub fn adopt(&mut self, suffix: &Suffix, row: usize, tokens: usize) {
        assert!(row < suffix.rows, "row {row} of {}", suffix.rows);
        assert_eq!(suffix.lanes, self.lanes(), "the suffix is of another number of lanes");
        assert!(suffix.is_empty() || self.latest == Some(suffix.number), "{STALE}");
        self.change();
        match (&mut self.keys, &suffix.keys) {
            (Keys::Tensors(prefix), Keys::Tensors(suffix)) => prefix.adopt(suffix, row, tokens),
            (Keys::Packed(prefix), Keys::Packed(store)) => {
                assert!(tokens <= store.length(), "{tokens} tokens of a suffix of {}", store.length());
                prefix.adopt(store, tokens, |lane| lane * suffix.rows + row);
            }
            _ => unreachable!("caches belong to one decoder"),
        }
    }

    /// Keeps the given lanes, in the given order. An index may occur more than once.
    ///
    /// # Panics
    ///
    /// If `lanes` is empty or an index is out of range.
    pub fn select_lanes(&mut self, lanes: &[usize]) {
        self.change();
        match &mut self.keys {
            Keys::Tensors(prefix) => prefix.select_lanes(lanes),
            Keys::Packed(store) => {
                assert!(!lanes.is_empty(), "a prefix needs at least one lane");
                store.select(lanes);
            }
        }
    }

    /// Appends the lanes of another prefix of the same tokens.
    ///
    /// # Panics
    ///
    /// If the two hold different numbers of tokens.
    pub fn join_lanes(&mut self, other: Self) {
        self.change();
        match (&mut self.keys, other.keys) {
            (Keys::Tensors(prefix), Keys::Tensors(other)) => prefix.join_lanes(&other),
            (Keys::Packed(store), Keys::Packed(other)) => store.join(other),
            _ => unreachable!("caches belong to one decoder"),
        }
    }

    /// Notes that no suffix goes on from it.
    pub(super) fn change(&mut self) {
        self.latest = None;
    }

    /// Notes that `suffix` goes on from it.
    pub(super) fn continue_with(&mut self, suffix: &Suffix) {
        assert!(suffix.is_empty() || self.latest == Some(suffix.number), "{STALE}");
        self.latest = Some(suffix.number);
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.keys {
            Keys::Tensors(prefix) => prefix.bytes(),
            Keys::Packed(store) => store.bytes(),
        }
    }
}

impl Suffix {
    /// Tokens held by the longest row.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::Tensors(suffix) => suffix.len(),
            Keys::Packed(store) => store.length(),
        }
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Notes that rows are about to be added, and whether all are of one length.
    pub(super) fn grow(&mut self, even: bool) {
        assert!(self.even, "a suffix of rows of different lengths is not extended again");
        self.even = even;
    }

    /// Rows of a lane.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }
}
