//! A short description of a scheme, slot by slot as in the paper's table of methods, with its cost.

use std::collections::BTreeMap;

use crate::spec::text_of;
use crate::{
    AggregatorSpec, BladeRule, BladeSpec, ChampionSpec, DispersionArm, FallbackSpec, Guidance, Length, LinkSpec, NormalizerRule,
    Prior, ProposalSpec, SchemeSpec, SearchSpec, SelectorRule, SelectorSpec, WeightingSpec,
};

/// A scheme described slot by slot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// The method.
    pub method: String,
    /// Π_prop.
    pub proposal: String,
    /// ρ.
    pub granularity: String,
    /// 𝓑.
    pub blades: String,
    /// 𝓝.
    pub normalizer: String,
    /// 𝓐.
    pub aggregator: String,
    /// 𝓢.
    pub selector: String,
    /// The forward passes per token and per span.
    pub passes: Passes,
    /// Who published it.
    pub source: String,
}

/// The forward passes of a scheme, with the rows of each, for K adapters. They do not include the
/// passes in which the candidates of a fallback are scored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Passes {
    /// The passes per token of a candidate while it is drafted, such as `drafter × 7`.
    pub per_token: Vec<String>,
    /// The passes per span in which the candidates are scored.
    pub per_span: Vec<String>,
}

impl std::fmt::Display for Passes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.per_token.iter().map(|pass| format!("{pass} / token"));
        let span = self.per_span.iter().map(|pass| format!("{pass} / span"));
        f.write_str(&token.chain(span).collect::<Vec<_>>().join("; "))
    }
}

impl SchemeSpec {
    /// Describes the scheme, for any number of adapters.
    pub fn summary(&self) -> Summary {
        Summary {
            method: self.about.method.clone(),
            proposal: proposal(&self.proposal) + &self.search_in_words(),
            granularity: text_of(&self.granularity, "kind"),
            blades: self.blades_in_words(),
            normalizer: weighting(&self.weighting) + normalizer(&self.normalizer.rule),
            aggregator: aggregator(&self.aggregator),
            selector: selector(&self.selector),
            passes: self.passes(),
            source: self.about.source.clone(),
        }
    }

    /// Counts the forward passes of each model.
    pub fn passes(&self) -> Passes {
        let rules = || self.blades.iter().chain(&self.template).map(|blade| &blade.rule);
        let adapters = rules().any(BladeRule::reads_adapter);
        let backbone = self.proposal.reads_backbone() || rules().any(BladeRule::reads_backbone);
        let heads = rules().any(|rule| rule.head_kind().is_some());
        // Instructions and ensemble members have one lane each, independent of K.
        let own = |rule: &BladeRule| match rule {
            BladeRule::Instruction { against, .. } => 1 + usize::from(against.is_some()),
            BladeRule::Ensemble { adapters, .. } => adapters.len(),
            _ => 0,
        };
        let others = usize::from(backbone) + self.blades.iter().map(|blade| own(&blade.rule)).sum::<usize>();
        let mut lanes = vec![("backbone", lanes_in_words(usize::from(adapters), others))];
        // The lanes on other models: those of the template, and those of blades.
        let mut readers: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        self.template.iter().flat_map(BladeSpec::readers).for_each(|(_, model)| readers.entry(model).or_default()[0] += 1);
        self.readers().for_each(|(_, model)| readers.entry(model).or_default()[1] += 1);
        // K includes the blades that are copies of the template.
        lanes.extend(readers.into_iter().map(|(model, [of_template, seated])| match of_template {
            0 => (model, lanes_in_words(0, seated)),
            _ => (model, lanes_in_words(of_template, 0)),
        }));
        lanes.retain(|(_, lanes)| lanes != "0");

        let (mut per_token, mut per_span) = (Vec::new(), Vec::new());
        if let ProposalSpec::Vocabulary(vocabulary) = &self.proposal {
            if vocabulary.prior == Prior::Drafter {
                per_token.push("drafter × 1".to_owned());
            }
            per_token.extend(lanes.iter().map(|(model, lanes)| format!("{model} × {}", bracketed(lanes))));
            if heads {
                // Scoring the state after each token takes one row per candidate.
                let rows = if vocabulary.head_k > 0 { vocabulary.head_k.to_string() } else { "V".to_owned() };
                per_token.push(format!("backbone × {rows}"));
            }
        }
        if let Some(draft) = self.proposal.draft() {
            let n = draft.candidates;
            let model = if matches!(self.proposal, ProposalSpec::Drafter(_)) { "drafter" } else { "backbone" };
            per_token.push(format!("{model} × {n}"));
            if self.fallback != FallbackSpec::None {
                per_token.push(format!("backbone × {n} (fallback)"));
            }
            per_span.extend(lanes.iter().map(|(model, lanes)| format!("{model} × {n} × {}", bracketed(lanes))));
        }
        Passes { per_token, per_span }
    }

    fn search_in_words(&self) -> String {
        let search = match self.search {
            SearchSpec::Full => String::new(),
            SearchSpec::Waves { first, wave, probability } => format!(", in waves of {first} and {wave} until p ≥ {probability}"),
            SearchSpec::Accept { first, wave, score } => format!(", in waves of {first} and {wave} until μ ≥ {score}"),
            SearchSpec::Race { tokens, mass } => format!(", raced after {tokens} tokens to mass {mass}"),
        };
        match self.fallback {
            FallbackSpec::None => search,
            FallbackSpec::Backbone { threshold } => format!("{search}, or backbone below {threshold}"),
        }
    }

    fn blades_in_words(&self) -> String {
        let each = self.template.as_ref().map(|template| format!("K × {}", blade(template)));
        let fluency = self.fluency.as_ref().map(|_| "fluency".to_owned());
        each.into_iter().chain(self.blades.iter().map(blade)).chain(fluency).collect::<Vec<_>>().join(" + ")
    }
}

/// Returns `per_adapter` K + `others` in words.
fn lanes_in_words(per_adapter: usize, others: usize) -> String {
    match (per_adapter, others) {
        (0, others) => others.to_string(),
        (1, 0) => "K".to_owned(),
        (1, others) => format!("K + {others}"),
        (each, 0) => format!("{each}K"),
        (each, others) => format!("{each}K + {others}"),
    }
}

fn bracketed(lanes: &str) -> String {
    if lanes.contains(' ') { format!("({lanes})") } else { lanes.to_owned() }
}

fn blade(blade: &BladeSpec) -> String {
    let arm = match blade.arm {
        DispersionArm::Shuffled => ", σ shuffled",
        DispersionArm::Zero => ", σ zero",
        DispersionArm::Real if blade.rule.is_certain() => ", σ zero",
        DispersionArm::Real => "",
    };
    let divergence = match blade.rule {
        BladeRule::DivergenceRatio { divergence, .. } => format!(" ({divergence})"),
        _ => String::new(),
    };
    let score = format!("{}{divergence}{arm}", blade.rule.kind());
    let Some(Guidance { lambda, likelihood }) = blade.rule.guidance() else { return score };
    let prior = match likelihood {
        Length::Summed => "log π_B",
        Length::PerToken => "1/L log π_B",
        Length::Ratio => "log π_B/π_S",
    };
    format!("({prior} + {lambda} × {score})")
}

fn proposal(proposal: &ProposalSpec) -> String {
    let ProposalSpec::Vocabulary(vocabulary) = proposal else {
        let candidates = proposal.draft().map_or(0, |draft| draft.candidates);
        return format!("{candidates} × {}", text_of(proposal, "kind"));
    };
    let mut words = match vocabulary.prior {
        Prior::Drafter => "vocabulary, drafter's prior".to_owned(),
        Prior::Uniform | Prior::Backbone => "vocabulary".to_owned(),
    };
    if vocabulary.head_k > 0 {
        words += &format!(", top {}", vocabulary.head_k);
    }
    if vocabulary.plausibility > 0.0 {
        words += &format!(", plausibility {}", vocabulary.plausibility);
    }
    words
}

fn weighting(weighting: &WeightingSpec) -> String {
    match weighting {
        WeightingSpec::Fixed => String::new(),
        other => format!("{} w, ", text_of(other, "kind")),
    }
}

fn normalizer(rule: &NormalizerRule) -> &'static str {
    match rule {
        NormalizerRule::Cbn { .. } => "CBN",
        NormalizerRule::Raw => "id",
        NormalizerRule::Rank => "rank",
        NormalizerRule::Robust => "robust",
    }
}

fn aggregator(aggregator: &AggregatorSpec) -> String {
    let raw = if aggregator.entry().is_some_and(|entry| !entry.standardize) { ", raw" } else { "" };
    match aggregator {
        AggregatorSpec::Scores => "id".to_owned(),
        AggregatorSpec::DivergenceMixture(divergence) => format!("mixture ({divergence})"),
        AggregatorSpec::RoundRobin(family) if aggregator.kind() == "round-robin" => {
            let nu = if let LinkSpec::StudentT { nu } = family.link { format!(" {nu}") } else { String::new() };
            format!("round-robin ({}{nu}, p = {}){raw}", family.link.name(), family.p)
        }
        named => format!("{}{raw}", named.kind()),
    }
}

fn selector(selector: &SelectorSpec) -> String {
    let raw = if matches!(selector.rule, SelectorRule::Champion(ChampionSpec { standardize: false, .. })) { ", raw" } else { "" };
    let mut words = format!("{}{raw}", selector.rule.kind());
    if let Some(k) = selector.top_k {
        words += &format!(", top-k {k}");
    }
    if let Some(mass) = selector.top_p {
        words += &format!(", top-p {mass}");
    }
    words
}

#[cfg(test)]
mod tests {
    use crate::{BladeRule, BladeSpec, Length, Shipped};

    #[test]
    fn the_words_are_those_of_the_paper() {
        let words = |name: &str| {
            let summary = Shipped::named(name).unwrap().spec().unwrap().summary();
            let passes = summary.passes.to_string();
            [summary.granularity, summary.blades, summary.normalizer, summary.aggregator, summary.selector, passes]
        };
        assert_eq!(
            words("best-of-n"),
            [
                "response",
                "K × implicit-reward, σ zero",
                "id",
                "id",
                "argmax",
                "backbone × 7 / token; backbone × 7 × (K + 1) / span"
            ]
        );
        assert_eq!(words("mod"), ["token", "K × likelihood, σ zero", "id", "id", "softmax, top-p 0.95", "backbone × K / token"]);
        assert_eq!(words("fudge")[1], "K × (log π_B + 3 × discriminator, σ zero)");
        assert_eq!(words("rewarded-soups"), ["response", "K × ingredient", "id", "id", "uniform", "backbone × 1 / token"]);
        assert_eq!(
            words("contrastive"),
            ["token", "expert-amateur", "id", "id", "argmax", "drafter × 1 / token; backbone × 1 / token"]
        );
        assert_eq!(words("swiss-knife")[2..5], ["CBN", "swiss-elo", "champion"]);
        assert_eq!(words("swiss-knife")[5], "drafter × 7 / token; backbone × 7 × (K + 1) / span");
        assert_eq!(words("gsi")[1], "K × (log π_B/π_S + 20 × implicit-reward, σ zero)");
        assert_eq!(words("base")[5], "backbone × 1 / token");
        assert_eq!(words("gsi")[5], "drafter × 7 / token; backbone × 7 (fallback) / token; backbone × 7 × (K + 1) / span");
    }

    #[test]
    fn a_guided_score_names_the_form_of_its_likelihood() {
        let mut scheme = Shipped::named("args").unwrap().spec().unwrap();
        let Some(BladeSpec { rule: BladeRule::ImplicitReward { guidance: Some(guidance), .. }, .. }) = &mut scheme.template
        else {
            panic!("ARGS is not guided")
        };
        guidance.likelihood = Length::PerToken;
        assert!(scheme.summary().blades.starts_with("K × (1/L log π_B + "), "{}", scheme.summary().blades);
    }
}
