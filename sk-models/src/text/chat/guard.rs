//! Bounds on the values of a template.
//!
//! The engine charges for new values, but not for a value that another one holds more than once. A
//! list that holds a list twice, forty levels deep, is forty small lists, but comparing, searching
//! or writing it takes forever. A [`Guard`] walks a value as if it were written out and rejects one
//! that is too large or too deep. [`guarded`](super::guarded) passes it every value that a template
//! makes and every value that is about to be walked.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use minijinja::{
    Error, ErrorKind,
    value::{Object, Value, ValueKind},
};

/// Bytes of a value that is written out: twice the longest prompt.
pub(super) const MOST_BYTES: usize = 2 * super::MOST_BYTES;
/// Bytes that a rendering prints, in blocks and macros too.
const MOST_PRINTED: u64 = 8 * super::MOST_BYTES as u64;
/// The deepest nesting of lists and mappings. The JSON parser accepts at most 128 levels.
pub(super) const DEEPEST: usize = 128;
/// The bytes that a value counts in addition to its text.
const VALUE_BYTES: usize = 32;
/// Values that a rendering may walk, of which 256 bytes of text count as one: a dialogue of ten
/// thousand messages a hundred times.
const MOST_WALKED: u64 = 4_000_000;
/// Bytes of text that are compared or searched in the time of walking one value.
const BYTES_A_VALUE: usize = 256;

/// Rejects values that are too large. Indexing a guard with a value returns the value or an error.
#[derive(Debug)]
pub(super) struct Guard {
    /// Values that may still be walked, shared by the guards of a rendering.
    left: Arc<AtomicU64>,
    /// Bytes that may still be printed, if guarded values are printed.
    room: Option<AtomicU64>,
    /// Whether the value becomes part of another one.
    inside: bool,
}

impl Guard {
    /// Returns the guards of a rendering: of a value, of one that becomes part of another, and of
    /// one that is printed.
    pub(super) fn all() -> [Self; 3] {
        let left = Arc::new(AtomicU64::new(MOST_WALKED));
        let guard = |inside, room| Self { left: Arc::clone(&left), room, inside };
        [guard(false, None), guard(true, None), guard(false, Some(AtomicU64::new(MOST_PRINTED)))]
    }

    /// Returns the value with all its items evaluated, since a chain of lazy lists would be as deep
    /// as it is long.
    ///
    /// # Errors
    ///
    /// If it is too large or too deep, or too much was walked before.
    pub(super) fn check(&self, value: &Value) -> Result<Value, Error> {
        let items = (value.kind() == ValueKind::Iterable).then(|| value.try_iter()).transpose()?;
        // Of an endless list, take just enough items to exceed the limit.
        let made = items.map(|items| Value::from(items.take(MOST_BYTES / VALUE_BYTES + 1).collect::<Vec<_>>()));
        let value = made.unwrap_or_else(|| value.clone());
        let mut walk = Walk { bytes: 0, values: 0, error: None };
        walk.of(&value, usize::from(self.inside));
        let take = |budget: &AtomicU64, cost: u64| {
            budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost)).is_ok()
        };
        let walked = take(&self.left, walk.values + (walk.bytes / BYTES_A_VALUE) as u64);
        let printed = self.room.as_ref().is_none_or(|room| take(room, walk.bytes as u64));
        match walk.error {
            Some(reason) => Err(Error::new(ErrorKind::InvalidOperation, reason)),
            None if !walked => {
                Err(Error::new(ErrorKind::OutOfFuel, "its lists and mappings are compared and searched too often"))
            }
            None if !printed => {
                let reason = format!("its prompt is longer than {} bytes", super::MOST_BYTES);
                Err(Error::new(ErrorKind::InvalidOperation, reason))
            }
            None => Ok(value),
        }
    }
}

impl Object for Guard {
    fn get_value(self: &Arc<Self>, value: &Value) -> Option<Value> {
        Some(self.check(value).unwrap_or_else(Value::from))
    }
}

/// The state of a walk through a value.
struct Walk {
    bytes: usize,
    values: u64,
    error: Option<String>,
}

impl Walk {
    fn of(&mut self, value: &Value, depth: usize) {
        self.values += 1;
        self.bytes += VALUE_BYTES + value.as_str().map_or(0, str::len);
        if self.bytes > MOST_BYTES {
            self.error = Some(format!("a value is longer than {MOST_BYTES} bytes when it is written out"));
        } else if depth > DEEPEST {
            self.error = Some(format!("lists and mappings are in each other more than {DEEPEST} levels deep"));
        }
        let Some(object) = value.as_object().filter(|_| self.error.is_none()) else { return };
        // Namespaces and loops are mutable and may contain themselves.
        if depth > 0 && ["::Namespace", "::Loop"].iter().any(|name| object.type_name().ends_with(name)) {
            self.error = Some("a namespace or a loop is part of another value".to_owned());
            return;
        }
        let items: Box<dyn Iterator<Item = Value>> = match value.kind() {
            ValueKind::Map => Box::new(object.try_iter_pairs().into_iter().flatten().flat_map(|(key, item)| [key, item])),
            ValueKind::Seq | ValueKind::Iterable => Box::new(object.try_iter().into_iter().flatten()),
            _ => return,
        };
        for item in items {
            self.of(&item, depth + 1);
            if self.error.is_some() {
                return;
            }
        }
    }
}
