use super::Table;
use crate::report::Recorded;
use crate::table::{Kind, Value};
use sk_scheme::Parameter;

/// What each scheme ran with; nothing where it was not kept beside the records.
pub(super) fn table(recorded: &Recorded) -> Option<Table> {
    let mut columns = vec![("scheme", Kind::Text)];
    columns.extend(Parameter::searchable().map(|parameter| (parameter.symbol, Kind::Number(3))));
    let rest = ["precision", "convention", "framing", "tokens", "program", "backbone", "drafter", "digest"];
    columns.extend(rest.map(|heading| (heading, if heading == "tokens" { Kind::Count } else { Kind::Text })));
    let mut table = Table::new("settings", "What schemes ran with", &columns);
    for (scheme, kept) in &recorded.settings {
        let of = &kept.of;
        let source = |role: &str| Value::from(kept.sources.get(role).map(String::as_str));
        let mut row: Vec<Value> = vec![scheme.as_str().into()];
        row.extend(Parameter::searchable().map(|parameter| Value::from(of.numbers.get(parameter.name).copied())));
        row.extend([of.precision.as_str().into(), of.convention.as_str().into(), of.framing.as_str().into()]);
        row.extend([of.max_new_tokens.into(), of.program.as_str().into(), source("backbone"), source("drafter")]);
        row.push(kept.settings.as_str().into());
        table.row(row);
    }
    let note = "Numbers as the scheme has them, whether its slots read them or not; slots, digests of models, adapters and heads are in the file of \
                settings beside the records.";
    (!table.rows.is_empty()).then(|| table.note(note))
}
