//! Text drawn from a grammar.

use std::{collections::HashSet, fs, path::Path};

use sk_models::train::{data::Row, grammar::Grammar};

const OWN: &str = r#"
questions = ["{ask}"]

[lists]
fruit = "apple, pear, cherry"

[tables.capital]
columns = "country; city"
rows = """
France; Paris
Japan; Tokyo
"""

[parts]
hedge = ["as far as I know."]

[[topics]]
name = "capital"
ask = ["what is the capital of {capital.country}?"]
say = ["the capital of {capital.country} is {capital.city}."]
wrong = ["the capital of {capital.country} is {capital2.city}."]

[[topics]]
name = "fruit"
ask = ["is {a fruit} [red|round]?"]
say = ["{s fruit} are. {s fruit2} are not."]

[[manners]]
name = "honest"
share = 0.5
answers = ["{hedge} {say}"]

[[manners]]
name = "wrong"
share = 0.5
answers = ["{wrong}"]

[[axes]]
name = "true"
better = ["honest"]
worse = ["wrong"]
"#;

fn grammar(files: &[(&str, &str)]) -> Result<Grammar, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    Grammar::read(folder.path()).map_err(|error| error.to_string())
}

fn texts(grammar: &Grammar, seed: u64, count: usize) -> Vec<String> {
    let text = |row| match row {
        Row::Text(text) => text,
        row => panic!("{row:?}"),
    };
    grammar.dialogues(seed).take(count).map(text).collect()
}

#[test]
fn slots_keep_their_values_and_parts_their_topics() {
    let grammar = grammar(&[("own.toml", OWN)]).unwrap();
    let dialogues = texts(&grammar, 1, 300);
    let exchange = |text: &str| text.split("\n\nHuman: ").skip(1).map(str::to_owned).collect::<Vec<_>>();
    let found: HashSet<String> = dialogues.iter().flat_map(|text| exchange(text)).collect();
    let answer = |question: &str, answer: &str| format!("{question}\n\nAssistant: {answer}");
    let mut expected = HashSet::new();
    for (country, city, other) in [("France", "Paris", "Tokyo"), ("Japan", "Tokyo", "Paris")] {
        let question = format!("What is the capital of {country}?");
        expected.insert(answer(&question, &format!("As far as I know. The capital of {country} is {city}.")));
        expected.insert(answer(&question, &format!("The capital of {country} is {other}.")));
    }
    let fruits = [("an apple", "Apples"), ("a pear", "Pears"), ("a cherry", "Cherries")];
    for (fruit, plural) in fruits {
        for (_, other) in fruits.into_iter().filter(|(other, _)| *other != fruit) {
            for adjective in ["red", "round"] {
                let said = format!("As far as I know. {plural} are. {other} are not.");
                expected.insert(answer(&format!("Is {fruit} {adjective}?"), &said));
            }
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn a_seed_repeats_and_pairs_share_their_question() {
    let grammar = grammar(&[("own.toml", OWN)]).unwrap();
    assert_eq!(texts(&grammar, 7, 50), texts(&grammar, 7, 50));
    assert_ne!(texts(&grammar, 7, 50), texts(&grammar, 8, 50));
    for row in grammar.pairs("true", 3).unwrap().take(50) {
        let Row::Pair { prompt, chosen, rejected } = row else { panic!("{row:?}") };
        let (country, right, wrong) =
            if prompt.contains("France") { ("France", "Paris", "Tokyo") } else { ("Japan", "Tokyo", "Paris") };
        assert_eq!(prompt, format!("\n\nHuman: What is the capital of {country}?\n\nAssistant:"));
        assert_eq!(chosen, format!(" As far as I know. The capital of {country} is {right}."));
        assert_eq!(rejected, format!(" The capital of {country} is {wrong}."));
    }
    let unknown = grammar.pairs("kind", 3).err().unwrap().to_string();
    assert!(unknown.contains("`kind`"), "{unknown}");
}

#[test]
fn errors_name_the_fault() {
    let refused = |from: &str, to: &str, words: &[&str]| {
        assert!(OWN.contains(from), "{from}");
        let error = grammar(&[("own.toml", &OWN.replacen(from, to, 1))]).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused("{capital.city}.\"", "{capital.town}.\"", &["topic `capital`, `say`", "{capital.town}"]);
    refused("{s fruit2}", "{s froot}", &["topic `fruit`, `say`", "{froot}"]);
    refused("{s fruit2}", "{x fruit2}", &["topic `fruit`", "`x`"]);
    refused("[red|round]", "[red|round", &["own.toml", "topic `fruit`", "`[` is not closed"]);
    refused("[red|round]", "red|round]", &["topic `fruit`", "`]` closes no bracket"]);
    refused("Japan; Tokyo", "Japan", &["table `capital`", "`Japan`", "2 columns"]);
    refused("pear, cherry", "pear, , cherry", &["`fruit`", "empty value"]);
    refused("better = [\"honest\"]", "better = [\"honst\"]", &["axis `true`", "`honst`"]);
    refused("name = \"fruit\"", "name = \"capital\"", &["topic `capital`", "twice"]);
    refused("\"as far as I know.\"", "\"[so|{hedge}]\"", &["part `hedge`", "without an end"]);
    refused("{s fruit} are.", "{hedge} {wrong}.\"]\nwrong = [\"{say}", &["without an end"]);
    refused("share = 0.5", "share = 0", &["manner `honest`", "share"]);
    refused("answers = [\"{hedge} {say}\"]", "answers = [\"{hedge} {sy}\"]", &["manner `honest`", "{sy}"]);
    refused("wrong = [", "wrung = [", &["manner `wrong`", "{wrong}"]);
    refused("say = [\"{s fruit}", "says = [\"{s fruit}", &["topic `fruit`", "no manner"]);
    let apart =
        OWN.replace("[\"{wrong}\"]", "[\"{wrong} {odd}\"]").replace("name = \"fruit\"", "name = \"fruit\"\nodd = [\"so.\"]");
    let apart = grammar(&[("own.toml", &apart)]).unwrap_err();
    assert!(apart.contains("manner `wrong` needs parts that no topic has"), "{apart}");
    refused("name = \"wrong\"", "name = \"honest\"", &["manner `honest`", "twice"]);
    let axis = &OWN[OWN.find("[[axes]]").unwrap()..];
    let axes = grammar(&[("a.toml", OWN), ("b.toml", axis)]).unwrap_err();
    assert!(axes.contains("axis `true`") && axes.contains("twice"), "{axes}");
    let twice = grammar(&[("a.toml", OWN), ("b.toml", "[lists]\nfruit = \"fig\"")]).unwrap_err();
    assert!(twice.contains("b.toml") && twice.contains("`fruit` is defined twice"), "{twice}");
    let unknown = grammar(&[("a.toml", "topic = []")]).unwrap_err();
    assert!(unknown.contains("a.toml") && unknown.contains("topic"), "{unknown}");
    assert!(grammar(&[]).unwrap_err().contains("lacks"));
}

#[test]
fn the_grammar_of_the_model_that_ships_is_clean() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let grammar = Grammar::read(&root.join("grammar")).unwrap();
    let questions = fs::read_to_string(root.join("assets/questions.jsonl")).unwrap();
    let reserved: HashSet<String> = questions
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["prompt"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(reserved.len(), 60);
    for text in texts(&grammar, 1, 5_000) {
        assert!(!text.contains(['[', ']', '{', '}', '|']) && !text.contains("  ") && text.is_ascii(), "{text}");
        for turn in text.split("\n\n").filter(|turn| !turn.is_empty()) {
            assert!(turn.ends_with(['.', '?', '!']), "{turn}");
        }
        for question in Row::Text(text.clone()).human_turns() {
            assert!(!reserved.contains(question), "{question}");
        }
    }
    let axes: Vec<&str> = grammar.axes().collect();
    assert_eq!(axes, ["helpful", "honest", "harmless"]);
    for axis in axes {
        assert_eq!(grammar.pairs(axis, 1).unwrap().take(500).count(), 500);
    }
}
