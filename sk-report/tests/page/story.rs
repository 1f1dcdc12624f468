//! The page of a report: its verdicts, and that all its figures use the same conventions.

use std::fmt::Write;
use std::fs;

use serde_json::{Value as Json, json};
use sk_report::page::Page;
use sk_report::points::lattice;
use sk_report::report::{RawResults, Report, Resampling};

use crate::html::Document;

/// A sweep with generated scores.
struct Made<'a> {
    objectives: &'a [&'a str],
    /// The density of the lattice of weights.
    density: usize,
    prompts: usize,
    /// For each method: its name, how much its axes follow the weights, and what it adds to every
    /// axis.
    methods: &'a [(&'a str, f64, f64)],
    /// Whether there are records, which hold the temperature of each method.
    recorded: bool,
}

impl Made<'_> {
    /// A pseudorandom number in [−½, ½].
    fn noise(&self, place: usize) -> f64 {
        let mixed = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
    }

    fn results(&self) -> RawResults {
        let folder = tempfile::tempdir().unwrap();
        let own = self.objectives;
        let entries = own.iter().map(|name| {
            let rubric = "criterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n";
            format!("[[objectives]]\nname = {name:?}\n[[rubrics]]\nname = {name:?}\n{rubric}")
        });
        fs::write(folder.path().join("objectives.toml"), entries.collect::<String>()).unwrap();
        let weights = own.iter().map(|name| format!("w_{name}")).collect::<Vec<_>>().join(",");
        let mut table = format!("method,config,{weights},frontier_id,{},id\n", own.join(","));
        let (mut records, mut settings) = (String::new(), String::new());
        let mut place = 0;
        for (i, (method, strength, lift)) in self.methods.iter().enumerate() {
            let temperature = if i == 1 { 8.0 } else { 0.25 };
            let numbers = json!({"temperature": temperature});
            let of = json!({"program": "0", "models": {}, "precision": "f32", "adapters": {}, "convention": "sound", "framing": "hh",
                            "max_new_tokens": 8, "numbers": numbers, "slots": {}});
            writeln!(settings, "{}", json!({"settings": method, "sources": {}, "of": of})).unwrap();
            for point in lattice(own.len(), self.density) {
                let of_point: Vec<String> = point.iter().map(f64::to_string).collect();
                for prompt in 0..self.prompts {
                    let scores: Vec<String> = point
                        .iter()
                        .map(|weight| {
                            place += 1;
                            (0.4 + lift + strength * weight + 0.1 * self.noise(place)).clamp(0.0, 1.0).to_string()
                        })
                        .collect();
                    let config = of_point.join("-");
                    writeln!(table, "{method},{config},{},{prompt},{},{place}", of_point.join(","), scores.join(",")).unwrap();
                    let record = json!({
                        "id": place.to_string(), "scheme": method, "prompt_id": format!("id-{prompt}"), "seed": 1, "draws": 1, "tokens": 4,
                        "prompt": format!("\n\nHuman: Is this question {prompt}?\n\nAssistant:"), "response": "It is.", "ended": "limit",
                        "steps": 1, "settings": method, "device": "cpu", "elapsed": 2.0,
                        "seconds": {"draft": 1.0, "score": 1.0, "select": 1.0, "commit": 1.0},
                    });
                    writeln!(records, "{record}").unwrap();
                }
            }
        }
        fs::write(folder.path().join("judged_frontier.csv"), table).unwrap();
        fs::write(folder.path().join("sweep.jsonl"), records).unwrap();
        fs::write(folder.path().join("sweep.settings.jsonl"), settings).unwrap();
        let results = RawResults::read(folder.path()).unwrap();
        if self.recorded { results.with_records(&folder.path().join("sweep.jsonl")).unwrap() } else { results }
    }

    fn page(&self) -> Page {
        page(&self.results())
    }
}

fn page(results: &RawResults) -> Page {
    Report::of(results, "ours", Resampling { resamples: 200, seed: 1 }).unwrap().page("t", results).unwrap()
}

const TWO: Made<'_> = Made {
    objectives: &["calm", "terse"],
    density: 8,
    prompts: 6,
    methods: &[("ours", 0.3, 0.1), ("hot", 0.0, 0.05), ("base", 0.0, 0.0)],
    recorded: true,
};

fn verdict(page: &Page) -> Vec<String> {
    let html = page.html().unwrap();
    let document = Document::parse(&html).unwrap_or_else(|fault| panic!("{fault}"));
    document.check_ids();
    document.elements("p").filter(|p| p.class() == "verdict").map(|p| p.text.clone()).collect()
}

/// The charts of a page, with the ids of their figures.
fn charts(document: &Document) -> Vec<(String, Json)> {
    let mut figure = String::new();
    let mut charts = Vec::new();
    for element in document.all() {
        match element.name.as_str() {
            "figure" => figure = element.attribute("id").unwrap().to_owned(),
            "script" if element.attribute("type").is_some() => {
                charts.push((figure.clone(), serde_json::from_str(&element.text).unwrap()));
            }
            _ => {}
        }
    }
    charts
}

/// The traces of a figure's charts.
fn traces<'a>(charts: &'a [(String, Json)], figure: &str) -> Vec<&'a Json> {
    let own = charts.iter().filter(|(id, _)| id == &format!("figure-{figure}"));
    own.flat_map(|(_, chart)| chart["data"].as_array().unwrap()).collect()
}

#[test]
fn a_page_opens_with_what_was_found() {
    let said = verdict(&TWO.page());
    assert!(
        said[0].starts_with("The answers of ours at T = 0.25 (ρ = ") && said[0].ends_with("]) follow the weights."),
        "{said:?}"
    );
    assert!(said[1].starts_with("Steering cannot be told from chance for hot at T = 8 (ρ = "), "{said:?}");
    assert!(said[1].contains(" and base at T = 0.25 (ρ = ") && said[1].contains("], p = "), "{said:?}");
    // Six prompts with one sign have p = 2/2⁶. Holm's correction for two methods doubles it.
    assert_eq!(
        said[2],
        "Whether F1 of ours differs from that of hot and base is not known: too few prompts for so many methods."
    );
    assert_eq!(said.len(), 3);
    let said = verdict(&Made { prompts: 8, ..TWO }.page());
    assert!(
        said[2].starts_with("In F1, ours is ahead of hot by 0.") && said[2].contains("] and ahead of base by 0."),
        "{said:?}"
    );
    // A difference in F1 has three decimals.
    let lead = said[2].split(" by ").nth(1).unwrap();
    assert_eq!(lead.split(' ').next().unwrap().len(), "0.000".len(), "{lead}");
    let backwards = verdict(&Made { methods: &[("ours", -0.3, 0.3)], ..TWO }.page());
    assert_eq!(backwards.len(), 1);
    assert!(backwards[0].contains("(ρ = −") && backwards[0].ends_with(") go against the weights."), "{backwards:?}");
}

#[test]
fn five_objectives_one_method_and_no_sweep_have_a_verdict_too() {
    let five = Made { objectives: &["calm", "terse", "kind", "plain", "deep"], density: 2, recorded: false, ..TWO };
    let said = verdict(&five.page());
    assert!(said[0].starts_with("The answers of ours (ρ = 0."), "{said:?}");
    assert!(five.page().html().unwrap().contains("No figure of F1 over the weights: it is drawn for two or three blades."));
    let one = verdict(&Made { methods: &[("ours", 0.3, 0.0)], recorded: false, ..TWO }.page());
    assert_eq!(one.len(), 1, "{one:?}");
    // The lattice of one objective has a single weight vector.
    let still = Made { objectives: &["calm"], density: 1, recorded: false, ..TWO };
    let said = verdict(&still.page());
    assert_eq!(said[0], "Whether the answers follow the weights is not known: all answers were asked for at one weight vector.");
    // No objective names a blade of these results.
    let mut results = TWO.results();
    results.sweep.blades = vec!["loud".to_owned(), "long".to_owned()];
    let said = verdict(&page(&results));
    assert_eq!(said[0], "Whether the answers follow the weights is not known: no objective has a blade among the weights.");
    // No answer of the reference was judged.
    let mut results = TWO.results();
    let reference = results.sweep.methods.iter_mut().find(|method| method.name == "ours").unwrap();
    reference.cells.iter_mut().for_each(|cell| cell.scores.objectives.fill(f64::NAN));
    let said = verdict(&page(&results));
    assert_eq!(said[0], "No answer of ours was judged.");
    assert!(said.iter().any(|sentence| sentence.contains("Of ours it is not known")), "{said:?}");
    // With one prompt there is no interval.
    let said = verdict(&Made { prompts: 1, recorded: false, ..TWO }.page());
    assert!(!said[0].contains('['), "{said:?}");
}

#[test]
fn fewer_than_five_weight_vectors_tell_nothing_of_steering() {
    let said = verdict(&Made { density: 3, ..TWO }.page());
    assert_eq!(said[0], "Whether the answers follow the weights is not known: fewer than five weight vectors.");
    let said = verdict(&Made { density: 4, prompts: 8, methods: &[("ours", 0.3, 0.0)], ..TWO }.page());
    assert!(said[0].ends_with(") follow the weights."), "{said:?}");
    let mut results = TWO.results();
    let solo = results.sweep.methods.iter_mut().find(|method| method.name == "hot").unwrap();
    solo.cells.retain(|cell| cell.configuration == 0);
    let said = verdict(&page(&results));
    assert!(said.contains(&"Of hot it is not known: fewer than five weight vectors.".to_owned()), "{said:?}");
}

/// The least p of five weight vectors is 2/5!. Corrected for three methods, it is 0.05.
#[test]
fn too_few_weight_vectors_for_so_many_methods_tell_nothing_of_steering() {
    let methods = [("ours", 0.3, 0.0), ("theirs", 0.3, 0.0), ("base", 0.3, 0.0)];
    let of = |count: usize| verdict(&Made { density: 4, prompts: 8, methods: &methods[..count], recorded: false, ..TWO }.page());
    let said = of(3);
    assert_eq!(said[0], "Whether the answers follow the weights is not known: too few weight vectors for so many methods.");
    let said = of(2);
    assert!(said[0].starts_with("The answers of ours (ρ = 0.") && said[0].ends_with(") follow the weights."), "{said:?}");
    // The p of a method with more weight vectors is lower, so it is not multiplied by three.
    let mut results = Made { methods: &methods, recorded: false, ..TWO }.results();
    let base = results.sweep.methods.iter_mut().find(|method| method.name == "base").unwrap();
    base.cells.retain(|cell| cell.configuration < 5);
    let said = verdict(&page(&results));
    assert!(said.iter().all(|sentence| !sentence.contains("too few weight vectors")), "{said:?}");
}

/// Permuting weight vectors that agree on the judged blades changes nothing.
#[test]
fn weight_vectors_that_agree_on_the_judged_blades_count_less() {
    const METHODS: &[(&str, f64, f64)] = &[("ours", 0.3, 0.0), ("base", 0.3, 0.0)];
    let of = |density: usize, methods: &'static [(&str, f64, f64)]| {
        let objectives =
            if density == 1 { &["calm", "terse", "kind", "plain", "deep"][..] } else { &["calm", "terse", "kind"][..] };
        let mut results = Made { objectives, density, methods, prompts: 8, recorded: false }.results();
        for cell in results.sweep.methods.iter_mut().flat_map(|method| &mut method.cells) {
            cell.scores.objectives[1..].fill(f64::NAN);
        }
        verdict(&page(&results)).swap_remove(0)
    };
    // One weight vector of five has the whole weight: the least p is 2·4!/5!.
    assert_eq!(of(1, &METHODS[..1]), "Whether the answers follow the weights is not known: too few weight vectors.");
    assert_eq!(of(1, METHODS), of(1, &METHODS[..1]));
    // Groups of one, two and three: the least p is 2·2!·3!/6!.
    assert!(of(2, &METHODS[..1]).ends_with(" follow the weights."));
    let said = of(2, METHODS);
    assert_eq!(said, "Whether the answers follow the weights is not known: too few weight vectors for so many methods.");
}

#[test]
fn weight_vectors_on_different_prompts_tell_little_of_steering() {
    let of = |keeps: fn(usize, u32) -> bool| {
        let mut results = Made { prompts: 12, methods: &[("ours", 0.3, 0.0)], recorded: false, ..TWO }.results();
        results.sweep.methods[0].cells.retain(|cell| keeps(cell.configuration, cell.prompt));
        let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
        let page = report.page("t", &results).unwrap();
        let notes = report.table("steering").unwrap().notes.join(" ");
        let share = notes.split_once("Weight vectors are judged on different prompts: ").map(|(_, rest)| rest.to_owned());
        let fact = page.html().unwrap().contains("weight vectors on different prompts");
        (verdict(&page).swap_remove(0), share, fact)
    };
    let refused =
        "Whether the answers follow the weights is not known: some weight vectors share fewer than half of their prompts.";
    let (said, share, fact) = of(|point, prompt| (point < 5) == (prompt < 6));
    assert_eq!((said.as_str(), fact), (refused, true));
    assert!(share.unwrap().starts_with("two of one method share as few as 0%."));
    // One prompt of seven in common is hardly better than none.
    let (said, share, _) = of(|point, prompt| prompt == 0 || (point < 5) == (prompt < 6));
    assert_eq!(said, refused);
    assert!(share.unwrap().starts_with("two of one method share as few as 14%."));
    // A judgement that failed is noted.
    let (said, share, fact) = of(|point, prompt| point != 0 || prompt != 0);
    assert!(said.ends_with(" follow the weights.") && !fact, "{said}");
    assert!(share.unwrap().starts_with("two of one method share as few as 91%."));
    assert_eq!(of(|_, _| true).1, None);
}

/// The p of n prompts is at least 2/2ⁿ.
#[test]
fn too_few_prompts_tell_nothing_of_f1() {
    let methods = [("ours", 0.3, 0.1), ("ours_no_cbn", 0.3, 0.0), ("hot", 0.3, 0.05), ("base", 0.3, 0.0)];
    let of = |count: usize, prompts: usize| verdict(&Made { prompts, methods: &methods[..count], ..TWO }.page());
    let holds = |said: &[String], expected: &str| assert!(said.iter().any(|own| own.starts_with(expected)), "{said:?}");
    holds(&of(3, 5), "Whether F1 of ours differs from that of hot is not known: fewer than six prompts.");
    holds(&of(3, 6), "In F1, ours is ahead of hot by 0.");
    holds(&of(4, 6), "Whether F1 of ours differs from that of hot and base is not known: too few prompts for so many methods.");
    holds(&of(4, 7), "In F1, ours is ahead of hot by 0.");
    // F1 and two axes are three tests.
    holds(&of(2, 5), "Whether normalisation changes its F1 is not known: fewer than six prompts.");
    holds(&of(2, 6), "Whether normalisation changes its F1 is not known: too few prompts for so many measures.");
    holds(&of(2, 7), "Normalisation raises its F1 by 0.");
}

#[test]
fn intervals_over_few_prompts_are_said_to_be_too_narrow() {
    const NOTE: &str = "Percentile intervals over fewer than 20 prompts are too narrow.";
    let methods = [("ours", 0.3, 0.1), ("ours_no_cbn", 0.3, 0.0), ("base", 0.3, 0.0)];
    let noted = |prompts: usize| {
        let results = Made { prompts, methods: &methods, recorded: false, ..TWO }.results();
        let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
        let own = report.tables.iter().filter(|table| table.notes.iter().any(|note| note.starts_with(NOTE)));
        let html = report.page("t", &results).unwrap().html().unwrap();
        let document = Document::parse(&html).unwrap();
        let said = document.elements("p").any(|p| p.text.starts_with(NOTE));
        (own.map(|table| table.id.clone()).collect::<Vec<_>>(), said)
    };
    let tables = ["methods", "axes", "normalization", "clustering"].map(str::to_owned).to_vec();
    assert_eq!([1, 2, 19, 20].map(noted), [(vec![], false), (tables.clone(), true), (tables, true), (vec![], false)]);
}

#[test]
fn the_interval_of_rho_is_said_to_be_of_this_many_prompts() {
    let html = TWO.page().html().unwrap();
    for symbol in ["r_s", "ρ"] {
        assert!(html.contains(&format!("The interval is of the {symbol} that this many prompts give on average.")), "{symbol}");
    }
}

#[test]
fn a_coefficient_that_some_resamples_lack_is_not_judged() {
    let mut results = Made { methods: &[("ours", 0.3, 0.0)], prompts: 8, recorded: false, ..TWO }.results();
    assert!(verdict(&page(&results))[0].ends_with(" follow the weights."));
    // Only the first prompt moves, and a third of the resamples lack it.
    for cell in results.sweep.methods[0].cells.iter_mut().filter(|cell| cell.prompt > 0) {
        cell.scores.objectives.fill(0.5);
    }
    let said = verdict(&page(&results)).swap_remove(0);
    let reason = "some resamples of the prompts have no ρ, so it has no interval";
    assert_eq!(said, format!("Whether the answers follow the weights is not known: {reason}."));
    // One prompt cannot be resampled, and the test decides.
    results.sweep.methods[0].cells.retain(|cell| cell.prompt == 0);
    assert!(verdict(&page(&results))[0].ends_with(") follow the weights."));
}

#[test]
fn weight_vectors_without_an_axis_are_counted() {
    let of = |missing: usize| {
        let mut results = Made { methods: &[("ours", 0.3, 0.0)], prompts: 8, recorded: false, ..TWO }.results();
        for cell in results.sweep.methods[0].cells.iter_mut().filter(|cell| cell.configuration < missing) {
            cell.scores.objectives[1] = f64::NAN;
        }
        verdict(&page(&results)).swap_remove(0)
    };
    assert!(of(0).ends_with("]) follow the weights."), "{}", of(0));
    let expected = "], at the 6 of 9 weight vectors with every axis) follow the weights.";
    assert!(of(3).ends_with(expected), "{}", of(3));
    let reason = "fewer than half of the weight vectors have every axis";
    assert_eq!(of(5), format!("Whether the answers follow the weights is not known: {reason}."));
}

#[test]
fn the_axes_of_rho_are_named_if_others_were_not_judged() {
    let names_axes = |results: &RawResults| verdict(&page(results)).iter().any(|sentence| sentence.contains(", over "));
    let mut results = TWO.results();
    assert!(!names_axes(&results));
    let hot = results.sweep.methods.iter_mut().find(|method| method.name == "hot").unwrap();
    hot.cells.iter_mut().for_each(|cell| cell.scores.objectives[0] = f64::NAN);
    assert!(names_axes(&results), "{:?}", verdict(&page(&results)));
}

#[test]
fn steering_is_drawn_on_the_axes_that_were_judged() {
    let drawn = |objectives: &'static [&'static str], is_blank: fn(usize) -> bool| {
        let mut results = Made { objectives, density: 4, recorded: false, ..TWO }.results();
        for cell in results.sweep.methods.iter_mut().flat_map(|method| &mut method.cells) {
            if is_blank(cell.configuration) {
                cell.scores.objectives[1] = f64::NAN;
            }
        }
        let html = page(&results).html().unwrap();
        let document = Document::parse(&html).unwrap();
        let charts = charts(&document);
        let points = |figure: &str, key: &str| -> Vec<usize> {
            traces(&charts, figure).iter().map(|trace| trace[key].as_array().unwrap().len()).collect()
        };
        let crossed = traces(&charts, "steering-crossed").first().map(|trace| trace["z"].to_string());
        assert!(charts.iter().all(|(_, chart)| !chart.to_string().contains("NaN")));
        let caption = document.text_of("figcaption").into_iter().find(|text| text.contains("rises from left to right")).unwrap();
        (points("weight-and-axis", "x"), points("steering-ternary", "a"), crossed, caption.to_owned())
    };
    let (followed, _, crossed, caption) = drawn(&["calm", "terse"], |_| true);
    assert!(followed == [5] && caption.contains("n = 5 weight vectors each."), "{followed:?} {caption}");
    assert!(crossed.clone().unwrap().ends_with("],[null,null]]") && !crossed.unwrap().starts_with("[[null"));
    let (followed, _, _, caption) = drawn(&["calm", "terse"], |point| point == 0);
    assert!(followed == [5, 4] && caption.contains("n = 5 (calm) and 4 (terse) weight vectors each."), "{followed:?} {caption}");
    let (followed, simplex, ..) = drawn(&["calm", "terse", "kind"], |_| true);
    assert_eq!((followed, simplex), (vec![15, 15], vec![15, 15]));
}

#[test]
fn responses_without_a_score_are_counted_apart() {
    let mut results = TWO.results();
    for cell in results.sweep.methods.iter_mut().flat_map(|method| &mut method.cells) {
        if cell.configuration == 0 || cell.prompt >= 4 {
            cell.scores.objectives.fill(f64::NAN);
        }
    }
    let lead = page(&results).lead;
    let expected = "96 judged responses, and 66 without a score: 3 methods (ours, hot, base) at 8 weight vectors on 4 prompts.";
    assert!(lead.starts_with(expected), "{lead}");
}

#[test]
fn a_rival_without_a_whole_cell_has_neither_rank_nor_examples() {
    let mut results = TWO.results();
    let hot = results.sweep.methods.iter_mut().find(|method| method.name == "hot").unwrap();
    hot.cells.iter_mut().for_each(|cell| cell.scores.objectives[1] = f64::NAN);
    let html = page(&results).html().unwrap();
    assert!(html.contains("rank 1 of 2") && !html.contains("rank 1 of 3"));
    assert!(html.contains("no examples: no prompt has every axis judged, in the reference and its rival at the same weights"));
    assert!(!html.contains("Give the records"));
}

/// Every difference in one axis is the same, so its test has another null distribution than that of
/// F1.
#[test]
fn the_tests_of_single_axes_name_their_null_distributions() {
    let methods = &[("ours", 0.3, 0.1), ("ours_no_cbn", 0.3, 0.0)];
    let mut results = Made { density: 2, methods, recorded: false, ..TWO }.results();
    for (method, terse) in results.sweep.methods.iter_mut().zip([0.6, 0.5]) {
        method.cells.iter_mut().for_each(|cell| cell.scores.objectives[1] = terse);
    }
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    let notes = |table: &str| report.table(table).unwrap().notes.join(" ");
    assert!(notes("contrasts").contains("zeros dropped, exact. "), "{}", notes("contrasts"));
    let said = "p: Wilcoxon signed-rank, two-sided, zeros dropped, exact where there are few differences, else normal";
    assert!(notes("normalization").contains(said), "{}", notes("normalization"));
}

#[test]
fn a_method_that_shares_no_whole_cell_is_not_compared() {
    let mut results = TWO.results();
    let unjudged = results.sweep.methods.iter_mut().find(|method| method.name == "base").unwrap();
    unjudged.cells.iter_mut().for_each(|cell| cell.scores.objectives[1] = f64::NAN);
    let said = verdict(&page(&results));
    let expected = "F1 of base cannot be compared: no prompt has every axis judged in both at the same weights.";
    assert!(said.contains(&expected.to_owned()), "{said:?}");
}

#[test]
fn normalisation_without_a_pair_is_not_known() {
    let methods = [("ours", 0.3, 0.1), ("ours_no_cbn", 0.3, 0.0)];
    let mut results = Made { methods: &methods, ..TWO }.results();
    let ours = results.sweep.methods.iter_mut().find(|method| method.name == "ours").unwrap();
    ours.cells.iter_mut().for_each(|cell| cell.prompt += 100);
    let said = verdict(&page(&results));
    let reason = "no prompt has every axis judged with and without it at the same weights";
    assert!(said.contains(&format!("Whether normalisation changes its F1 is not known: {reason}.")), "{said:?}");
}

#[test]
fn the_book_lists_every_table() {
    let page = include_str!("../../../docs/src/statistics.md");
    let report = Report::of(&TWO.results(), "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    for id in report.tables.iter().map(|table| &table.id) {
        let id = if id.starts_with("ablation-") { "ablation-NAME" } else { id };
        assert!(page.contains(&format!("`{id}`")), "docs/src/statistics.md has no row for the table {id}");
    }
}

#[test]
fn one_blade_has_headings_and_captions_of_its_own() {
    let results = Made { objectives: &["calm"], density: 1, ..TWO }.results();
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    for table in &report.tables {
        let mut headings: Vec<&str> = table.columns.iter().map(|column| column.heading.as_str()).collect();
        headings.sort_unstable();
        assert!(headings.windows(2).all(|pair| pair[0] != pair[1]), "{}: {headings:?}", table.id);
    }
    let one = Made { objectives: &["calm"], density: 1, methods: &[("ours", 0.3, 0.1), ("base", 0.0, 0.0)], ..TWO };
    assert!(one.page().html().unwrap().contains("Holm&#x27;s correction for 1 test."));
}

#[test]
fn a_statistic_without_a_test_has_no_p_value() {
    // All scores are one, so no difference has a sign.
    let page = Made { methods: &[("ours", 0.0, 2.0), ("same", 0.0, 2.0)], recorded: false, ..TWO }.page();
    let html = page.html().unwrap();
    assert!(!html.contains("p = NaN"), "{:?}", verdict(&page));
    assert!(verdict(&page).iter().any(|sentence| sentence.contains("cannot be told from same (0.00")), "{:?}", verdict(&page));
}

#[test]
fn a_method_has_one_colour_and_nothing_else_has_it() {
    let html = TWO.page().html().unwrap();
    let charts = charts(&Document::parse(&html).unwrap());
    let mut seen: Vec<&str> = Vec::new();
    for (figure, chart) in &charts {
        for trace in chart["data"].as_array().unwrap() {
            let Some(color) = trace["marker"]["color"].as_str() else { continue };
            let name = trace["name"].as_str().unwrap();
            // The reference has the first hue; the others follow in order of falling F1.
            match ["ours", "hot", "base"].iter().position(|method| *method == name) {
                Some(place) => {
                    assert_eq!(color, format!("@{place}"), "{name} in {figure}");
                    seen.push(figure);
                }
                None => assert!(color.starts_with("@tone-"), "{name} in {figure}: {color}"),
            }
        }
    }
    for figure in ["axes-by-method", "frontier-planes", "frontier-line", "weight-and-axis"] {
        assert!(seen.contains(&&*format!("figure-{figure}")), "{figure}");
    }
}

#[test]
fn frontiers_have_lines_and_intervals_and_say_what_they_are() {
    let html = TWO.page().html().unwrap();
    let document = Document::parse(&html).unwrap();
    let charts = charts(&document);
    let planes = traces(&charts, "frontier-planes");
    let stairs: Vec<&&Json> = planes.iter().filter(|trace| trace["line"]["shape"] == "vh").collect();
    assert_eq!((stairs.len(), planes.len()), (3, 6));
    let ours = planes.iter().find(|trace| trace["name"] == "ours").unwrap();
    for error in ["error_x", "error_y"] {
        assert!(ours[error]["array"].as_array().unwrap().iter().any(|length| length.as_f64().unwrap() > 0.0), "{error}");
    }
    let said = ours["hovertext"][0].as_str().unwrap();
    for part in ["<b>ours</b><br>weights: calm 1<br>calm (0 to 1): 0.", "<br>terse (0 to 1): 0.", ", 95% interval [0."] {
        assert!(said.contains(part), "{said} lacks {part}");
    }
    for (figure, error) in [("axes-by-method", "error_x"), ("frontier-line", "error_y"), ("weight-and-axis", "error_y")] {
        assert!(traces(&charts, figure).iter().all(|trace| trace[error]["array"].is_array()), "{figure}");
    }
    // The intervals of a figure are those of the table.
    let axes = document.csv("axes");
    let mut reader = csv::Reader::from_reader(axes.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |heading: &str| header.iter().position(|known| known == heading).unwrap();
    let row = reader.records().map(Result::unwrap).find(|row| &row[0] == "ours" && &row[1] == "1/0").unwrap();
    let [mean, high] = ["calm", "calm 95%, prompts high"].map(|heading| row[at(heading)].parse::<f64>().unwrap());
    assert!((ours["error_x"]["array"][0].as_f64().unwrap() - (high - mean)).abs() < 1e-12);
}

#[test]
fn heat_maps_mark_what_is_significant_and_say_so() {
    let html = Made { prompts: 10, ..TWO }.page().html().unwrap();
    let document = Document::parse(&html).unwrap();
    let charts = charts(&document);
    for figure in ["steering-map", "configuration-map", "steering-crossed"] {
        let texts = traces(&charts, figure)[1]["text"].as_array().unwrap().clone();
        let stars = texts.iter().filter(|text| text.as_str().unwrap().ends_with('*')).count();
        assert!(figure == "configuration-map" || (stars > 0 && stars <= texts.len()), "{figure}: {texts:?}");
    }
    let steering = traces(&charts, "steering-map");
    let texts = steering[1]["text"].as_array().unwrap();
    assert!(texts[..3].iter().all(|text| text.as_str().unwrap().ends_with('*')), "ours: {texts:?}");
    assert!(texts[3..].iter().all(|text| !text.as_str().unwrap().ends_with('*')), "the others: {texts:?}");
    let captions = document.text_of("figcaption");
    assert_eq!(captions.iter().filter(|caption| caption.contains("A star (*) marks") && caption.contains("Holm")).count(), 3);
    // The caption names the test.
    let names = |caption: &&&str| caption.contains("by permutation") || caption.contains("signed-rank test");
    assert_eq!(captions.iter().filter(|caption| caption.contains("A star (*) marks")).filter(names).count(), 3);
}

#[test]
fn a_name_from_right_to_left_does_not_turn_the_interval_after_it() {
    let page = Made { methods: &[("ours", 0.3, 0.1), ("בסיס", 0.0, 0.0)], prompts: 8, ..TWO }.page();
    let said = verdict(&page).join(" ");
    assert_eq!(said.matches("בסיס").count(), 2, "{said}");
    assert_eq!(said.matches("\u{2068}בסיס\u{2069}").count(), 2, "{said}");
    assert!(page.lead.contains("(ours, \u{2068}בסיס\u{2069}) at"), "{}", page.lead);
    let document = Document::parse(&page.html().unwrap()).unwrap();
    let captions = document.text_of("figcaption").join(" ");
    assert!(captions.contains("ours 72, \u{2068}בסיס\u{2069} 72"), "{captions}");
}

/// The script sorts the rows of the body.
#[test]
fn the_mean_and_the_range_of_a_column_stay_below_its_weight_vectors() {
    let document = Document::parse(&TWO.page().html().unwrap()).unwrap();
    let summaries = document.text_of("tfoot");
    assert_eq!(summaries.len(), 1);
    assert!(summaries[0].trim().starts_with("mean0.") && summaries[0].contains("range0."), "{}", summaries[0]);
    assert!(document.csv("configurations").contains("\n0/1,") && document.csv("configurations").contains("\nrange,"));
    assert!(document.text_of("tbody").iter().all(|rows| !rows.contains("range")));
}

#[test]
fn a_section_with_nothing_to_show_is_left_out_and_named() {
    let html = Made { recorded: false, methods: &[("ours", 0.3, 0.0)], ..TWO }.page().html().unwrap();
    let document = Document::parse(&html).unwrap();
    document.check_ids();
    let titles = document.text_of("h2");
    for absent in ["Ablations", "Mechanism", "The champion's choice", "Throughput", "What does not reproduce"] {
        assert!(!titles.contains(&absent), "{absent} in {titles:?}");
    }
    let missing: Vec<&str> = document.elements("p").filter(|p| p.class() == "missing").map(|p| p.text.as_str()).collect();
    let left_out = missing.iter().find(|text| text.starts_with("Left out: ")).unwrap();
    for part in ["Ablations (no arm without normalisation", "Throughput (no times", "Mechanism (no spreads"] {
        assert!(left_out.contains(part), "{left_out}");
    }
    // No section is empty.
    for section in document.elements("section").filter(|section| section.attribute("id") != Some("definitions")) {
        assert!(section.text.len() > 200, "{}", section.text);
    }
    let full = TWO.page().html().unwrap();
    assert!(Document::parse(&full).unwrap().text_of("h2").contains(&"Throughput"));
}

#[test]
fn one_method_is_compared_with_nothing() {
    let one = Made { objectives: &["calm"], density: 1, prompts: 1, methods: &[("ours", 0.3, 0.0)], recorded: false };
    let lead = "1 judged response: 1 method (ours) at 1 weight vector on 1 prompt. Scores are in [0, 1]";
    assert!(one.page().lead.starts_with(lead), "{}", one.page().lead);
    assert!(TWO.page().lead.contains("3 methods (ours, hot, base) at 9 weight vectors on 6 prompts. The others are compared"));
}

#[test]
fn prompts_go_by_their_text() {
    let html = TWO.page().html().unwrap();
    let document = Document::parse(&html).unwrap();
    assert!(!html.contains("id-1"), "the name of a prompt is shown");
    let named: Vec<&str> = document.elements("td").filter(|td| td.class() == "prompt").map(|td| td.text.as_str()).collect();
    assert!(!named.is_empty() && named.iter().all(|name| name.starts_with("Is this question ")), "{named:?}");
    let headings: Vec<&str> = document.text_of("h3").into_iter().filter(|text| text.starts_with("Among the best")).collect();
    assert!(headings[0].contains("weights: ") && headings[0].contains("“Is this question "), "{headings:?}");
}
