//! The plan of one pass: the grid row of each token, and the keys that each row attends to.

use std::sync::Arc;

use sk_core::TokenId;

use super::CpuEngine;
use super::adapter::PackedAdapter;
use super::kv::{Block, KvCache, KvPrefix, Shared};
use super::pace::Pace;
use crate::decoder::engine::{Cache, Group, PrefixCache};

/// The adapter of each lane; none is the backbone.
pub(crate) type PackedSeats = Vec<Option<Arc<PackedAdapter>>>;

/// The caches that a group reads and extends.
pub(crate) type PackedCache<'a> = Cache<&'a mut KvPrefix, &'a mut KvCache>;

impl PackedCache<'_> {
    /// Returns the number of tokens that the rows of a lane share, and in each row's own block.
    fn lengths(&self) -> [usize; 2] {
        match &self.suffix {
            None => [self.prefix.in_pieces(), self.prefix.rest.length],
            Some(suffix) => [self.prefix.len(), suffix.length],
        }
    }

    /// Records that a pass appends other bits than a pass without states would.
    pub(super) fn mark(&mut self) {
        match &mut self.suffix {
            None => self.prefix.mark(),
            Some(suffix) => suffix.differs = true,
        }
    }

    pub(crate) fn layer_mut(&mut self, layer: usize) -> Keys<'_> {
        let (shared, own) = match &mut self.suffix {
            None => self.prefix.layer_mut(layer),
            Some(suffix) => (self.prefix.layer(layer), suffix.layer_mut(layer)),
        };
        Keys { shared, own }
    }
}

/// The keys and values that the rows of a group attend to in one layer.
pub(crate) struct Keys<'a> {
    pub(crate) shared: Shared<'a>,
    /// The rows' own blocks, in the order of the group's spans, one for each head.
    pub(crate) own: &'a mut [Block],
}

impl Group<'_, CpuEngine> {
    /// Returns the pace of the rows. All groups of a pass have the same pace, so that the results
    /// of a row do not depend on other rows.
    ///
    /// A pass without states always has the same pace, so that the keys and values of a context do
    /// not depend on how it was divided into passes.
    pub(crate) fn pace(&self, states: bool) -> Pace {
        if states { Pace::of_rows(&self.rows) } else { Pace::Read }
    }
}

/// Maps each token of each row to a state of its lane. Rows with a common beginning share its
/// states.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    rows: Vec<Vec<usize>>,
    /// Per row, the number of leading tokens that it shares with an earlier row.
    known: Vec<usize>,
    states: usize,
}

impl Places {
    /// Lays out rows one after the other. With `share`, rows with a common beginning share its
    /// states.
    ///
    /// O(N²·S) comparisons of tokens in the worst case, which is little beside a pass.
    fn new(rows: &[&[TokenId]], share: bool) -> Self {
        let mut places = Self::default();
        for (row, tokens) in rows.iter().enumerate() {
            let common = |other: &usize| rows[*other].iter().zip(*tokens).take_while(|(a, b)| a == b).count();
            let source = (0..if share { row } else { 0 }).max_by_key(common);
            let known = source.as_ref().map_or(0, common);
            let mut own = source.map_or_else(Vec::new, |source| places.rows[source][..known].to_vec());
            own.extend(places.states..places.states + tokens.len() - known);
            places.states += tokens.len() - known;
            places.rows.push(own);
            places.known.push(known);
        }
        places
    }

    /// Returns the state of token `step` of a row.
    pub(crate) fn at(&self, row: usize, step: usize) -> usize {
        self.rows[row][step]
    }

    /// Returns the number of states in a lane.
    pub(crate) fn states(&self) -> usize {
        self.states
    }
}

/// One row of one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSpan {
    pub(crate) group: usize,
    /// Lane and row within the group, and the row's number among the group's own blocks.
    pub(crate) lane: usize,
    pub(crate) row: usize,
    pub(crate) own: usize,
    /// Grid row of the lane's first state.
    pub(crate) first: usize,
    /// Tokens before the first one of this pass, and how many of them lie in the row's own block.
    pub(crate) position: usize,
    pub(crate) earlier: usize,
    /// Tokens of the row, and how many of them have their states computed by another row.
    pub(crate) length: usize,
    pub(crate) known: usize,
}

/// A pass over one or more groups: all rows of a lane side by side, lanes in the order of their
/// groups.
pub(crate) struct Plan {
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) lanes: LaneRows,
    pub(crate) seats: PackedSeats,
    /// In the order of the groups' own blocks.
    pub(crate) spans: Vec<RowSpan>,
    pub(crate) places: Vec<Places>,
    /// One more than the last position.
    pub(crate) reach: usize,
    pub(crate) pace: Pace,
}

impl Plan {
    /// Plans a pass with or without `states`.
    pub(super) fn new(groups: &[Group<'_, CpuEngine>], states: bool) -> Self {
        let mut plan = Self {
            tokens: Vec::new(),
            lanes: LaneRows::default(),
            seats: Vec::new(),
            spans: Vec::new(),
            places: Vec::new(),
            reach: 0,
            pace: groups.first().map_or(Pace::Step, |group| group.pace(states)),
        };
        debug_assert!(groups.iter().all(|group| group.pace(states) == plan.pace));
        for (index, group) in groups.iter().enumerate() {
            let [shared, earlier] = group.cache.lengths();
            let position = shared + earlier;
            let longest = group.width();
            // Rows of a non-empty suffix differ already, and sharing a single token is not worth
            // its cost.
            let places = Places::new(&group.rows, earlier == 0 && longest > 1);
            plan.reach = plan.reach.max(position + longest);
            for lane in 0..group.seats.len() {
                let first = plan.tokens.len();
                for (row, tokens) in group.rows.iter().enumerate() {
                    let (known, length) = (places.known[row], tokens.len());
                    plan.tokens.extend_from_slice(&tokens[known..]);
                    let own = lane * group.rows.len() + row;
                    plan.spans.push(RowSpan { group: index, lane, row, own, first, position, earlier, length, known });
                }
                plan.lanes.ends.push(plan.tokens.len());
            }
            plan.seats.extend_from_slice(group.seats);
            plan.places.push(places);
        }
        plan
    }

    /// Returns the grid row of a token of a span.
    pub(crate) fn grid_row(&self, span: &RowSpan, step: usize) -> usize {
        span.first + self.places[span.group].at(span.row, step)
    }
}

/// The grid rows of each lane, stored as the end of each lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaneRows {
    ends: Vec<usize>,
}

impl LaneRows {
    /// Returns `count` lanes of `rows` rows each.
    pub(crate) fn even(count: usize, rows: usize) -> Self {
        Self { ends: (1..=count).map(|lane| lane * rows).collect() }
    }

    /// Returns `count` lanes of `rows` rows for each `(count, rows)`.
    pub(crate) fn of_each(sizes: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut lanes = Self::default();
        let mut end = 0;
        for rows in sizes.flat_map(|(count, rows)| std::iter::repeat_n(rows, count)) {
            end += rows;
            lanes.ends.push(end);
        }
        lanes
    }

    /// Returns the first row of a lane and its end.
    pub(crate) fn bounds(&self, lane: usize) -> (usize, usize) {
        (if lane == 0 { 0 } else { self.ends[lane - 1] }, self.ends[lane])
    }

    /// Returns the lane of a row.
    pub(crate) fn of(&self, row: usize) -> usize {
        self.ends.partition_point(|&end| end <= row)
    }

    /// Returns the number of rows of the smallest lane.
    pub(crate) fn smallest(&self) -> usize {
        (0..self.ends.len()).map(|lane| self.bounds(lane)).map(|(first, end)| end - first).min().unwrap_or(0)
    }

    /// Splits `first..first + rows` at lane boundaries into (lane, first row, rows).
    pub(crate) fn segments(&self, first: usize, rows: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let end = first + rows;
        let lanes = if rows == 0 { 0..0 } else { self.of(first)..self.of(end - 1) + 1 };
        let segments = lanes.map(move |lane| {
            let (lane_first, lane_end) = self.bounds(lane);
            let start = lane_first.max(first);
            (lane, start, lane_end.min(end).saturating_sub(start))
        });
        segments.filter(|(.., rows)| *rows > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_begin_alike_share_states() {
        let rows: [&[TokenId]; 4] = [&[1, 2, 3], &[1, 2, 4, 5], &[7], &[1, 2, 4, 6]];
        let places = Places::new(&rows, true);
        assert_eq!(places.rows, [vec![0, 1, 2], vec![0, 1, 3, 4], vec![5], vec![0, 1, 3, 6]]);
        assert_eq!((places.states(), &places.known[..]), (7, &[0, 2, 0, 3][..]));
        let apart = Places::new(&rows, false);
        assert_eq!((apart.states(), apart.at(3, 0)), (12, 8));
    }

    #[test]
    fn equal_rows_are_computed_once() {
        let places = Places::new(&[&[3, 3], &[3, 3], &[3]], true);
        assert_eq!(places.rows, [vec![0, 1], vec![0, 1], vec![0]]);
        assert_eq!(places.states(), 2);
    }

    #[test]
    fn segments_cut_at_lanes() {
        let lanes = LaneRows { ends: vec![3, 3, 8] };
        assert_eq!(lanes.segments(1, 5).collect::<Vec<_>>(), [(0, 1, 2), (2, 3, 3)].map(|(l, f, r)| (l, f, r)));
        assert_eq!(lanes.segments(0, 0).count(), 0);
        assert_eq!((lanes.of(2), lanes.of(3), lanes.bounds(2), lanes.smallest()), (0, 2, (3, 8), 0));
    }
}
