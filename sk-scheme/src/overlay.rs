//! A scheme file over a scheme: what it says changes, section by section and field by field, and
//! the rest stays.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::de::{DeserializeOwned, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use crate::aggregator::MEMBERS;
use crate::blades::{BladeSection, BladeSpec, FluencySection};
use crate::choices::Convention;
use crate::error::Reason;
use crate::schema::{self, choices, expected, fields, fits, tag};
use crate::selector::GateSpec;
use crate::spec::{About, Base, SchemeSpec, TEMPLATE};
use crate::weights::NamedWeights;
use crate::{FallbackSpec, SchemeError, SearchSpec, WeightingSpec, parameters, suggest};

/// The sections that a scheme file may have.
const SLOTS: [&str; 10] =
    ["about", "proposal", "granularity", "search", "fallback", "blades", "weighting", "normalizer", "aggregator", "selector"];

/// What the blades of a text do to those that are there.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Blades {
    /// Take their place.
    Listed,
    /// Change them field by field.
    Amended,
}

/// Where a scheme is read from, and the place of each of its keys and values.
pub(crate) struct Source<'a> {
    file: &'a str,
    /// The text, if errors name its lines.
    text: Option<&'a str>,
    /// Positions of key and value, by the path of the key: sections are taken in this order.
    places: BTreeMap<Vec<String>, [usize; 2]>,
}

/// A table of a text, and the keys that lead to it.
struct Section<'s> {
    source: &'s Source<'s>,
    path: Vec<String>,
    table: Table,
}

impl<'a> Source<'a> {
    /// A source whose values have no place, such as an option.
    pub(crate) fn without_lines(file: &'a str) -> Self {
        Self { file, text: None, places: BTreeMap::new() }
    }

    /// Parses a text; errors name lines if `numbered`.
    pub(crate) fn parse(file: &'a str, text: &'a str, numbered: bool) -> Result<(Self, Table), SchemeError> {
        let mut source = Self { text: numbered.then_some(text), ..Self::without_lines(file) };
        let root = DeTable::parse(text).map_err(|error| SchemeError::Syntax {
            file: file.to_owned(),
            line: source.line(error.span().unwrap_or_default().start),
            message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        let table = plain_table(root.get_ref(), &mut Vec::new(), &mut |path, key, value| {
            source.places.insert(path.to_vec(), [key.start, value.start]);
        });
        Ok((source, table))
    }

    /// The line of a position, from 1; 0 if lines say nothing.
    fn line(&self, position: usize) -> usize {
        self.text.map_or(0, |text| 1 + text.bytes().take(position).filter(|&b| b == b'\n').count())
    }

    /// The positions of a key and of its value.
    fn place(&self, path: &[String]) -> [usize; 2] {
        self.places.get(path).copied().unwrap_or_default()
    }
}

/// A table without its spans, which `visit` gets with the path of each key.
fn plain_table(
    table: &DeTable<'_>,
    path: &mut Vec<String>,
    visit: &mut impl FnMut(&[String], &Range<usize>, &Range<usize>),
) -> Table {
    let mut plain = Table::new();
    for (key, value) in table {
        path.push(key.get_ref().clone().into_owned());
        visit(path, &key.span(), &value.span());
        let value = plain_value(value.get_ref(), path, visit);
        plain.insert(path.pop().unwrap_or_default(), value);
    }
    plain
}

fn plain_value(
    value: &DeValue<'_>,
    path: &mut Vec<String>,
    visit: &mut impl FnMut(&[String], &Range<usize>, &Range<usize>),
) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Integer(integer) => {
            let decimal = Some(integer.as_str()).filter(|_| integer.radix() == 10).and_then(|digits| digits.parse().ok());
            decimal.map_or_else(|| Value::String(integer.to_string()), Value::Integer)
        }
        DeValue::Float(float) => float.as_str().parse().map_or_else(|_| Value::String(float.to_string()), Value::Float),
        DeValue::Datetime(datetime) => Value::Datetime(*datetime),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| plain_value(item.get_ref(), path, visit)).collect()),
        DeValue::Table(table) => Value::Table(plain_table(table, path, visit)),
    }
}

impl<'s> Section<'s> {
    fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    fn dotted(&self) -> String {
        self.path.join(".")
    }

    fn path_of(&self, key: &str) -> Vec<String> {
        self.path.iter().cloned().chain([key.to_owned()]).collect()
    }

    /// The lines of a key of this section and of its value.
    fn lines(&self, key: &str) -> [usize; 2] {
        self.source.place(&self.path_of(key)).map(|position| self.source.line(position))
    }

    fn line(&self) -> usize {
        self.source.line(self.source.place(&self.path)[0])
    }

    /// The values of `table`, which is at this section, as sections themselves, in the order of the
    /// source.
    fn sections(&self, table: Table, what: &str) -> Result<Vec<Section<'s>>, SchemeError> {
        let section = |(name, value): (String, Value)| {
            let path = self.path_of(&name);
            match value {
                Value::Table(table) => Ok(Section { source: self.source, path, table }),
                other => {
                    let place = path.join(".");
                    Err(SchemeError::Value {
                        file: self.source.file.to_owned(),
                        line: self.source.line(self.source.place(&path)[0]),
                        reason: format!("a {what} is a table such as [{place}], not a {}", other.type_str()),
                        place,
                    })
                }
            }
        };
        let mut entries: Vec<(String, Value)> = table.into_iter().collect();
        entries.sort_by_key(|(name, _)| self.source.place(&self.path_of(name))[0]);
        entries.into_iter().map(section).collect()
    }

    fn unknown(&self, line: usize, what: &str, name: &str, hint: String) -> SchemeError {
        SchemeError::Unknown { file: self.source.file.to_owned(), line, what: what.to_owned(), name: name.to_owned(), hint }
    }

    /// A fault of the section as a whole.
    fn fault(&self, reason: impl Into<Reason>) -> SchemeError {
        let (file, place) = (self.source.file.to_owned(), format!("[{}]", self.dotted()));
        SchemeError::Value { file, line: self.line(), place, reason: reason.into().0 }
    }

    fn mistyped(&self, key: &str, expected: &str, found: &Value) -> SchemeError {
        let shown = match found {
            Value::Integer(_) | Value::Float(_) => found.to_string(),
            other => format!("{} {}", if other.type_str().starts_with(['a', 'i']) { "an" } else { "a" }, other.type_str()),
        };
        SchemeError::Value {
            file: self.source.file.to_owned(),
            line: self.lines(key)[1],
            place: format!("{}.{key}", self.dotted()),
            reason: format!("expected {expected}, found {shown}"),
        }
    }

    /// What the section makes of `current`: its fields over those there, over the defaults.
    fn over<T: DeserializeOwned>(&mut self, slot: &str, current: &Table, base: &Base) -> Result<T, SchemeError> {
        let schema = schema::section(slot);
        let tag = tag(slot);
        let kinds = schema::kinds(slot, schema);
        let mut carried = current.clone();
        if let Some(value) = self.table.get(tag) {
            let what = match (slot, tag) {
                ("blades", _) => "blade",
                ("gates", _) => "criterion",
                _ => slot,
            };
            match value.as_str() {
                None => return Err(self.mistyped(tag, "a string", value)),
                Some(kind) if !kinds.iter().any(|known| known == kind) => {
                    let known: Vec<&str> = kinds.iter().map(String::as_str).collect();
                    return Err(self.unknown(self.lines(tag)[1], what, kind, suggest::hint(kind, &known)));
                }
                Some(kind) => forget(&mut carried, kind, tag),
            }
        }
        for (group, dependent) in [("link", "nu"), ("divergence", "divergence_alpha")] {
            if self.table.contains_key(group) {
                carried.remove(dependent);
            }
        }
        if self.table.contains_key("correlations") {
            self.table.remove("propagation");
            carried.remove("propagation");
        } else if self.table.contains_key("propagation") {
            carried.remove("correlations");
        }
        let given = self.table.get(tag).or_else(|| current.get(tag)).and_then(Value::as_str);
        let kind = given.unwrap_or(if slot == "blades" { "implicit-reward" } else { "blade" }).to_owned();
        let mut base = base.clone();
        if let (true, Some(value)) = (slot == "normalizer" && kind == "cbn", self.table.get("convention")) {
            let convention = value.as_str().ok_or_else(|| self.mistyped("convention", "a string", value))?;
            let hint = || suggest::hint(convention, &Convention::NAMES);
            base.convention = convention
                .parse()
                .map_err(|_: String| self.unknown(self.lines("convention")[1], "convention", convention, hint()))?;
            self.table.remove("convention");
            ["deviation", "epsilon", "dispersion_unit"].iter().for_each(|field| drop(carried.remove(*field)));
        }

        let mut all = defaults(slot, &kind, &base);
        all.extend(carried);
        if let Some((_, link, p)) = MEMBERS.iter().find(|(member, ..)| slot == "aggregator" && *member == kind) {
            all.insert("link".to_owned(), Value::String(link.name().to_owned()));
            all.insert("p".to_owned(), Value::Float(*p));
            self.table.remove(tag);
            all.insert(tag.to_owned(), Value::String("round-robin".to_owned()));
        } else {
            all.insert(tag.to_owned(), Value::String(kind.clone()));
        }
        all.extend(self.table.clone());
        let mut known = fields(schema, &all);
        if known.is_none() {
            self.check_tags(schema)?;
        }
        if let Some(known) = known.as_mut().filter(|_| slot == "blades" && !all.contains_key("guided")) {
            known.remove("likelihood");
        }
        let known = known.unwrap_or_default();
        for (key, value) in &self.table {
            let Some(property) = known.get(key) else {
                let hint = elsewhere(schema, &kinds, tag, &kind, key)
                    .unwrap_or_else(|| suggest::hint(key, &known.keys().map(String::as_str).collect::<Vec<_>>()));
                return Err(self.unknown(self.lines(key)[0], &format!("field of [{}]", self.dotted()), key, hint));
            };
            if !fits(property, value) {
                return Err(match value.as_str().filter(|_| !choices(property).is_empty()) {
                    Some(text) => {
                        self.unknown(self.lines(key)[1], &key.replace('_', " "), text, suggest::hint(text, &choices(property)))
                    }
                    None => self.mistyped(key, expected(property), value),
                });
            }
        }
        all.retain(|key, _| known.contains_key(key));
        T::deserialize(all).map_err(|error| self.fault(error.message()))
    }

    /// Refuses a tag that no alternative of the schema has, such as the name of a link.
    fn check_tags(&self, schema: &serde_json::Value) -> Result<(), SchemeError> {
        let all = fields(schema, &Table::new()).unwrap_or_default();
        for (key, value) in &self.table {
            let known = all.get(key).map(choices).unwrap_or_default();
            match value.as_str() {
                _ if known.is_empty() => {}
                None => return Err(self.mistyped(key, "a string", value)),
                Some(text) if !known.contains(&text) => {
                    return Err(self.unknown(self.lines(key)[1], &key.replace('_', " "), text, suggest::hint(text, &known)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The kind that has a field which the present one lacks.
fn elsewhere(schema: &serde_json::Value, kinds: &[String], tag: &str, kind: &str, key: &str) -> Option<String> {
    let has = |other: &&String| {
        let table = Table::from_iter([(tag.to_owned(), Value::String((*other).clone()))]);
        fields(schema, &table).is_some_and(|fields| fields.contains_key(key))
    };
    let lacking = Some(kind.to_owned());
    let other = kinds.iter().filter(|other| **other != kind).find(has)?;
    // A field that depends on another choice than the kind is a matter of that choice.
    if has(&lacking.as_ref()?) {
        return None;
    }
    let more = if key == "nu" { " and link = \"student-t\"" } else { "" };
    Some(format!("kind \"{kind}\" has no {key}; use {tag} = \"{other}\"{more}"))
}

/// Drops the fields that do not outlive a new kind.
fn forget(carried: &mut Table, kind: &str, tag: &str) {
    let before = carried.get(tag).and_then(Value::as_str).unwrap_or_default().to_owned();
    let forgotten: &[&str] = match kind {
        // A cap belongs to the rule it came with.
        "response" => &["span_tokens"],
        // The champion's temperature is on the scale of standardised logits.
        "softmax" if before != kind => &["temperature"],
        // A member of the family has a link and an exponent of its own.
        "round-robin" => &["link", "p", "nu"],
        member if MEMBERS.iter().any(|(name, ..)| *name == member) => &["link", "p", "nu"],
        // The two have choices of their own.
        "discriminator" if before != kind => &["dispersion"],
        _ if before == "discriminator" && before != kind => &["dispersion"],
        _ => &[],
    };
    forgotten.iter().for_each(|field| drop(carried.remove(*field)));
    if before == "response" && kind == "fixed-length" {
        carried.remove("span_tokens");
    }
}

/// The fields of a section that a file leaves out, those of other kinds included.
fn defaults(slot: &str, kind: &str, base: &Base) -> Table {
    let paper = base.convention == Convention::Paper;
    let text = |value: &str| Value::String(value.to_owned());
    let convention = || text(&base.convention.to_string());
    let mut table: Table = parameters::defaults(slot, kind, base).collect();
    let choices: Vec<(&str, Value)> = match slot {
        "proposal" => vec![("keep_end_of_text", Value::Boolean(!paper)), ("merge", text("exact")), ("prior", text("backbone"))],
        "granularity" if kind == "response" => vec![("span_tokens", text("unlimited"))],
        "granularity" if kind == "delimiters" => vec![("delimiters", Value::Array(Vec::new()))],
        "blades" => vec![
            ("dispersion", text(if kind == "discriminator" { "zero" } else { "min-entropy" })),
            ("arm", text("real")),
            ("likelihood", text("summed")),
            ("divergence", text("reverse-kl")),
        ],
        "normalizer" => vec![
            ("deviation", text("sample")),
            ("dispersion_unit", text(if paper { "own" } else { "score" })),
            ("propagation", text("linear")),
        ],
        "aggregator" => vec![
            ("convention", convention()),
            ("standardize", Value::Boolean(true)),
            ("link", text("probit")),
            ("divergence", text("reverse-kl")),
        ],
        "selector" => vec![("convention", convention()), ("standardize", Value::Boolean(true))],
        "gates" => vec![("fallback", text("best"))],
        _ => Vec::new(),
    };
    table.extend(choices.into_iter().map(|(field, value)| (field.to_owned(), value)));
    table
}

/// A part of a scheme as a table.
pub(crate) fn table_of(part: &impl Serialize) -> Table {
    Table::try_from(part).expect("the parts of a scheme are tables")
}

/// What fills a slot by default.
pub(crate) fn published<T: DeserializeOwned>(slot: &str, kind: &str, base: &Base) -> T {
    let source = Source::without_lines("the published scheme");
    let table = Table::from_iter([("kind".to_owned(), Value::String(kind.to_owned()))]);
    let mut section = Section { source: &source, path: vec![slot.to_owned()], table };
    section.over(slot, &Table::new(), base).expect("the published operating points are schemes")
}

impl SchemeSpec {
    /// Takes what a parsed text says.
    pub(crate) fn take(&mut self, source: &Source<'_>, table: Table, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        let root = Section { source, path: Vec::new(), table: Table::new() };
        for section in root.sections(table, "slot")? {
            self.take_section(section, directory, mode)?;
        }
        Ok(())
    }

    /// Sets fields of one slot.
    pub(crate) fn set_field(&mut self, slot: &'static str, table: Table) -> Result<(), SchemeError> {
        let source = Source::without_lines("");
        let section = Section { source: &source, path: vec![slot.to_owned()], table };
        self.take_section(section, Path::new(""), Blades::Amended).map_err(|error| match error {
            SchemeError::Value { reason, .. } => SchemeError::Parameter { slot, reason },
            other => other,
        })
    }

    fn take_section(&mut self, mut section: Section<'_>, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        match section.name().to_owned().as_str() {
            "about" => {
                let all = fields(schema::section("about"), &Table::new()).unwrap_or_default();
                for (key, value) in &section.table {
                    let known: Vec<&str> = all.keys().map(String::as_str).collect();
                    if !known.contains(&key.as_str()) {
                        return Err(section.unknown(section.lines(key)[0], "field of [about]", key, suggest::hint(key, &known)));
                    }
                    if !value.is_str() {
                        return Err(section.mistyped(key, "a string", value));
                    }
                }
                self.about = About::deserialize(section.table.clone()).map_err(|error| section.fault(error.message()))?;
            }
            "proposal" => {
                let proposal: crate::ProposalSpec = section.over("proposal", &table_of(&self.proposal), &self.base)?;
                proposal.drafting(None).map_err(|reason| section.fault(reason))?;
                self.proposal = proposal;
            }
            "granularity" => {
                let granularity: crate::GranularitySpec =
                    section.over("granularity", &table_of(&self.granularity), &self.base)?;
                granularity.check().map_err(|reason| section.fault(reason))?;
                self.granularity = granularity;
            }
            "search" => {
                let search: crate::SearchSpec = section.over("search", &table_of(&self.search), &self.base)?;
                search.build().map_err(|error| section.fault(error))?;
                self.search = search;
            }
            "fallback" => {
                let fallback: crate::FallbackSpec = section.over("fallback", &table_of(&self.fallback), &self.base)?;
                fallback.check().map_err(|error| section.fault(error))?;
                self.fallback = fallback;
            }
            "weighting" => self.weighting = section.over("weighting", &table_of(&self.weighting), &self.base)?,
            "normalizer" => {
                let normalizer: crate::NormalizerSpec = section.over("normalizer", &table_of(&self.normalizer), &self.base)?;
                normalizer.build().map_err(|reason| section.fault(reason))?;
                self.normalizer = normalizer;
            }
            "aggregator" => {
                let aggregator: crate::AggregatorSpec = section.over("aggregator", &table_of(&self.aggregator), &self.base)?;
                aggregator.build().map_err(|error| section.fault(error))?;
                self.aggregator = aggregator;
            }
            "selector" => {
                let gates = match section.table.remove("gates") {
                    None => self.selector.gates.clone(),
                    Some(Value::Table(gates)) => {
                        let path = section.path.iter().cloned().chain(["gates".to_owned()]).collect();
                        let parent = Section { source: section.source, path, table: Table::new() };
                        parent.sections(gates, "gate")?.into_iter().map(|gate| self.gate(gate)).collect::<Result<_, _>>()?
                    }
                    Some(other) => return Err(section.mistyped("gates", "tables by name", &other)),
                };
                let selector: crate::SelectorSpec = section.over("selector", &table_of(&self.selector), &self.base)?;
                let selector = crate::SelectorSpec { gates, ..selector };
                selector.build().map_err(|error| section.fault(error))?;
                self.selector = selector;
            }
            "blades" => {
                let table = std::mem::take(&mut section.table);
                let blades = section.sections(table, "blade")?;
                if mode == Blades::Listed {
                    (self.template, self.blades, self.fluency) = (None, Vec::new(), None);
                }
                for blade in blades {
                    self.take_blade(blade, directory, mode)?;
                }
            }
            name => return Err(section.unknown(section.line(), "slot", name, suggest::hint(name, &SLOTS))),
        }
        Ok(())
    }

    fn gate(&self, mut section: Section<'_>) -> Result<GateSpec, SchemeError> {
        let name = section.name().to_owned();
        if !section.table.contains_key("threshold") {
            return Err(section.fault("a gate needs a threshold"));
        }
        let gate: GateSpec = section.over("gates", &Table::new(), &self.base)?;
        let gate = GateSpec { name, ..gate };
        let alone = crate::SelectorSpec { gates: vec![gate.clone()], ..self.selector.clone() };
        alone.build().map_err(|error| section.fault(error))?;
        Ok(gate)
    }

    fn take_blade(&mut self, mut section: Section<'_>, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        let name = section.name().to_owned();
        let seated = self.blades.iter().position(|blade| blade.name == name);
        let is_fluency = self.fluency.as_ref() == Some(&name);
        let current = match (mode, seated, &self.template) {
            (Blades::Listed, ..) => Table::new(),
            (_, Some(seat), _) => table_of(&self.blades[seat]),
            (_, None, _) if is_fluency => table_of(&FluencySection::Fluency),
            (_, None, Some(template)) => table_of(template),
            (_, None, None) if name == TEMPLATE => {
                return Err(section.fault("the scheme lists its blades, and has none for all others"));
            }
            (_, None, None) => {
                let seated: Vec<&str> =
                    self.blades.iter().map(|blade| blade.name.as_str()).chain(self.fluency.as_deref()).collect();
                return Err(section.unknown(section.line(), "blade", &name, suggest::hint(&name, &seated)));
            }
        };
        // Directories of the text are relative to its own.
        let located = |value: &mut Value| {
            if let Value::String(path) = value {
                *path = directory.join(&*path).to_string_lossy().into_owned();
            }
        };
        if let Some(on) = section.table.get_mut("on").filter(|on| on.as_str().is_some_and(|on| on.starts_with(['.', '/']))) {
            located(on);
        }
        ["adapter", "head"].into_iter().filter_map(|field| section.table.get_mut(field).map(located)).for_each(drop);
        if let Some(Value::Array(members)) = section.table.get_mut("adapters") {
            members.iter_mut().for_each(located);
        }
        match section.over("blades", &current, &self.base)? {
            BladeSection::Fluency(_) => {
                if let Some(first) = self.fluency.as_ref().filter(|first| **first != name) {
                    return Err(SchemeError::TwoFluencyBlades { first: first.clone(), second: name });
                }
                self.blades.retain(|blade| blade.name != name);
                self.fluency = Some(name);
            }
            BladeSection::Weighed(blade) => {
                let blade = BladeSpec { name, ..blade };
                blade.build().map_err(|error| section.fault(error))?;
                if is_fluency {
                    self.fluency = None;
                }
                match seated {
                    _ if blade.name == TEMPLATE => self.template = Some(blade),
                    Some(seat) => self.blades[seat] = blade,
                    None => self.blades.push(blade),
                }
            }
        }
        Ok(())
    }
}

/// Parts by name, in their order.
struct Named<I>(I);

impl<K: Serialize, V: Serialize, I: Iterator<Item = (K, V)> + Clone> Serialize for Named<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

/// The `[selector]` section, with its gates in their order.
struct SelectorSection<'s>(&'s crate::SelectorSpec);

impl Serialize for SelectorSection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, value) in table_of(self.0) {
            map.serialize_entry(&field, &value)?;
        }
        if !self.0.gates.is_empty() {
            map.serialize_entry("gates", &Named(self.0.gates.iter().map(|gate| (gate.name.as_str(), table_of(gate)))))?;
        }
        map.end()
    }
}

impl Serialize for SchemeSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("about", &self.about)?;
        map.serialize_entry("base", &self.base)?;
        if let Some(weights) = &self.weights {
            map.serialize_entry("weights", weights)?;
        }
        map.serialize_entry("proposal", &self.proposal)?;
        map.serialize_entry("granularity", &self.granularity)?;
        // Without these sections a scheme keeps the digest that it had before there were any.
        if self.search != SearchSpec::default() {
            map.serialize_entry("search", &self.search)?;
        }
        if self.fallback != FallbackSpec::default() {
            map.serialize_entry("fallback", &self.fallback)?;
        }
        let weighed = self.template.iter().chain(&self.blades).map(|blade| (blade.name.as_str(), table_of(blade)));
        let fluency = self.fluency.iter().map(|name| (name.as_str(), table_of(&FluencySection::Fluency)));
        map.serialize_entry("blades", &Named(weighed.chain(fluency)))?;
        if self.weighting != WeightingSpec::default() {
            map.serialize_entry("weighting", &self.weighting)?;
        }
        map.serialize_entry("normalizer", &self.normalizer)?;
        map.serialize_entry("aggregator", &self.aggregator)?;
        map.serialize_entry("selector", &SelectorSection(&self.selector))?;
        map.end()
    }
}

impl SchemeSpec {
    /// A whole scheme from TOML, as its serialisation has it. Sections and fields that are left out
    /// are those of the published scheme at its [`Base`].
    ///
    /// # Errors
    /// As [`overlay`](Self::overlay) and [`check`](Self::check).
    pub fn from_toml(name: &str, text: &str) -> Result<Self, SchemeError> {
        let (source, table) = Source::parse(name, text, true)?;
        Self::of_table(&source, table)
    }

    fn of_table(source: &Source<'_>, mut table: Table) -> Result<Self, SchemeError> {
        let whole = |path: &str| Section { source, path: vec![path.to_owned()], table: Table::new() };
        let base = table.remove("base").map_or_else(|| Ok(Base::default()), Base::deserialize);
        let base = base.map_err(|error| whole("base").fault(error.message()))?;
        let mut spec = Self::reference(base.convention, &base.point).with_draft_temperature(base.draft_temperature);
        if let Some(weights) = table.remove("weights") {
            let section = whole("weights");
            let Value::Table(weights) = weights else { return Err(section.fault("expected weights by name")) };
            let mut entries: Vec<(String, Value)> = weights.into_iter().collect();
            entries.sort_by_key(|(name, _)| source.place(&section.path_of(name))[0]);
            let number = |(name, value): (String, Value)| {
                let weight = parameters::number_of(&value).filter(|weight| weight.is_finite() && *weight >= 0.0);
                let weight = weight.ok_or_else(|| section.mistyped(&name, "a number that is not negative", &value))?;
                Ok::<_, SchemeError>((name, weight))
            };
            spec.weights = Some(entries.into_iter().map(number).collect::<Result<NamedWeights, _>>()?);
        }
        spec.take(source, table, Path::new(""), Blades::Listed)?;
        spec.check()?;
        Ok(spec)
    }
}

/// As [`SchemeSpec::from_toml`], from any format. Formats whose maps are sorted lose the order of
/// blades and gates; JSON keeps it.
impl<'de> Deserialize<'de> for SchemeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut source = Source::without_lines("the scheme");
        let value = Ordered { path: &mut Vec::new(), places: &mut source.places }.deserialize(deserializer)?;
        let Value::Table(table) = value else { return Err(D::Error::custom("the scheme: expected sections by name")) };
        Self::of_table(&source, table).map_err(D::Error::custom)
    }
}

/// Reads a value of any format, and the order of its keys.
struct Ordered<'o> {
    path: &'o mut Vec<String>,
    places: &'o mut BTreeMap<Vec<String>, [usize; 2]>,
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
