use std::collections::{HashMap, HashSet};

use super::Source;
use super::sheet::Sheet;
use crate::objectives::Objectives;
use crate::report::{Cell, ReportError, Sweep, WeightVector};

/// What the columns of weights begin with.
const WEIGHT: &str = "w_";

/// The ids of responses by method, weight vector and prompt.
pub(super) type Ids = HashMap<(String, String, u32), String>;

/// Reads the judged sweep: one row per method, weight vector and prompt, and the ids of responses
/// where a column has them.
pub(super) fn read(source: Source, objectives: &Objectives) -> Result<(Sweep, Ids), ReportError> {
    let sheet = Sheet::read(source)?;
    let columns: Vec<&str> = sheet.columns().filter(|column| column.starts_with(WEIGHT)).collect();
    if columns.is_empty() {
        let column = format!("{WEIGHT}{}", objectives.blades[0].name);
        return Err(ReportError::Column { path: sheet.path().clone(), column });
    }
    let (mut rows, mut ids) = (Vec::new(), Ids::new());
    let mut seen = HashSet::new();
    for row in sheet.rows() {
        let method = row.text("method")?;
        let configuration = row.text("config")?;
        let prompt = row.whole("frontier_id")?;
        if !seen.insert((method, configuration, prompt)) {
            let (method, configuration) = (method.to_owned(), configuration.to_owned());
            return Err(ReportError::Duplicate { path: sheet.path().clone(), line: row.line(), method, configuration, prompt });
        }
        if let Some(id) = row.optional("id") {
            ids.insert((method.to_owned(), configuration.to_owned(), prompt), id.to_owned());
        }
        let weights = columns.iter().map(|column| row.share(column)).collect::<Result<_, _>>()?;
        let point = WeightVector { name: configuration.to_owned(), weights };
        let fluency = if sheet.has("fluency") { row.blank_or_share("fluency")? } else { None };
        rows.push((method.to_owned(), point, Cell { configuration: 0, prompt, scores: row.scores(objectives, &[])?, fluency }));
    }
    // The blade of a column goes by the name that the objectives have for it.
    let blade = |column: &&str| {
        let name = &column[WEIGHT.len()..];
        objectives.blades.iter().find(|blade| blade.is_called(name)).map_or(name, |blade| &blade.name).to_owned()
    };
    let blades = columns.iter().map(blade).collect();
    Ok((Sweep::of(objectives, blades, rows), ids))
}
