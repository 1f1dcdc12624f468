//! Access to single fields of a scheme: numbers by their [`Parameter`], and the fields that
//! determine candidates and scores.

use std::path::Path;

use toml::{Table, Value};

use crate::overlay::Blades;
use crate::parameters::{ALL, number_of};
use crate::source::Source;
use crate::spec::{table_of, text_of};
use crate::{BladeSpec, Parameter, SchemeError, SchemeSpec, schema};

impl Parameter {
    /// Returns its value in a scheme. `None` if the kind of the slot has no such number, if the number
    /// is infinite or unlimited, or if it belongs to single blades or gates.
    pub fn get(&self, spec: &SchemeSpec) -> Option<f64> {
        number_of(spec.section(self.section)?.get(self.field)?)
    }

    /// Sets its value, as its command-line option does. β is set in all blades that have one, and
    /// in those seated later.
    ///
    /// # Errors
    /// If the kind of the slot has no such number, if the number belongs to single blades or gates,
    /// or if the value is invalid. `spec` is then unchanged.
    pub fn set(&self, spec: &mut SchemeSpec, value: f64) -> Result<(), SchemeError> {
        let slot = self.section;
        if (slot, self.field) == ("blades", "beta") {
            return spec.set_beta(value);
        }
        let Some(table) = spec.section(slot) else {
            let reason = format!("{} belongs to single {slot}; set it in the section of one", self.field);
            return Err(SchemeError::Parameter { slot, reason });
        };
        let refuse = |slot, kind| {
            let option = self.option.map_or_else(|| self.name.to_owned(), |(option, _)| format!("--{option}"));
            Err(SchemeError::Inapplicable { option, slot, kind })
        };
        // The tokens of a vocabulary are complete spans.
        if slot == "granularity" && spec.proposal.draft().is_none() {
            return refuse("proposal", text_of(&spec.proposal, "kind"));
        }
        if !schema::fields(schema::section(slot), &table).is_some_and(|fields| fields.contains_key(self.field)) {
            // A member of the round-robin family has a name of its own.
            let kind = if slot == "aggregator" { spec.aggregator.kind() } else { text_of(&table, "kind") };
            return refuse(slot, kind);
        }
        let source = Source::without_lines("");
        // A number above 2⁵³ may have been rounded, so it is no count.
        let value = if value > 2.0_f64.powi(53) { Value::Float(value) } else { self.value(value) };
        let section = source.root().under(slot, Table::from_iter([(self.field.to_owned(), value)]));
        spec.take_section(section, Path::new(""), Blades::Amended).map_err(|error| match error {
            SchemeError::Value { reason, .. } => SchemeError::Parameter { slot, reason },
            other => other,
        })
    }
}

impl SchemeSpec {
    /// Returns the fields that determine the candidates, by section and name. Schemes that agree in
    /// all of them draft the same candidates.
    pub fn drafting_fields(&self) -> Vec<(String, String)> {
        let of = |slot| {
            let fields = in_order(slot, self.section(slot).unwrap_or_default());
            fields.map(move |(field, value)| (format!("{slot}.{field}"), value))
        };
        ["proposal", "granularity"].into_iter().flat_map(of).collect()
    }
}

impl BladeSpec {
    /// Returns the fields that determine its μ, by name and as written in a scheme file.
    pub fn score_fields(&self) -> Vec<(String, String)> {
        // The source of σ and the location of an adapter do not affect μ, and the weight is applied
        // later.
        let mut table = table_of(self);
        ["arm", "dispersion", "adapter", "head", "weight"].iter().for_each(|field| drop(table.remove(*field)));
        in_order("blades", table).collect()
    }
}

/// Orders the fields of a table for comparison: the kind, the numbers in the order of [`ALL`], then
/// the rest.
fn in_order(section: &str, table: Table) -> impl Iterator<Item = (String, String)> {
    let declared = |field: &str| ALL.iter().position(|number| number.section == section && number.field == field);
    let mut fields: Vec<(String, Value)> = table.into_iter().collect();
    fields.sort_by_key(|(field, _)| (field != "kind", declared(field).unwrap_or(usize::MAX)));
    fields.into_iter().map(|(field, value)| (field, value.to_string()))
}
