//! A TOML text that is read field by field, so that errors state the line and the alternatives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::scheme::SchemeError;
use crate::suggest;

/// Numbers by name.
pub(crate) type NamedNumbers = Vec<(String, f64)>;

/// A parsed TOML text and its name in errors.
pub(crate) struct Document<'a> {
    name: &'a str,
    text: &'a str,
}

impl<'a> Document<'a> {
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        Self { name, text }
    }

    /// Returns the top-level tables by name. Names that are not `known` are errors.
    pub(crate) fn sections(&self, known: &[&str]) -> Result<BTreeMap<String, Section<'_, 'a>>, SchemeError> {
        let table = DeTable::parse(self.text).map_err(|error| SchemeError::Syntax {
            file: self.name.to_owned(),
            line: self.line(&error.span().unwrap_or_default()),
            message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        let sections = self.tables(table.into_inner(), "section", "")?;
        match sections.iter().find(|section| !known.contains(&section.name())) {
            Some(Section { name, line, .. }) => Err(self.unknown(*line, "section", name, known)),
            None => Ok(sections.into_iter().map(|section| (section.name.clone(), section)).collect()),
        }
    }

    /// Returns the error for a missing section, with a hint about its contents.
    pub(crate) fn missing(&self, section: &'static str, hint: &str) -> SchemeError {
        SchemeError::Missing { file: self.name.to_owned(), section, hint: hint.to_owned() }
    }

    /// Reads the values of `table`, whose path is `parent`, as tables.
    fn tables(&self, table: DeTable<'a>, what: &str, parent: &str) -> Result<Vec<Section<'_, 'a>>, SchemeError> {
        let mut sections = Vec::with_capacity(table.len());
        for (key, value) in table {
            let line = self.line(&key.span());
            let name = key.into_inner().into_owned();
            let path = if parent.is_empty() { name.clone() } else { format!("{parent}.{name}") };
            match value.into_inner() {
                DeValue::Table(fields) => sections.push(Section { document: self, name, path, line, fields, asked: Vec::new() }),
                other => {
                    return Err(SchemeError::Value {
                        file: self.name.to_owned(),
                        line,
                        reason: format!("a {what} is a table such as [{path}], not a {}", other.type_str()),
                        place: path,
                    });
                }
            }
        }
        sections.sort_by_key(|section| section.line);
        Ok(sections)
    }

    /// Returns the line of a span, from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.text.bytes().take(span.start).filter(|&b| b == b'\n').count()
    }

    fn unknown(&self, line: usize, what: &str, name: &str, known: &[&str]) -> SchemeError {
        SchemeError::Unknown {
            file: self.name.to_owned(),
            line,
            what: what.to_owned(),
            name: name.to_owned(),
            hint: suggest::hint(name, known),
        }
    }
}

/// One table of the text. Fields are taken by name; [`finish`](Self::finish) returns an error if
/// fields are left.
pub(crate) struct Section<'d, 'a> {
    document: &'d Document<'a>,
    name: String,
    /// Its full path, including the names of its parent tables.
    path: String,
    line: usize,
    fields: DeTable<'a>,
    asked: Vec<&'static str>,
}

impl<'d, 'a> Section<'d, 'a> {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tables inside this one, such as the blades.
    pub(crate) fn sections(self, what: &str) -> Result<Vec<Self>, SchemeError> {
        self.document.tables(self.fields, what, &self.path)
    }

    /// Reads the optional field `key`, whose value must be one of the `known` names.
    pub(crate) fn choice<T>(
        &mut self,
        key: &'static str,
        what: &str,
        known: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Result<Option<T>, SchemeError> {
        let Some((line, value)) = self.take(key) else { return Ok(None) };
        let Some(text) = value.as_str() else { return Err(self.mistyped(line, key, "a string", &value)) };
        let (names, choices): (Vec<&str>, Vec<T>) = known.into_iter().unzip();
        match names.iter().zip(choices).find(|(name, _)| **name == text) {
            Some((_, choice)) => Ok(Some(choice)),
            None => Err(self.document.unknown(line, what, text, &names)),
        }
    }

    pub(crate) fn count<T: FromStr>(&mut self, key: &'static str) -> Result<Option<T>, SchemeError> {
        self.field(key, "a whole number that is not negative", natural)
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
        self.field(key, "two numbers such as [0.5, 2]", |value| match list(value, decimal)?[..] {
            [low, high] => Some((low, high)),
            _ => None,
        })
    }

    pub(crate) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, SchemeError> {
        self.field(key, "true or false", DeValue::as_bool)
    }

    pub(crate) fn string(&mut self, key: &'static str) -> Result<Option<String>, SchemeError> {
        self.field(key, "a string", string)
    }

    pub(crate) fn strings(&mut self, key: &'static str) -> Result<Option<Vec<String>>, SchemeError> {
        self.entries(key, "a list of strings", |value| string(value).ok_or(value))
    }

    /// Reads a list of non-negative whole numbers.
    pub(crate) fn naturals(&mut self, key: &'static str) -> Result<Option<Vec<u64>>, SchemeError> {
        self.entries(key, "a list of whole numbers that are not negative", |value| natural(value).ok_or(value))
    }

    /// Reads a list of tables of numbers by name, such as weight vectors.
    pub(crate) fn vectors(&mut self, key: &'static str) -> Result<Option<Vec<NamedNumbers>>, SchemeError> {
        self.entries(key, "a list such as [{ helpful = 1, honest = 2 }]", |entry| {
            let numbers = entry.as_table().ok_or(entry)?.iter();
            let number = |value| decimal(value).ok_or(value);
            numbers.map(|(name, value)| Ok((name.get_ref().to_string(), number(value.get_ref())?))).collect()
        })
    }

    /// Reads strings by name, in the order of the text.
    pub(crate) fn named_strings(&mut self, key: &'static str) -> Result<Option<Vec<(String, String)>>, SchemeError> {
        self.field(key, "strings by name", |value| {
            let mut entries: Vec<_> = value.as_table()?.iter().collect();
            entries.sort_by_key(|(name, _)| name.span().start);
            by_name(entries, string)
        })
    }

    /// Reads the optional field `key` with `read`. `expected` describes a valid value for the
    /// error.
    fn field<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, SchemeError> {
        let Some((line, value)) = self.take(key) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| self.mistyped(line, key, expected, &value))
    }

    /// Reads the optional list `key` entry by entry. `read` returns the value at fault.
    fn entries<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl for<'v> Fn(&'v DeValue<'a>) -> Result<T, &'v DeValue<'a>>,
    ) -> Result<Option<Vec<T>>, SchemeError> {
        let Some((line, value)) = self.take(key) else { return Ok(None) };
        let Some(list) = value.as_array() else { return Err(self.mistyped(line, key, expected, &value)) };
        let entry = |entry: &Spanned<DeValue<'a>>| {
            let line = self.document.line(&entry.span());
            read(entry.get_ref()).map_err(|fault| self.mistyped(line, key, expected, fault))
        };
        list.iter().map(entry).collect::<Result<_, _>>().map(Some)
    }

    /// Returns an error for the section as a whole, such as an invalid combination of values.
    pub(crate) fn fault(&self, reason: impl std::fmt::Display) -> SchemeError {
        SchemeError::Value {
            file: self.document.name.to_owned(),
            line: self.line,
            place: format!("[{}]", self.path),
            reason: reason.to_string(),
        }
    }

    /// Returns an error if there are fields that were not taken.
    pub(crate) fn finish(self) -> Result<(), SchemeError> {
        match self.fields.keys().min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let what = format!("field of [{}]", self.path);
                Err(self.document.unknown(self.document.line(&key.span()), &what, key.get_ref(), &self.asked))
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<(usize, DeValue<'a>)> {
        self.asked.push(key);
        let value: Spanned<DeValue<'a>> = self.fields.remove(key)?;
        let line = self.document.line(&value.span());
        Some((line, value.into_inner()))
    }

    fn mistyped(&self, line: usize, key: &str, expected: &str, found: &DeValue<'_>) -> SchemeError {
        SchemeError::Value {
            file: self.document.name.to_owned(),
            line,
            place: format!("{}.{key}", self.path),
            reason: format!("expected {expected}, found {}", shown(found)),
        }
    }
}

/// Parses a non-negative whole number in decimal notation.
fn natural<T: FromStr>(value: &DeValue<'_>) -> Option<T> {
    value.as_integer().filter(|integer| integer.radix() == 10)?.as_str().parse().ok()
}

fn string(value: &DeValue<'_>) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn list<T>(value: &DeValue<'_>, read: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(|entry| read(entry.get_ref())).collect()
}

fn by_name<'v, 'a: 'v, T>(
    entries: impl IntoIterator<Item = (&'v Spanned<DeString<'a>>, &'v Spanned<DeValue<'a>>)>,
    read: impl Fn(&DeValue<'_>) -> Option<T>,
) -> Option<Vec<(String, T)>> {
    entries.into_iter().map(|(name, value)| Some((name.get_ref().to_string(), read(value.get_ref())?))).collect()
}

/// Parses a number in decimal notation, including `inf` and `nan`.
fn decimal(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}

/// Returns a number as written, or the type of any other value.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().to_owned(),
        DeValue::Float(float) => float.as_str().to_owned(),
        other => format!("{} {}", if other.type_str().starts_with(['a', 'i']) { "an" } else { "a" }, other.type_str()),
    }
}
