//! Single fields of a scheme: numbers by their [`Parameter`], and the fields that candidates and
//! scores depend on.

use std::path::Path;

use toml::{Table, Value};

use crate::overlay::Blades;
use crate::source::Source;
use crate::spec::table_of;
use crate::{BladeSpec, Parameter, SchemeError, SchemeSpec, parameters, schema};

impl Parameter {
    /// Its value in a scheme; `None` if the kind that fills the slot has no such number, or the
    /// number belongs to single blades or gates.
    pub fn get(&self, spec: &SchemeSpec) -> Option<f64> {
        parameters::number_of(spec.section(self.section)?.get(self.field)?)
    }

    /// Sets it, as its option does. β is set in all blades that have one, and in those seated
    /// later.
    ///
    /// # Errors
    /// When the kind that fills the slot has no such number, or cannot have this value; `spec` is
    /// then as it was.
    pub fn set(&self, spec: &mut SchemeSpec, value: f64) -> Result<(), SchemeError> {
        let refuse = |slot, kind: &'static str| {
            let option = self.option.map_or(self.name, |(option, _)| option);
            Err(SchemeError::Inapplicable { option, slot, kind })
        };
        if self.section == "blades" && self.field == "beta" {
            return spec.set_beta(value);
        }
        // The tokens of a vocabulary are spans already.
        if self.section == "granularity" && spec.proposal.draft().is_none() {
            return refuse("proposal", spec.proposal.kind());
        }
        let section = Table::from_iter([(self.field.to_owned(), self.value(value))]);
        match self.section {
            slot @ ("proposal" | "granularity" | "aggregator" | "selector") if !spec.has_field(slot, self.field) => {
                refuse(slot, spec.kind_of(slot))
            }
            slot => spec.set_field(slot, section),
        }
    }
}

impl SchemeSpec {
    /// Sets fields of one slot.
    fn set_field(&mut self, slot: &'static str, table: Table) -> Result<(), SchemeError> {
        let source = Source::without_lines("");
        self.take_section(source.root().under(slot, table), Path::new(""), Blades::Amended).map_err(|error| match error {
            SchemeError::Value { reason, .. } => SchemeError::Parameter { slot, reason },
            other => other,
        })
    }

    /// Whether what fills a slot has a field.
    fn has_field(&self, slot: &str, field: &str) -> bool {
        let known = self.section(slot).and_then(|table| schema::fields(schema::section(slot), &table));
        known.is_some_and(|known| known.contains_key(field))
    }

    /// The fields that candidates depend on, by section and name: two schemes that agree in all of
    /// them draft the same candidates.
    pub fn drafting_fields(&self) -> Vec<(String, String)> {
        let of = |slot: &str| {
            let mut fields: Vec<(String, Value)> = self.section(slot).unwrap_or_default().into_iter().collect();
            fields.sort_by_key(|(field, _)| order(slot, field));
            fields.into_iter().map(|(field, value)| (format!("{slot}.{field}"), value.to_string())).collect::<Vec<_>>()
        };
        [of("proposal"), of("granularity")].concat()
    }
}

impl BladeSpec {
    /// The fields that its μ follows from, by name and as a scheme file has them.
    pub fn score_fields(&self) -> Vec<(String, String)> {
        let mut blade = self.clone();
        // The choice of σ and the place of an adapter are no part of μ, and its weight is applied
        // later.
        blade.weight = None;
        let mut table = table_of(&blade);
        ["arm", "dispersion", "adapter", "head"].iter().for_each(|field| drop(table.remove(*field)));
        let mut fields: Vec<(String, Value)> = table.into_iter().collect();
        fields.sort_by_key(|(field, _)| order("blades", field));
        fields.into_iter().map(|(field, value)| (field, value.to_string())).collect()
    }
}

/// The order in which fields are compared: the kind, the numbers in the order of their table, and
/// the rest.
fn order(section: &str, field: &str) -> (bool, usize) {
    let declared = parameters::ALL.iter().position(|number| number.section == section && number.field == field);
    (field != "kind", declared.unwrap_or(usize::MAX))
}
