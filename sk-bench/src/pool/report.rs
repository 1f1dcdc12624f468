//! Steps and summaries as tables.

use std::fmt;

use sk_report::grid::{Grid, wrap};

use super::{PoolStep, Summary};
use crate::plural::counted;
use crate::terminal;

/// Maximum number of arms that are shown as columns.
const MOST_COLUMNS: usize = 16;

impl fmt::Display for PoolStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["arm", "choice", "candidate", "probability", "argmax", "of appended", "total variation"];
        let mut grid = Grid::new(header).numbers(3..).numbers(1..2);
        for arm in &self.arms {
            let line = self.candidates.iter().find(|candidate| candidate.index == arm.chosen);
            grid.row([
                arm.name.clone(),
                (arm.chosen + 1).to_string(),
                line.map(|candidate| candidate.line.clone()).unwrap_or_default(),
                format!("{:.3}", arm.probability),
                (arm.argmax + 1).to_string(),
                format!("{:.3}", arm.probability_of_appended),
                format!("{:.3}", arm.total_variation),
            ]);
        }
        let turn = if self.turn > 0 { format!("turn {}, ", self.turn + 1) } else { String::new() };
        let listed = self.candidates.len();
        let part = if listed < self.n { format!(", {listed} of {} candidates", self.n) } else { String::new() };
        write!(f, "{turn}step {}{part}\n{}", self.step + 1, grid.render(terminal::columns()))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["", "arm", "same choice", "same argmax", "p of appended", "total variation", "at most"];
        let mut own = Grid::new(header).numbers(2..).repeat(2);
        for (place, arm) in self.arms.iter().enumerate() {
            own.row([
                (place + 1).to_string(),
                arm.name.clone(),
                format!("{:.0} %", 100.0 * arm.same_choice),
                format!("{:.0} %", 100.0 * arm.same_argmax),
                format!("{:.3}", arm.probability_of_appended),
                format!("{:.3}", arm.total_variation),
                format!("{:.3}", arm.most_total_variation),
            ]);
        }
        let driver = self.arms.first().map_or("", |arm| &arm.name);
        let steps = counted(self.steps, "step");
        write!(f, "{steps}, beside {driver}, whose choices were appended\n{}", own.render(terminal::columns()))?;
        if !(3..=MOST_COLUMNS).contains(&self.arms.len()) {
            return Ok(());
        }
        let numbers: Vec<String> = (1..=self.arms.len()).map(|number| number.to_string()).collect();
        let header: Vec<&str> = ["", "arm"].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        let mut pairs = Grid::new(header).numbers(2..).repeat(2);
        for (place, arm) in self.arms.iter().enumerate() {
            // Agreement below the diagonal, total variation above.
            let cell = |other: usize| match place.cmp(&other) {
                std::cmp::Ordering::Less => format!("{:.3}", self.total_variation[place][other]),
                std::cmp::Ordering::Equal => String::new(),
                std::cmp::Ordering::Greater => format!("{:.0} %", 100.0 * self.agreement[place][other]),
            };
            pairs.row([numbers[place].clone(), arm.name.clone()].into_iter().chain((0..self.arms.len()).map(cell)));
        }
        let width = terminal::columns();
        let caption = wrap("mean total variation above the diagonal, share of the same choice below", width, 0);
        write!(f, "\n\n{caption}\n{}", pairs.render(width))
    }
}
