//! Which cells of a grid are done, according to the records.

use sk_report::record::{RecordError, SweepRecord};

use super::{Cell, Grid};
use crate::Error;
use crate::record_file::records;

/// The progress of a grid, read from the records of an output.
#[derive(Debug, Clone)]
pub(crate) struct Completion<'g> {
    pub grid: &'g Grid,
    done: Vec<bool>,
    /// The number of cells that are done.
    pub finished: usize,
    /// The number of records of cells that are not in the plan.
    pub unplanned: usize,
    /// The number of complete lines read, including blank lines.
    pub(super) lines: u64,
    /// The number of bytes of the trace file that the records refer to.
    pub(super) trace_end: u64,
}

impl<'g> Completion<'g> {
    /// Returns the state before any record is read.
    pub(crate) fn new(grid: &'g Grid) -> Self {
        Self { grid, done: vec![false; grid.cells.len()], finished: 0, unplanned: 0, lines: 0, trace_end: 0 }
    }

    /// Adds the records of `bytes`, the next unread complete lines of an output. Records of cells
    /// that are not in the plan are only counted.
    ///
    /// # Errors
    /// If a line is not a record, a cell occurs twice, a record was made with other settings than
    /// the plan has for its scheme, or a record is for a different prompt, or one with another label
    /// `axis`, with the same id.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let path = &self.grid.plan.output;
        for read in records::<SweepRecord>(path, bytes, self.lines) {
            let (line, record) = read?;
            let wrong = |reason: String| RecordError::line(path, line, reason);
            self.trace_end = self.trace_end.max(record.trace.map_or(0, |span| span.end()));
            if let Some(arm) = self.grid.arms.iter().find(|arm| arm.name == record.scheme)
                && arm.settings.settings != record.settings
            {
                let cure = "give the changed scheme another name, or the plan another output";
                let reason = format!("cell {} was made with other settings than the plan's; {cure}", record.id);
                return Err(wrong(reason).into());
            }
            let Some(place) = self.grid.find(&record.id) else {
                self.unplanned += 1;
                continue;
            };
            let cell = &self.grid.cells[place];
            if self.done[place] {
                return Err(wrong(format!("cell {} is there twice; remove one of the lines", record.id)).into());
            }
            if record.prompt != self.grid.prompts[cell.prompt].prompt {
                let reason = format!("prompt \"{}\" has another text than in the plan; give another output", record.prompt_id);
                return Err(wrong(reason).into());
            }
            if record.axis.as_ref() != self.grid.prompts[cell.prompt].labels.get("axis") {
                let id = record.prompt_id;
                let reason = format!("prompt \"{id}\" has another label \"axis\" than in the plan; give another output");
                return Err(wrong(reason).into());
            }
            self.done[place] = true;
            self.finished += 1;
        }
        self.lines += bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Ok(())
    }

    /// Returns whether the cell at a position is done.
    pub(crate) fn is_done(&self, place: usize) -> bool {
        self.done[place]
    }

    /// Returns the cells that are not done, in the order of the plan.
    pub(crate) fn open(&self) -> impl Iterator<Item = (usize, &'g Cell)> {
        self.grid.cells.iter().enumerate().filter(|(place, _)| !self.done[*place])
    }
}
