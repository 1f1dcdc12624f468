//! `adapter_config.json`: the modules that an adapter changes, with rank and scale.

use std::path::Path;

use fancy_regex::{Regex, RegexBuilder};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::module::Module;
use crate::{
    hf::{error::CheckpointError, read::read_json},
    json::{self, OneOrMany},
};

/// PEFT's name for every linear layer except the head.
const ALL_LINEAR: &str = "all-linear";
/// Initialisations that leave the backbone's weights unchanged.
const PLAIN_INITIALISATIONS: [&str; 3] = ["gaussian", "eva", "orthogonal"];
/// Settings without effect on a loaded adapter.
///
/// `fan_in_fan_out` is one of them, since PEFT sets it to false for linear layers, and all layers
/// here are linear.
const WITHOUT_EFFECT: [&str; 13] = [
    "auto_mapping",
    "base_model_name_or_path",
    "eva_config",
    "fan_in_fan_out",
    "inference_mode",
    "lora_dropout",
    "loftq_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// A rule that picks modules: a list of names, or a regular expression over whole paths.
#[derive(Debug)]
enum ModuleRule {
    Names(Vec<String>),
    Pattern(Regex),
    AllLinear,
}

impl ModuleRule {
    fn new(text: OneOrMany<String>) -> Result<Self, fancy_regex::Error> {
        Ok(match text {
            OneOrMany::Many(names) => Self::Names(names),
            OneOrMany::One(text) if text.eq_ignore_ascii_case(ALL_LINEAR) => Self::AllLinear,
            OneOrMany::One(pattern) => Self::Pattern(compiled(&format!("^(?:{pattern})$"), 1)?),
        })
    }

    /// Returns whether a list names a module by its whole path.
    fn names_whole(&self, path: &str) -> bool {
        matches!(self, Self::Names(names) if names.iter().any(|name| name == path))
    }

    /// Applies PEFT's rule: a name matches the module of that path and every module whose path ends
    /// with `.name`.
    fn matches(&self, module: Module) -> bool {
        let path = module.path();
        match self {
            Self::Names(names) => names.iter().any(|name| is_path_or_tail(&path, name)),
            Self::Pattern(pattern) => is_match(pattern, &path),
            Self::AllLinear => matches!(module, Module::Linear { .. }),
        }
    }
}

/// Returns whether `name` is the path, or the part of it after a dot.
fn is_path_or_tail(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Backtracking steps that the patterns of a field may take together for one module. Only
/// look-around and backreferences backtrack; other patterns run in linear time. The path of a
/// module has about sixty characters.
const STEPS_BACK: usize = 200_000;

/// Compiles one of `count` patterns of a field. Patterns are untrusted, since they come from a
/// download.
fn compiled(pattern: &str, count: usize) -> Result<Regex, fancy_regex::Error> {
    RegexBuilder::new(pattern).backtrack_limit(STEPS_BACK / count.max(1)).build()
}

/// A pattern that exceeds the engine's backtracking limit matches nothing; its tensors are then
/// reported as unexpected.
fn is_match(pattern: &Regex, path: &str) -> bool {
    pattern.is_match(path).unwrap_or(false)
}

/// Values by pattern, in the order of the file. The first pattern that matches counts.
#[derive(Debug)]
struct ByPattern(Vec<(Regex, f64)>);

impl ByPattern {
    /// Applies PEFT's rule: a pattern matches a whole path or its end after a dot.
    fn new(entries: IndexMap<String, f64>) -> Result<Self, fancy_regex::Error> {
        let count = entries.len();
        let compile = |(pattern, value)| Ok((compiled(&format!("^(?:.*\\.)?(?:{pattern})$"), count)?, value));
        entries.into_iter().map(compile).collect::<Result<_, _>>().map(Self)
    }

    fn get(&self, path: &str) -> Option<f64> {
        self.0.iter().find(|(pattern, _)| is_match(pattern, path)).map(|&(_, value)| value)
    }
}

/// The layers to which a list of names applies, except for names that are whole paths.
#[derive(Debug)]
struct Layers {
    indices: Vec<usize>,
    /// Patterns of the beginnings of layers' paths. If there are none, any module list counts.
    patterns: Vec<Regex>,
}

impl Layers {
    fn new(indices: Vec<usize>, patterns: Vec<String>) -> Result<Self, fancy_regex::Error> {
        let patterns = if patterns.is_empty() { vec!["[^.]*".to_owned()] } else { patterns };
        let count = patterns.len();
        let compile = |pattern: String| compiled(&format!("^(?:.*?\\.)??(?:{pattern})\\.([0-9]+)\\."), count);
        Ok(Self { indices, patterns: patterns.into_iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// Applies PEFT's rule: the first pattern that finds an index decides, and a module without an
    /// index is not chosen.
    fn contain(&self, path: &str) -> bool {
        let index = self.patterns.iter().find_map(|pattern| {
            let found = pattern.captures(path).ok()??;
            // The last group is the index, since a pattern may have its own groups.
            found.get(found.len() - 1)?.as_str().parse::<usize>().ok()
        });
        index.is_some_and(|index| self.indices.contains(&index))
    }
}

/// The settings of an adapter that decide what it computes.
#[derive(Debug)]
pub(in crate::hf) struct AdapterConfig {
    targets: ModuleRule,
    excluded: Option<ModuleRule>,
    layers: Option<Layers>,
    rank: usize,
    alpha: f64,
    ranks: ByPattern,
    alphas: ByPattern,
    rank_stabilised: bool,
}

/// `adapter_config.json` as read.
#[derive(Deserialize)]
struct RawAdapterConfig {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    target_modules: Option<OneOrMany<String>>,
    exclude_modules: Option<OneOrMany<String>>,
    #[serde(default, deserialize_with = "json::list")]
    layers_to_transform: Vec<usize>,
    #[serde(default, deserialize_with = "json::list")]
    layers_pattern: Vec<String>,
    rank_pattern: Option<IndexMap<String, f64>>,
    alpha_pattern: Option<IndexMap<String, f64>>,
    #[serde(default)]
    use_rslora: bool,
    init_lora_weights: Option<Value>,
    bias: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Returns the modules that an adapter's configuration lists, or the pattern that selects them;
/// `None` if the directory has no `adapter_config.json` with either.
#[must_use]
pub fn target_modules(directory: &Path) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Targets {
        target_modules: OneOrMany<String>,
    }
    let targets: Targets = read_json(&directory.join(super::CONFIG_FILE)).ok()?;
    Some(targets.target_modules.into_vec())
}

impl AdapterConfig {
    /// Reads `adapter_config.json`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or has a setting that is not supported, which is named.
    pub(in crate::hf) fn from_file(path: &Path) -> Result<Self, CheckpointError> {
        Self::new(path, read_json(path)?)
    }

    fn new(path: &Path, raw: RawAdapterConfig) -> Result<Self, CheckpointError> {
        let refusal = |field: &str, value: String, reason: &str| CheckpointError::Adapter {
            path: path.to_owned(),
            field: field.to_owned(),
            value,
            reason: reason.to_owned(),
        };
        if raw.peft_type != "LORA" {
            return Err(refusal("peft_type", raw.peft_type, "only LORA is supported"));
        }
        if let Some(bias) = raw.bias.filter(|bias| bias != "none") {
            return Err(refusal("bias", bias, "adapters that change biases are not supported"));
        }
        if let Some(Value::String(kind)) = raw.init_lora_weights.filter(changes_backbone) {
            return Err(refusal("init_lora_weights", kind, "it changes the backbone's own weights; convert the adapter"));
        }
        let task = raw.rest.get("task_type").and_then(Value::as_str);
        if let Some(task) = task.filter(|&task| task != "CAUSAL_LM") {
            return Err(refusal("task_type", task.to_owned(), "only CAUSAL_LM is supported"));
        }
        let unsupported = raw.rest.iter().find(|(field, value)| !WITHOUT_EFFECT.contains(&field.as_str()) && is_on(value));
        if let Some((field, value)) = unsupported {
            return Err(refusal(field, value.to_string(), "this feature of PEFT is not supported"));
        }

        let pattern_error = |field: &'static str| {
            move |error: fancy_regex::Error| refusal(field, "not a regular expression".to_owned(), &error.to_string())
        };
        let Some(targets) = raw.target_modules else {
            return Err(refusal("target_modules", "null".to_owned(), "it must name the modules to change"));
        };
        let (indices, patterns) = (raw.layers_to_transform, raw.layers_pattern);
        let layers = match (&targets, indices.is_empty()) {
            (_, true) if !patterns.is_empty() => {
                return Err(refusal("layers_pattern", patterns.join(", "), "it needs layers_to_transform"));
            }
            (_, true) => None,
            (OneOrMany::One(_), false) => {
                let value = format!("{indices:?}");
                return Err(refusal("layers_to_transform", value, "it needs a list of target_modules"));
            }
            (OneOrMany::Many(_), false) => Some(Layers::new(indices, patterns).map_err(pattern_error("layers_pattern"))?),
        };
        let ranks = raw.rank_pattern.unwrap_or_default();
        let all_ranks = ranks.values().map(|&rank| ("rank_pattern", rank));
        let broken = std::iter::once(("r", raw.r as f64)).chain(all_ranks).find(|(_, rank)| *rank < 1.0 || rank.fract() != 0.0);
        if let Some((field, rank)) = broken {
            return Err(refusal(field, rank.to_string(), "a rank is a whole number from 1 up"));
        }
        let alphas = raw.alpha_pattern.unwrap_or_default();
        let all_alphas = alphas.values().map(|&alpha| ("alpha_pattern", alpha));
        // Updates are scaled in f32. A negative α is valid: it subtracts the update.
        let broken =
            std::iter::once(("lora_alpha", raw.lora_alpha)).chain(all_alphas).find(|(_, alpha)| !(*alpha as f32).is_finite());
        if let Some((field, alpha)) = broken {
            return Err(refusal(field, format!("{alpha:e}"), "it must be finite in f32"));
        }
        Ok(Self {
            targets: ModuleRule::new(targets).map_err(pattern_error("target_modules"))?,
            excluded: raw
                .exclude_modules
                .filter(|rule| !rule.is_empty())
                .map(ModuleRule::new)
                .transpose()
                .map_err(pattern_error("exclude_modules"))?,
            layers,
            rank: raw.r,
            alpha: raw.lora_alpha,
            ranks: ByPattern::new(ranks).map_err(pattern_error("rank_pattern"))?,
            alphas: ByPattern::new(alphas).map_err(pattern_error("alpha_pattern"))?,
            rank_stabilised: raw.use_rslora,
        })
    }

    /// Returns whether the adapter changes a module.
    pub(super) fn targets(&self, module: Module) -> bool {
        let in_layers = |layers: &Layers| {
            let path = module.path();
            self.targets.names_whole(&path) || layers.contain(&path)
        };
        self.targets.matches(module)
            && !self.excluded.as_ref().is_some_and(|rule| rule.matches(module))
            && self.layers.as_ref().is_none_or(in_layers)
    }

    /// Returns the rank r and the scale of the low-rank update of a module: `α/r`, or `α/√r` if it
    /// is rank-stabilised.
    pub(super) fn rank_and_scale(&self, module: Module) -> (usize, f64) {
        let path = module.path();
        let rank = self.ranks.get(&path).map_or(self.rank, |rank| rank as usize);
        let alpha = self.alphas.get(&path).unwrap_or(self.alpha);
        let divisor = if self.rank_stabilised { (rank as f64).sqrt() } else { rank as f64 };
        (rank, alpha / divisor)
    }
}

/// Returns whether an initialisation changes the backbone's weights.
fn changes_backbone(init: &Value) -> bool {
    init.as_str().is_some_and(|kind| !PLAIN_INITIALISATIONS.contains(&kind.to_ascii_lowercase().as_str()))
}

/// Returns whether a setting is on.
fn is_on(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

impl OneOrMany<String> {
    fn is_empty(&self) -> bool {
        match self {
            Self::One(text) => text.is_empty(),
            Self::Many(names) => names.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Qwen2Config, lora::Target};

    fn model() -> Qwen2Config {
        Qwen2Config::small([8, 8, 8, 12, 2, 2])
    }

    fn parse(fields: &str) -> Result<AdapterConfig, CheckpointError> {
        let text = format!(r#"{{"peft_type": "LORA", "r": 4, "lora_alpha": 8{fields}}}"#);
        AdapterConfig::new(Path::new("adapter_config.json"), json::parse(&text).unwrap())
    }

    /// Returns the paths that a configuration targets, without `model.layers.`.
    fn targeted(fields: &str) -> Vec<String> {
        let config = parse(fields).unwrap();
        Module::all(&model())
            .filter(|&module| config.targets(module))
            .map(|module| module.path().replace("model.layers.", ""))
            .collect()
    }

    fn linear(layer: usize, target: Target) -> Module {
        Module::Linear { layer, target }
    }

    #[test]
    fn names_match_whole_paths_and_their_ends() {
        assert_eq!(targeted(r#", "target_modules": ["q_proj"]"#).len(), 12);
        assert_eq!(targeted(r#", "target_modules": ["1.mlp.up_proj"]"#), ["1.mlp.up_proj"]);
        assert_eq!(targeted(r#", "target_modules": ["lm_head", "embed_tokens"]"#), ["model.embed_tokens", "lm_head"]);
        assert!(targeted(r#", "target_modules": ["proj", "head", "_proj"]"#).is_empty());
    }

    #[test]
    fn a_pattern_must_match_the_whole_path() {
        assert_eq!(targeted(r#", "target_modules": ".*\\.3\\.(self_attn\\.q_proj|mlp\\..*)""#).len(), 4);
        assert!(targeted(r#", "target_modules": "q_proj""#).is_empty());
        // Look-ahead, as in many published adapters.
        assert_eq!(targeted(r#", "target_modules": "^(?!.*mlp).*layers\\.0\\..*_proj""#).len(), 4);
    }

    #[test]
    fn all_linear_leaves_head_and_embedding_out() {
        assert_eq!(targeted(r#", "target_modules": "All-Linear""#).len(), 12 * 7);
        assert_eq!(targeted(r#", "target_modules": "all-linear", "exclude_modules": ["q_proj"]"#).len(), 12 * 6);
        assert_eq!(targeted(r#", "target_modules": "all-linear", "exclude_modules": ".*(mlp|attn).*""#).len(), 0);
    }

    #[test]
    fn layers_are_picked_by_index() {
        let pick = |rest: &str| targeted(&format!(r#", "target_modules": ["q_proj", "embed_tokens"]{rest}"#));
        assert_eq!(pick(r#", "layers_to_transform": [1, 11]"#), ["1.self_attn.q_proj", "11.self_attn.q_proj"]);
        assert_eq!(pick(r#", "layers_to_transform": 2"#), ["2.self_attn.q_proj"]);
        assert_eq!(pick(r#", "layers_to_transform": 2, "layers_pattern": "layers""#), ["2.self_attn.q_proj"]);
        assert!(pick(r#", "layers_to_transform": 2, "layers_pattern": ["blocks", "h"]"#).is_empty());
        assert_eq!(pick(r#", "layers_to_transform": []"#).len(), 13);
    }

    /// As PEFT does: the head, whose name is its path, is changed beside the picked layers.
    #[test]
    fn a_module_named_by_its_whole_path_is_in_no_layer() {
        let names = r#""q_proj", "lm_head", "model.layers.0.self_attn.v_proj", "layers.3.self_attn.v_proj""#;
        assert_eq!(
            targeted(&format!(r#", "target_modules": [{names}], "layers_to_transform": [1]"#)),
            ["0.self_attn.v_proj", "1.self_attn.q_proj", "lm_head"]
        );
    }

    #[test]
    fn the_first_pattern_that_matches_sets_rank_and_alpha() {
        let config = parse(
            r#", "target_modules": "all-linear", "rank_pattern": {"layers.0.mlp.up_proj": 2, "up_proj": 16, "u.*": 1},
               "alpha_pattern": {"^model\\.layers\\.0\\..*": 4}"#,
        )
        .unwrap();
        assert_eq!(config.rank_and_scale(linear(0, Target::Up)), (2, 2.0));
        assert_eq!(config.rank_and_scale(linear(1, Target::Up)), (16, 0.5));
        assert_eq!(config.rank_and_scale(linear(1, Target::Gate)), (4, 2.0));
    }

    #[test]
    fn patterns_share_one_budget() {
        // Without a limit, each of them takes longer than a day to find that it does not match.
        let slow = |count: usize| {
            let entries = (0..count).map(|n| format!(r#""(?=.)(?:(?=.)[a-z_.0-9]+)+(?=.){n}!": 2"#)).collect::<Vec<_>>();
            let patterns = entries.join(", ");
            parse(&format!(r#", "target_modules": ["q_proj"], "rank_pattern": {{{patterns}}}, "alpha_pattern": {{{patterns}}}"#))
                .unwrap()
        };
        let time = |config: &AdapterConfig| {
            let start = std::time::Instant::now();
            assert!(Module::all(&model()).all(|module| config.rank_and_scale(module) == (4, 2.0)));
            start.elapsed()
        };
        let (one, many) = (time(&slow(1)), time(&slow(300)));
        // Besides backtracking, 300 patterns take the linear time of each.
        assert!(many < 10 * one + std::time::Duration::from_secs(2), "one takes {one:?}, 300 take {many:?}");
    }

    #[test]
    fn rank_stabilised_scales_divide_by_the_root() {
        let config = parse(r#", "target_modules": ["q_proj"], "use_rslora": true"#).unwrap();
        assert_eq!(config.rank_and_scale(linear(0, Target::Query)), (4, 4.0));
    }

    #[test]
    fn unsupported_settings_are_refused_by_name() {
        for (field, value) in [
            ("use_dora", "true"),
            ("modules_to_save", r#"["lm_head"]"#),
            ("bias", r#""all""#),
            ("trainable_token_indices", "[1, 2]"),
            ("use_qalora", "true"),
            ("use_bdlora", r#"{"nblocks": 2}"#),
            ("lora_bias", "true"),
            ("init_lora_weights", r#""pissa_niter_4""#),
            ("init_lora_weights", r#""olora""#),
            ("init_lora_weights", r#""loftq""#),
            ("layer_replication", "[[0, 4], [2, 5]]"),
            ("alora_invocation_tokens", "[5]"),
            ("target_parameters", r#"["experts.up"]"#),
            ("megatron_config", r#"{"a": 1}"#),
            ("ensure_weight_tying", "true"),
            ("task_type", r#""SEQ_CLS""#),
            ("a_feature_of_tomorrow", "true"),
            ("layers_pattern", r#""layers""#),
        ] {
            let error = parse(&format!(r#", "target_modules": ["q_proj"], "{field}": {value}"#)).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(&format!("`{field}`")), "{field}: {message}");
            assert!(message.contains("adapter_config.json") && !message.contains('\n'), "{message}");
        }
        for (field, fields) in [
            ("target_modules", ""),
            ("target_modules", r#", "target_modules": "(""#),
            ("layers_to_transform", r#", "target_modules": ".*q_proj", "layers_to_transform": [1]"#),
            ("rank_pattern", r#", "target_modules": ["q_proj"], "rank_pattern": {"[": 2}"#),
        ] {
            let message = parse(fields).unwrap_err().to_string();
            assert!(message.contains(&format!("`{field}`")) && !message.contains('\n'), "{message}");
        }
        let other = r#"{"peft_type": "IA3", "r": 1, "lora_alpha": 1}"#;
        let message = AdapterConfig::new(Path::new("c"), json::parse(other).unwrap()).unwrap_err().to_string();
        assert!(message.contains("`peft_type` is IA3"), "{message}");
        let message = parse(r#", "target_modules": ["q_proj"], "rank_pattern": {"q_proj": 0}"#).unwrap_err().to_string();
        assert!(message.contains("`rank_pattern` is 0: a rank is a whole number"), "{message}");
        let alpha = r#"{"peft_type": "LORA", "r": 4, "lora_alpha": -1e39, "target_modules": ["q_proj"]}"#;
        let message = AdapterConfig::new(Path::new("c"), json::parse(alpha).unwrap()).unwrap_err().to_string();
        assert!(message.contains("`lora_alpha` is -1e39: it must be finite"), "{message}");
        let message = parse(r#", "target_modules": ["q_proj"], "alpha_pattern": {"q_proj": 1e39}"#).unwrap_err().to_string();
        assert!(message.contains("`alpha_pattern` is 1e39: it must be finite"), "{message}");
    }

    #[test]
    fn settings_without_effect_are_accepted() {
        let fields = r#", "target_modules": ["q_proj"], "lora_dropout": 0.1, "task_type": "CAUSAL_LM", "bias": "none",
            "init_lora_weights": "gaussian", "fan_in_fan_out": true, "megatron_core": "megatron.core",
            "peft_version": "0.21.2", "use_dora": false, "modules_to_save": null, "loftq_config": {}"#;
        assert!(parse(fields).is_ok());
    }
}
