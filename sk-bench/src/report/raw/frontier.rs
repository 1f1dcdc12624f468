use std::collections::HashSet;

use super::Source;
use super::sheet::Sheet;
use crate::report::{Cell, ReportError, Sweep, WeightVector};

/// Reads the judged sweep: one row per method, weight vector and prompt.
pub(super) fn read(source: Source) -> Result<Sweep, ReportError> {
    let sheet = Sheet::read(source)?;
    let mut rows = Vec::new();
    let mut seen = HashSet::new();
    for row in sheet.rows() {
        let method = row.text("method")?;
        let configuration = row.text("config")?;
        let prompt = row.whole("frontier_id")?;
        if !seen.insert((method, configuration, prompt)) {
            let (method, configuration) = (method.to_owned(), configuration.to_owned());
            return Err(ReportError::Duplicate { path: sheet.path().clone(), line: row.line(), method, configuration, prompt });
        }
        let weights = [row.share("w_helpfulness")?, row.share("w_honesty")?, row.share("w_harmlessness")?];
        let point = WeightVector { name: configuration.to_owned(), weights };
        let fluency = if sheet.has("fluency") { row.blank_or_share("fluency")? } else { None };
        rows.push((method.to_owned(), point, Cell { configuration: 0, prompt, rubrics: row.rubrics(&[])?, fluency }));
    }
    Ok(Sweep::of(rows))
}
