//! The JSON Schema of scheme files accepts the shipped ones and refuses mistakes.

use serde_json::{Value, json};
use sk_scheme::{SHIPPED, SchemeSpec, json_schema};

/// Whether an instance is valid under the keywords that the schema uses. The crate `jsonschema`
/// would enable other features of Burn's dependencies, so Burn would be built twice.
fn is_valid(schema: &Value, instance: &Value) -> bool {
    let keywords = match schema {
        Value::Bool(open) => return *open,
        schema => schema.as_object().expect("a schema is a truth value or an object"),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let is = |kind: &Value| match kind.as_str() {
        Some("object") => instance.is_object(),
        Some("array") => instance.is_array(),
        Some("string") => instance.is_string(),
        Some("boolean") => instance.is_boolean(),
        Some("null") => instance.is_null(),
        Some("number") => instance.is_number(),
        Some("integer") => instance.is_i64(),
        other => panic!("unknown type {other:?}"),
    };
    keywords.iter().all(|(keyword, value)| match keyword.as_str() {
        "type" => list(value).iter().any(is),
        "const" => value == instance,
        "enum" => list(value).contains(instance),
        "anyOf" => list(value).iter().any(|schema| is_valid(schema, instance)),
        "oneOf" => list(value).iter().filter(|schema| is_valid(schema, instance)).count() == 1,
        "minimum" => instance.as_f64().is_none_or(|number| number >= value.as_f64().unwrap()),
        "exclusiveMinimum" => instance.as_f64().is_none_or(|number| number > value.as_f64().unwrap()),
        "maximum" => instance.as_f64().is_none_or(|number| number <= value.as_f64().unwrap()),
        "minItems" => instance.as_array().is_none_or(|items| items.len() as u64 >= value.as_u64().unwrap()),
        "maxItems" => instance.as_array().is_none_or(|items| items.len() as u64 <= value.as_u64().unwrap()),
        "items" => instance.as_array().is_none_or(|items| items.iter().all(|item| is_valid(value, item))),
        "prefixItems" => {
            instance.as_array().is_none_or(|items| items.iter().zip(&list(value)).all(|(item, schema)| is_valid(schema, item)))
        }
        "properties" => instance
            .as_object()
            .is_none_or(|object| object.iter().all(|(key, item)| value.get(key).is_none_or(|schema| is_valid(schema, item)))),
        "additionalProperties" => instance.as_object().is_none_or(|object| {
            let known = |key: &String| keywords.get("properties").is_some_and(|known| known.get(key).is_some());
            object.iter().filter(|(key, _)| !known(key)).all(|(_, item)| is_valid(value, item))
        }),
        "required" => {
            instance.as_object().is_none_or(|object| list(value).iter().all(|key| object.contains_key(key.as_str().unwrap())))
        }
        "dependentSchemas" => value
            .as_object()
            .is_none_or(|all| all.iter().all(|(key, schema)| instance.get(key).is_none() || is_valid(schema, instance))),
        "$schema" | "title" | "description" | "default" => true,
        other => panic!("a keyword without a rule here: {other}"),
    })
}

fn instance(text: &str) -> Value {
    json!(toml::from_str::<toml::Table>(text).unwrap())
}

#[test]
fn shipped_files_are_valid_and_slips_are_not() {
    let schema = json_schema();
    for scheme in SHIPPED {
        assert!(is_valid(&schema, &instance(scheme.text)), "{}", scheme.name);
    }
    for text in [
        "",
        "[aggregator]\nkind = \"round-robin\"\nlink = \"student-t\"\nnu = 3\np = 1.5\n",
        "[aggregator]\nkind = \"thurstone\"\nlink = \"student-t\"\nnu = 3\n",
        "[blades.calm]\nkind = \"divergence-ratio\"\ndivergence = \"alpha\"\ndivergence_alpha = 0.25\n",
        "[normalizer]\nconvention = \"paper\"\ncorrelations = [[\"a\", \"b\", 0.5]]\n",
        "[selector.gates.safe]\nthreshold = 0\nkappa = 1\n",
        "[granularity]\nkind = \"response\"\nspan_tokens = \"unlimited\"\n",
        "[blades.calm]\nadapter = \"dir\"\nguided = 1\nlikelihood = \"per-token\"\n",
        "[search]\nkind = \"race\"\n[weighting]\nkind = \"max-min\"\n[granularity]\nkind = \"delimiters\"\ndelimiters = [\";\"]\n",
        "[aggregator]\nkind = \"round-robin\"\np = \"inf\"\n[proposal]\nkind = \"soup\"\n",
        "[blades.calm]\nkind = \"ensemble\"\nadapters = [\"a\", \"b\"]\n[fallback]\nkind = \"backbone\"\nthreshold = 0\n",
    ] {
        assert!(is_valid(&schema, &instance(text)), "{text}");
        SchemeSpec::default().overlay("file", text, std::path::Path::new("")).unwrap();
    }
    for text in [
        "[selectr]\n",
        "[selector]\ntemprature = 1\n",
        "[selector]\nkind = \"argmx\"\n",
        "[selector]\nkind = \"argmax\"\nlambda = 1\n",
        "[selector]\ntemperature = -1\n",
        "[selector]\ntemperature = \"hot\"\n",
        "[proposal]\ncandidates = 0\n",
        "[granularity]\nspan_tokens = 0\n",
        "[aggregator]\nkind = \"thurstone\"\np = 0.5\n",
        "[blades.calm]\nadapter = \"dir\"\nweight = -1\n",
        "[blades.calm]\nkind = \"fluency\"\nweight = 1\n",
        "[selector.gates.safe]\nthreshhold = 0\n",
        "[selector.gates.safe]\nkappa = 1\n",
        "[search]\ntokens = 3\n",
        "[search]\nkind = \"accept\"\n",
        "[fallback]\nthreshold = 0\n",
        "[fallback]\nkind = \"backbone\"\n",
        "[weighting]\ntemperature = 2\n",
        "[proposal]\nmerge = \"exact\"\n",
        "[granularity]\ndelimiters = [\";\"]\n",
        "[granularity]\nkind = \"delimiters\"\n",
        "[granularity]\nkind = \"delimiters\"\ndelimiters = []\n",
        "[blades.calm]\nkind = \"instruction\"\n",
        "[blades.calm]\nkind = \"ensemble\"\n",
        "[blades.calm]\nkind = \"ensemble\"\nadapters = [\"a\"]\n",
        "[aggregator]\nkind = \"round-robin\"\np = \"-inf\"\n",
        "[aggregator]\nkind = \"round-robin\"\nnu = 3\n",
        "[aggregator]\nkind = \"thurstone\"\nlink = \"probit\"\nnu = 3\n",
        "[aggregator]\nkind = \"divergence-mixture\"\ndivergence_alpha = 0.5\n",
        "[blades.calm]\nlikelihood = \"ratio\"\n",
        "[blades.calm]\nkind = \"divergence-ratio\"\ndivergence = \"forward-kl\"\ndivergence_alpha = 0.5\n",
        "[normalizer]\ncorrelations = [[\"a\", \"b\", 2]]\n",
        "[normalizer]\ncorrelations = [[\"a\", \"b\", 0.5]]\npropagation = \"linear\"\n",
    ] {
        assert!(!is_valid(&schema, &instance(text)), "{text}");
        assert!(SchemeSpec::default().overlay("file", text, std::path::Path::new("")).is_err(), "{text}");
    }
}

#[test]
fn null_stands_for_infinity_where_a_number_may_be_infinite() {
    let schema = json_schema();
    assert!(is_valid(&schema, &json!({ "aggregator": { "kind": "round-robin", "p": null } })));
    assert!(is_valid(&schema, &json!({ "selector": { "gates": { "safe": { "threshold": null } } } })));
    assert!(!is_valid(&schema, &json!({ "selector": { "temperature": null } })));
}

#[test]
fn kinds_and_numbers_are_described() {
    let schema = json_schema();
    let champion = &schema["properties"]["selector"]["anyOf"][0]["properties"];
    assert_eq!(champion["kind"]["const"], "champion");
    assert_eq!(champion["lambda"]["description"], "λ, penalty on the composite dispersion.");
    assert_eq!(champion["lambda"]["minimum"], 0.0);
    assert_eq!(champion["convention"]["description"], "How the rule standardises.");
}
