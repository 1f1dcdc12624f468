//! Each parameter is declared once, and its declared range is enforced.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use sk_core::OperatingPoint;
use sk_scheme::parameters::{ALL, Parameter, Range, Scale, Search};
use sk_scheme::{Base, Convention, Preset, SchemeError, SchemeSpec, Shipped, json_schema};

#[test]
fn every_number_of_a_scheme_is_in_the_table() {
    let schema = json_schema();
    let mut fields = Vec::new();
    for (slot, schema) in schema["properties"].as_object().unwrap() {
        let schema = if slot == "blades" { &schema["additionalProperties"] } else { schema };
        for kind in schema["anyOf"].as_array().into_iter().flatten() {
            let gates = kind["properties"]["gates"]["additionalProperties"]["anyOf"].as_array().into_iter().flatten();
            let gates = gates.flat_map(|gate| gate["properties"].as_object().unwrap()).map(|field| ("gates", field));
            for (slot, (field, property)) in
                kind["properties"].as_object().unwrap().iter().map(|field| (slot.as_str(), field)).chain(gates)
            {
                let text = property.to_string();
                if text.contains("\"number\"") || text.contains("\"integer\"") {
                    fields.push((slot.to_owned(), field.clone()));
                }
            }
        }
    }
    fields.retain(|(_, field)| field != "correlations" && field != "gates");
    fields.sort();
    fields.dedup();
    let mut declared: Vec<(String, String)> = ALL.iter().map(|p| (p.section.to_owned(), p.field.to_owned())).collect();
    declared.sort();
    assert_eq!(fields, declared);
}

#[test]
fn ranges_are_those_of_the_operators() {
    let set = |parameter: &Parameter, value: f64| {
        let mut last = None;
        for scheme in sk_scheme::SHIPPED {
            let mut spec = scheme.spec().unwrap();
            match parameter.set(&mut spec, value) {
                Err(SchemeError::Inapplicable { .. }) => {}
                other => last = Some(other.map(|()| parameter.get(&spec))),
            }
        }
        last
    };
    for parameter in ALL.iter().filter(|parameter| parameter.option.is_some()) {
        let range = parameter.range;
        let inside = if range.open { 0.5 } else { range.least };
        let found = set(parameter, inside).unwrap().unwrap_or_else(|error| panic!("{}: {error}", parameter.name));
        assert!(parameter.name == "beta" || found == Some(inside), "{}: {found:?}", parameter.name);
        let too_many = range.whole.then_some(1e16);
        for outside in [range.least - 1.0, f64::NAN].into_iter().chain(too_many) {
            assert!(set(parameter, outside).unwrap().is_err(), "{} takes {outside}", parameter.name);
        }
    }
}

/// Returns the text of a section for each kind that has the number. The text has all fields that the
/// kind requires, and ends before the value of the number.
fn sections_with(parameter: &Parameter) -> Vec<String> {
    let &Parameter { section, field, .. } = parameter;
    let schema = json_schema();
    let (header, tag, kinds) = match section {
        "blades" => ("blades.x", "kind", &schema["properties"]["blades"]["additionalProperties"]["anyOf"]),
        "gates" => {
            let selector = &schema["properties"]["selector"]["anyOf"][0];
            ("selector.gates.x", "on", &selector["properties"]["gates"]["additionalProperties"]["anyOf"])
        }
        _ => (section, "kind", &schema["properties"][section]["anyOf"]),
    };
    let kinds = kinds.as_array().unwrap().iter().filter(|kind| kind["properties"][field].is_object());
    let section = |kind: &Value| {
        let mut text = format!("[{header}]\n{tag} = {}\n", kind["properties"][tag]["const"]);
        let required = kind["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for needed in required.filter(|needed| ![tag, field].contains(needed)) {
            let value = match kind["properties"][needed]["type"].as_str() {
                Some("string") => "\"x\"",
                Some("array") => "[\"x\", \"y\"]",
                _ => "1",
            };
            text += &format!("{needed} = {value}\n");
        }
        let dependent = &kind["dependentSchemas"][field];
        for (on, value) in dependent["properties"].as_object().into_iter().flatten() {
            let value = if value["const"].is_string() { value["const"].to_string() } else { "1".to_owned() };
            text += &format!("{on} = {value}\n");
        }
        text + field + " = "
    };
    kinds.map(section).collect()
}

#[test]
fn every_section_refuses_numbers_out_of_range() {
    for parameter in &ALL {
        let Range { least, most, open, whole } = parameter.range;
        let sections = sections_with(parameter);
        let takes = |section: &str, value: f64| {
            let value = if whole { format!("{value:.0}") } else { format!("{value:?}").to_lowercase() };
            SchemeSpec::default().overlay("scheme.toml", &format!("{section}{value}"), Path::new("")).is_ok()
        };
        let step = if whole { 1.0 } else { 0.05 };
        for section in &sections {
            assert!([least + step, most, 1.0].iter().any(|&inside| takes(section, inside)), "{section}");
            let below = if open { least } else { least - step };
            for outside in [below, most * 1.01, f64::NAN] {
                let is_written = !(outside.is_infinite() || whole && outside.is_nan());
                assert!(!is_written || !takes(section, outside), "{section}{outside} is not {}", parameter.range);
            }
        }
        // The K of the first round is not below that of the last, and both have defaults.
        let ends = [(least, open || parameter.name == "k_max"), (most, parameter.name == "k_min")];
        for (end, _) in ends.iter().filter(|(end, is_excluded)| end.is_finite() && !is_excluded) {
            assert!(sections.iter().any(|section| takes(section, *end)), "{}: no kind takes {end}", parameter.name);
        }
        assert!(!sections.is_empty(), "{}", parameter.name);
    }
}

#[test]
fn every_number_of_a_proposal_reaches_the_engine() {
    for parameter in ALL.iter().filter(|parameter| parameter.section == "proposal") {
        let mut reached = 0;
        for scheme in sk_scheme::SHIPPED {
            let mut spec = scheme.spec().unwrap();
            let before = spec.proposal.drafting(None).unwrap();
            let other = [0.5_f64, 3.0, 4.0].into_iter().find(|&other| {
                (!parameter.range.whole || other.fract() == 0.0) && parameter.get(&spec).is_some_and(|value| value != other)
            });
            if let Some(other) = other {
                parameter.set(&mut spec, other).unwrap();
                assert_ne!(spec.proposal.drafting(None).unwrap(), before, "{}: {} = {other}", scheme.name, parameter.name);
                reached += 1;
            }
        }
        assert!(reached > 0, "no scheme that ships has {}", parameter.name);
    }
}

#[test]
fn numbers_of_another_kind_are_refused() {
    let refused = |scheme: &str, name: &str, said: &str| {
        let mut spec = Shipped::named(scheme).unwrap().spec().unwrap();
        let before = spec.clone();
        let error = Parameter::named(name).unwrap().set(&mut spec, 2.0).unwrap_err().to_string();
        assert_eq!(error, said);
        assert_eq!(spec, before);
    };
    refused("best-of-n", "rounds", "--rounds does not apply: the aggregator is \"scores\"");
    refused("best-of-n", "temperature", "--temperature does not apply: the selector is \"argmax\"");
    refused("softmax-mu", "w_tour", "--w-tour does not apply: the selector is \"softmax\"");
    refused("mod", "candidates", "--n does not apply: the proposal is \"vocabulary\"");
    refused("mod", "span_tokens", "--span-tokens does not apply: the proposal is \"vocabulary\"");
    refused("swiss-knife", "first", "first does not apply: the search is \"full\"");
    refused("swiss-knife", "fallback_threshold", "fallback_threshold does not apply: the fallback is \"none\"");
    refused("swiss-knife", "limit", "limit does not apply: the weighting is \"fixed\"");
    refused("best-of-n", "epsilon", "epsilon does not apply: the normalizer is \"raw\"");
    refused("swiss-knife", "weight", "blades: weight belongs to single blades; set it in the section of one");
    refused("swiss-knife", "kappa", "gates: kappa belongs to single gates; set it in the section of one");
    refused("swiss-knife", "alpha", "aggregator: alpha is 2; it must be in [0, 1]");
}

#[test]
fn each_name_finds_its_own_parameter() {
    for parameter in &ALL {
        let found = Parameter::named(parameter.name).unwrap();
        assert_eq!((found.section, found.field), (parameter.section, parameter.field), "{}", parameter.name);
    }
}

#[test]
fn defaults_are_those_of_the_operating_points() {
    for point in [OperatingPoint::HHH, OperatingPoint::HARMLESSNESS, OperatingPoint::HELPFULNESS, OperatingPoint::HONESTY] {
        let spec = SchemeSpec::reference(Base::new(Convention::Sound, &point));
        let values: Vec<f64> = Parameter::searchable().map(|parameter| parameter.get(&spec).unwrap()).collect();
        let OperatingPoint { temperature, w_tour, w_blade, lambda, rounds, candidates, alpha, .. } = point;
        assert_eq!(values, [temperature, w_tour, w_blade, lambda, rounds as f64, candidates as f64, alpha]);
    }
}

#[test]
fn the_table_of_the_book_is_this_one() {
    let page = include_str!("../../docs/src/schemes.md");
    let table = table();
    assert!(page.contains(&table), "docs/src/schemes.md is to have this table:\n{table}");
}

/// The table of all parameters in Markdown, as in the book.
fn table() -> String {
    let mut text =
        "| section | field | symbol | meaning | values | default | range in `tune` | option |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for parameter in &ALL {
        let Parameter { symbol, section, field, meaning, range, .. } = parameter;
        let section = if *section == "gates" { "[selector.gates.NAME]".to_owned() } else { format!("[{section}]") };
        let symbol = if symbol == field { "" } else { symbol };
        let searched = parameter.search.map_or_else(String::new, |Search { low, high, scale }| {
            format!("{low} to {high}{}", if scale == Scale::Log { ", logarithmic" } else { "" })
        });
        let option = parameter.option.map_or_else(String::new, |(option, _)| format!("`--{option}`"));
        let default = default_in_words(parameter);
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| `{section}` | `{field}` | {symbol} | {meaning} | {range} | {default} | {searched} | {option} |");
    }
    text
}

/// The defaults under each convention and at each operating point, if they differ.
fn default_in_words(parameter: &Parameter) -> String {
    let at = |convention, preset: Preset| (parameter.default)(&Base::new(convention, &preset.into()), "");
    let Some(sound) = at(Convention::Sound, Preset::Responsive) else { return String::new() };
    let points = [Preset::Hhh, Preset::Harmlessness, Preset::Helpfulness, Preset::Honesty];
    let points = points.map(|preset| (preset, at(Convention::Sound, preset)));
    let mut words = sound.to_string();
    for (preset, value) in points {
        if let Some(value) = value.filter(|value| *value != sound) {
            let _ = write!(words, ", {value} (`{preset}`)");
        }
    }
    if let Some(value) = (parameter.default)(&Base::default(), "softmax")
        .filter(|value| parameter.section == "selector" && Some(*value) != at(Convention::Sound, Preset::Hhh))
    {
        let _ = write!(words, ", {value} (`softmax`)");
    }
    match at(Convention::Paper, Preset::Hhh) {
        Some(paper) if Some(paper) != at(Convention::Sound, Preset::Hhh) => format!("{words} (`sound`), {paper} (`paper`)"),
        _ => words,
    }
}
