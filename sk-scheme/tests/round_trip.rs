//! A scheme of any kind is unchanged by a round trip through TOML and JSON, and invalid schemes are
//! refused.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sk_scheme::*;

/// Numbers in a range, including its ends.
fn within(low: f64, high: f64) -> impl Strategy<Value = f64> {
    prop_oneof![low..high, Just(low), Just(high)]
}

fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![1e-6..1e6, Just(f64::MIN_POSITIVE), Just(1.0)]
}

fn not_negative() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1e6, Just(0.0)]
}

fn convention() -> impl Strategy<Value = Convention> {
    prop_oneof![Just(Convention::Sound), Just(Convention::Paper)]
}

fn path() -> impl Strategy<Value = Option<PathBuf>> {
    option::of(prop_oneof![Just("adapters/a b".into()), Just("/root/ü".into())])
}

fn on() -> impl Strategy<Value = Option<String>> {
    option::of(prop_oneof![Just("drafter".to_owned()), Just("/root/small".to_owned())])
}

fn draft() -> impl Strategy<Value = DraftSpec> {
    let share = prop_oneof![1e-3..1.0, Just(1.0)];
    (1usize..99, not_negative(), share, 0usize..99, 0.1..9.0, any::<bool>()).prop_map(
        |(candidates, temperature, top_p, top_k, repetition_penalty, keep_end_of_text)| DraftSpec {
            candidates,
            temperature,
            top_p,
            top_k,
            repetition_penalty,
            keep_end_of_text,
        },
    )
}

fn proposal() -> impl Strategy<Value = ProposalSpec> {
    let merge = prop_oneof![Just(Merge::Exact), Just(Merge::PeftLinear)];
    let prior = prop_oneof![Just(Prior::Uniform), Just(Prior::Backbone), Just(Prior::Drafter)];
    prop_oneof![
        draft().prop_map(ProposalSpec::Drafter),
        draft().prop_map(ProposalSpec::Backbone),
        (merge, draft()).prop_map(|(merge, draft)| ProposalSpec::Soup(SoupSpec { merge, draft })),
        (prior, 0usize..300, within(0.0, 1.0)).prop_map(|(prior, head_k, plausibility)| {
            ProposalSpec::Vocabulary(VocabularySpec { prior, head_k, plausibility })
        }),
    ]
}

fn granularity() -> impl Strategy<Value = GranularitySpec> {
    let cap = || prop_oneof![(1usize..999).prop_map(Cap::Tokens), Just(Cap::Unlimited(Unlimited::Unlimited))];
    let text = || vec(prop_oneof![Just("\n\n".to_owned()), "[a-z\"\\\\]{1,5}"], 1..4);
    prop_oneof![
        Just(GranularitySpec::Token),
        (1usize..999).prop_map(|span_tokens| GranularitySpec::FixedLength { span_tokens }),
        cap().prop_map(|span_tokens| GranularitySpec::Sentence { span_tokens }),
        cap().prop_map(|span_tokens| GranularitySpec::BlankLine { span_tokens }),
        (text(), cap()).prop_map(|(delimiters, span_tokens)| GranularitySpec::Delimiters { delimiters, span_tokens }),
        (not_negative(), cap()).prop_map(|(entropy, span_tokens)| GranularitySpec::Entropy { entropy, span_tokens }),
        cap().prop_map(|span_tokens| GranularitySpec::Response { span_tokens }),
    ]
}

fn divergence() -> impl Strategy<Value = DivergenceSpec> {
    prop_oneof![
        Just(DivergenceSpec::ReverseKl),
        Just(DivergenceSpec::ForwardKl),
        Just(DivergenceSpec::JensenShannon),
        positive().prop_map(|divergence_alpha| DivergenceSpec::Alpha { divergence_alpha }),
    ]
}

fn blade(name: String) -> impl Strategy<Value = BladeSpec> {
    let sigma = || prop_oneof![Just(Dispersion::MinEntropy), Just(Dispersion::StandardError), Just(Dispersion::Zero)];
    let spread = prop_oneof![Just(LabelSpread::Zero), Just(LabelSpread::Bernoulli)];
    let arm = prop_oneof![Just(DispersionArm::Real), Just(DispersionArm::Shuffled), Just(DispersionArm::Zero)];
    let length = || prop_oneof![Just(Length::Summed), Just(Length::PerToken), Just(Length::Ratio)];
    let guidance = || option::of((not_negative(), length()).prop_map(|(lambda, likelihood)| Guidance { lambda, likelihood }));
    let rule = prop_oneof![
        (path(), on(), positive(), sigma(), guidance()).prop_map(|(adapter, on, beta, dispersion, guidance)| {
            BladeRule::ImplicitReward { adapter, on, beta, dispersion, guidance }
        }),
        ("[A-Z][a-z ]{0,8}\\.", option::of("[A-Z][a-z ]{0,8}\\."), path(), positive(), sigma(), guidance()).prop_map(
            |(instruction, against, adapter, beta, dispersion, guidance)| {
                BladeRule::Instruction { instruction, against, adapter, beta, dispersion, guidance }
            }
        ),
        (2usize..5, positive()).prop_map(|(count, beta)| {
            BladeRule::Ensemble { adapters: (0..count).map(|member| format!("m{member}").into()).collect(), beta }
        }),
        (path(), on(), sigma()).prop_map(|(adapter, on, dispersion)| BladeRule::Likelihood { adapter, on, dispersion }),
        sigma().prop_map(|dispersion| BladeRule::BackboneLikelihood { dispersion }),
        (path(), divergence()).prop_map(|(adapter, divergence)| BladeRule::DivergenceRatio { adapter, divergence }),
        path().prop_map(|adapter| BladeRule::Ingredient { adapter }),
        (path(), spread, guidance())
            .prop_map(|(head, dispersion, guidance)| { BladeRule::Discriminator { head, dispersion, guidance } }),
        (path(), guidance()).prop_map(|(head, guidance)| BladeRule::RewardHead { head, guidance }),
        Just(BladeRule::ExpertAmateur),
    ];
    (rule.boxed(), option::of(not_negative()), arm).prop_map(move |(rule, weight, arm)| BladeSpec {
        name: name.clone(),
        rule,
        weight,
        arm,
    })
}

/// Blades that are not sorted by name.
fn blades() -> impl Strategy<Value = (Vec<BladeSpec>, Option<BladeSpec>, Option<String>)> {
    let named = (blade("z".into()).boxed(), blade("a.b".into()).boxed(), blade("m\"n".into()).boxed(), 0usize..4)
        .prop_map(|(z, a, m, count)| [z, a, m].into_iter().take(count).collect());
    (named, option::of(blade("*".into()).boxed()), option::of(Just("fluency".to_owned())))
}

fn normalizer() -> impl Strategy<Value = NormalizerSpec> {
    let deviation = prop_oneof![Just(Deviation::Sample), Just(Deviation::Population)];
    let unit = prop_oneof![Just(DispersionUnit::Score), Just(DispersionUnit::Own)];
    let rule = prop_oneof![
        (deviation, not_negative(), unit).prop_map(|(deviation, epsilon, dispersion_unit)| NormalizerRule::Cbn {
            deviation,
            epsilon,
            dispersion_unit
        }),
        Just(NormalizerRule::Raw),
        Just(NormalizerRule::Rank),
        Just(NormalizerRule::Robust),
    ];
    let propagation = prop_oneof![
        Just(PropagationSpec::Rule { propagation: PropagationRule::Linear }),
        Just(PropagationSpec::Rule { propagation: PropagationRule::Independent }),
        within(-1.0, 1.0)
            .prop_map(|rho| PropagationSpec::Correlated { correlations: vec![("z".to_owned(), "a.b".to_owned(), rho)] }),
    ];
    (rule, propagation).prop_map(|(rule, propagation)| NormalizerSpec { rule, propagation })
}

fn aggregator() -> impl Strategy<Value = AggregatorSpec> {
    let entry = || {
        (convention(), any::<bool>(), within(0.0, 1.0)).prop_map(|(convention, standardize, alpha)| EntrySpec {
            convention,
            standardize,
            alpha,
        })
    };
    let link = prop_oneof![
        Just(LinkSpec::Probit),
        Just(LinkSpec::Logistic),
        Just(LinkSpec::Tanh),
        Just(LinkSpec::Laplace),
        within(0.1, 99.0).prop_map(|nu| LinkSpec::StudentT { nu }),
        Just(LinkSpec::Asinh),
        Just(LinkSpec::SignedLog),
        Just(LinkSpec::Identity),
    ];
    let p = prop_oneof![1.0..9.0, Just(1.0), Just(2.0), Just(f64::INFINITY)];
    prop_oneof![
        (1usize..9, 10.0..99.0, 0.1..10.0, entry())
            .prop_map(|(rounds, k_max, k_min, entry)| { AggregatorSpec::SwissElo(SwissEloSpec { rounds, k_max, k_min, entry }) }),
        (link, p, entry()).prop_map(|(link, p, entry)| AggregatorSpec::RoundRobin(RoundRobinSpec { link, p, entry })),
        entry().prop_map(AggregatorSpec::Copeland),
        Just(AggregatorSpec::Scores),
        divergence().prop_map(AggregatorSpec::DivergenceMixture),
    ]
}

fn gate(name: &'static str) -> impl Strategy<Value = GateSpec> {
    let on = prop_oneof![
        (-9.0..9.0).prop_map(|kappa| GateOn::Blade { kappa }),
        (-9.0..9.0).prop_map(|kappa| GateOn::Score { kappa }),
        Just(GateOn::Fluency),
        Just(GateOn::Rating),
    ];
    let threshold = prop_oneof![-9.0..9.0, Just(f64::NEG_INFINITY), Just(f64::INFINITY)];
    let fallback = prop_oneof![Just(GateFallback::Best), Just(GateFallback::Open)];
    (on, threshold, fallback).prop_map(move |(on, threshold, fallback)| GateSpec {
        name: name.to_owned(),
        on,
        threshold,
        fallback,
    })
}

fn selector() -> impl Strategy<Value = SelectorSpec> {
    let champion = (not_negative(), 0.0..9.0, 0.0..9.0, 0.0..9.0, convention(), any::<bool>()).prop_map(
        |(temperature, w_tour, w_blade, lambda, convention, standardize)| {
            SelectorRule::Champion(ChampionSpec { temperature, w_tour, w_blade, lambda, convention, standardize })
        },
    );
    let rule = prop_oneof![
        champion,
        positive().prop_map(|temperature| SelectorRule::Softmax { temperature }),
        Just(SelectorRule::Argmax),
        within(0.0, 1.0).prop_map(|epsilon| SelectorRule::EpsilonArgmax { epsilon }),
        Just(SelectorRule::Uniform),
    ];
    let gates = (gate("z"), gate("a.b"), 0usize..3).prop_map(|(z, a, count)| [z, a].into_iter().take(count).collect());
    (rule, option::of(1usize..9), option::of(1e-3..1.0), gates).prop_map(|(rule, top_k, top_p, gates)| SelectorSpec {
        rule,
        top_k,
        top_p,
        gates,
    })
}

fn search() -> impl Strategy<Value = SearchSpec> {
    let count = || 1usize..20;
    let share = || prop_oneof![1e-6..1.0, Just(1.0)];
    prop_oneof![
        Just(SearchSpec::Full),
        (2_usize..100, count(), share()).prop_map(|(first, wave, probability)| SearchSpec::Waves { first, wave, probability }),
        (count(), count(), -9.0..9.0).prop_map(|(first, wave, score)| SearchSpec::Accept { first, wave, score }),
        (count(), share()).prop_map(|(tokens, mass)| SearchSpec::Race { tokens, mass }),
    ]
}

fn fallback() -> impl Strategy<Value = FallbackSpec> {
    prop_oneof![Just(FallbackSpec::None), (-9.0..9.0).prop_map(|threshold| FallbackSpec::Backbone { threshold })]
}

fn weighting() -> impl Strategy<Value = WeightingSpec> {
    prop_oneof![
        Just(WeightingSpec::Fixed),
        positive().prop_map(|temperature| WeightingSpec::MaxMin { temperature }),
        (positive(), prop_oneof![positive(), Just(1e9)])
            .prop_map(|(temperature, limit)| WeightingSpec::Dual { temperature, limit }),
    ]
}

fn scheme() -> impl Strategy<Value = SchemeSpec> {
    let about = ("[a-z ü\"]{0,9}", "[a-z ]{0,9}").prop_map(|(method, source)| About { method, source });
    let preset = prop_oneof![
        Just(Preset::Responsive),
        Just(Preset::Hhh),
        Just(Preset::Harmlessness),
        Just(Preset::Helpfulness),
        Just(Preset::Honesty)
    ];
    let base = (convention(), preset, not_negative())
        .prop_map(|(convention, preset, draft_temperature)| Base { draft_temperature, ..Base::new(convention, &preset.into()) });
    let weights = option::of(
        vec(0.0..9.0, 2).prop_map(|weights| ["z", "a.b"].into_iter().map(str::to_owned).zip(weights).collect::<NamedWeights>()),
    );
    // Boxed, because the strategies of all slots together do not fit on the stack of a test.
    let slots = (
        proposal().boxed(),
        granularity().boxed(),
        (search(), fallback(), weighting()).boxed(),
        blades().boxed(),
        normalizer().boxed(),
        aggregator().boxed(),
        selector().boxed(),
    );
    (about, base, weights, slots).prop_map(|(about, base, weights, slots)| {
        let (
            proposal,
            granularity,
            (search, fallback, weighting),
            (mut blades, mut template, fluency),
            normalizer,
            aggregator,
            selector,
        ) = slots;
        let granularity = if proposal.draft().is_none() { GranularitySpec::Token } else { granularity };
        // A search needs a proposal that drafts, not a vocabulary. A dual weighting needs the
        // threshold of a gate.
        let (search, fallback) = if proposal.draft().is_none() { Default::default() } else { (search, fallback) };
        let is_gated = selector.gates.iter().any(|gate| matches!(gate.on, GateOn::Blade { .. }));
        let weighting = match weighting {
            WeightingSpec::Dual { .. } if !is_gated => WeightingSpec::Fixed,
            other => other,
        };
        // A mixture needs the divergence of its ratios.
        if let AggregatorSpec::DivergenceMixture(mixture) = aggregator {
            for blade in blades.iter_mut().chain(&mut template) {
                if let BladeRule::DivergenceRatio { divergence, .. } = &mut blade.rule {
                    *divergence = mixture;
                }
            }
        }
        SchemeSpec {
            about,
            base,
            weights,
            proposal,
            granularity,
            search,
            fallback,
            blades,
            template,
            fluency,
            weighting,
            normalizer,
            aggregator,
            selector,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_scheme_survives_toml_and_json(spec in scheme()) {
        prop_assert!(spec.check().is_ok(), "{:?}", spec.check());
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(&serde_json::from_str::<SchemeSpec>(&json).unwrap(), &spec, "{}", json);
        let text = toml::to_string(&spec).unwrap();
        prop_assert_eq!(&SchemeSpec::from_toml("spec.toml", &text).unwrap(), &spec, "{}", text);
    }

    #[test]
    fn edits_reach_blades_of_every_kind_and_keep_their_other_fields(blade in blade("x".into())) {
        let fields = |spec: &SchemeSpec| toml::Table::try_from(&spec.blades[0]).unwrap();
        let mut spec = SchemeSpec { blades: vec![blade], ..SchemeSpec::default() };
        let mut expected = fields(&spec);
        Parameter::named("beta").unwrap().set(&mut spec, 0.7).unwrap();
        if let Some(beta) = expected.get_mut("beta") {
            *beta = 0.7.into();
        }
        prop_assert_eq!(&fields(&spec), &expected);
        if let Some(adapter) = expected.get_mut("adapter") {
            *adapter = "new".into();
            spec.swap("x", "y", Path::new("new")).unwrap();
            prop_assert_eq!(&fields(&spec), &expected);
        }
    }
}

#[test]
fn every_kind_has_a_case() {
    let slots = ["proposal", "granularity", "search", "fallback", "blades", "weighting", "normalizer", "aggregator", "selector"];
    let kinds = slots.map(|slot| {
        let schema = json_schema();
        let slot =
            if slot == "blades" { &schema["properties"][slot]["additionalProperties"] } else { &schema["properties"][slot] };
        slot["anyOf"].as_array().unwrap().len()
    });
    // Four of the aggregators are members of the round-robin family.
    let tested = [4, 7, 4, 2, 11, 3, 4, 9, 5];
    assert_eq!(kinds, tested, "add each new kind to the strategies above, then change these numbers");
}

#[test]
fn untrusted_json_is_checked() {
    let refused = |json: &str, said: &str| {
        let error = serde_json::from_str::<SchemeSpec>(json).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    refused(r#"{"selector": {"temperature": -1}}"#, "[selector]: temperature is -1");
    refused(r#"{"selector": {"temprature": 1}}"#, "unknown field of [selector] \"temprature\"; did you mean \"temperature\"?");
    refused(r#"{"selectr": {}}"#, "unknown slot \"selectr\"; did you mean \"selector\"?");
    refused(r#"{"selector": {"kind": "argmax", "lambda": 1}}"#, "kind \"argmax\" has no lambda; use kind = \"champion\"");
    refused(r#"{"proposal": {"candidates": 1.5}}"#, "proposal.candidates: expected a whole number");
    refused(r#"{"proposal": {"candidates": 0}}"#, "candidates is 0");
    refused(r#"{"proposal": {"kind": "vocabulary"}}"#, "use \"token\"");
    refused(r#"{"blades": {"a": {"beta": 0}}}"#, "beta is 0");
    refused(r#"{"weights": {"a": -1}}"#, "weights.a: expected a number that is not negative");
    refused(r#"{"base": {"convention": "sond"}}"#, "unknown variant `sond`");
    refused(r#"{"selector": {"kind": "uniform"}, "selector": {}}"#, "\"selector\" is given twice");
    refused("[1]", "expected sections by name");
    let minimal: SchemeSpec = serde_json::from_str("{}").unwrap();
    assert_eq!(minimal, SchemeSpec::default());
    assert_eq!(minimal.granularity.span_tokens(), NonZeroUsize::new(32));
}
