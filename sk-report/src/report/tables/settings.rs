use super::Table;
use crate::report::Recorded;
use crate::table::Kind;
use sk_scheme::Parameter;

/// The table of each scheme's settings; `None` if they were not stored beside the records.
pub(super) fn table(recorded: &Recorded) -> Option<Table> {
    let schemes =
        Table::of("settings", "What schemes ran with", &recorded.settings)
            .column("scheme", Kind::Text, |(scheme, _)| scheme.as_str());
    let numbers = Parameter::searchable().fold(schemes, |table, parameter| {
        let kind = if parameter.range.whole { Kind::Count } else { Kind::Number(3) };
        table.column(parameter.symbol, kind, |(_, kept)| kept.of.numbers.get(parameter.name).copied())
    });
    numbers
        .column("precision", Kind::Text, |(_, kept)| kept.of.precision.as_str())
        .column("convention", Kind::Text, |(_, kept)| kept.of.convention.as_str())
        .column("framing", Kind::Text, |(_, kept)| kept.of.framing.as_str())
        .column("tokens", Kind::Count, |(_, kept)| kept.of.max_new_tokens)
        .column("program", Kind::Text, |(_, kept)| kept.of.program.as_str())
        .column("backbone", Kind::Text, |(_, kept)| kept.sources.get("backbone").map(String::as_str))
        .column("drafter", Kind::Text, |(_, kept)| kept.sources.get("drafter").map(String::as_str))
        .column("digest", Kind::Text, |(_, kept)| kept.settings.as_str())
        .build()
        .note(
            "Numbers as the scheme has them, whether its slots read them or not; slots, digests of models, adapters and heads are in the file of \
                settings beside the records.",
        )
        .non_empty()
}
