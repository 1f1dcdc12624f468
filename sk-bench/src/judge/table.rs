//! Judgements as the table that `swiss-knife report` reads.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

use super::{FLUENCY, JudgeError, Judged, Objectives};

/// Number of letters of a blade's name in the name of a weight vector.
const LETTERS: usize = 4;
/// The prefix of the ids of the paper's prompts.
const PAPER: &str = "paper:";

/// Returns the first pass of a file of judgements as CSV, with one row per response. The columns
/// are `method`, `config`, a weight `w_NAME` for each blade, `frontier_id`, the rubrics, `fluency`
/// if it was measured, and the response's id.
///
/// The blades are those that a response has a weight for: first those of `objectives`, then the
/// others, sorted by name.
///
/// Responses without weights have no place in it, and are counted. Every prompt of the table is
/// expected under each of its schemes and weights, with every rubric; responses that lack one are
/// counted, too. If `seed` is given, only responses with that seed are included. The prompts of the
/// paper's sets keep their numbers; others are numbered after them, sorted by name. Weights are scaled
/// to sum to one. Judgements by another text of a rubric are left out if there are some by its own. A
/// rubric without a score is blank. Rows are sorted by prompt, scheme and id.
///
/// # Errors
/// If there is no judgement (with the seed), a judgement has a rubric that is not in `objectives`, all
/// judgements on a rubric are by another text, judgements are from two judges or two versions of a
/// rubric, no response has weights, one lacks its scheme or prompt id, or two have the same scheme,
/// weights and prompt.
pub fn frontier_csv(objectives: &Objectives, records: &[Judged], seed: Option<u64>) -> Result<FrontierTable, JudgeError> {
    let all = || records.iter().filter(|record| record.pass == 0);
    let records: Vec<&Judged> = all().filter(|record| seed.is_none() || record.seed == seed).collect();
    let nothing = || match seed {
        Some(seed) if all().next().is_some() => {
            let seeds: BTreeSet<String> = all().filter_map(|record| record.seed).map(|seed| seed.to_string()).collect();
            let seeds = seeds.into_iter().collect::<Vec<_>>().join(", ");
            format!("it holds no judgement of seed {seed}; its seeds: {}", if seeds.is_empty() { "none" } else { &seeds })
        }
        _ => "it holds no judgement".to_owned(),
    };
    let first = records.first().ok_or_else(|| unfit(nothing()))?;
    if let Some(other) = records.iter().find(|record| record.judge != first.judge) {
        let (one, other) = (&first.judge, &other.judge);
        return Err(unfit(format!("it holds judgements of {one} and of {other}; judge into separate files")));
    }
    if let Some(record) = records.iter().find(|record| objectives.rubric(&record.rubric).is_none() && record.rubric != FLUENCY) {
        let hint = crate::suggest::hint(&record.rubric, objectives.rubrics.iter().map(|rubric| rubric.name.as_str()));
        return Err(unfit(format!("rubric \"{}\" is not in the objectives; {hint}; see --objectives", record.rubric)));
    }
    // The rubrics of the offline judge have the names of the paper's, so that its scores fit their
    // tables.
    let shipped = [Objectives::hhh(), Objectives::offline()];
    let is_shipped = |name: &str, version| {
        shipped.iter().flat_map(|own| &own.rubrics).any(|rubric| rubric.name == name && rubric.version == version)
    };
    // The version of the objectives, if the record has another.
    let other = |record: &Judged| {
        let (name, judged) = (record.rubric.as_str(), record.rubric_version);
        let version = objectives.rubrics[objectives.rubric(name)?].version;
        (version != judged && !(is_shipped(name, version) && is_shipped(name, judged))).then_some(version)
    };
    // A rubric whose text has changed is judged anew, into the same file.
    let (records, outdated): (Vec<&Judged>, Vec<&Judged>) = records.into_iter().partition(|record| other(record).is_none());
    let anew: BTreeSet<&str> = records.iter().map(|record| record.rubric.as_str()).collect();
    let lost = outdated.iter().find(|record| !anew.contains(record.rubric.as_str()));
    if let Some((record, version)) = lost.and_then(|record| Some((record, other(record)?))) {
        return Err(unfit(format!(
            "{} was judged with the text of version {}, and that of the objectives is version {version}; \
             judge again, or give the objectives of the judgements",
            record.rubric, record.rubric_version
        )));
    }
    let (records, unweighed): (Vec<&Judged>, Vec<&Judged>) = records.into_iter().partition(|record| !record.weights.is_empty());
    if records.is_empty() {
        let lacks = unweighed.first().map_or_else(String::new, |record| lacking(record));
        let of_sweep = unweighed.iter().all(|record| record.scheme.is_some() && record.prompt_id.is_some());
        let cure = if of_sweep { "; for a baseline of a sweep, set at_every_weight = true in its plan" } else { "" };
        return Err(unfit(format!("it needs scheme, weights and prompt_id of each response, and {lacks}{cure}")));
    }
    let unweighed: BTreeSet<&str> = unweighed.into_iter().map(|record| record.id.as_str()).collect();
    let weighed: BTreeSet<&str> = records.iter().flat_map(|record| record.weights.keys()).map(String::as_str).collect();
    let own = objectives.blades.iter().filter(|blade| weighed.iter().any(|name| blade.is_called(name)));
    let mut blades: Vec<&str> = own.map(|blade| blade.name.as_str()).collect();
    blades.extend(weighed.into_iter().filter(|name| !objectives.blades.iter().any(|blade| blade.is_called(name))));
    let mut rows: HashMap<&str, JudgedRow<'_>> = HashMap::new();
    let mut versions: HashMap<&str, u32> = HashMap::new();
    for record in records {
        let version = *versions.entry(&record.rubric).or_insert(record.rubric_version);
        if version != record.rubric_version {
            let (rubric, other) = (&record.rubric, record.rubric_version);
            return Err(unfit(format!("{rubric} was judged by its versions {version} and {other}; judge into separate files")));
        }
        let row = match rows.entry(&record.id) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(place) => place.insert(JudgedRow::of(record, objectives, &blades)?),
        };
        if let Some(other) = row.scores.insert(&record.rubric, record.score)
            && other != record.score
        {
            let (id, rubric) = (&record.id, &record.rubric);
            return Err(unfit(format!("response \"{id}\" has two different scores for {rubric}; remove one of the lines")));
        }
    }
    // A response that was judged only by another text may have a scheme of its own.
    let lost = outdated.iter().filter(|record| !record.weights.is_empty() && !rows.contains_key(record.id.as_str()));
    let lost = lost.map(|record| &record.id).collect::<BTreeSet<_>>().len();
    // Judgements are in the order in which threads finished. The table must not depend on it.
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_unstable_by_key(|row| (row.prompt, row.method, row.id));
    let csv = render(&rows, objectives, &blades)?;
    let prompts: BTreeSet<&str> = rows.iter().map(|row| row.prompt).collect();
    let bits = |row: &JudgedRow<'_>| row.weights.iter().map(|weight| weight.to_bits()).collect::<Vec<_>>();
    let cells: BTreeSet<_> = rows.iter().map(|row| (row.method, bits(row))).collect();
    let partial = rows.iter().filter(|row| row.scores.len() < versions.len()).count();
    let absent = (cells.len() * prompts.len()).saturating_sub(rows.len() + lost);
    Ok(FrontierTable { csv, unweighed: unweighed.len(), unjudged: partial + lost, absent })
}

/// A table of judgements, and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontierTable {
    /// The table.
    pub csv: String,
    /// The number of responses without weights.
    pub unweighed: usize,
    /// The number of responses that lack judgements.
    pub unjudged: usize,
    /// The number of combinations of scheme, weights and prompt without a response.
    pub absent: usize,
}

/// Says which fields of a response the table lacks.
fn lacking(record: &Judged) -> String {
    let fields =
        [("scheme", record.scheme.is_none()), ("weights", record.weights.is_empty()), ("prompt_id", record.prompt_id.is_none())];
    let missing: Vec<&str> = fields.into_iter().filter(|(_, missing)| *missing).map(|(field, _)| field).collect();
    format!("response \"{}\" has no {}", record.id, missing.join(", no "))
}

struct JudgedRow<'a> {
    id: &'a str,
    method: &'a str,
    weights: Vec<f64>,
    prompt: &'a str,
    seed: Option<u64>,
    scores: BTreeMap<&'a str, Option<f64>>,
}

impl<'a> JudgedRow<'a> {
    fn of(record: &'a Judged, objectives: &Objectives, blades: &[&str]) -> Result<Self, JudgeError> {
        let id = record.id.as_str();
        let (Some(method), Some(prompt)) = (record.scheme.as_deref(), record.prompt_id.as_deref()) else {
            return Err(unfit(lacking(record)));
        };
        let mut weights = vec![0.0; blades.len()];
        for (name, weight) in &record.weights {
            let known = objectives.blades.iter().find(|blade| blade.is_called(name)).map_or(name.as_str(), |blade| &blade.name);
            let place = blades.iter().position(|blade| *blade == known);
            weights[place.ok_or_else(|| unfit(format!("response \"{id}\" has a weight \"{name}\" of no blade")))?] += weight;
        }
        let total: f64 = weights.iter().sum();
        let sound = weights.iter().all(|weight| *weight >= 0.0) && total > 0.0 && total.is_finite();
        if !sound {
            return Err(unfit(format!(
                "the weights of response \"{id}\" must be finite and not negative, and at least one must be positive"
            )));
        }
        Ok(Self {
            id,
            method,
            weights: weights.into_iter().map(|weight| weight / total).collect(),
            prompt,
            seed: record.seed,
            scores: BTreeMap::new(),
        })
    }

    /// Returns a name for the weights, made of the first letters of each blade if those are
    /// distinct.
    fn configuration(&self, blades: &[&str]) -> String {
        let short: Vec<String> = blades.iter().map(|blade| blade.chars().take(LETTERS).collect()).collect();
        let alike = short.iter().enumerate().any(|(i, name)| short[..i].contains(name));
        let name = |k: usize| if alike { blades[k] } else { &short[k] };
        let parts = self.weights.iter().enumerate().map(|(k, weight)| format!("{}{weight:.4}", name(k)));
        parts.collect::<Vec<_>>().join("_")
    }
}

fn render(rows: &[JudgedRow<'_>], objectives: &Objectives, blades: &[&str]) -> Result<String, JudgeError> {
    // Other spellings of a number are prompts of their own, and so are numbers that leave no room for
    // others.
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= u32::MAX / 2 && number.to_string() == text);
    let paper = |prompt: &str| prompt.strip_prefix(PAPER).and_then(number);
    let mut next = rows.iter().filter_map(|row| paper(row.prompt)).max().map_or(0, |last| last + 1);
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut seen: HashMap<(&str, String, u32), &JudgedRow<'_>> = HashMap::new();
    let mut header: Vec<&str> = vec!["method", "config"];
    let weights: Vec<String> = blades.iter().map(|blade| format!("w_{blade}")).collect();
    header.extend(weights.iter().map(String::as_str));
    header.push("frontier_id");
    let measured = rows.iter().any(|row| row.scores.contains_key(FLUENCY));
    let rubrics = objectives.rubrics.iter().map(|rubric| rubric.name.as_str());
    let columns: Vec<&str> = rubrics.chain(measured.then_some(FLUENCY)).collect();
    header.extend(&columns);
    header.push("id");
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(&header).map_err(unfit)?;
    for row in rows {
        let number = *numbers.entry(row.prompt).or_insert_with(|| {
            paper(row.prompt).unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        });
        let configuration = row.configuration(blades);
        if let Some(other) = seen.insert((row.method, configuration.clone(), number), row) {
            let JudgedRow { id, method, prompt, .. } = row;
            let what = format!("\"{}\" and \"{id}\" are both of scheme {method}, prompt {prompt} and the same weights", other.id);
            let cure = match row.seed.filter(|_| row.seed != other.seed) {
                Some(seed) => format!("choose a seed, such as --seed {seed}"),
                None => "judge them into separate files".to_owned(),
            };
            return Err(unfit(format!("{what}; the table takes one response of each: {cure}")));
        }
        let mut fields = vec![row.method.to_owned(), configuration];
        fields.extend(row.weights.iter().map(f64::to_string));
        fields.push(number.to_string());
        let score = |name: &str| row.scores.get(name).copied().flatten();
        fields.extend(columns.iter().map(|name| score(name).map_or_else(String::new, |score| score.to_string())));
        fields.push(row.id.to_owned());
        out.write_record(&fields).map_err(unfit)?;
    }
    String::from_utf8(out.into_inner().map_err(unfit)?).map_err(unfit)
}

/// Checks that no judgement is for an axis that, in `objectives`, does not include its rubric.
///
/// # Errors
/// If one is: it was made with other objectives.
pub fn check_axes(objectives: &Objectives, records: &[Judged]) -> Result<(), JudgeError> {
    for Judged { rubric, axis, .. } in records {
        if let Some(axis) = axis
            && objectives.of_rubric(rubric).all(|objective| objective.name != *axis)
        {
            let own =
                objectives.objective_of(rubric).map_or_else(|| "no objective".to_owned(), |own| format!("\"{}\"", own.name));
            let cure = "give the objectives of the table with --objectives";
            return Err(unfit(format!("rubric \"{rubric}\" was judged for \"{axis}\", and here it belongs to {own}; {cure}")));
        }
    }
    Ok(())
}

fn unfit(reason: impl Display) -> JudgeError {
    JudgeError::Invalid(format!("cannot make a table of the judgements: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Identity, Scale};

    fn record(id: &str, prompt: &str, weights: &[(&str, f64)], rubric: &str, score: Option<f64>) -> Judged {
        Judged {
            id: id.to_owned(),
            scheme: Some("swiss".to_owned()),
            weights: weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            prompt_id: Some(prompt.to_owned()),
            seed: Some(1),
            digest: String::new(),
            rubric: rubric.to_owned(),
            rubric_version: 1,
            axis: None,
            pass: 0,
            judge: Identity {
                model: "m".to_owned(),
                scoring: "integer".to_owned(),
                scale: Some(Scale::TENTHS),
                settings: String::new(),
            },
            score,
            abstention: None,
            reply: None,
            reason: None,
            mass: None,
            seconds: 0.0,
        }
    }

    fn hhh_csv(records: &[Judged], seed: Option<u64>) -> Result<String, JudgeError> {
        frontier_csv(Objectives::hhh(), records, seed).map(|table| table.csv)
    }

    #[test]
    fn one_row_per_response() {
        let mut retest = record("a", "paper:7", &[("helpful", 1.0)], "toxicity", Some(1.0));
        retest.pass = 1;
        let records = [
            record("a", "paper:7", &[("helpful", 1.0), ("harmless", 3.0)], "toxicity", Some(0.5)),
            record("b", "mine", &[("honesty", 1.0)], "toxicity", None),
            record("a", "paper:7", &[("helpful", 1.0), ("harmless", 3.0)], "relevance", Some(0.25)),
            retest,
        ];
        let table = hhh_csv(&records, None).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "method,config,w_helpfulness,w_honesty,w_harmlessness,frontier_id,response_quality,relevance,helpfulness,toxicity,\
             harmfulness,truthfulness,non_deception,epistemic_honesty,refusal,id"
        );
        assert_eq!(lines[1], "swiss,help0.0000_hone1.0000_harm0.0000,0,1,0,8,,,,,,,,,,b");
        assert_eq!(lines[2], "swiss,help0.2500_hone0.0000_harm0.7500,0.25,0,0.75,7,,0.25,,0.5,,,,,,a");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn blades_go_by_any_name() {
        let objectives = Objectives::parse(
            r#"
            blades = [{ name = "calm", aliases = ["calmness"] }]
            objectives = [{ name = "peace", blade = "calmness", rubrics = ["calm"] }, { name = "wit" }]
            rubrics = [
                { name = "calm", version = 1, criterion = "?", low = "l", middle = "m", high = "h" },
                { name = "wit", version = 1, criterion = "?", low = "l", middle = "m", high = "h" },
            ]"#,
        )
        .unwrap();
        let weights = [("calmness", 1.0), ("zeal", 2.0), ("brave", 1.0)];
        let records = [record("a", "p", &weights, "calm", Some(0.5)), record("a", "p", &weights, "wit", Some(0.25))];
        let table = frontier_csv(&objectives, &records, None).unwrap().csv;
        let expected = "method,config,w_calm,w_brave,w_zeal,frontier_id,calm,wit,id\n\
                        swiss,calm0.2500_brav0.2500_zeal0.5000,0.25,0.25,0.5,0,0.5,0.25,a\n";
        assert_eq!(table, expected, "no response has a weight for wit");
    }

    #[test]
    fn blades_without_a_weight_have_no_column() {
        let records = [record("a", "p", &[("calm", 1.0), ("warm", 3.0)], "toxicity", Some(0.5))];
        let table = hhh_csv(&records, None).unwrap();
        assert!(table.starts_with("method,config,w_calm,w_warm,frontier_id,response_quality,"), "{table}");
        assert!(table.contains("\nswiss,calm0.2500_warm0.7500,0.25,0.75,0,"), "{table}");
        // A weight of zero is a weight.
        let records = [record("a", "p", &[("harmless", 0.0), ("helpful", 1.0)], "toxicity", Some(0.5))];
        let table = hhh_csv(&records, None).unwrap();
        assert!(table.starts_with("method,config,w_helpfulness,w_harmlessness,frontier_id,"), "{table}");
    }

    #[test]
    fn judgements_under_other_objectives_are_refused() {
        let judged = |rubric: &str, axis: Option<&str>| {
            let axis = axis.map(str::to_owned);
            check_axes(Objectives::hhh(), &[Judged { axis, ..record("a", "p", &[("honesty", 1.0)], rubric, Some(0.5)) }])
        };
        for (rubric, axis) in [("helpfulness", "quality"), ("toxicity", "safety"), ("truthfulness", "honesty")] {
            assert!(judged(rubric, Some(axis)).is_ok(), "{rubric}");
        }
        for rubric in ["helpfulness", "refusal", FLUENCY] {
            assert!(judged(rubric, None).is_ok(), "{rubric}");
        }
        for (rubric, own) in [("helpfulness", "\"quality\""), ("refusal", "no objective")] {
            let error = judged(rubric, Some("use")).unwrap_err().to_string();
            let expected =
                format!("rubric \"{rubric}\" was judged for \"use\", and here it belongs to {own}; give the objectives");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn the_order_of_judgements_does_not_matter() {
        let of = |id: &str, prompt: &str| record(id, prompt, &[("honesty", 1.0)], "toxicity", Some(0.5));
        let mut records = vec![of("d", "q"), of("c", "p"), of("b", "paper:3"), of("a", "o")];
        let table = hhh_csv(&records, None).unwrap();
        records.reverse();
        assert_eq!(table, hhh_csv(&records, None).unwrap());
        let numbers: Vec<&str> = table.lines().skip(1).map(|line| line.split(',').nth(3).unwrap()).collect();
        assert_eq!(numbers, ["4", "5", "3", "6"], "o, p, paper:3 and q");
        // Another spelling of a number is another prompt, and the largest numbers are too large.
        let last = format!("paper:{}", u32::MAX - 1);
        let records = ["paper:3", "paper:03", "paper:+3", &last].map(|prompt| of(prompt, prompt));
        let table = hhh_csv(&records, None).unwrap();
        let numbers: Vec<&str> = table.lines().skip(1).map(|line| line.split(',').nth(3).unwrap()).collect();
        assert_eq!(numbers, ["4", "5", "3", "6"], "paper:+3, paper:03, paper:3 and the last");
    }

    #[test]
    fn responses_that_lack_judgements_are_counted() {
        let (one, other) = ([("honesty", 1.0)], [("safety", 1.0)]);
        let mut records = vec![
            record("a", "p", &one, "toxicity", Some(0.0)),
            record("a", "p", &one, "helpfulness", None),
            record("b", "q", &one, "toxicity", Some(0.0)),
            record("b", "q", &one, "helpfulness", Some(1.0)),
            record("c", "p", &other, "toxicity", Some(0.0)),
        ];
        let lacks = |records: &[Judged]| {
            let table = frontier_csv(Objectives::hhh(), records, None).unwrap();
            (table.unjudged, table.absent)
        };
        // The second rubric of "c", and the answer to "q" under its weights.
        assert_eq!(lacks(&records), (1, 1));
        records.push(record("c", "p", &other, "helpfulness", Some(1.0)));
        assert_eq!(lacks(&records), (0, 1));
        assert_eq!(lacks(&records[..4]), (0, 0), "no score is a judgement");
    }

    /// An abstention is written, so a score by another name is none.
    #[test]
    fn a_judgement_has_a_score_or_null() {
        let mut line = serde_json::to_value(record("a", "p", &[], "toxicity", None)).unwrap();
        assert!(serde_json::from_value::<Judged>(line.clone()).is_ok());
        line.as_object_mut().unwrap().remove("score");
        assert_eq!(serde_json::from_value::<Judged>(line).unwrap_err().to_string(), "missing field `score`");
    }

    #[test]
    fn unfit_judgements_are_refused() {
        let fine = record("a", "p", &[("honesty", 1.0)], "toxicity", Some(0.0));
        let says = |other: Judged| hhh_csv(&[fine.clone(), other], None).unwrap_err().to_string();
        assert!(says(Judged { id: "b".to_owned(), ..fine.clone() }).contains("\"a\" and \"b\""));
        assert!(says(Judged { id: "b".to_owned(), scheme: None, ..fine.clone() }).contains("\"b\" has no scheme"));
        assert!(says(record("b", "q", &[("honesty", 1.0)], "humour", None)).contains("\"humour\""));
        let bare = Judged { scheme: None, prompt_id: None, ..record("b", "q", &[], "toxicity", None) };
        let error = hhh_csv(&[bare], None).unwrap_err().to_string();
        assert!(error.contains("response \"b\" has no scheme, no weights, no prompt_id"), "{error}");
        assert!(!error.contains("at_every_weight"), "{error}");
        let baseline = record("b", "q", &[], "toxicity", None);
        assert!(hhh_csv(&[baseline], None).unwrap_err().to_string().contains("at_every_weight"));
        assert!(says(record("b", "q", &[("honesty", -1.0)], "toxicity", None)).contains("weights of response \"b\""));
        let truthful = record("b", "q", &[("honesty", 1.0)], "truthfulness", Some(0.0));
        let offline = Judged { rubric_version: 101, ..truthful.clone() };
        assert!(hhh_csv(std::slice::from_ref(&offline), None).is_ok());
        assert!(hhh_csv(&[truthful, offline], None).unwrap_err().to_string().contains("versions 1 and 101"));
        let outdated = Judged { rubric_version: 2, score: Some(1.0), ..fine.clone() };
        let error = hhh_csv(std::slice::from_ref(&outdated), None).unwrap_err().to_string();
        assert!(error.contains("the text of version 2, and that of the objectives is"), "{error}");
        assert_eq!(
            hhh_csv(&[outdated.clone(), fine.clone()], None).unwrap(),
            hhh_csv(std::slice::from_ref(&fine), None).unwrap()
        );
        let elsewhere = Judged { id: "b".to_owned(), scheme: Some("other".to_owned()), ..outdated };
        assert_eq!(frontier_csv(Objectives::hhh(), &[elsewhere, fine.clone()], None).unwrap().unjudged, 1);
        let mut other = fine.clone();
        other.judge.model = "n".to_owned();
        let said = says(other);
        assert!(said.contains("of m (integer, ") && said.contains("and of n (integer, "), "{said}");
        assert!(hhh_csv(&[], None).unwrap_err().to_string().contains("no judgement"));
    }

    #[test]
    fn responses_without_weights_are_counted() {
        let weighed = record("a", "p", &[("honesty", 1.0)], "toxicity", Some(0.25));
        let alone = hhh_csv(std::slice::from_ref(&weighed), None).unwrap();
        let of = |id: &str, rubric: &str| record(id, "p", &[], rubric, Some(0.5));
        let records = [weighed, of("b", "toxicity"), of("b", "relevance"), of("c", "toxicity")];
        let found = frontier_csv(Objectives::hhh(), &records, None).unwrap();
        assert_eq!(found, FrontierTable { csv: alone, unweighed: 2, unjudged: 0, absent: 0 });
    }

    #[test]
    fn only_responses_of_the_seed_are_included() {
        let first = record("a", "p", &[("honesty", 1.0)], "toxicity", Some(0.25));
        let second = Judged { id: "b".to_owned(), seed: Some(2), score: Some(0.75), ..first.clone() };
        let records = [first, second];
        let row = |seed| hhh_csv(&records, Some(seed)).unwrap().lines().nth(1).unwrap().to_owned();
        assert!(row(1).ends_with(",a") && row(1).contains(",0.25,"), "{}", row(1));
        assert!(row(2).ends_with(",b") && row(2).contains(",0.75,"), "{}", row(2));
        let says = |seed| hhh_csv(&records, seed).unwrap_err().to_string();
        assert!(says(None).contains("choose a seed, such as --seed 2"), "{}", says(None));
        assert!(says(Some(3)).contains("no judgement of seed 3; its seeds: 1, 2"), "{}", says(Some(3)));
    }
}
