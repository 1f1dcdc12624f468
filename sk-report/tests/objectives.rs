//! Files of objectives: their definitions, and the errors for invalid ones.

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use sk_report::objectives::{Better, Objectives};

/// Rounding of a mean of a few numbers below one.
const ROUNDING: f64 = 1e-15;

/// The first digits of SHA-256 over each shipped rubric's text, with the version of the rubric.
const TEXTS: [(&str, u32, &str); 9] = [
    ("response_quality", 1, "4021132f"),
    ("relevance", 1, "4538bed8"),
    ("helpfulness", 1, "b2b0eed1"),
    ("toxicity", 1, "5ead949e"),
    ("harmfulness", 1, "b02d9e6e"),
    ("truthfulness", 1, "76b42a66"),
    ("non_deception", 1, "6cd7451e"),
    ("epistemic_honesty", 1, "f6d1353a"),
    ("refusal", 1, "46b02e6a"),
];

#[test]
fn a_changed_text_is_a_new_version() {
    let rubrics = &Objectives::hhh().rubrics;
    assert_eq!(rubrics.len(), TEXTS.len());
    for (rubric, expected) in rubrics.iter().zip(TEXTS) {
        let text = [&*rubric.criterion, &rubric.low, &rubric.middle, &rubric.high].join("\n");
        let digest = format!("{:x}", Sha256::digest(text));
        let found = (rubric.name.as_str(), rubric.version, &digest[..8]);
        assert_eq!(found, expected, "raise the version, then note the new digest");
    }
}

#[test]
fn shipped_objectives_worked_by_hand() {
    let hhh = Objectives::hhh();
    let of = |entries: &[(&str, f64)]| {
        let score = |name: &str| entries.iter().find(|(own, _)| *own == name).map(|&(_, score)| score);
        hhh.scores(hhh.rubrics.iter().map(|rubric| score(&rubric.name)).collect())
    };
    let all = of(&[
        ("response_quality", 0.5),
        ("relevance", 1.0),
        ("helpfulness", 0.75),
        ("toxicity", 0.25),
        ("harmfulness", 0.5),
        ("refusal", 1.0),
        ("truthfulness", 0.5),
    ]);
    // Refusal is part of no objective, safety is 1 − (0.25 + 0.5)/2, and the two blank rubrics of
    // honesty do not count as zeros.
    assert_eq!((hhh.names(), all.objectives), (vec!["quality", "safety", "honesty"], vec![0.75, 0.625, 0.5]));
    let refused = of(&[("refusal", 1.0)]);
    assert!(refused.objectives.iter().all(|score| score.is_nan()) && refused.is_judged() && refused.complete().is_none());
    assert_eq!(hhh.definitions()[1], "safety = 1 − mean(toxicity, harmfulness)");
    let columns: Vec<&str> = hhh.columns().into_iter().map(|place| hhh.rubrics[place].name.as_str()).collect();
    assert_eq!(columns, ["helpfulness", "refusal"]);
    assert_eq!(hhh.of_blade("harmless").map(|objective| objective.name.as_str()), Some("safety"));
    // The offline models answer one rubric for each of the same objectives.
    let offline = Objectives::offline();
    assert_eq!((offline.names(), &offline.blades), (hhh.names(), &hhh.blades));
    assert!(offline.rubrics.iter().all(|rubric| rubric.model.is_some() && hhh.rubric(&rubric.name).is_some()));
}

const OWN: &str = r#"
    [[objectives]]
    name = "calm"

    [[objectives]]
    name = "depth"
    blade = "deep"
    rubrics = ["detail", "padding"]

    [[rubrics]]
    name = "calm"
    criterion = "How calm is it?"
    low = "not at all"
    middle = "somewhat"
    high = "entirely"

    [[rubrics]]
    name = "detail"
    scale = "1-5"
    criterion = "How detailed is it?"
    low = "not at all"
    middle = "somewhat"
    high = "entirely"

    [[rubrics]]
    name = "padding"
    better = "less"
    version = 3
    criterion = "How much of it says nothing?"
    low = "nothing"
    middle = "half"
    high = "all"
"#;

#[test]
fn what_a_file_leaves_out_follows_from_names() {
    let own = Objectives::parse(OWN).unwrap();
    let blades: Vec<&str> = own.blades.iter().map(|blade| blade.name.as_str()).collect();
    assert_eq!((blades, &own.objectives[0].rubrics), (vec!["calm", "deep"], &vec!["calm".to_owned()]));
    assert_eq!(own.definitions()[1], "depth = mean(detail, 1 − padding)");
    assert_eq!(own.scores(vec![Some(0.5), Some(0.75), Some(0.5)]).objectives, [0.5, 0.625]);
    assert_eq!((own.rubrics[2].version, own.rubrics[1].scale.unwrap().high()), (3, 5));
    // A version is computed from the text of a rubric, so it changes with the text.
    let changed = Objectives::parse(&OWN.replace("How calm", "Just how calm")).unwrap();
    assert_ne!(own.rubrics[0].version, changed.rubrics[0].version);
    assert_eq!((own.rubrics[0].version, 3), (Objectives::parse(OWN).unwrap().rubrics[0].version, changed.rubrics[2].version));
    // Objectives survive writing and parsing.
    assert_eq!(Objectives::parse(&toml::to_string(&own).unwrap()).unwrap(), own);
}

/// A rubric without an objective.
fn lone(name: &str) -> String {
    format!("[[rubrics]]\nname = {name:?}\ncriterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n")
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |from: &str, to: &str, words: &[&str]| {
        assert!(OWN.contains(from), "{from}");
        let error = Objectives::parse(&OWN.replacen(from, to, 1)).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused("blade = \"deep\"", "blad = \"deep\"", &["line 7: unknown field \"blad\"; did you mean \"blade\"?"]);
    refused("[[objectives]]", "[[objective]]", &["line 2: unknown field \"objective\"; did you mean \"objectives\"?"]);
    refused("version = 3", "version = \"3\"", &["line 28: ", "string \"3\", expected a whole number"]);
    refused("\"How detailed is it?\"", "\" \"", &["criterion of rubric \"detail\" is empty"]);
    refused("middle = \"half\"", "middle = \"\"", &["middle of rubric \"padding\" is empty"]);
    refused("[\"detail\", \"padding\"]", "[]", &["line 8: rubrics is empty; leave it out"]);
    refused("\"padding\"]", "\"pading\"]", &["\"depth\"", "\"pading\"", "\"padding\""]);
    refused("\"padding\"]", "\"detail\"]", &["\"depth\"", "\"detail\" twice"]);
    refused("name = \"detail\"", "name = \"calm\"", &["[[rubrics]]", "\"calm\" twice"]);
    refused("name = \"depth\"", "name = \"calm\"", &["[[objectives]]", "\"calm\" twice"]);
    refused("name = \"calm\"\n    criterion", "name = \"fluency\"\n    criterion", &["\"fluency\"", "column"]);
    refused("scale = \"1-5\"", "scale = \"5-1\"", &["line 19", "LOW-HIGH"]);
    refused("better = \"less\"", "better = \"fewer\"", &["`fewer`", "`less`"]);
    refused("name = \"calm\"", "name = \"\"", &["empty name"]);
    refused("name = \"calm\"", "name = \"pooled\"", &["\"pooled\"", "heading"]);
    refused("name = \"calm\"", "name = \"F1 of mean axes\"", &["\"F1 of mean axes\"", "heading"]);
    // These would be two fields of one name in the summary of `judge --json`.
    refused("name = \"calm\"", "name = \"perplexity\"", &["\"perplexity\"", "summary"]);
    refused(
        "[[rubrics]]\n    name = \"calm\"",
        &format!("{}[[rubrics]]\n    name = \"calm\"", lone("abstained")),
        &["\"abstained\""],
    );
    refused("[[rubrics]]\n    name = \"calm\"", &format!("{}[[rubrics]]\n    name = \"calm\"", lone("depth")), &["\"depth\""]);
    // Every format applies the checks of an objectives file.
    assert!(serde_json::from_str::<Objectives>(r#"{"objectives": [], "rubrics": []}"#).is_err());
    let unsaid = Objectives::parse("[[objectives]]\nname = \"calm\"\n").unwrap_err();
    assert!(unsaid.contains("no rubric; add [[rubrics]]"), "{unsaid}");
    let misspelt = Objectives::parse("[[objectives]]\nname = \"calm\"\nrubric = []\n").unwrap_err();
    assert_eq!(misspelt, "line 3: unknown field \"rubric\"; did you mean \"rubrics\"?");
    let single = Objectives::parse("\n[objectives]\nname = \"calm\"\n").unwrap_err();
    assert_eq!(single, "line 2: a single table where a list belongs; write double brackets, such as [[objectives]]");
    let nameless = Objectives::parse("[[objectives]]\nblade = \"calm\"\n").unwrap_err();
    assert_eq!(nameless, "line 1: missing field `name`");
    let none = Objectives::parse("objectives = []\nrubrics = []").unwrap_err();
    assert!(none.contains("[[objectives]]"), "{none}");
    let error = Objectives::read(std::path::Path::new("nowhere.toml")).unwrap_err().to_string();
    assert!(error.contains("nowhere.toml"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), OWN.replace("blade = \"deep\"", "bldae = \"deep\"")).unwrap();
    let error = Objectives::read(file.path()).unwrap_err().to_string();
    let path = file.path().display();
    assert_eq!(error, format!("{path}:7: unknown field \"bldae\"; did you mean \"blade\"?"));
}

proptest! {
    #[test]
    fn an_objective_is_a_mean_in_the_unit_interval(
        scores in proptest::collection::vec(proptest::option::of(0.0..=1.0), 9),
        flips in proptest::collection::vec(any::<bool>(), 9),
    ) {
        let mut objectives = Objectives::hhh().clone();
        for (rubric, flip) in objectives.rubrics.iter_mut().zip(&flips) {
            rubric.better = if *flip { Better::Less } else { Better::More };
        }
        let found = objectives.scores(scores.clone());
        for (objective, score) in objectives.objectives.iter().zip(&found.objectives) {
            let own: Vec<f64> = objectives.rubrics.iter().zip(&scores).zip(&flips)
                .filter(|((rubric, _), _)| objective.rubrics.contains(&rubric.name))
                .filter_map(|((_, score), &flip)| score.map(|score| if flip { 1.0 - score } else { score }))
                .collect();
            if own.is_empty() {
                prop_assert!(score.is_nan());
            } else {
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                prop_assert!((score - mean).abs() <= ROUNDING && (-ROUNDING..=1.0 + ROUNDING).contains(score));
            }
        }
    }
}
