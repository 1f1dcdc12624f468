//! Application of a scheme file to a scheme. Fields in the file replace those of the scheme,
//! section by section; the others stay.

use std::fmt::Display;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use crate::aggregator::MEMBERS;
use crate::blades::{BladeSection, FluencySection};
use crate::defaults::{defaults, usual_kind};
use crate::schema::{self, DEPENDENT, SLOTS, choices, expected, fields, fits, tag};
use crate::selector::GateSpec;
use crate::source::{Section, Source};
use crate::spec::{TEMPLATE, table_of};
use crate::{
    About, AggregatorSpec, Base, BladeSpec, Convention, FallbackSpec, GranularitySpec, NormalizerSpec, ProposalSpec, SchemeError,
    SchemeSpec, SearchSpec, SelectorSpec, WeightingSpec, suggest,
};

/// The prefixes of sources that are no paths: a part of the model that ships, and an adapter of a
/// server.
const NO_PATHS: [&str; 2] = ["embedded:", "lora:"];

/// How the blades of a text combine with the existing ones.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Blades {
    /// Replace the existing blades.
    Listed,
    /// Change existing blades field by field.
    Amended,
}

impl SchemeSpec {
    /// Applies a TOML file. Slots and fields that it leaves out stay unchanged.
    ///
    /// # Errors
    /// If the file cannot be read, or if it has an unknown slot, kind or field, or a value out of
    /// range. The error names the line.
    pub fn read(&mut self, path: &Path) -> Result<(), SchemeError> {
        let text = crate::text::read(path).map_err(|source| SchemeError::Read { path: path.to_owned(), source })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        self.overlay(&path.display().to_string(), &text, directory)
    }

    /// As [`read`](Self::read), from a text. `name` identifies it in errors. Paths in it are
    /// relative to `directory`, except those that begin with `embedded:` or `lora:`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn overlay(&mut self, name: &str, text: &str, directory: &Path) -> Result<(), SchemeError> {
        let (source, table) = Source::parse(name, text, true)?;
        self.take(&source, table, directory, Blades::Listed)
    }

    /// As [`overlay`](Self::overlay), but blades in the text are changed field by field and the
    /// others stay. A blade that has no section yet is first copied from the template.
    ///
    /// # Errors
    /// As [`read`](Self::read), or if the text changes the template and there is none.
    pub fn amend(&mut self, name: &str, text: &str) -> Result<(), SchemeError> {
        let (source, table) = Source::parse(name, text, false)?;
        self.take(&source, table, Path::new(""), Blades::Amended)
    }

    /// Applies a parsed text. Directories in it are relative to `directory`.
    pub(crate) fn take(&mut self, source: &Source<'_>, table: Table, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        let root = source.root();
        let unknown = table.keys().filter(|name| !SLOTS.contains(&name.as_str()));
        if let Some(name) = unknown.min_by_key(|name| root.lines(name)[0]) {
            return Err(root.under(name, Table::new()).no_slot());
        }
        root.sections(table, "slot")?.into_iter().try_for_each(|section| self.take_section(section, directory, mode))
    }

    /// Applies one section.
    pub(crate) fn take_section(&mut self, mut section: Section<'_>, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        let (slot, base) = (section.name().to_owned(), &self.base);
        let current = self.section(&slot).unwrap_or_default();
        match slot.as_str() {
            "about" => {
                let known = fields(schema::section("about"), &Table::new()).unwrap_or_default();
                section.check_fields(&known, |_| None)?;
                self.about = About::deserialize(section.table.clone()).map_err(|error| section.fault(error.message()))?;
            }
            "proposal" => self.proposal = section.checked(&current, base, |proposal: &ProposalSpec| proposal.drafting(None))?,
            "granularity" => self.granularity = section.checked(&current, base, GranularitySpec::check)?,
            "search" => self.search = section.checked(&current, base, SearchSpec::build)?,
            "fallback" => self.fallback = section.checked(&current, base, FallbackSpec::check)?,
            "weighting" => self.weighting = section.checked(&current, base, WeightingSpec::check)?,
            "normalizer" => self.normalizer = section.checked(&current, base, NormalizerSpec::build)?,
            "aggregator" => self.aggregator = section.checked(&current, base, AggregatorSpec::build)?,
            "selector" => {
                let gates = match section.table.remove("gates") {
                    None => self.selector.gates.clone(),
                    Some(Value::Table(gates)) => {
                        let parent = section.under("gates", Table::new());
                        parent.sections(gates, "gate")?.into_iter().map(|gate| self.gate(gate)).collect::<Result<_, _>>()?
                    }
                    Some(other) => return Err(section.mistyped("gates", "tables by name", &other)),
                };
                let selector = SelectorSpec { gates, ..section.over("selector", &current, base)? };
                selector.build().map_err(|error| section.fault(error))?;
                self.selector = selector;
            }
            "blades" => {
                let table = std::mem::take(&mut section.table);
                let blades = section.sections(table, "blade")?;
                if mode == Blades::Listed {
                    (self.template, self.blades, self.fluency) = (None, Vec::new(), None);
                }
                blades.into_iter().try_for_each(|blade| self.take_blade(blade, directory, mode))?;
            }
            _ => return Err(section.no_slot()),
        }
        Ok(())
    }

    fn gate(&self, mut section: Section<'_>) -> Result<GateSpec, SchemeError> {
        let name = section.name().to_owned();
        let gate = GateSpec { name, ..section.over("gates", &Table::new(), &self.base)? };
        let alone = SelectorSpec { gates: vec![gate.clone()], ..self.selector.clone() };
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
                return Err(section.fault("the scheme has no [blades.\"*\"] section to edit; name one of its blades"));
            }
            (_, None, None) => {
                let hint = suggest::hint(&name, self.blades.iter().map(|blade| &blade.name).chain(&self.fluency));
                return Err(section.unknown(section.line(), "blade", &name, hint));
            }
        };
        // Directories are relative to that of the text.
        let located = |path: &Path| {
            let refuse =
                |_| format!("the directory {} is not named in UTF-8; rename it, or give absolute paths", directory.display());
            directory.join(path).into_os_string().into_string().map_err(refuse)
        };
        if let Some(Value::String(on)) = section.table.get_mut("on")
            && on.starts_with(['.', '/'])
        {
            match located(Path::new(on)) {
                Ok(place) => *on = place,
                Err(reason) => return Err(section.fault(reason)),
            }
        }
        match section.over("blades", &current, &self.base)? {
            BladeSection::Fluency(_) if name == TEMPLATE => {
                return Err(section.fault("the fluency blade is no template; give it a name, such as [blades.fluency]"));
            }
            BladeSection::Fluency(_) => {
                if let Some(first) = self.fluency.as_ref().filter(|first| **first != name) {
                    return Err(SchemeError::TwoFluencyBlades { first: first.clone(), second: name });
                }
                self.blades.retain(|blade| blade.name != name);
                self.fluency = Some(name);
            }
            BladeSection::Weighed(blade) => {
                let mut blade = BladeSpec { name, ..blade };
                let is_path = |source: &Path| {
                    let source = source.to_str().unwrap_or_default();
                    !NO_PATHS.iter().any(|prefix| source.starts_with(prefix))
                };
                for path in blade.paths_mut().filter(|path| is_path(path)) {
                    *path = located(path).map_err(|reason| section.fault(reason))?.into();
                }
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

impl Section<'_> {
    /// As [`over`](Self::over) for the given slot, with the result validated by `check`.
    fn checked<T: DeserializeOwned, O, E: Display>(
        &mut self,
        current: &Table,
        base: &Base,
        check: impl FnOnce(&T) -> Result<O, E>,
    ) -> Result<T, SchemeError> {
        let slot = self.name().to_owned();
        let filled = self.over(&slot, current, base)?;
        check(&filled).map(|_| filled).map_err(|reason| self.fault(reason))
    }

    /// Merges the section into `current`: its own fields first, then those of `current`, then the
    /// defaults.
    fn over<T: DeserializeOwned>(&mut self, slot: &str, current: &Table, base: &Base) -> Result<T, SchemeError> {
        let (schema, tag) = (schema::section(slot), tag(slot));
        let kinds = schema::kinds(slot, schema);
        let kind = self.kind(slot, &kinds, current)?;
        let carried = self.carried(tag, &kind, current);
        let mut all = defaults(slot, &kind, &self.take_convention(slot, &kind, base)?);
        all.extend(carried);
        all.insert(tag.to_owned(), Value::String(kind.clone()));
        if let Some((_, link, p)) = MEMBERS.iter().find(|(member, ..)| slot == "aggregator" && *member == kind) {
            // The name of a member abbreviates these three fields.
            self.table.remove(tag);
            all.insert(tag.to_owned(), Value::String("round-robin".to_owned()));
            all.insert("link".to_owned(), Value::String(link.name()));
            all.insert("p".to_owned(), Value::Float(*p));
        }
        if ["correlations", "propagation"].iter().all(|field| self.table.contains_key(*field)) {
            return Err(self.fault("correlations replace propagation; give one of the two"));
        }
        all.extend(self.table.clone());

        let mut known = match fields(schema, &all) {
            Some(known) => known,
            None => self.check_tags(schema).map(|()| Map::new())?,
        };
        if !all.contains_key("guided") {
            known.remove("likelihood");
        }
        self.check_fields(&known, |key| elsewhere(schema, &kinds, tag, &kind, key))?;
        all.retain(|key, _| known.contains_key(key));
        T::deserialize(all).map_err(|error| self.fault(error.message()))
    }

    /// Returns the kind given by the section, or else that of `current`, or else the default kind.
    fn kind(&self, slot: &str, kinds: &[String], current: &Table) -> Result<String, SchemeError> {
        let tag = tag(slot);
        let Some(value) = self.table.get(tag) else {
            return Ok(current.get(tag).and_then(Value::as_str).map_or_else(|| usual_kind(slot), str::to_owned));
        };
        let kind = value.as_str().ok_or_else(|| self.mistyped(tag, "a string", value))?;
        if kinds.iter().any(|known| known == kind) {
            return Ok(kind.to_owned());
        }
        let what = match slot {
            "blades" => "blade",
            "gates" => "criterion",
            _ => slot,
        };
        Err(self.unknown(self.lines(tag)[1], what, kind, suggest::hint(kind, kinds)))
    }

    /// Returns the fields of `current` that the section does not replace.
    fn carried(&self, tag: &str, kind: &str, current: &Table) -> Table {
        let before = current.get(tag).and_then(Value::as_str).unwrap_or_default();
        let of_kind = if self.table.contains_key(tag) { forgotten(before, kind) } else { &[] };
        let replaced = REPLACED.iter().filter(|(field, _)| self.table.contains_key(*field)).flat_map(|(_, others)| *others);
        let mut carried = current.clone();
        of_kind.iter().chain(replaced).for_each(|field| drop(carried.remove(*field)));
        carried
    }

    /// Returns `base` with the convention that the section gives for candidate-batch normalisation,
    /// where `convention` abbreviates several fields.
    fn take_convention(&mut self, slot: &str, kind: &str, base: &Base) -> Result<Base, SchemeError> {
        let mut base = base.clone();
        if let (true, Some(value)) = (slot == "normalizer" && kind == "cbn", self.table.get("convention")) {
            let convention = value.as_str().ok_or_else(|| self.mistyped("convention", "a string", value))?;
            let refuse = |_: String| self.no_choice("convention", convention, &Convention::ALL.map(|(name, _)| name));
            base.convention = suggest::choice("convention", convention, &Convention::ALL).map_err(refuse)?;
            self.table.remove("convention");
        }
        Ok(base)
    }

    /// Rejects keys that are not `known` fields, and values of the wrong type, in source order.
    /// `elsewhere` says which kind has such a key.
    fn check_fields(&self, known: &Map<String, Json>, elsewhere: impl Fn(&str) -> Option<String>) -> Result<(), SchemeError> {
        let entries = self.entries(self.table.clone());
        let unknown = entries.iter().filter(|(key, _)| !known.contains_key(key)).map(|(key, _)| (key, elsewhere(key)));
        // A misspelt field comes first: others may depend on it.
        if let Some((key, hint)) = unknown.min_by_key(|(_, hint)| hint.is_some()) {
            let hint = hint.unwrap_or_else(|| suggest::hint(key, known.keys()));
            return Err(self.unknown(self.lines(key)[0], &format!("field of [{}]", self.dotted()), key, hint));
        }
        for (key, value) in &entries {
            if let Some(property) = known.get(key)
                && !fits(property, value)
            {
                let (expected, choices) = (expected(property), choices(property));
                return Err(match value.as_str() {
                    Some(text) if expected == "a string" && !choices.is_empty() => self.no_choice(key, text, &choices),
                    _ => self.mistyped(key, &expected, value),
                });
            }
        }
        Ok(())
    }

    /// Rejects text values that the schema does not list, such as an unknown link name.
    fn check_tags(&self, schema: &Json) -> Result<(), SchemeError> {
        let all = fields(schema, &Table::new()).unwrap_or_default();
        for (key, value) in &self.table {
            let known = all.get(key).map(choices).unwrap_or_default();
            match value.as_str() {
                _ if known.is_empty() => {}
                None => return Err(self.mistyped(key, "a string", value)),
                Some(text) if !known.contains(&text) => return Err(self.no_choice(key, text, &known)),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Creates the error for a section that is no slot.
    fn no_slot(&self) -> SchemeError {
        self.unknown(self.line(), "slot", self.name(), suggest::hint(self.name(), SLOTS))
    }

    /// Creates the error for a text that is not among the choices of a field.
    fn no_choice(&self, key: &str, text: &str, known: &[&str]) -> SchemeError {
        self.unknown(self.lines(key)[1], &key.replace('_', " "), text, suggest::hint(text, known))
    }
}

/// Says where a field exists that the section cannot have: under another choice, or in another
/// kind.
fn elsewhere(schema: &Json, kinds: &[String], tag: &str, kind: &str, key: &str) -> Option<String> {
    let has = |kind: &str| {
        let table = Table::from_iter([(tag.to_owned(), Value::String(without_member(kind).to_owned()))]);
        fields(schema, &table).is_some_and(|fields| fields.contains_key(key))
    };
    let choice = DEPENDENT.iter().find(|(field, ..)| *field == key).map(|(_, on, value)| match value {
        Some(value) => format!("{on} = \"{value}\""),
        None => format!("the field {on}"),
    });
    if has(kind) {
        return choice.map(|choice| format!("it needs {choice}"));
    }
    let other = kinds.iter().find(|other| has(other))?;
    let choice = choice.map_or_else(String::new, |choice| format!(" and {choice}"));
    Some(format!("{tag} \"{kind}\" has no {key}; use {tag} = \"{other}\"{choice}"))
}

/// Returns the kind of which this one is a member, or the kind itself.
fn without_member(kind: &str) -> &str {
    if MEMBERS.iter().any(|(member, ..)| *member == kind) { "round-robin" } else { kind }
}

/// Fields, each with the fields that it replaces.
const REPLACED: [(&str, &[&str]); 5] = [
    ("link", &["nu"]),
    ("divergence", &["divergence_alpha"]),
    ("correlations", &["propagation"]),
    ("propagation", &["correlations"]),
    ("convention", &["deviation", "epsilon", "dispersion_unit"]),
];

/// Returns the fields that are dropped when the kind changes.
fn forgotten(before: &str, kind: &str) -> &'static [&'static str] {
    match kind {
        // A span limit belongs to the rule for which it was set.
        "response" => &["span_tokens"],
        "fixed-length" if before == "response" => &["span_tokens"],
        // The champion's temperature applies to standardised logits, which other selectors do not
        // have.
        _ if before == "champion" && kind != before => &["temperature"],
        // A named member of the family sets its own link and exponent.
        _ if kind == "round-robin" || MEMBERS.iter().any(|(member, ..)| *member == kind) => &["link", "p", "nu"],
        // A discriminator has different choices for this field.
        _ if before != kind && [before, kind].contains(&"discriminator") => &["dispersion"],
        _ => &[],
    }
}
