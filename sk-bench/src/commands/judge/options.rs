use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::{Map, Value};

use crate::args::{at_most, choice, written};
use crate::judge::run::MOST_AT_ONCE;
use crate::judge::{
    ChatJudge, ChatSettings, Endpoint, JudgeError, Objectives, OfflineJudge, Retry, Rubric, Scale, Scoring, Structure,
};
use crate::{Error, message, output, suggest};

/// The folder name that stands for the bundled judge.
const EMBEDDED: &str = "embedded:judge";

/// The options of a judge behind a server.
const NOT_OFFLINE: [&str; 12] = [
    "endpoint",
    "model",
    "api_key_env",
    "timeout",
    "attempts",
    "scoring",
    "scale",
    "temperature",
    "max_tokens",
    "structure",
    "request",
    "cache",
];

/// What is judged, by whom, and how.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").args(["endpoint", "offline"]).required(true))]
pub(crate) struct JudgingArgs {
    /// Responses: JSON lines, gzipped or not.
    #[arg(value_name = "RESPONSES")]
    pub(super) responses: PathBuf,
    /// Judgements: a file to add to, or to begin.
    #[arg(short, long, value_name = "JUDGED", value_parser = written())]
    pub(super) output: PathBuf,
    /// Base address of an OpenAI-compatible server, such as http://localhost:8000/v1.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    endpoint: Option<String>,
    /// Judge without a server: by the preference models that ship, or by those of a folder.
    ///
    /// The folder holds helpful, harmless and honest, or the models that the rubrics of
    /// --objectives name, as `train judge` writes them, and fluency, a language model as `train lm`
    /// writes it.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = EMBEDDED,
        conflicts_with_all = NOT_OFFLINE)]
    pub(super) offline: Option<PathBuf>,
    /// The model; may be left out where the server offers only one.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    model: Option<String>,
    /// Environment variable that holds the API key. It is sent if it is set, and written nowhere.
    #[arg(long, value_name = "VARIABLE", default_value = "SWISS_KNIFE_API_KEY", help_heading = "Server")]
    api_key_env: String,
    /// Questions under way at the same time.
    #[arg(long, value_name = "QUESTIONS", default_value_t = 8, value_parser = at_most::<MOST_AT_ONCE>, help_heading = "Server")]
    pub(super) concurrency: usize,
    /// Seconds until a request counts as failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Server")]
    timeout: u64,
    /// Attempts per question; the pause between them doubles each time.
    #[arg(long, value_name = "TIMES", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Server")]
    attempts: u32,
    /// What responses are judged by: a file of objectives [default: quality, safety and honesty].
    #[arg(long, value_name = "FILE", help_heading = "Scoring")]
    objectives: Option<PathBuf>,
    /// Rubrics, separated by commas; all that the judge answers if not given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Scoring")]
    rubrics: Vec<String>,
    /// How to compute a score from the model's answer.
    #[arg(long, value_name = "HOW", default_value = "integer", value_parser = choice(Scoring::ALL), help_heading = "Scoring")]
    scoring: Scoring,
    /// Scale the model answers on, where a rubric has none of its own [default: 0-10 for integer,
    /// 1-5 for logprob].
    #[arg(long, value_name = "LOW-HIGH", help_heading = "Scoring")]
    scale: Option<Scale>,
    /// Sampling temperature of the judge.
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, value_parser = temperature, help_heading = "Scoring")]
    temperature: f64,
    /// Maximum number of tokens of an answer [default: 512 for integer, 16 for logprob].
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Scoring")]
    max_tokens: Option<u32>,
    /// How an answer is made to have the right form; the strictest way the server supports if not
    /// given.
    #[arg(long, value_name = "HOW", value_parser = choice(Structure::ALL), help_heading = "Scoring")]
    structure: Option<Structure>,
    /// Fields to add to each request, as a JSON object; null takes a field out.
    ///
    /// Such as {"chat_template_kwargs": {"enable_thinking": false}}.
    #[arg(long, value_name = "JSON", value_parser = object, help_heading = "Scoring")]
    request: Option<Map<String, Value>>,
    /// Cache directory for scores [default: swiss-knife/judge in the user's cache].
    #[arg(long, value_name = "DIR", value_parser = written(), conflicts_with = "no_cache", help_heading = "Output")]
    cache: Option<PathBuf>,
    /// Do not use the cache.
    #[arg(long, help_heading = "Output")]
    no_cache: bool,
    /// Print the summary as JSON.
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Do not show progress.
    #[arg(short, long, help_heading = "Output")]
    pub(super) quiet: bool,
}

impl JudgingArgs {
    /// Returns the objectives.
    pub(super) fn objectives(&self) -> Result<Objectives, Error> {
        let default = if self.offline.is_some() { Objectives::offline() } else { Objectives::hhh() };
        super::read_objectives(self.objectives.as_deref(), default)
    }

    /// Returns the requested rubrics without duplicates.
    pub(super) fn rubrics<'a>(&self, objectives: &'a Objectives) -> Result<Vec<&'a Rubric>, Error> {
        let all: Vec<&Rubric> =
            if self.offline.is_some() { OfflineJudge::rubrics(objectives) } else { objectives.rubrics.iter().collect() };
        if self.rubrics.is_empty() {
            return Ok(all);
        }
        let mut chosen: Vec<&Rubric> = Vec::new();
        for name in self.rubrics.iter().map(|name| name.trim()) {
            let found = all.iter().find(|rubric| rubric.name == name).ok_or_else(|| {
                let hint = suggest::hint(name, all.iter().map(|rubric| rubric.name.as_str()));
                Error::Input(format!("unknown rubric \"{name}\"; {hint}"))
            })?;
            if !chosen.contains(found) {
                chosen.push(found);
            }
        }
        Ok(chosen)
    }

    /// Loads the offline judge, if requested.
    pub(super) fn offline_judge(&self, objectives: &Objectives) -> Result<Option<OfflineJudge>, Error> {
        let Some(folder) = &self.offline else { return Ok(None) };
        if folder.as_os_str() == EMBEDDED && OfflineJudge::embedded().is_none() {
            return Err(Error::Input("this build of the program holds no judge; give --offline=DIR".to_owned()));
        }
        Ok(Some(OfflineJudge::load(folder, objectives)?))
    }

    /// Returns the judge behind the endpoint. If no model is given, the server is asked for its
    /// only model.
    pub(super) fn judge(&self) -> Result<ChatJudge, JudgeError> {
        // The parser requires an endpoint if no other judge is given.
        let url = self.endpoint.as_deref().unwrap_or_default();
        let timeout = Duration::from_secs(self.timeout);
        let retry = Retry { attempts: self.attempts, ..Retry::default() };
        let (endpoint, model) = Endpoint::open(url, &self.api_key_env, timeout, self.model.as_deref(), retry)?;
        let defaults = ChatSettings::new(model, self.scoring);
        let settings = ChatSettings {
            scale: self.scale.unwrap_or(defaults.scale),
            temperature: self.temperature,
            max_tokens: self.max_tokens.unwrap_or(defaults.max_tokens),
            structure: self.structure,
            extra: self.request.clone().unwrap_or_default(),
            retry,
            ..defaults
        };
        ChatJudge::new(endpoint, settings)
    }

    /// Prints a note if the server does not support a JSON schema, which is tried first.
    pub(super) fn note_structure(&self, judge: &ChatJudge) {
        let expected = self.scoring == Scoring::Integer && self.structure.is_none();
        if expected && judge.structure() != Structure::Schema && !self.quiet {
            let way =
                if judge.structure() == Structure::Object { "response_format json_object" } else { "asking for JSON in words" };
            message::note(&format!("the server does not take response_format json_schema; {way} was used instead"));
        }
    }

    /// Returns the directory of the cache; `None` if the cache is disabled.
    pub(super) fn cache_directory(&self) -> Option<PathBuf> {
        if self.no_cache {
            return None;
        }
        self.cache.clone().or_else(|| Some(output::user_folder("XDG_CACHE_HOME", ".cache")?.join("judge")))
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("it must be a number of at least 0".to_owned()),
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("it must be a JSON object: {error}"))
}
