use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses one of some values by its name. Help and refusals list the names.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static>(
    values: impl IntoIterator<Item = (PossibleValue, T)>,
) -> impl TypedValueParser<Value = T> {
    let (names, values): (Vec<PossibleValue>, Vec<T>) = values.into_iter().unzip();
    PossibleValuesParser::new(names.clone()).map(move |given| {
        let place = names.iter().position(|name| name.get_name() == given);
        values[place.expect("clap accepts the listed names only")].clone()
    })
}

/// Parses one of `all`: the name, the help and the value of each.
pub(crate) fn choice<T: Clone + Send + Sync>(
    all: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let help = |help: &'static str| help.trim_start().trim_end_matches('.');
    one_of(all.iter().map(move |(name, meaning, value)| (PossibleValue::new(*name).help(help(meaning)), value.clone())))
}
