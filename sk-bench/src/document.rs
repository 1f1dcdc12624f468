//! Sections of a plan, which are read field by field, so that errors state the line and the
//! alternatives.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::scheme::SchemeError;
use crate::scheme::source::{self, Source};
use crate::suggest;

/// Numbers by name.
pub(crate) type NamedNumbers = Vec<(String, f64)>;

/// Returns the tables of a plan by name. Names that are not `known` are errors.
pub(crate) fn sections<'s>(
    source: &'s Source<'s>,
    plan: Table,
    known: &[&str],
) -> Result<BTreeMap<String, Section<'s>>, SchemeError> {
    let sections = source.root().sections(plan, "section")?;
    match sections.iter().find(|section| !known.contains(&section.name())) {
        Some(section) => {
            let name = section.name();
            Err(section.unknown(section.line(), "section", name, suggest::hint(name, known)))
        }
        None => Ok(sections.into_iter().map(|section| (section.name().to_owned(), Section::of(section))).collect()),
    }
}

/// Returns a section of a plan, or an empty one if the plan lacks it.
pub(crate) fn or_empty<'s>(section: Option<Section<'s>>, source: &'s Source<'s>) -> Section<'s> {
    section.unwrap_or_else(|| Section::of(source.root()))
}

/// Returns the error for a missing section of a plan, with a hint about its contents.
pub(crate) fn missing(plan: &str, section: &'static str, hint: &str) -> SchemeError {
    SchemeError::Missing { file: plan.to_owned(), section, hint: hint.to_owned() }
}

/// One table of a plan. Fields are taken by name; [`finish`](Self::finish) returns an error if
/// fields are left.
pub(crate) struct Section<'s> {
    fields: source::Section<'s>,
    asked: Vec<&'static str>,
}

impl<'s> Section<'s> {
    fn of(fields: source::Section<'s>) -> Self {
        Self { fields, asked: Vec::new() }
    }

    pub(crate) fn name(&self) -> &str {
        self.fields.name()
    }

    /// Returns the tables inside this one, such as the blades.
    pub(crate) fn sections(mut self, what: &str) -> Result<Vec<Self>, SchemeError> {
        let tables = std::mem::take(&mut self.fields.table);
        Ok(self.fields.sections(tables, what)?.into_iter().map(Self::of).collect())
    }

    /// Reads the optional field `key`, whose value must be one of the `known` names.
    pub(crate) fn choice<T>(
        &mut self,
        key: &'static str,
        what: &str,
        known: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Result<Option<T>, SchemeError> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        let (names, choices): (Vec<&str>, Vec<T>) = known.into_iter().unzip();
        match names.iter().zip(choices).find(|(name, _)| **name == text) {
            Some((_, choice)) => Ok(Some(choice)),
            None => Err(self.fields.unknown(self.fields.lines(key)[1], what, &text, suggest::hint(&text, &names))),
        }
    }

    /// Returns whether there is a field of this name that was not read.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.fields.table.contains_key(key)
    }

    pub(crate) fn count<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, SchemeError> {
        self.field(key, "a whole number that is not negative")
    }

    /// Reads a number that is at least 1.
    pub(crate) fn positive(&mut self, key: &'static str) -> Result<Option<usize>, SchemeError> {
        match self.count(key)? {
            Some(0) => Err(self.fault(format!("{key} is 0; it must be at least 1"))),
            count => Ok(count),
        }
    }

    /// Reads a list of two numbers, such as the ends of a range.
    pub(crate) fn number_pair(&mut self, key: &'static str) -> Result<Option<(f64, f64)>, SchemeError> {
        self.field(key, "two numbers such as [0.5, 2]")
    }

    pub(crate) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, SchemeError> {
        self.field(key, "true or false")
    }

    pub(crate) fn string(&mut self, key: &'static str) -> Result<Option<String>, SchemeError> {
        self.field(key, "a string")
    }

    pub(crate) fn strings(&mut self, key: &'static str) -> Result<Option<Vec<String>>, SchemeError> {
        self.entries(key, "a list of strings", parsed)
    }

    /// Reads a list of non-negative whole numbers.
    pub(crate) fn naturals(&mut self, key: &'static str) -> Result<Option<Vec<u64>>, SchemeError> {
        self.entries(key, "a list of whole numbers that are not negative", parsed)
    }

    /// Reads a list of tables of numbers by name, such as weight vectors.
    pub(crate) fn vectors(&mut self, key: &'static str) -> Result<Option<Vec<NamedNumbers>>, SchemeError> {
        self.entries(key, "a list such as [{ helpful = 1, honest = 2 }]", |entry| {
            let numbers = parsed::<Table>(entry)?.into_iter();
            numbers.map(|(name, number)| Ok((name, parsed(number)?))).collect()
        })
    }

    /// Reads strings by name, in the order of the text.
    pub(crate) fn named_strings(&mut self, key: &'static str) -> Result<Option<Vec<(String, String)>>, SchemeError> {
        let expected = "strings by name";
        let Some(table) = self.field(key, expected)? else { return Ok(None) };
        let entries = self.fields.under(key, Table::new()).entries(table).into_iter();
        let string = |value| parsed(value).map_err(|fault| self.fields.mistyped(key, expected, &fault));
        entries.map(|(name, value)| Ok((name, string(value)?))).collect::<Result<_, _>>().map(Some)
    }

    /// Reads the optional field `key`. `expected` describes a valid value for the error.
    fn field<T: DeserializeOwned>(&mut self, key: &'static str, expected: &str) -> Result<Option<T>, SchemeError> {
        self.asked.push(key);
        let value = self.fields.table.remove(key).map(parsed).transpose();
        value.map_err(|fault| self.fields.mistyped(key, expected, &fault))
    }

    /// Reads the optional list `key` entry by entry. `read` returns the value at fault.
    fn entries<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl Fn(Value) -> Result<T, Value>,
    ) -> Result<Option<Vec<T>>, SchemeError> {
        let Some(list) = self.field::<Vec<Value>>(key, expected)? else { return Ok(None) };
        let entry = |(place, entry)| read(entry).map_err(|fault| self.fields.mistyped_entry(key, place, expected, &fault));
        list.into_iter().enumerate().map(entry).collect::<Result<_, _>>().map(Some)
    }

    /// Returns an error for the section as a whole, such as an invalid combination of values.
    pub(crate) fn fault(&self, reason: impl std::fmt::Display) -> SchemeError {
        self.fields.fault(reason)
    }

    /// Returns an error if there are fields that were not taken.
    pub(crate) fn finish(mut self) -> Result<(), SchemeError> {
        let left = std::mem::take(&mut self.fields.table);
        match self.fields.entries(left).first() {
            None => Ok(()),
            Some((key, _)) => {
                let what = format!("field of [{}]", self.fields.dotted());
                Err(self.fields.unknown(self.fields.lines(key)[0], &what, key, suggest::hint(key, &self.asked)))
            }
        }
    }
}

/// Converts a value. Returns it if it has another type.
fn parsed<T: DeserializeOwned>(value: Value) -> Result<T, Value> {
    // A date would be read as a string.
    if value.is_datetime() {
        return Err(value);
    }
    T::deserialize(value.clone()).map_err(|_| value)
}
