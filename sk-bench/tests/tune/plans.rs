//! What a plan may contain, and the error for each mistake in one.

use std::path::Path;

use sk_bench::Error;
use sk_bench::scheme::SchemeError;
use sk_bench::tune::{Dimension, Mode, ScoreSource, Scorer, TunePlan};

const PLAN: &str = "[prompts]\nsources = [\"tune.jsonl\"]\n[evaluation]\nsources = [\"later.jsonl\"]\n";

fn parse(more: &str) -> Result<TunePlan, Error> {
    TunePlan::parse(Path::new("plans/p.toml"), &format!("{PLAN}{more}"))
}

#[track_caller]
fn refused(more: &str, parts: &[&str]) {
    let error = parse(more).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn the_plans_of_the_book_are_read() {
    let page = include_str!("../../../docs/src/tuning.md");
    let plans: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(plans.len() > 1, "the page shows {} plans", plans.len());
    for text in plans {
        let plan = TunePlan::parse(Path::new("plans/book.toml"), text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        assert!(plan.output.starts_with("plans"), "paths are relative to the plan");
    }
}

#[test]
fn a_plan_without_a_word_is_the_papers_recipe_with_alpha() {
    let plan = parse("").unwrap();
    assert_eq!((plan.mode, &plan.scoring, plan.trials, plan.seed), (Mode::Each, &ScoreSource::Blades, 40, 42));
    assert_eq!(plan.space.dimensions().len(), Dimension::all().count());
    let names: Vec<&str> = plan.searches.iter().map(|search| search.name.as_str()).collect();
    let weights: Vec<String> = plan.searches.iter().map(|search| search.weights[0].to_string()).collect();
    assert_eq!(names.len(), 3, "a search per blade that ships");
    for (name, weights) in names.iter().zip(&weights) {
        assert!(weights.contains(&format!("{name}=1")), "{name} at {weights}");
    }
    let origin = plan.space.point_of(&plan.origin().unwrap()).unwrap();
    assert_eq!(origin, [0.25, 1.1, 1.75, 0.2, 5.0, 12.0, 0.5], "the operating point of the scheme on the model that ships");
    let fixed = parse("[space]\nfixed = [\"alpha\"]\ntemperature = [0.5, 4]\n").unwrap();
    assert_eq!(fixed.space.dimensions().len(), 6);
    assert_eq!(fixed.space.dimensions()[0].range(), (0.5, 4.0));
    let together = parse("[tune]\nsearch = \"together\"\n").unwrap();
    assert_eq!((together.searches.len(), together.searches[0].objectives.len()), (1, 3));
    let equal = together.searches[0].weights[0].by_name().values().copied().collect::<Vec<_>>();
    assert!(equal.iter().all(|weight| (weight - 1.0 / 3.0).abs() < 1e-12), "{equal:?}");
}

#[test]
fn an_objective_is_scored_by_the_axis_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let own = "[[objectives]]\nname = \"depth\"\nblade = \"deep\"\n[[rubrics]]\nname = \"depth\"\n\
        criterion = \"How deep is it?\"\nlow = \"flat\"\nmiddle = \"so so\"\nhigh = \"deep\"\n";
    std::fs::write(folder.path().join("own.toml"), own).unwrap();
    let judge = "[judge]\nendpoint = \"http://localhost:1/v1\"\nobjectives = \"own.toml\"\n";
    let plan = format!("{PLAN}{judge}[objectives.depth]\nweights = [{{ helpful = 1 }}]\n");
    let plan = TunePlan::parse(&folder.path().join("p.toml"), &plan).unwrap();
    assert_eq!(plan.searches[0].objectives[0].axis.as_deref(), Some("depth"));
}

#[test]
fn an_objective_of_a_judge_is_searched_at_the_vertex_of_the_blade_that_it_names() {
    let plan = parse("[judge]\noffline = true\n[objectives.quality]\n[objectives.helpful]\naxis = \"safety\"\n").unwrap();
    let vertices: Vec<String> = plan.searches.iter().map(|search| search.weights[0].to_string()).collect();
    let at = |name: &str| vertices.iter().filter(|weights| weights.contains(&format!("{name}=1"))).count();
    assert_eq!((vertices.len(), at("helpful"), at("harmless")), (2, 2, 0), "{vertices:?}");
}

#[test]
fn an_axis_that_the_offline_judge_cannot_score_is_refused_before_the_search() {
    let folder = tempfile::tempdir().unwrap();
    let rubric = |name: &str, more: &str| {
        format!(
            "[[objectives]]\nname = \"{name}\"\n[[rubrics]]\nname = \"{name}\"\ncriterion = \"How {name} is it?\"\n\
             low = \"not\"\nmiddle = \"so so\"\nhigh = \"very\"\n{more}"
        )
    };
    let own = rubric("kind", "model = \"harmless\"\n") + &rubric("fine", "");
    std::fs::write(folder.path().join("own.toml"), own).unwrap();
    let plan = |name: &str| {
        let judge = "[judge]\noffline = true\nobjectives = \"own.toml\"\n";
        let plan = format!("{PLAN}{judge}[objectives.{name}]\nweights = [{{ helpful = 1 }}]\n");
        TunePlan::parse(&folder.path().join("p.toml"), &plan).unwrap()
    };
    assert!(Scorer::of(&plan("kind")).is_ok());
    let error = Scorer::of(&plan("fine")).err().unwrap().to_string();
    assert!(error.contains("axis \"fine\"") && error.contains("no rubric of it names a preference model"), "{error}");
}

#[test]
fn a_scheme_that_lists_its_blades_is_searched_at_their_vertices() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = include_str!("../../../sk-scheme/schemes/swiss-knife.toml");
    std::fs::write(folder.path().join("own.toml"), format!("{shipped}\n[blades.helpful]\n")).unwrap();
    let plan = TunePlan::parse(&folder.path().join("p.toml"), &format!("{PLAN}[scheme]\nscheme = \"own.toml\"\n")).unwrap();
    let searches: Vec<String> = plan.searches.iter().map(|search| search.weights[0].to_string()).collect();
    assert_eq!(searches, ["helpful=1"]);
}

#[test]
fn the_options_of_a_plan_are_its_scheme() {
    let options = |more: &str| parse(more).unwrap().scheme_option();
    assert_eq!(options(""), "--scheme swiss-knife");
    let other = "[scheme]\npreset = \"harmlessness\"\nconvention = \"paper\"\nset = [\"granularity.span_tokens=8\"]\n";
    let expected = "--scheme swiss-knife --preset harmlessness --convention paper --set granularity.span_tokens=8";
    assert_eq!(options(other), expected);
    // The options are words of a shell.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("my scheme.toml"), include_str!("../../../sk-scheme/schemes/swiss-knife.toml")).unwrap();
    let plan = format!("{PLAN}[scheme]\nscheme = \"my scheme.toml\"\n");
    let plan = TunePlan::parse(&folder.path().join("p.toml"), &plan).unwrap();
    assert_eq!(plan.scheme_option(), format!("--scheme '{}'", folder.path().join("my scheme.toml").display()));
}

#[test]
fn mistakes_are_named() {
    refused("[tun]\n", &["unknown section \"tun\"", "did you mean \"tune\"?"]);
    refused("[tune]\ntrails = 3\n", &["unknown field of [tune] \"trails\"", "trials"]);
    refused("[tune]\ntrials = 0\n", &["trials and startup are at least 1"]);
    refused("[tune]\ntrials = 9223372036854775807\n", &["trials is 9223372036854775807", "at most 100000"]);
    refused("[tune]\noutput = \"\"\n", &["output is empty"]);
    refused("[tune]\noutput = \"out.v1\"\n", &["p.toml:", "output is \"out.v1\"", "must end in .jsonl"]);
    refused("[tune]\nsearch = \"all\"\n", &["unknown search \"all\""]);
    refused("[space]\ntemperature = 3\n", &["space.temperature", "two numbers such as [0.5, 2]"]);
    refused("[space]\nalpha = [0, 2]\n", &["alpha is searched in [0, 2]", "in [0, 1]"]);
    refused("[space]\nfixed = [\"beta\"]\n", &["unknown number \"beta\""]);
    refused("[space]\nfixed = [\"alpha\"]\nalpha = [0, 1]\n", &["alpha is fixed and has a range"]);
    let all = "[\"temperature\", \"w_tour\", \"w_blade\", \"lambda\", \"rounds\", \"candidates\", \"alpha\"]";
    refused(&format!("[space]\nfixed = {all}\n"), &["nothing is left to search"]);
    refused(
        "[scheme]\nscheme = \"swiss-knife-thurstone\"\n",
        &["p.toml: no [space] section", "rounds: ", "--rounds", "thurstone", "write fixed = [\"rounds\"]"],
    );
    refused(
        "[scheme]\nscheme = \"swiss-knife-thurstone\"\n[space]\nalpha = [0, 1]\n",
        &["p.toml:7:", "[space]", "--rounds", "write fixed = [\"rounds\"]"],
    );
    refused("[space]\nlambda = [-5, 1]\n", &["p.toml:5:", "[space]", "lambda is -5", "a range that the scheme allows"]);
    refused("[objectives.kind]\n", &["objective \"kind\"", "give it weights"]);
    refused(
        "[objectives.x]\nblade = \"helpfull\"\n",
        &["objective \"x\"", "unknown blade \"helpfull\"", "did you mean \"helpful\"?"],
    );
    refused(
        "[objectives.x]\nblade = \"harmless\"\nweights = [{ helpful = 1 }]\n",
        &["blade \"harmless\" has no positive weight in helpful=1"],
    );
    refused(
        "[objectives.helpful]\nweights = [{ helpful = 1 }, { helpful = 2, honest = 0 }]\n",
        &["p.toml:5:", "are there twice"],
    );
    assert!(parse("[objectives.helpful]\nweights = [{ helpful = 1 }, { helpful = 1, honest = 1 }]\n").is_ok());
    refused("[model.blades]\n\"../out\" = \"adapters/out\"\n", &["blade \"../out\"", "part of a file name"]);
    refused("[objectives.harmless]\naxis = \"safety\"\n", &["[judge]"]);
    refused("[judge]\n", &["name an endpoint", "offline = true"]);
    refused("[judge]\nendpint = \"http://localhost\"\n", &["endpint", "did you mean \"endpoint\"?"]);
    refused("[judge]\nendpoint = \"http://localhost:1/v1\"\nattempts = 0\n", &["attempts is 0", "at least 1"]);
    refused(
        "[judge]\nendpoint = \"http://localhost:1/v1\"\nconcurrency = 1000000\n",
        &["concurrency is 1000000", "at most 1024"],
    );
    refused("[judge]\nmodels = \"judge\"\n", &["add offline = true"]);
    refused("[judge]\noffline = true\nendpoint = \"http://localhost:1/v1\"\n", &["unknown field of [judge] \"endpoint\""]);
    refused(
        "[judge]\nendpoint = \"http://localhost:1/v1\"\n[objectives.kind]\nweights = [{ helpful = 1 }]\n",
        &["axis = ", "the judge's are \"quality\", \"safety\", \"honesty\""],
    );
    refused("[weights]\nkind = \"paper\"\n", &["every objective has its own weights"]);
    refused(
        "[tune]\nsearch = \"together\"\n[objectives.helpful]\nweights = [{ helpful = 1 }]\n",
        &["all objectives use [weights]"],
    );
    for (section, text) in [("prompts", "[evaluation]\nsources = [\"a\"]\n"), ("evaluation", "[prompts]\nsources = [\"a\"]\n")] {
        let error = TunePlan::parse(Path::new("p.toml"), text).unwrap_err();
        assert!(matches!(error, Error::Scheme(SchemeError::Missing { section: found, .. }) if found == section), "{error}");
    }
}
