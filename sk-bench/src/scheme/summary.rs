//! A scheme in a few words per slot, as in the paper's table of methods, and what it costs.

use sk_blades::DispersionArm;
use sk_core::Divergence;

use super::{
    AggregatorConfig, AggregatorKind, BladeConfig, BladeKind, LinkKind, NormalizerConfig, NormalizerKind, PriorKind,
    ProposalConfig, ProposalKind, SchemeConfig, SelectorConfig, divergence,
};

/// The slots of a scheme, in words.
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
    /// Forward passes.
    pub passes: Passes,
    /// Who published it.
    pub source: String,
}

/// Forward passes, and the rows of each, for K adapters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Passes {
    /// Passes per token that a candidate is made with, such as `1 of 7 rows (drafter)`.
    pub per_token: Vec<String>,
    /// Passes per span that the candidates are read with.
    pub per_span: Vec<String>,
}

impl std::fmt::Display for Passes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.per_token.iter().map(|pass| format!("{pass} / token"));
        let span = self.per_span.iter().map(|pass| format!("{pass} / span"));
        f.write_str(&token.chain(span).collect::<Vec<_>>().join("; "))
    }
}

impl SchemeConfig {
    /// The scheme in words, for any number of adapters.
    pub fn summary(&self) -> Summary {
        Summary {
            method: self.about.method.clone(),
            proposal: proposal(&self.proposal),
            granularity: self.granularity.rule.name().to_owned(),
            blades: self.blades_in_words(),
            normalizer: normalizer(&self.normalizer).to_owned(),
            aggregator: aggregator(&self.aggregator),
            selector: selector(&self.selector),
            passes: self.passes(),
            source: self.about.source.clone(),
        }
    }

    /// How often which model runs.
    pub fn passes(&self) -> Passes {
        let kinds = || self.blades.iter().chain(&self.template).map(|blade| blade.kind);
        let adapters = kinds().any(|kind| kind.needs_adapter() && kind != BladeKind::Ingredient);
        let backbone = self.proposal.looks_at_backbone()
            || kinds().any(|kind| !matches!(kind, BladeKind::Likelihood | BladeKind::Ingredient | BladeKind::Fluency));
        let heads = kinds().any(|kind| kind.head().is_some());
        let lanes = match (backbone, adapters) {
            (true, true) => "K + 1",
            (true, false) => "1",
            (false, true) => "K",
            (false, false) => "0",
        };
        let n = self.proposal.candidates;
        let (mut per_token, mut per_span) = (Vec::new(), Vec::new());
        match self.proposal.kind {
            ProposalKind::Drafter => per_token.push(format!("drafter × {n}")),
            ProposalKind::Backbone | ProposalKind::Soup => per_token.push(format!("backbone × {n}")),
            ProposalKind::Vocabulary => {
                if self.proposal.prior == PriorKind::Drafter {
                    per_token.push("drafter × 1".to_owned());
                }
                per_token.push(format!("backbone × {}", bracketed(lanes)));
                if heads {
                    // What a token leaves behind takes a row for each candidate.
                    let rows = if self.proposal.head_k > 0 { self.proposal.head_k.to_string() } else { "V".to_owned() };
                    per_token.push(format!("backbone × {rows}"));
                }
            }
        }
        if self.proposal.kind.draws() && lanes != "0" {
            per_span.push(format!("backbone × {n} × {}", bracketed(lanes)));
        }
        Passes { per_token, per_span }
    }

    fn blades_in_words(&self) -> String {
        let each = self.template.as_ref().map(|template| format!("K × {}", blade(template)));
        let named = self.blades.iter().map(blade);
        each.into_iter().chain(named).collect::<Vec<_>>().join(" + ")
    }
}

fn bracketed(lanes: &str) -> String {
    if lanes.contains(' ') { format!("({lanes})") } else { lanes.to_owned() }
}

fn blade(blade: &BladeConfig) -> String {
    let arm = match blade.arm {
        DispersionArm::Shuffled => ", σ shuffled",
        DispersionArm::Zero => ", σ zero",
        _ if blade.dispersion == sk_blades::Dispersion::ZERO => ", σ zero",
        _ => "",
    };
    let divergence =
        if blade.kind == BladeKind::DivergenceRatio { format!(" ({})", mixture(blade.divergence)) } else { String::new() };
    let score = format!("{}{divergence}{arm}", blade.kind.name());
    match blade.guided {
        Some(guidance) => format!("(log π_B + {} × {score})", guidance.lambda),
        None => score,
    }
}

fn mixture(kind: Divergence) -> String {
    let alpha = kind.order().map_or_else(String::new, |alpha| format!(" {alpha}"));
    divergence::name(kind).to_owned() + &alpha
}

fn proposal(proposal: &ProposalConfig) -> String {
    let ProposalConfig { kind, candidates, head_k, plausibility, .. } = proposal;
    if kind.draws() {
        return format!("{candidates} × {}", kind.name());
    }
    let mut words = match proposal.prior {
        PriorKind::Drafter => "vocabulary, drafter's prior".to_owned(),
        PriorKind::Uniform | PriorKind::Backbone => "vocabulary".to_owned(),
    };
    if *head_k > 0 {
        words += &format!(", head {head_k}");
    }
    if *plausibility > 0.0 {
        words += &format!(", plausibility {plausibility}");
    }
    words
}

fn normalizer(normalizer: &NormalizerConfig) -> &'static str {
    match normalizer.kind {
        NormalizerKind::CandidateBatch => "CBN",
        NormalizerKind::Raw => "id",
        NormalizerKind::Rank => "rank",
        NormalizerKind::Robust => "robust",
    }
}

fn aggregator(aggregator: &AggregatorConfig) -> String {
    let raw = if aggregator.kind.compares() && !aggregator.standardize { ", raw" } else { "" };
    match aggregator.kind {
        AggregatorKind::Scores => "id".to_owned(),
        AggregatorKind::DivergenceMixture => format!("mixture ({})", mixture(aggregator.divergence)),
        AggregatorKind::RoundRobin { link, p } if aggregator.kind.name() == "round-robin" => {
            let nu = if let LinkKind::StudentT { nu } = link { format!(" {nu}") } else { String::new() };
            format!("round-robin ({}{nu}, p = {p}){raw}", link.name())
        }
        kind => format!("{}{raw}", kind.name()),
    }
}

fn selector(selector: &SelectorConfig) -> String {
    let raw = if !selector.standardize { ", raw" } else { "" };
    let mut words = format!("{}{raw}", selector.kind.name());
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
    use crate::scheme::Shipped;

    #[test]
    fn the_words_are_those_of_the_paper() {
        let words = |name: &str| {
            let summary = Shipped::named(name).unwrap().config().unwrap().summary();
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
        assert_eq!(words("rewarded-soups"), ["response", "K × ingredient", "id", "id", "uniform", "backbone × 1 / token"]);
        assert_eq!(
            words("contrastive"),
            ["token", "expert-amateur", "id", "id", "argmax", "drafter × 1 / token; backbone × 1 / token"]
        );
        assert_eq!(words("swiss-knife")[2..5], ["CBN", "swiss-elo", "champion"]);
        assert_eq!(words("swiss-knife")[5], "drafter × 7 / token; backbone × 7 × (K + 1) / span");
        assert_eq!(words("base")[5], "backbone × 1 / token");
    }
}
