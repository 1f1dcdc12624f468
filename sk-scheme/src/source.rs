//! Parsed TOML texts, with the position of each key and value for error messages.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::SchemeError;

/// The byte positions of key and value, by the path of the key. They determine the order of
/// sections. The key of an entry of a list is its number, from 0.
type Places = BTreeMap<Vec<String>, [usize; 2]>;

/// The text of a scheme or a plan, with the position of each of its keys and values.
#[derive(Debug)]
pub struct Source<'a> {
    file: &'a str,
    /// The text, if errors should name lines.
    text: Option<&'a str>,
    places: Places,
}

/// A table in a source, and its path of keys.
#[derive(Debug)]
pub struct Section<'s> {
    source: &'s Source<'s>,
    path: Vec<String>,
    /// The values by key.
    pub table: Table,
}

impl<'a> Source<'a> {
    /// Creates a source without positions, such as a command-line option.
    pub(crate) fn without_lines(file: &'a str) -> Self {
        Self { file, text: None, places: Places::new() }
    }

    /// Parses a text. Errors name lines if `numbered`.
    ///
    /// # Errors
    /// If the text is not TOML, or an integer does not fit in 64 bits.
    pub fn parse(file: &'a str, text: &'a str, numbered: bool) -> Result<(Self, Table), SchemeError> {
        let mut source = Self { text: numbered.then_some(text), ..Self::without_lines(file) };
        let root = DeTable::parse(text).map_err(|error| SchemeError::Syntax {
            file: file.to_owned(),
            line: source.line(error.span().unwrap_or_default().start),
            message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        match plain_table(root.get_ref(), &mut Vec::new(), &mut source.places) {
            Ok(table) => Ok((source, table)),
            Err((position, message)) => Err(SchemeError::Syntax { file: file.to_owned(), line: source.line(position), message }),
        }
    }

    /// Reads any serde format. Errors do not name lines.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(file: &'a str, deserializer: D) -> Result<(Self, Table), D::Error> {
        let mut source = Self::without_lines(file);
        match (Ordered { path: &mut Vec::new(), places: &mut source.places }).deserialize(deserializer)? {
            Value::Table(table) => Ok((source, table)),
            _ => Err(D::Error::custom(format!("{file}: expected sections by name"))),
        }
    }

    /// Returns the root section, without values.
    pub fn root(&self) -> Section<'_> {
        Section { source: self, path: Vec::new(), table: Table::new() }
    }

    /// Returns the line of a position, from 1; 0 if the source has no lines.
    fn line(&self, position: usize) -> usize {
        self.text.map_or(0, |text| 1 + text.bytes().take(position).filter(|&b| b == b'\n').count())
    }

    /// Returns `number` as the text spells it at `position`, or else in its usual form.
    fn written(&self, position: usize, number: &Value) -> String {
        let rest = self.text.and_then(|text| text.get(position..)).unwrap_or_default();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c))).unwrap_or(rest.len());
        let is_number = rest[..end].parse::<Value>().is_ok_and(|value| value == *number);
        if is_number { rest[..end].to_owned() } else { number.to_string() }
    }

    /// Returns the positions of a key and of its value.
    fn place(&self, path: &[String]) -> [usize; 2] {
        self.places.get(path).copied().unwrap_or_default()
    }
}

/// A value that cannot be represented: its position and the reason.
type Unrepresentable = (usize, String);

/// Converts a table into one without spans, whose start positions go to `places`.
fn plain_table(table: &DeTable<'_>, path: &mut Vec<String>, places: &mut Places) -> Result<Table, Unrepresentable> {
    let mut plain = Table::new();
    for (key, value) in table {
        path.push(key.get_ref().clone().into_owned());
        places.insert(path.clone(), [key.span().start, value.span().start]);
        let value = plain_value(value, path, places)?;
        plain.insert(path.pop().unwrap_or_default(), value);
    }
    Ok(plain)
}

fn plain_value(value: &Spanned<DeValue<'_>>, path: &mut Vec<String>, places: &mut Places) -> Result<Value, Unrepresentable> {
    Ok(match value.get_ref() {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Integer(integer) => {
            let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::Integer(parsed.map_err(|_| (value.span().start, format!("{integer} does not fit in 64 bits")))?)
        }
        DeValue::Float(float) => float.as_str().parse().map_or_else(|_| Value::String(float.to_string()), Value::Float),
        DeValue::Datetime(datetime) => Value::Datetime(*datetime),
        DeValue::Array(items) => {
            let mut array = Vec::with_capacity(items.len());
            for (number, item) in items.iter().enumerate() {
                path.push(number.to_string());
                places.insert(path.clone(), [item.span().start; 2]);
                array.push(plain_value(item, path, places)?);
                path.pop();
            }
            Value::Array(array)
        }
        DeValue::Table(table) => Value::Table(plain_table(table, path, places)?),
    })
}

/// Returns the type of a value with its article.
fn type_of(value: &Value) -> String {
    let name = value.type_str();
    format!("{} {name}", if name.starts_with(['a', 'i']) { "an" } else { "a" })
}

impl<'s> Section<'s> {
    /// Returns the last key of its path.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Returns its path, as in a TOML header.
    pub fn dotted(&self) -> String {
        self.path.join(".")
    }

    /// Returns the section `key` within this one.
    pub fn under(&self, key: &str, table: Table) -> Section<'s> {
        Section { source: self.source, path: self.path_of(key), table }
    }

    fn path_of(&self, key: &str) -> Vec<String> {
        self.path.iter().cloned().chain([key.to_owned()]).collect()
    }

    /// Returns the lines of a key of this section and of its value.
    pub fn lines(&self, key: &str) -> [usize; 2] {
        self.source.place(&self.path_of(key)).map(|position| self.source.line(position))
    }

    /// Returns the line of its header.
    pub fn line(&self) -> usize {
        self.source.line(self.source.place(&self.path)[0])
    }

    /// Returns the values of `table`, which lies at this section, as sections in source order.
    /// `what` names one of them in errors.
    ///
    /// # Errors
    /// If a value is not a table.
    pub fn sections(&self, table: Table, what: &str) -> Result<Vec<Section<'s>>, SchemeError> {
        let section = |(name, value): (String, Value)| match value {
            Value::Table(table) => Ok(self.under(&name, table)),
            other => {
                let place = self.path_of(&name).join(".");
                let reason = format!("a {what} is a table such as [{place}], not {}", type_of(&other));
                Err(self.value(self.lines(&name)[0], place, reason))
            }
        };
        self.entries(table).into_iter().map(section).collect()
    }

    /// Returns the entries of `table`, which lies at this section, in source order.
    pub fn entries(&self, table: Table) -> Vec<(String, Value)> {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by_key(|(name, _)| self.source.place(&self.path_of(name))[0]);
        entries
    }

    /// Creates an error for an unknown `what` at a line.
    pub fn unknown(&self, line: usize, what: &str, name: &str, hint: String) -> SchemeError {
        SchemeError::Unknown { file: self.source.file.to_owned(), line, what: what.to_owned(), name: name.to_owned(), hint }
    }

    /// Creates an error for the section as a whole. Its line is that of the value if the reason
    /// starts with a field, as in "temperature is -3".
    pub fn fault(&self, reason: impl Display) -> SchemeError {
        let reason = reason.to_string();
        let field = reason.split_once(" is ").map(|(field, _)| field).filter(|field| self.table.contains_key(*field));
        let line = field.map_or_else(|| self.line(), |field| self.lines(field)[1]);
        self.value(line, format!("[{}]", self.dotted()), reason)
    }

    /// Creates an error for a value of the wrong type.
    pub fn mistyped(&self, key: &str, expected: &str, found: &Value) -> SchemeError {
        self.mistyped_at(&self.path_of(key), key, expected, found)
    }

    /// Creates an error for an entry of the list `key`, counted from 0, of the wrong type.
    pub fn mistyped_entry(&self, key: &str, entry: usize, expected: &str, found: &Value) -> SchemeError {
        self.mistyped_at(&self.under(key, Table::new()).path_of(&entry.to_string()), key, expected, found)
    }

    fn mistyped_at(&self, path: &[String], key: &str, expected: &str, found: &Value) -> SchemeError {
        let position = self.source.place(path)[1];
        let shown = match found {
            Value::Integer(_) | Value::Float(_) => self.source.written(position, found),
            other => type_of(other),
        };
        self.value(self.source.line(position), format!("{}.{key}", self.dotted()), format!("expected {expected}, found {shown}"))
    }

    fn value(&self, line: usize, place: String, reason: String) -> SchemeError {
        SchemeError::Value { file: self.source.file.to_owned(), line, place, reason }
    }
}

/// Reads a value of any serde format, and records the order of its keys.
struct Ordered<'o> {
    path: &'o mut Vec<String>,
    places: &'o mut Places,
}

impl<'de> DeserializeSeed<'de> for Ordered<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Ordered<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a scheme")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        i64::try_from(value).map(Value::Integer).map_err(|_| E::custom(format!("{value} is too large")))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Ordered { path: self.path, places: self.places })? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = Table::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.path.push(key);
            let place = self.places.len();
            self.places.insert(self.path.clone(), [place; 2]);
            let value = entries.next_value_seed(Ordered { path: self.path, places: self.places })?;
            let key = self.path.pop().unwrap_or_default();
            if table.insert(key.clone(), value).is_some() {
                return Err(A::Error::custom(format!("\"{key}\" is given twice")));
            }
        }
        Ok(Value::Table(table))
    }
}
