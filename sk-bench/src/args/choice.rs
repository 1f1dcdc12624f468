use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Returns a parser of values by name. Help and errors list the names.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static>(
    values: impl IntoIterator<Item = (PossibleValue, T)>,
) -> impl TypedValueParser<Value = T> {
    let (names, values): (Vec<PossibleValue>, Vec<T>) = values.into_iter().unzip();
    PossibleValuesParser::new(names.clone()).map(move |given| {
        let place = names.iter().position(|name| name.get_name() == given);
        values[place.expect("clap accepts the listed names only")].clone()
    })
}

/// Returns a parser for `all`, which gives the name, help and value of each choice.
pub(crate) fn choice<T: Clone + Send + Sync>(
    all: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let help = |help: &'static str| help.trim_start().trim_end_matches('.');
    one_of(all.iter().map(move |(name, meaning, value)| (PossibleValue::new(*name).help(help(meaning)), value.clone())))
}
