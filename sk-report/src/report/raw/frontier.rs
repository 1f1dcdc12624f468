use std::collections::{HashMap, HashSet};

use super::Source;
use super::sheet::Sheet;
use crate::report::{Cell, ReportError, Sweep, WeightVector};

/// The ids of responses by method, weight vector and prompt.
pub(super) type Ids = HashMap<(String, String, u32), String>;

/// Reads the judged sweep: one row per method, weight vector and prompt, and the ids of responses where a column has them.
pub(super) fn read(source: Source) -> Result<(Sweep, Ids), ReportError> {
    let sheet = Sheet::read(source)?;
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
        let weights = [row.share("w_helpfulness")?, row.share("w_honesty")?, row.share("w_harmlessness")?];
        let point = WeightVector { name: configuration.to_owned(), weights };
        let fluency = if sheet.has("fluency") { row.blank_or_share("fluency")? } else { None };
        rows.push((method.to_owned(), point, Cell { configuration: 0, prompt, rubrics: row.rubrics(&[])?, fluency }));
    }
    Ok((Sweep::of(rows), ids))
}
