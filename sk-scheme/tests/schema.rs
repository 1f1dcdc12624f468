//! The JSON Schema of scheme files accepts those that ship and refuses slips.

use serde_json::{Value, json};
use sk_scheme::{SHIPPED, SchemeSpec, json_schema};

fn instance(text: &str) -> Value {
    json!(toml::from_str::<toml::Table>(text).unwrap())
}

#[test]
fn shipped_files_are_valid_and_slips_are_not() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    for scheme in SHIPPED {
        let errors: Vec<String> = schema.iter_errors(&instance(scheme.text)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", scheme.name);
    }
    for text in [
        "",
        "[aggregator]\nkind = \"round-robin\"\nlink = \"student-t\"\nnu = 3\np = 1.5\n",
        "[normalizer]\nconvention = \"paper\"\ncorrelations = [[\"a\", \"b\", 0.5]]\n",
        "[selector.gates.safe]\nthreshold = 0\nkappa = 1\n",
        "[granularity]\nkind = \"response\"\nspan_tokens = \"unlimited\"\n",
        "[blades.calm]\nadapter = \"dir\"\nguided = 1\nlikelihood = \"per-token\"\n",
    ] {
        assert!(schema.is_valid(&instance(text)), "{text}");
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
        "[blades.calm]\nkind = \"fluency\"\nweight = 1\n",
        "[selector.gates.safe]\nthreshhold = 0\n",
    ] {
        assert!(!schema.is_valid(&instance(text)), "{text}");
        assert!(SchemeSpec::default().overlay("file", text, std::path::Path::new("")).is_err(), "{text}");
    }
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
