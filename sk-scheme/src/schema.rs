//! The fields of each section, their allowed values, and the JSON Schema that describes them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use crate::aggregator::{AggregatorSpec, MEMBERS};
use crate::blades::BladeSection;
use crate::defaults::{defaults, usual_kind};
use crate::granularity::GranularitySpec;
use crate::normalizer::NormalizerSpec;
use crate::parameters;
use crate::proposal::ProposalSpec;
use crate::search::{FallbackSpec, SearchSpec};
use crate::selector::{GateSpec, SelectorSpec};
use crate::spec::{About, Base};
use crate::suggest;
use crate::weighting::WeightingSpec;

/// The sections of a scheme file.
pub(crate) const SLOTS: [&str; 10] =
    ["about", "proposal", "granularity", "search", "fallback", "blades", "weighting", "normalizer", "aggregator", "selector"];

/// Fields that exist only beside another field, that field, and the value that it must have if not
/// any value will do.
pub(crate) const DEPENDENT: [(&str, &str, Option<&str>); 3] =
    [("nu", "link", Some("student-t")), ("divergence_alpha", "divergence", Some("alpha")), ("likelihood", "guided", None)];

fn of<T: JsonSchema>() -> Json {
    // Formats such as "uint" are not of the standard, and strict validators refuse them.
    let without_format = RecursiveTransform(|schema: &mut Schema| drop(schema.remove("format")));
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let settings = settings.with_transform(without_format);
    Schema::into(settings.into_generator().into_root_schema_for::<T>())
}

static SCHEMAS: LazyLock<BTreeMap<&str, Json>> = LazyLock::new(|| {
    BTreeMap::from([
        ("about", of::<About>()),
        ("proposal", of::<ProposalSpec>()),
        ("granularity", of::<GranularitySpec>()),
        ("search", of::<SearchSpec>()),
        ("fallback", of::<FallbackSpec>()),
        ("blades", of::<BladeSection>()),
        ("weighting", of::<WeightingSpec>()),
        ("normalizer", of::<NormalizerSpec>()),
        ("aggregator", of::<AggregatorSpec>()),
        ("selector", of::<SelectorSpec>()),
        ("gates", of::<GateSpec>()),
    ])
});

/// Returns the schema derived from the types of a section.
pub(crate) fn section(name: &str) -> &'static Json {
    SCHEMAS.get(name).unwrap_or(&Json::Null)
}

/// Returns the field that determines the kind of a section.
pub(crate) fn tag(section: &str) -> &'static str {
    if section == "gates" { "on" } else { "kind" }
}

fn branches<'s>(schema: &'s Json, key: &str) -> impl Iterator<Item = &'s Json> {
    schema[key].as_array().into_iter().flatten()
}

/// Returns the alternatives of a field, of which one or any may hold.
fn alternatives(property: &Json) -> impl Iterator<Item = &Json> {
    branches(property, "oneOf").chain(branches(property, "anyOf"))
}

/// Returns the JSON types of a field, without those of its alternatives.
fn types(property: &Json) -> impl Iterator<Item = &str> {
    property["type"].as_str().into_iter().chain(branches(property, "type").filter_map(Json::as_str))
}

/// Returns the fields, with their schemas, of a table with these tags; `None` if the tags
/// contradict the schema. If a tag is missing, the fields of all its alternatives are included.
pub(crate) fn fields(schema: &Json, table: &Table) -> Option<Map<String, Json>> {
    let mut all = Map::new();
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        if let (Some(constant), Some(value)) = (property["const"].as_str(), table.get(key))
            && value.as_str() != Some(constant)
        {
            return None;
        }
        all.insert(key.clone(), property.clone());
    }
    for part in branches(schema, "allOf") {
        merge(&mut all, fields(part, table)?);
    }
    for key in ["oneOf", "anyOf"] {
        let mut alternatives = branches(schema, key).map(|branch| fields(branch, table)).peekable();
        if alternatives.peek().is_none() {
            continue;
        }
        let fitting: Vec<_> = alternatives.flatten().collect();
        if fitting.is_empty() {
            return None;
        }
        fitting.into_iter().for_each(|fields| merge(&mut all, fields));
    }
    Some(all)
}

/// Returns the fields that the types require of a table with these tags.
fn required(schema: &Json, table: &Table) -> Vec<String> {
    let mut all: Vec<String> = branches(schema, "required").filter_map(Json::as_str).map(str::to_owned).collect();
    all.extend(branches(schema, "allOf").flat_map(|part| required(part, table)));
    for key in ["oneOf", "anyOf"] {
        // Required is what every alternative with these tags requires.
        let fitting =
            branches(schema, key).filter(|branch| fields(branch, table).is_some()).map(|branch| required(branch, table));
        all.extend(
            fitting.reduce(|one, other| one.into_iter().filter(|field| other.contains(field)).collect()).unwrap_or_default(),
        );
    }
    all
}

/// Adds fields. Constants of the same tag become alternatives.
fn merge(all: &mut Map<String, Json>, more: Map<String, Json>) {
    for (key, property) in more {
        match all.get_mut(&key) {
            Some(known) if *known != property => {
                let mut choices = if known["anyOf"].is_array() { known["anyOf"].take() } else { json!([known.take()]) };
                if let Some(choices) = choices.as_array_mut() {
                    choices.push(property);
                }
                *known = json!({ "anyOf": choices });
            }
            Some(_) => {}
            None => {
                all.insert(key, property);
            }
        }
    }
}

/// Returns the allowed texts of a field: constants and enumerations, including those of
/// alternatives.
pub(crate) fn choices(property: &Json) -> Vec<&str> {
    let own = property["const"].as_str().into_iter().chain(branches(property, "enum").filter_map(Json::as_str));
    own.chain(alternatives(property).flat_map(choices)).collect()
}

/// Returns the kinds of a section, including members of the round-robin family.
pub(crate) fn kinds(section_name: &str, schema: &Json) -> Vec<String> {
    let all = fields(schema, &Table::new()).unwrap_or_default();
    let mut kinds: Vec<String> =
        all.get(tag(section_name)).map(choices).unwrap_or_default().into_iter().map(str::to_owned).collect();
    if section_name == "aggregator" {
        kinds.extend(MEMBERS.iter().map(|(name, ..)| (*name).to_owned()));
    }
    kinds
}

/// Returns the kind of this name for a slot.
///
/// # Errors
/// If there is no such kind. The error names the closest one.
pub fn kind_named(slot: &str, name: &str) -> Result<String, String> {
    let kinds = kinds(slot, section(slot));
    match kinds.iter().find(|kind| *kind == name) {
        Some(kind) => Ok(kind.clone()),
        None => Err(format!("unknown {slot} \"{name}\"; {}", suggest::hint(name, &kinds))),
    }
}

/// Returns whether a value has the type of a field. Ranges are checked by the Rust types.
pub(crate) fn fits(property: &Json, value: &Value) -> bool {
    if !choices(property).is_empty() && value.as_str().is_some_and(|text| choices(property).contains(&text)) {
        return true;
    }
    if alternatives(property).any(|branch| fits(branch, value)) {
        return true;
    }
    if property["const"].is_string() || property["enum"].is_array() {
        return false;
    }
    types(property).any(|kind| match (kind, value) {
        ("number", Value::Integer(_) | Value::Float(_)) | ("string", Value::String(_)) | ("boolean", Value::Boolean(_)) => true,
        ("integer", Value::Integer(integer)) => *integer >= 0,
        ("array", Value::Array(items)) => {
            let places: Vec<&Json> = branches(property, "prefixItems").collect();
            let fixed = places.len();
            (fixed == 0 || fixed == items.len())
                && items.iter().enumerate().all(|(i, item)| fits(places.get(i).copied().unwrap_or(&property["items"]), item))
        }
        _ => false,
    })
}

/// Describes in words what a field takes: a string, or another type and the texts beside it.
pub(crate) fn expected(property: &Json) -> String {
    let kind = expected_type(property).unwrap_or("a string");
    let texts: Vec<String> = choices(property).iter().map(|text| format!("\"{text}\"")).collect();
    match texts.split_last() {
        Some((last, rest)) if kind != "a string" => {
            let listed = std::iter::once(kind).chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join(", ");
            format!("{listed} or {last}")
        }
        _ => kind.to_owned(),
    }
}

/// Describes the first type of a field in words.
fn expected_type(property: &Json) -> Option<&'static str> {
    let one = |kind: &str| match kind {
        "number" => Some("a number"),
        "integer" => Some("a whole number that is not negative"),
        "boolean" => Some("true or false"),
        "string" => Some("a string"),
        "array" if property["items"]["type"] == "string" => Some("a list of strings"),
        "array" => Some("a list such as [[\"a\", \"b\", 0.5]]"),
        _ => None,
    };
    types(property).find_map(one).or_else(|| alternatives(property).find_map(expected_type))
}

/// Returns the JSON Schema of a scheme file. Only what has no default is required, since a file
/// contains only changes.
pub fn json_schema() -> Json {
    let slot = |name| match name {
        "about" => closed(section(name)["properties"].clone(), &[], name),
        "blades" => json!({ "type": "object", "additionalProperties": slot_schema(name) }),
        _ => slot_schema(name),
    };
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An alignment scheme",
        "type": "object",
        "properties": SLOTS.map(|name| (name.to_owned(), slot(name))).into_iter().collect::<Map<_, _>>(),
        "additionalProperties": false,
    })
}

/// Returns a schema with one alternative per kind of a section.
fn slot_schema(name: &str) -> Json {
    let (schema, usual) = (section(name), usual_kind(name));
    let alternatives: Vec<Json> = kinds(name, schema)
        .iter()
        .map(|kind| {
            let member = name == "aggregator" && MEMBERS.iter().any(|(member, ..)| member == kind);
            let known = if member { "round-robin" } else { kind };
            let table = Table::from_iter([(tag(name).to_owned(), Value::String(known.to_owned()))]);
            let mut all = fields(schema, &table).unwrap_or_default();
            if let Some(tag) = all.get_mut(tag(name)) {
                *tag = json!({ "const": kind });
            }
            if let Some(gates) = all.get_mut("gates") {
                gates["additionalProperties"] = slot_schema("gates");
            }
            let mut needed = required(schema, &table);
            // No list may be empty, so an empty one is not a default.
            let mut optional = defaults(name, known, &Base::default());
            optional.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
            needed.retain(|field| field != tag(name) && !optional.contains_key(field));
            if *kind != usual {
                needed.insert(0, tag(name).to_owned());
            }
            let mut dependent = Map::new();
            for (field, on, value) in DEPENDENT.iter().filter(|(field, ..)| all.contains_key(*field)) {
                let value = value.map_or_else(|| json!(true), |value| json!({ "const": value }));
                dependent.insert((*field).to_owned(), json!({ "required": [on], "properties": { *on: value } }));
            }
            if name == "normalizer" {
                dependent.insert("correlations".to_owned(), json!({ "properties": { "propagation": false } }));
            }
            let mut alternative = closed(Json::Object(all), &needed, name);
            if !dependent.is_empty() {
                alternative["dependentSchemas"] = Json::Object(dependent);
            }
            alternative
        })
        .collect();
    json!({ "anyOf": alternatives })
}

/// Adds a range to each number among the alternatives of a field.
fn bound(property: &mut Json, range: &parameters::Range) {
    if let Some(alternatives) = property.get_mut("anyOf").and_then(Json::as_array_mut) {
        alternatives.iter_mut().for_each(|alternative| bound(alternative, range));
    }
    if types(property).any(|kind| ["number", "integer"].contains(&kind)) {
        if range.least.is_finite() {
            property[if range.open { "exclusiveMinimum" } else { "minimum" }] = json!(range.least);
        }
        if range.most.is_finite() {
            property["maximum"] = json!(range.most);
        }
    }
}

/// Returns the schema of a table with exactly these fields, with the ranges and meanings of
/// numbers. It has all `required` ones.
fn closed(mut properties: Json, required: &[String], section: &str) -> Json {
    for (field, property) in properties.as_object_mut().into_iter().flatten() {
        if let Some(object) = property.as_object_mut() {
            object.remove("$schema");
            object.remove("title");
        }
        let of_field = |parameter: &&parameters::Parameter| parameter.section == section && parameter.field == field;
        if let Some(parameter) = parameters::ALL.iter().find(of_field) {
            property["description"] = json!(parameter.meaning);
            bound(property, &parameter.range);
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
