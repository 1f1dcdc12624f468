use std::path::{Path, PathBuf};

use sk_core::{HeadKind, OperatingPoint, Simplex};
use toml::Table;

use crate::*;

fn reference(convention: Convention) -> SchemeSpec {
    SchemeSpec::reference(Base { convention, ..Base::default() })
}

fn overlaid(text: &str) -> Result<SchemeSpec, SchemeError> {
    let mut config = reference(Convention::Sound);
    config.overlay("test.toml", text, Path::new("schemes"))?;
    Ok(config)
}

#[test]
fn what_a_file_leaves_out_stays_as_it_was() {
    assert_eq!(overlaid("").unwrap(), reference(Convention::Sound));
    let config = overlaid("[selector]\ntemperature = 2\n[aggregator]\nkind = \"round-robin\"\np = inf\n").unwrap();
    let SelectorRule::Champion(champion) = &config.selector.rule else { panic!("{:?}", config.selector) };
    assert_eq!((champion.temperature, champion.w_blade), (2.0, OperatingPoint::HHH.w_blade));
    let AggregatorSpec::RoundRobin(family) = &config.aggregator else { panic!("{:?}", config.aggregator) };
    assert_eq!((family.link, family.p), (LinkSpec::Probit, f64::INFINITY));
    assert_eq!(config.proposal, reference(Convention::Sound).proposal);
}

#[test]
fn every_link_of_the_library_has_a_name() {
    let rated = |link: &str| {
        let config = overlaid(&format!("[aggregator]\nkind = \"round-robin\"\n{link}\nstandardize = false\n"))?;
        let mut ratings = [f64::NAN; 2];
        config.aggregator.build().unwrap().rate(&sk_core::Batch::trusted(&[2.0, 0.0], &[0.6, 0.8]), &mut ratings);
        Ok::<_, SchemeError>((ratings[0], config.summary().aggregator))
    };
    // Σσ² = 1, so u = 2: each link at 2.
    let links = [
        ("link = \"probit\"", 0.477_249_868_051_820_8, "thurstone, raw"),
        ("link = \"logistic\"", 1.0 / (1.0 + (-2.0_f64).exp()) - 0.5, "round-robin (logistic, p = 2), raw"),
        ("link = \"tanh\"", 2.0_f64.tanh(), "round-robin (tanh, p = 2), raw"),
        ("link = \"laplace\"", 0.5 * (1.0 - (-2.0_f64).exp()), "round-robin (laplace, p = 2), raw"),
        // F(u) − ½ = atan(u)/π at one degree of freedom, u/(2√(2 + u²)) at two.
        ("link = \"student-t\"\nnu = 1", 2.0_f64.atan() / std::f64::consts::PI, "round-robin (student-t 1, p = 2), raw"),
        ("link = \"student-t\"\nnu = 2", 1.0 / 6.0_f64.sqrt(), "round-robin (student-t 2, p = 2), raw"),
        ("link = \"asinh\"", 2.0_f64.asinh(), "asinh, raw"),
        ("link = \"signed-log\"", 3.0_f64.ln(), "round-robin (signed-log, p = 2), raw"),
        ("link = \"identity\"", 2.0, "round-robin (identity, p = 2), raw"),
    ];
    let aggregator = schema::section("aggregator");
    for link in schema::choices(&schema::fields(aggregator, &Table::new()).unwrap()["link"]) {
        assert!(links.iter().any(|(text, ..)| text.starts_with(&format!("link = \"{link}\""))), "{link} is not tested here");
    }
    for (text, g, words) in links {
        let (rating, said) = rated(text).unwrap();
        assert!((rating - g).abs() < 1e-12, "{text}: {rating}");
        assert_eq!(said, words);
    }
    for (text, said) in [
        ("link = \"studentt\"", "test.toml:3: unknown link \"studentt\"; did you mean \"student-t\"?"),
        ("link = \"student-t\"\nnu = 0", "nu is 0; it must be finite and at least 0.1"),
        ("link = \"probit\"\nnu = 3", "test.toml:4: unknown field of [aggregator] \"nu\"; it needs link = \"student-t\""),
        ("p = 0.5", "p is 0.5; it must be at least 1"),
        ("p = \"foo\"", "expected a number or \"inf\", found a string"),
    ] {
        let error = rated(text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_field_of_another_choice_says_which_choice_it_needs() {
    for (text, said) in [
        ("[aggregator]\nkind = \"round-robin\"\nnu = 3\n", "\"nu\"; it needs link = \"student-t\""),
        ("[aggregator]\nkind = \"thurstone\"\nnu = 3\n", "\"nu\"; it needs link = \"student-t\""),
        ("[aggregator]\nnu = 3\n", "kind \"swiss-elo\" has no nu; use kind = \"round-robin\" and link = \"student-t\""),
        (
            "[aggregator]\nkind = \"divergence-mixture\"\ndivergence = \"reverse-kl\"\ndivergence_alpha = 0.5\n",
            "\"divergence_alpha\"; it needs divergence = \"alpha\"",
        ),
        ("[blades.calm]\nlikelihood = \"summed\"\n", "\"likelihood\"; it needs the field guided"),
        ("[selector.gates.f]\non = \"fluency\"\nthreshold = 1\nkappa = 1\n", "on \"fluency\" has no kappa; use on = \"blade\""),
    ] {
        let error = overlaid(text).unwrap_err().to_string();
        assert!(error.ends_with(said), "{error}");
    }
}

/// Errors and the JSON Schema say which choice such a field needs.
#[test]
fn a_field_that_only_some_choices_have_depends_on_them() {
    let table = |tags: &[(&str, &str)]| tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).into())).collect();
    for slot in schema::SLOTS {
        let section = schema::section(slot);
        for kind in schema::kinds(slot, section) {
            // The members of the round-robin family have its fields.
            let Some(all) = schema::fields(section, &table(&[("kind", &kind)])) else { continue };
            for (field, choice) in
                all.iter().flat_map(|(field, property)| schema::choices(property).into_iter().map(move |choice| (field, choice)))
            {
                let chosen = schema::fields(section, &table(&[("kind", &kind), (field, choice)])).unwrap();
                for other in all.keys().filter(|other| !chosen.contains_key(*other)) {
                    let is_listed =
                        schema::DEPENDENT.iter().any(|(name, on, _)| (name, on) == (&other.as_str(), &field.as_str()));
                    assert!(is_listed, "{slot}.{other} is no field of {field} = \"{choice}\"; add it to DEPENDENT");
                }
            }
        }
    }
}

/// The champion's temperature is for standardised logits.
#[test]
fn selectors_do_not_take_over_the_temperature_of_the_champion() {
    for kind in schema::kinds("selector", schema::section("selector")) {
        let spec = overlaid(&format!("[selector]\nkind = \"{kind}\"\n")).unwrap();
        let temperature = Parameter::named("temperature").unwrap().get(&spec);
        assert!(kind == "champion" || [None, Some(1.0)].contains(&temperature), "{kind}: {temperature:?}");
    }
}

#[test]
fn a_misspelt_field_is_blamed_before_those_that_depend_on_it() {
    for (text, said) in [
        (
            "[proposal]\nhead_k = 5\nkidn = \"vocabulary\"\n",
            "test.toml:3: unknown field of [proposal] \"kidn\"; did you mean \"kind\"?",
        ),
        (
            "[blades.a]\nkind = \"divergence-ratio\"\ndivergence_alpha = 0.5\ndivergnece = \"alpha\"\n",
            "test.toml:4: unknown field of [blades.a] \"divergnece\"; did you mean \"divergence\"?",
        ),
        ("[selector]\nw_tuor = 1\nlamda = 1\n", "test.toml:2: unknown field of [selector] \"w_tuor\"; did you mean \"w_tour\"?"),
    ] {
        assert_eq!(overlaid(text).unwrap_err().to_string(), said);
    }
}

#[test]
fn abbreviations_and_gates_are_suggested_as_other_fields_are() {
    for (text, said) in [
        (
            "[normalizer]\nconvetnion = \"paper\"\n",
            "test.toml:2: unknown field of [normalizer] \"convetnion\"; did you mean \"convention\"?",
        ),
        (
            "[normalizer]\nkind = \"rank\"\nconvention = \"paper\"\n",
            "\"convention\"; kind \"rank\" has no convention; use kind = \"cbn\"",
        ),
        ("[selector.gtaes.x]\nthreshold = 0\n", "unknown field of [selector] \"gtaes\"; did you mean \"gates\"?"),
        (
            "[selector.gates.safe]\nthreshodl = 0\n",
            "test.toml:2: unknown field of [selector.gates.safe] \"threshodl\"; did you mean \"threshold\"?",
        ),
    ] {
        let error = overlaid(text).unwrap_err().to_string();
        assert!(error.ends_with(said), "{error}");
    }
}

#[test]
fn a_number_in_quotes_is_not_taken_for_a_choice() {
    for (text, said) in [
        (
            "[granularity]\nspan_tokens = \"32\"\n",
            "granularity.span_tokens: expected a whole number that is not negative or \"unlimited\", found a string",
        ),
        (
            "[selector.gates.safe]\nthreshold = \"x\"\n",
            "selector.gates.safe.threshold: expected a number, \"inf\" or \"-inf\", found a string",
        ),
        ("[granularity]\nspan_tokens = true\n", "or \"unlimited\", found a boolean"),
        ("[proposal]\ncandidates = \"7\"\n", "expected a whole number that is not negative, found a string"),
        ("[selector]\nconvention = \"papr\"\n", "unknown convention \"papr\"; did you mean \"paper\"?"),
        ("[selector]\nconvention = 3\n", "expected a string, found 3"),
        // Numbers are shown as they are written.
        ("[proposal]\ncandidates = 2e0 # two\n", "expected a whole number that is not negative, found 2e0"),
        ("[selector]\nconvention = 0x1_0\n", "expected a string, found 0x1_0"),
    ] {
        let error = overlaid(text).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:2: ") && error.ends_with(said), "{error}");
    }
}

#[test]
fn a_value_that_is_no_slot_is_unknown_by_name() {
    let error = overlaid("base = \"mod\"\n").unwrap_err().to_string();
    assert!(error.starts_with("test.toml:1: unknown slot \"base\"; "), "{error}");
}

#[test]
fn the_fluency_blade_is_no_template() {
    let said = "[blades.*]: the fluency blade is no template; give it a name, such as [blades.fluency]";
    let error = overlaid("[blades.\"*\"]\nkind = \"fluency\"\n").unwrap_err().to_string();
    assert_eq!(error, format!("test.toml:1: {said}"));
    let mut spec = reference(Convention::Sound);
    let error = spec.amend("--set", "[blades.\"*\"]\nkind = \"fluency\"\n").unwrap_err().to_string();
    assert_eq!(error, format!("--set: {said}"));
}

#[test]
fn errors_of_range_name_the_line_of_the_value() {
    for (text, said) in [
        ("[selector]\n\n\ntemperature = -3\n", "test.toml:4: [selector]: temperature is -3; "),
        ("[granularity]\n\nspan_tokens = 0\n", "test.toml:3: [granularity]: span_tokens is 0; "),
        ("[proposal]\ntop_k = 5\ncandidates = 0\n", "test.toml:3: [proposal]: candidates is 0; "),
        ("[blades.calm]\nweight = 1\nbeta = -1\n", "test.toml:3: [blades.calm]: beta is -1; "),
        ("[selector.gates.safe]\n\nthreshold = nan\n", "test.toml:3: [selector.gates.safe]: threshold is NaN; "),
        ("[blades.calm]\n\nkind = \"ensemble\"\n", "test.toml:1: [blades.calm]: "),
    ] {
        let error = overlaid(text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn errors_of_range_name_the_field_of_the_file() {
    for (text, said) in [
        (
            "[aggregator]\nkind = \"divergence-mixture\"\ndivergence = \"alpha\"\ndivergence_alpha = -1\n",
            "divergence_alpha is -1",
        ),
        ("[selector]\ntop_p = 0\n", "top_p is 0"),
        ("[aggregator]\nrounds = 0\n", "rounds is 0"),
        ("[granularity]\nkind = \"entropy\"\nentropy = inf\n", "entropy is inf"),
        ("[search]\nkind = \"accept\"\nscore = -inf\n", "score is -inf"),
        ("[fallback]\nkind = \"backbone\"\nthreshold = inf\n", "threshold is inf"),
        ("[weighting]\nkind = \"max-min\"\ntemperature = -1\n", "temperature is -1"),
    ] {
        let error = overlaid(text).unwrap_err().to_string();
        assert!(error.contains(&format!("]: {said}; it must be")), "{error}");
    }
}

#[test]
fn integers_are_read_in_every_base_and_refused_beyond_64_bits() {
    let rounds = |text: &str| overlaid(&format!("[aggregator]\nrounds = {text}\n"));
    for (text, value) in [("0x10", 16), ("0o17", 15), ("0b11", 3), ("1_000", 1000)] {
        let AggregatorSpec::SwissElo(tournament) = rounds(text).unwrap().aggregator else { panic!("another kind") };
        assert_eq!(tournament.rounds, value, "{text}");
    }
    for text in ["9223372036854775808", "0xffffffffffffffff"] {
        assert_eq!(rounds(text).unwrap_err().to_string(), format!("test.toml:2: {text} does not fit in 64 bits"));
    }
    assert_eq!(
        overlaid("selector = 3\n").unwrap_err().to_string(),
        "test.toml:1: selector: a slot is a table such as [selector], not an integer"
    );
}

/// Selects from ratings 3, 2, 1 and raw scores of two blades, of which only the first has weight.
fn selected(config: &SchemeSpec) -> Vec<f64> {
    let table = sk_core::ScoreTable::new([([0.3, 0.2, 0.1], [0.0; 3]), ([-1.0, 0.0, 1.0], [0.5, 0.5, 0.1])]).unwrap();
    let table = table.with_names(["calm", "safe"]).unwrap();
    let batch = sk_core::Batch::trusted(table.mu(0), table.sigma(0)).with_blades(&table);
    let mut p = vec![f64::NAN; 3];
    config.selector.build().unwrap().distribution(&[3.0, 2.0, 1.0], &batch, &mut p);
    p
}

#[test]
fn gates_are_named_after_blades_and_stand_before_the_selection() {
    let gated = |gates: &str| selected(&overlaid(&format!("[selector]\nkind = \"argmax\"\n{gates}")).unwrap());
    assert_eq!(gated(""), [1.0, 0.0, 0.0]);
    assert_eq!(gated("[selector.gates.safe]\nthreshold = -0.2\n"), [0.0, 1.0, 0.0]);
    assert_eq!(gated("[selector.gates.safe]\nthreshold = -0.2\nkappa = 1\n"), [0.0, 0.0, 1.0]);
    assert_eq!(gated("[selector.gates.safe]\nthreshold = 5\n"), [0.0, 0.0, 1.0]);
    assert_eq!(gated("[selector.gates.safe]\nthreshold = 5\nfallback = \"open\"\n"), [1.0, 0.0, 0.0]);
    let both = "[selector.gates.floor]\non = \"score\"\nthreshold = 0.15\n[selector.gates.safe]\nthreshold = -0.2\n";
    assert_eq!(gated(both), [0.0, 1.0, 0.0]);
    assert_eq!(gated("[selector.gates.low]\non = \"rating\"\nthreshold = 3\n"), [1.0, 0.0, 0.0]);
    assert_eq!(overlaid(both).unwrap().selector.build().unwrap().blades(), ["safe".into()]);
    let fluent = "[selector.gates.floor]\non = \"fluency\"\nthreshold = 1\n[blades.calm]\nadapter = \"calm\"\n";
    let unseated = overlaid(fluent).unwrap().alignment().unwrap_err().to_string();
    assert!(unseated.starts_with("[selector.gates.floor]: no blade of kind \"fluency\" is seated"), "{unseated}");
    assert!(overlaid(&format!("{fluent}[blades.b0]\nkind = \"fluency\"\n")).unwrap().alignment().is_ok());
    for (text, said) in [
        ("[selector.gates.safe]\nkappa = 1\n", "[selector.gates.safe]: missing field `threshold`"),
        ("[selector.gates.safe]\nthreshold = nan\n", "threshold is NaN; it must be a number"),
        ("[selector]\ngates = 3\n", "expected tables by name"),
        ("[selector.gates.safe]\nthreshold = 1\non = \"rating\"\nkappa = 1\n", "kappa"),
    ] {
        let error = overlaid(text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// The multiplier of a constraint is solved for scores on their own scale, and the candidates are
/// drawn on that scale.
#[test]
fn a_constraint_of_the_dual_holds_in_expectation() {
    let mut spec = SHIPPED.iter().find(|scheme| scheme.name == "satisficing").unwrap().spec().unwrap();
    const THRESHOLD: f64 = -0.1;
    spec.overlay("test.toml", &format!("[selector.gates.harmless]\nthreshold = {THRESHOLD}\n"), Path::new("schemes")).unwrap();
    let safe = [-0.3, -0.12, -0.02];
    let table = sk_core::ScoreTable::new([([0.25, 0.2, 0.18], [0.0; 3]), (safe, [0.0; 3])]).unwrap();
    let table = table.with_names(["helpful", "harmless"]).unwrap();
    let selector = std::sync::Arc::new(sk_select::Softmax::new(0.01).unwrap());
    let operators = sk_core::Operators { selector, ..spec.operators().unwrap() };
    let decision = operators.decide(&table, &[1.0, 0.0], None, 0.5, None).unwrap();
    assert!(decision.weights[1] > 0.1, "the constraint is active: {:?}", decision.weights);
    let expected: f64 = decision.probabilities.iter().zip(safe).map(|(p, score)| p * score).sum();
    assert!((expected - THRESHOLD).abs() < 1e-6, "{expected}");
}

#[test]
fn each_standardisation_is_switched_alone() {
    let mut published = reference(Convention::Sound);
    let scores = sk_core::ScoreTable::new([([6.0, 2.0, 1.0], [1.0, 2.0, 0.0]), ([-30.0, 0.0, 50.0], [5.0, 5.0, 1.0])]).unwrap();
    let fluency = [-2.0, -1.0, -4.0];
    // Returns composite, rating and probability. Each standardisation changes its own stage and the
    // later ones, but not the earlier ones.
    let run = |config: &SchemeSpec| {
        let (mut composite, mut ratings, mut p) = (sk_core::Composite::default(), vec![0.0; 3], vec![0.0; 3]);
        config.normalizer.build().unwrap().combine(&scores, &Simplex::uniform(2).unwrap(), &mut composite);
        let batch = sk_core::Batch::trusted(&composite.mu, &composite.sigma).with_trusted_fluency(&fluency);
        config.aggregator.build().unwrap().rate(&batch, &mut ratings);
        config.selector.build().unwrap().distribution(&ratings, &batch, &mut p);
        (composite.mu.clone(), ratings, p)
    };
    published.overlay("kind.toml", "[aggregator]\nkind = \"thurstone\"\n", Path::new("")).unwrap();
    let switched = |text: &str| {
        let mut config = published.clone();
        config.overlay("off.toml", text, Path::new("")).unwrap();
        run(&config)
    };
    let (mu, ratings, p) = run(&published);
    let first = switched("[normalizer]\nkind = \"raw\"\n");
    assert_eq!(first.0, [-12.0, 1.0, 25.5]);
    let second = switched("[aggregator]\nstandardize = false\n");
    assert!(second.0 == mu && second.1 != ratings);
    let third = switched("[selector]\nstandardize = false\n");
    assert!(third.0 == mu && third.1 == ratings && third.2 != p);
    assert_eq!(switched("[aggregator]\nstandardize = true\n[selector]\nstandardize = true\n"), (mu, ratings, p));
}

#[test]
fn normalisation_is_set_number_by_number() {
    let cbn = |text: &str| overlaid(text).unwrap().normalizer;
    let text = "[normalizer]\nconvention = \"paper\"\ndeviation = \"population\"\ncorrelations = [[\"a\", \"b\", -0.5]]\n";
    let (deviation, dispersion_unit) = (Deviation::Population, DispersionUnit::Own);
    assert_eq!(cbn(text).rule, NormalizerRule::Cbn { deviation, epsilon: 1e-6, dispersion_unit });
    let correlations = vec![("a".to_owned(), "b".to_owned(), -0.5)];
    assert_eq!(cbn(text).propagation, PropagationSpec::Correlated { correlations });
    assert!(cbn("[normalizer]\ncorrelations = []\n").build().is_ok());
    let mut layered = overlaid(text).unwrap();
    layered.amend("--set", "[normalizer]\npropagation = \"independent\"\n").unwrap();
    assert_eq!(layered.normalizer.propagation, PropagationSpec::Rule { propagation: PropagationRule::Independent });
    let normalizer = cbn("[normalizer]\nepsilon = 0.5\ndispersion_unit = \"own\"\n");
    assert_eq!(normalizer.rule, NormalizerRule::Cbn { deviation: Deviation::Sample, epsilon: 0.5, dispersion_unit });
    assert_eq!(normalizer.propagation, PropagationSpec::Rule { propagation: PropagationRule::Linear });
    for (text, said) in [
        ("epsilon = -1\n", "epsilon is -1"),
        ("correlations = [[\"a\", \"b\"]]\n", "expected a list such as"),
        ("correlations = [[\"a\", \"a\", 0]]\n", "blade \"a\" is paired with itself"),
        ("correlations = [[\"a\", \"b\", 2]]\n", "it must be in [-1, 1]"),
        ("correlations = [[\"a\", \"b\", 0.5]]\npropagation = \"linear\"\n", "correlations replace propagation"),
        (
            "correlations = [[\"a\", \"b\", -0.6], [\"a\", \"c\", -0.6], [\"c\", \"b\", -0.6], [\"d\", \"a\", 0]]\n",
            "the errors of blades a, b, c cannot all be correlated like this",
        ),
        ("kind = \"raw\"\nepsilon = 1\n", "epsilon"),
    ] {
        let error = overlaid(&format!("[normalizer]\n{text}")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_conventions_differ_where_the_published_runs_do() {
    let (paper, sound) = (reference(Convention::Paper), reference(Convention::Sound));
    let (published, ours) = (paper.proposal.draft().unwrap(), sound.proposal.draft().unwrap());
    assert_eq!((published.top_k, published.repetition_penalty), (50, 1.05));
    assert!(!published.keep_end_of_text && ours.keep_end_of_text);
    assert_eq!(paper.granularity.span_tokens().map(std::num::NonZeroUsize::get), Some(512));
    assert!([&paper, &sound].iter().all(|spec| matches!(spec.granularity, GranularitySpec::BlankLine { .. })));
    paper.aggregator.build().unwrap();
    paper.selector.build().unwrap();
}

#[test]
fn listed_blades_replace_the_default_ones_in_the_order_of_the_file() {
    let text = "[blades.z]\nadapter = \"z\"\nweight = 3\n[blades.a]\nadapter = \"/a\"\nweight = 1\nbeta = 0.5\n[blades.b0]\nkind = \"fluency\"\n";
    let mut config = overlaid(text).unwrap();
    assert!(config.template.is_none());
    let adapters: Vec<_> = config.adapters().map(|(name, path)| (name, path.cloned())).collect();
    assert_eq!(adapters, [("z".to_owned(), Some(PathBuf::from("schemes/z"))), ("a".to_owned(), Some(PathBuf::from("/a")))]);
    let spec = config.alignment().unwrap();
    assert_eq!((spec.weight("z"), spec.weight("a"), spec.weight("b0")), (Some(0.75), Some(0.25), None));
    config.seat("late");
    assert_eq!(config.alignment().unwrap().weight("late"), Some(0.0));
    assert!(matches!(overlaid("[blades]\n").unwrap().alignment(), Err(SchemeError::NoBlade)));
}

#[test]
fn blades_are_amended_field_by_field() {
    let amended = |scheme: &str, text: &str| {
        let mut config = Shipped::named(scheme).unwrap().spec().unwrap();
        config.amend("--set", text).map(|()| config)
    };
    let lambda = |blade: &BladeSpec| blade.rule.guidance().unwrap().lambda;
    let mut args = amended("args", "[blades.\"*\"]\nguided = 0.5\n").unwrap();
    ["a", "b"].iter().for_each(|name| args.seat(name));
    assert_eq!(args.blades.iter().map(lambda).collect::<Vec<_>>(), [0.5, 0.5]);
    assert_eq!(args.blades[0].rule.dispersion_name(), "zero", "what is not named stays");
    // One blade is a copy of the template, and the other has its own section.
    let mut args = amended("args", "[blades.b]\nguided = 2\n").unwrap();
    ["a", "b"].iter().for_each(|name| args.seat(name));
    let named = |name: &str| lambda(args.blades.iter().find(|blade| blade.name == name).unwrap());
    assert_eq!((named("a"), named("b")), (0.1, 2.0));
    let mixture = amended("mod-alpha", "[blades.\"*\"]\ndivergence_alpha = 0.25\n").unwrap();
    let BladeRule::DivergenceRatio { divergence, .. } = mixture.template.unwrap().rule else { panic!("another kind") };
    assert_eq!(divergence, DivergenceSpec::Alpha { divergence_alpha: 0.25 });
    // The template changes first, so the copy has its changes whatever the order.
    for set in [["blades.*.arm=zero", "blades.b.weight=2"], ["blades.b.weight=2", "blades.*.arm=zero"]] {
        let set = set.map(|edit| edit.parse().unwrap()).to_vec();
        let spec = Steering { set, ..Steering::default() }.spec(false).unwrap();
        assert_eq!((spec.blades[0].weight, spec.blades[0].arm), (Some(2.0), DispersionArm::Zero));
    }
    let base = amended("base", "[blades.backbone]\ndispersion = \"min-entropy\"\n").unwrap();
    assert_eq!((base.blades.len(), base.blades[0].weight), (1, Some(1.0)));
    for (scheme, text, said) in [
        ("base", "[blades.backbon]\nweight = 1\n", "unknown blade \"backbon\"; did you mean \"backbone\"?"),
        ("base", "[blades.\"*\"]\nweight = 1\n", "to edit; name one of its blades"),
        ("args", "[blades.\"*\"]\nguide = 1\n", "unknown field of [blades.*] \"guide\"; did you mean \"guided\"?"),
        ("args", "[blades.\"*\"]\nguided = -1\n", "guided is -1"),
    ] {
        let error = amended(scheme, text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_default_preset_by_name_is_the_default() {
    for (convention, shipped) in [(Convention::Sound, true), (Convention::Sound, false), (Convention::Paper, true)] {
        let default = Steering { convention, ..Steering::default() };
        let named = Steering { preset: Some(Preset::of_convention(convention)), ..default.clone() };
        assert_eq!(named.spec(shipped).unwrap(), default.spec(shipped).unwrap());
    }
}

#[test]
fn an_alpha_needs_a_fluency_blade() {
    let alpha = Steering { numbers: vec![(Parameter::named("alpha").unwrap(), 0.9)], ..Steering::default() };
    let mut spec = alpha.spec(false).unwrap();
    assert!(alpha.check_effect(&spec).is_ok());
    spec.overlay("test.toml", "[blades.calm]\n", Path::new("")).unwrap();
    let error = alpha.check_effect(&spec).unwrap_err().to_string();
    assert_eq!(error, "--alpha: the scheme has no blade of kind \"fluency\"");
    let set = vec!["aggregator.alpha=0.9".parse().unwrap()];
    let error = Steering { set, ..Steering::default() }.check_effect(&spec).unwrap_err().to_string();
    assert_eq!(error, "--set aggregator.alpha: the scheme has no blade of kind \"fluency\"");
    assert!(Steering::default().check_effect(&spec).is_ok());
}

#[test]
fn a_mixture_and_its_ratios_have_one_divergence() {
    let set = |edits: &[&str]| {
        let set = edits.iter().map(|edit| edit.parse().unwrap()).collect();
        Steering { scheme: Some("mod-alpha".into()), set, ..Steering::default() }.spec(false)
    };
    let (mixture, ratios) = ("aggregator.divergence_alpha=3", "blades.*.divergence_alpha=3");
    assert!(set(&[mixture, ratios]).is_ok());
    let error = set(&[mixture]).unwrap_err().to_string();
    assert_eq!(error, "aggregator: the divergence is alpha 3, but that of blade \"*\" is alpha 0.5; give both the same one");
    assert!(set(&[ratios]).is_err() && set(&["aggregator.divergence=forward-kl"]).is_err());
    assert!(set(&["aggregator.kind=scores", ratios]).is_ok(), "no mixture inverts the derivative");
}

#[test]
fn an_ensemble_has_adapters_of_its_own() {
    let config = overlaid("[blades.calm]\nkind = \"ensemble\"\nadapters = [\"a\", \"/b\"]\nbeta = 0.2\n").unwrap();
    let adapters: Vec<_> = config.adapters().map(|(name, path)| (name, path.cloned())).collect();
    let expected = [("calm/0".to_owned(), Some(PathBuf::from("schemes/a"))), ("calm/1".to_owned(), Some(PathBuf::from("/b")))];
    assert_eq!(adapters, expected);
    let read = config.blades[0].build().unwrap().policies();
    assert_eq!(read[1..], ["calm/0", "calm/1"].map(|name| sk_core::Policy::Variant(name.into())));
    for (text, said) in [("adapters = [\"a\"]\n", "at least 2"), ("", "at least 2"), ("adapters = []\n", "at least 2")] {
        let error = overlaid(&format!("[blades.calm]\nkind = \"ensemble\"\n{text}")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let silent = overlaid("[blades.calm]\nkind = \"instruction\"\n").unwrap_err().to_string();
    assert!(silent.ends_with("[blades.calm]: missing field `instruction`"), "{silent}");
    let both = overlaid("[blades.calm]\nkind = \"ensemble\"\nadapters = [\"a\", \"b\"]\nadapter = \"c\"\n").unwrap_err();
    assert!(both.to_string().contains("unknown field of [blades.calm] \"adapter\""), "{both}");
}

#[test]
fn correlations_are_of_blades_that_are_seated() {
    let mut config = overlaid("[normalizer]\ncorrelations = [[\"calm\", \"sfae\", -0.5]]\n").unwrap();
    ["calm", "safe"].iter().for_each(|name| config.seat(name));
    let said = "normalizer: correlations name blade \"sfae\", which is not seated; did you mean \"safe\"?";
    assert_eq!(config.check_start().unwrap_err().to_string(), said);
    config.seat("sfae");
    assert!(config.check_start().is_ok());
    // A blade with zero weight is seated. The fluency blade has no errors correlated with others.
    let two = "[blades.calm]\nweight = 1\n[blades.safe]\nweight = 0\n[blades.b0]\nkind = \"fluency\"\n[normalizer]\n";
    assert!(overlaid(&format!("{two}correlations = [[\"calm\", \"safe\", 0.2]]\n")).unwrap().check_start().is_ok());
    let error = overlaid(&format!("{two}correlations = [[\"calm\", \"b0\", 0.2]]\n")).unwrap().check_start().unwrap_err();
    assert!(error.to_string().contains("blade \"b0\", which is not seated; known: calm, safe"), "{error}");
}

#[test]
fn sources_that_are_no_paths_are_relative_to_no_directory() {
    let spec = overlaid(
        "[blades.calm]\nadapter = \"embedded:blades/helpful\"\n\
         [blades.warm]\nkind = \"ensemble\"\nadapters = [\"embedded:blades/honest\", \"./embedded:blades/honest\"]\n\
         [blades.fair]\nkind = \"reward-head\"\nhead = \"embedded:heads/helpful-reward\"\n\
         [blades.far]\nadapter = \"lora:far\"\n",
    );
    let paths: Vec<PathBuf> =
        spec.unwrap().blades.iter_mut().flat_map(|blade| blade.paths_mut().map(|path| path.clone())).collect();
    let expected = [
        "embedded:blades/helpful",
        "embedded:blades/honest",
        "schemes/embedded:blades/honest",
        "embedded:heads/helpful-reward",
        "lora:far",
    ];
    assert_eq!(paths, expected.map(PathBuf::from));
}

#[cfg(unix)]
#[test]
fn a_path_relative_to_a_directory_that_is_not_utf_8_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let directory = Path::new(std::ffi::OsStr::from_bytes(b"/d\xff"));
    let read = |field: &str| reference(Convention::Sound).overlay("test.toml", &format!("[blades.calm]\n{field}\n"), directory);
    for field in ["adapter = \"ad\"", "on = \"./model\""] {
        let said =
            "test.toml:1: [blades.calm]: the directory /d\u{fffd} is not named in UTF-8; rename it, or give absolute paths";
        assert_eq!(read(field).unwrap_err().to_string(), said);
    }
    assert!(read("adapter = \"/ad\"").is_ok() && read("on = \"drafter\"").is_ok());
}

#[test]
fn a_scheme_of_heads_needs_one() {
    let mut config = SHIPPED.iter().find(|scheme| scheme.name == "fudge").unwrap().spec().unwrap();
    config.seat("calm");
    config.seat_head("kind", HeadKind::Reward);
    assert!(matches!(config.check_start(), Err(SchemeError::NoHead { kind }) if kind == "discriminator"));
    config.seat_head("safe", HeadKind::Discriminator);
    assert!(config.check_start().is_ok());
}

#[test]
fn unseated_defaults_share_the_weight() {
    let mut config = reference(Convention::Sound);
    assert!(matches!(config.alignment(), Err(SchemeError::NoBlade)));
    ["a", "b", "a"].iter().for_each(|name| config.seat(name));
    assert_eq!(config.alignment().unwrap().weights().as_slice(), [0.5, 0.5]);
}

fn round_trips(spec: &SchemeSpec) {
    let json = serde_json::to_string(spec).unwrap();
    assert_eq!(&serde_json::from_str::<SchemeSpec>(&json).unwrap_or_else(|error| panic!("{error}\n{json}")), spec, "{json}");
    let text = toml::to_string(spec).unwrap();
    assert_eq!(&SchemeSpec::from_toml("spec.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}")), spec, "{text}");
    assert_eq!(serde_json::from_str::<SchemeSpec>(&json).unwrap().digest(), spec.digest());
}

#[test]
fn shipped_schemes_round_trip() {
    for convention in [Convention::Sound, Convention::Paper] {
        for preset in [Preset::Responsive, Preset::Hhh, Preset::Harmlessness, Preset::Helpfulness, Preset::Honesty] {
            for scheme in SHIPPED {
                let mut spec = SchemeSpec::reference(Base::new(convention, &preset.into()));
                spec.adopt(Path::new(scheme.name)).unwrap();
                ["z", "a"].iter().for_each(|name| spec.seat(name));
                round_trips(&spec);
            }
        }
    }
}

#[test]
fn no_blade_takes_the_name_of_a_lane_of_another() {
    let calm = "[blades.calm]\nkind = \"instruction\"\ninstruction = \"Be calm.\"\n";
    let spec = |against: &str, name: &str, is_instruction: bool| {
        let mut config = overlaid(&format!("{calm}{against}")).unwrap();
        if is_instruction {
            config.seat_instruction(name, "Be kind.").unwrap();
        } else {
            config.seat(name);
        }
        config.alignment()
    };
    let against = "against = \"Be rude.\"\n";
    for is_instruction in [true, false] {
        assert!(spec("", "calm/against", is_instruction).is_ok());
        assert!(spec(against, "against", is_instruction).is_ok());
        let error = spec(against, "calm/against", is_instruction).unwrap_err();
        assert!(matches!(&error, SchemeError::SharedLane { lane, .. } if lane == "calm/against"), "{error}");
    }
    let ensemble = "[blades.kind]\nkind = \"ensemble\"\nadapters = [\"a\", \"b\"]\n";
    assert!(matches!(spec(ensemble, "kind/1", false), Err(SchemeError::SharedLane { .. })));
}

#[test]
fn a_blade_that_takes_the_seat_of_another_keeps_its_settings() {
    let swapped = |text: &str, name: &str, instruction: Option<&str>| {
        let mut config = overlaid(text).unwrap();
        match instruction {
            Some(text) => config.swap_instruction("a", name, text)?,
            None => config.swap("a", name, Path::new("dir"))?,
        }
        assert_eq!(config.blades.iter().map(|blade| blade.name.as_str()).collect::<Vec<_>>(), [name, "b"]);
        Ok::<_, SchemeError>(toml::to_string(&config.blades[0]).unwrap())
    };
    let with = |section: &str| format!("[blades.a]\n{section}\n[blades.b]\n");
    let numbers = "beta = 0.5\ndispersion = \"zero\"\nguided = 2.0\nlikelihood = \"per-token\"\n";
    let reward = with(&format!("kind = \"implicit-reward\"\non = \"drafter\"\n{numbers}"));
    let contrast = with(&format!("kind = \"instruction\"\ninstruction = \"A\"\nagainst = \"Z\"\n{numbers}"));
    let both = with(&format!("kind = \"instruction\"\ninstruction = \"A\"\nadapter = \"x\"\n{numbers}"));
    let likelihood = with("kind = \"likelihood\"\ndispersion = \"zero\"\n");
    for (text, instruction, parts) in [
        (&reward, None, &["kind = \"implicit-reward\"", "on = \"drafter\"", "adapter = \"dir\"", numbers][..]),
        (&reward, Some("N"), &["kind = \"instruction\"", "instruction = \"N\"", numbers]),
        (&contrast, Some("N"), &["kind = \"instruction\"", "instruction = \"N\"", "against = \"Z\"", numbers]),
        (&contrast, None, &["kind = \"implicit-reward\"", "adapter = \"dir\"", numbers]),
        (&both, None, &["kind = \"instruction\"", "instruction = \"A\"", "adapter = \"dir\"", numbers]),
        (&likelihood, None, &["kind = \"likelihood\"", "adapter = \"dir\"", "dispersion = \"zero\""]),
    ] {
        for name in ["a", "c"] {
            let blade = swapped(text, name, instruction).unwrap();
            assert!(parts.iter().all(|part| blade.contains(part)), "{parts:?}: {blade}");
        }
    }
    // A blade without an adapter of its own gives its seat to one of the template.
    let template = "[blades.\"*\"]\nkind = \"likelihood\"\ndispersion = \"zero\"\n";
    let amateur = format!("{}{template}", with("kind = \"expert-amateur\""));
    assert!(swapped(&amateur, "c", None).unwrap().contains("kind = \"likelihood\""));
    for (text, old, name, said) in [
        (&amateur, "a", "c", "the blades of this scheme are of kind \"likelihood\""),
        (&reward, "a", "b", "\"b\" is seated already"),
        (&reward, "d", "c", "no blade is called \"d\""),
    ] {
        let mut config = overlaid(text).unwrap();
        let before = config.clone();
        let error = config.swap_instruction(old, name, "N").unwrap_err().to_string();
        assert!(error.contains(said) && config == before, "{error}");
    }
}

#[test]
fn passes_count_the_lanes_of_instructions_and_ensembles_and_those_on_other_models() {
    let passes = |blades: &str| {
        let mut config = overlaid(blades).unwrap();
        config.template = None;
        (config.passes().per_span.concat(), config.lanes())
    };
    let calm = "[blades.calm]\nkind = \"instruction\"\ninstruction = \"Be calm.\"\n";
    let (span, lanes) = passes(calm);
    assert!(span.ends_with("× 2"), "the backbone and the instruction: {span}");
    assert_eq!(lanes, 2);
    let (span, lanes) = passes(&format!("{calm}against = \"Be rude.\"\n"));
    assert!(span.ends_with("× 2"), "the instruction and its contrary: {span}");
    assert_eq!(lanes, 3, "the backbone may be kept too");
    let guided = "guided = 1.0\n";
    assert!(passes(&format!("{calm}against = \"Be rude.\"\n{guided}")).0.ends_with("× 3"));
    let kind = "[blades.kind]\nkind = \"ensemble\"\nadapters = [\"a\", \"b\", \"c\"]\n";
    let (span, lanes) = passes(&format!("{calm}{kind}"));
    assert!(span.ends_with("× 5") && lanes == 5, "{span}, {lanes}");
    let helpful = "[blades.helpful]\nkind = \"implicit-reward\"\n";
    let (span, lanes) = passes(&format!("{calm}{helpful}"));
    assert!(span.ends_with("× (K + 2)") && lanes == 3, "{span}, {lanes}");
    let other =
        "[blades.other]\nkind = \"likelihood\"\non = \"/m\"\n[blades.small]\nkind = \"implicit-reward\"\non = \"drafter\"\n";
    assert_eq!(passes(other).0, "/m × 7 × 1drafter × 7 × 2", "the backbone is not read");
    assert!(passes(&format!("{other}{guided}")).0.starts_with("backbone × 7 × 1"));
    let drafts = "[proposal]\nkind = \"backbone\"\n[fallback]\nkind = \"backbone\"\nthreshold = 0.0\n";
    assert_eq!(passes(&format!("{calm}{drafts}")).1, 4, "it also drafts, and drafts again");
}

#[test]
fn every_kind_of_blade_loads_what_its_file_names() {
    let schema = json_schema();
    let kinds = schema["properties"]["blades"]["additionalProperties"]["anyOf"].as_array().unwrap();
    let mut found = 0;
    for (kind, field) in kinds.iter().flat_map(|kind| ["adapter", "adapters", "head", "on"].map(|field| (kind, field))) {
        let fields = kind["properties"].as_object().unwrap();
        if !fields.contains_key(field) {
            continue;
        }
        found += 1;
        let value = |field: &str| if fields[field]["type"] == "array" { "[\"a\", \"b\"]" } else { "\"a\"" };
        let needed = kind["required"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
        let lines = needed.filter(|needed| ![field, "kind"].contains(needed)).chain([field]);
        let text: String = lines.map(|field| format!("{field} = {}\n", value(field))).collect();
        let text = format!("[blades.x]\nkind = {}\n{text}", fields["kind"]["const"]);
        let [spec, elsewhere] = ["/f", "/g"].map(|folder| {
            let mut spec = SchemeSpec::default();
            spec.overlay("test.toml", &text, Path::new(folder)).unwrap_or_else(|error| panic!("{text}{error}"));
            spec
        });
        assert_eq!(spec.digest(), elsewhere.digest(), "{text}a digest does not depend on where a file is");
        let mut blade = spec.blades[0].clone();
        assert!(!blade.lanes().is_empty() || blade.head().is_some(), "{text}nothing is loaded");
        if field == "on" {
            let readers = blade.readers();
            assert!(
                blade.on() == Some("a") && !readers.is_empty() && readers.iter().all(|(_, on)| *on == "a"),
                "{text}{readers:?}"
            );
        } else {
            let paths: Vec<&mut PathBuf> = blade.paths_mut().collect();
            assert!(!paths.is_empty() && paths.iter().all(|path| path.starts_with("/f")), "{text}{paths:?}");
        }
    }
    assert!(found >= 10, "{found} fields name something to load");
}

#[test]
fn a_search_and_a_fallback_are_named_as_what_rules_out_certificates() {
    let cause = |text: &str| overlaid(text).unwrap().stability().unwrap_err();
    assert_eq!(cause("[search]\nkind = \"accept\"\nscore = 0.5\n"), Uncertified::Searched);
    let replaced = cause("[fallback]\nkind = \"backbone\"\nthreshold = 0.5\n");
    assert!(replaced == Uncertified::Replaced && replaced.to_string().contains("fallback"), "{replaced}");
}
