//! Parsed request bodies.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sk_core::{Instruction, TokenId};
use sk_models::text::{Message, Role};
use sk_scheme::suggest;

use crate::ApiError;
use crate::response::StreamUsage;

/// Maximum number of answers per prompt.
const MOST_CHOICES: usize = 8;

/// Maximum number of stop texts.
const MOST_STOPS: usize = 16;

/// Maximum number of scheme fields that a request sets. Every shipped scheme has fewer.
const MOST_FIELDS: usize = 128;

/// Maximum number of prompts per request.
const MOST_PROMPTS: usize = 128;

/// Maximum number of most likely tokens reported at each position.
const MOST_LIKELY: usize = 20;

/// A completion request of either endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) model: Option<String>,
    /// The prompts. Each gets `choices` answers.
    pub(crate) prompts: Vec<Prompt>,
    /// The maximum number of tokens of an answer, with the name of the field that sets it.
    pub(crate) max_new_tokens: Option<(&'static str, usize)>,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    /// Whether an answer continues after an end-of-text token. The token is left out.
    pub(crate) ignore_eos: bool,
    pub(crate) choices: usize,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Vec<String>,
    pub(crate) stream: bool,
    pub(crate) usage: StreamUsage,
    /// Whether an answer begins with its prompt.
    pub(crate) echo: bool,
    /// The number of most likely tokens reported at each position; `None` if no log-probabilities
    /// were requested.
    pub(crate) log_probs: Option<usize>,
    pub(crate) steering: SteeringBody,
}

/// A prompt to answer or continue.
#[derive(Debug, Clone)]
pub(crate) enum Prompt {
    /// The messages of a dialogue.
    Messages(Vec<Message>),
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// A prompt with its tokens.
pub(crate) struct Asked {
    pub(crate) prompt: Prompt,
    pub(crate) tokens: Vec<TokenId>,
    /// The number of prompt tokens. The tokens after them are the given prefix of the answer.
    pub(crate) opening: usize,
    /// The text of each instruction of the scheme, and the beginning of the context that it makes.
    pub(crate) instructions: Vec<(String, Instruction)>,
}

impl Asked {
    /// Returns the most tokens that an instruction adds to the context.
    pub(crate) fn extra(&self) -> usize {
        self.instructions.iter().map(|(_, instruction)| instruction.extra()).max().unwrap_or(0)
    }

    /// Returns whether the answer continues a text, rather than beginning a turn.
    pub(crate) fn continues(&self) -> bool {
        self.tokens.len() > self.opening || !matches!(self.prompt, Prompt::Messages(_))
    }
}

/// The field `swiss_knife`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SteeringBody {
    /// The weights of blades, by name.
    pub(crate) weights: Option<BTreeMap<String, f64>>,
    /// The name of a bundled scheme.
    pub(crate) scheme: Option<String>,
    /// The operating point.
    pub(crate) preset: Option<String>,
    /// Fields of the scheme to set, each `SLOT.FIELD=VALUE`.
    pub(crate) set: Vec<String>,
    /// Additional blades of this request by name, each `instruction:TEXT`.
    pub(crate) blades: BTreeMap<String, String>,
    /// Whether the response describes each step.
    pub(crate) explain: bool,
    /// τ of the certificates that `explain` adds.
    pub(crate) tolerance: Option<f64>,
    /// Tokens that the answer begins with. Generation continues after them.
    pub(crate) prefix: Vec<TokenId>,
}

impl SteeringBody {
    /// Parses the fields of an object. `within` is the prefix of their names in errors.
    pub(crate) fn read(within: &'static str, map: Map<String, Value>) -> Result<Self, ApiError> {
        let mut fields = Fields::new(within, map);
        let body = Self {
            weights: fields.take("weights")?,
            scheme: fields.take("scheme")?,
            preset: fields.take("preset")?,
            set: fields.take("set")?.unwrap_or_default(),
            blades: fields.take("blades")?.unwrap_or_default(),
            explain: fields.take("explain")?.unwrap_or_default(),
            tolerance: fields.take("tolerance")?,
            prefix: fields.take("prefix")?.unwrap_or_default(),
        };
        fields.end()?;
        if body.set.len() > MOST_FIELDS {
            let message = format!("`set` holds at most {MOST_FIELDS} fields, and has {}", body.set.len());
            return Err(ApiError::invalid("swiss_knife.set", message));
        }
        Ok(body)
    }
}

/// Maximum length of the name of a blade in bytes.
const LONGEST_NAME: usize = 256;

/// Refuses the name of a blade, which the field `param` holds, if it cannot be used elsewhere.
pub(crate) fn check_name(param: &str, name: &str) -> Result<(), ApiError> {
    if name.trim().is_empty() {
        return Err(ApiError::invalid(param, "a blade needs a name"));
    }
    // Such a name would end early in `--blade NAME=SOURCE` and in `--weights NAME=W,…`.
    if name.contains([',', ':', '=']) || name.contains(char::is_whitespace) {
        let message = format!("\"{name}\" has a blank, a comma, a colon or an equals sign; give the blade a name without them");
        return Err(ApiError::invalid(param, message));
    }
    // `DELETE /swiss-knife/blades/NAME` would not reach such a name.
    if [".", ".."].contains(&name) || name.contains(char::is_control) || name.len() > LONGEST_NAME {
        let message = format!(
            "the name of a blade has at most {LONGEST_NAME} bytes, none of them control characters, and is neither \".\" nor \"..\""
        );
        return Err(ApiError::invalid(param, message));
    }
    Ok(())
}

/// Returns the text of a blade source `instruction:TEXT`, which the field `param` holds.
pub(crate) fn instruction_of<'a>(param: &str, name: &str, source: &'a str) -> Result<&'a str, ApiError> {
    check_name(param, name)?;
    let text = source.strip_prefix("instruction:").map(str::trim).filter(|text| !text.is_empty());
    text.ok_or_else(|| ApiError::invalid(param, format!("blade \"{name}\" of a request is `instruction:TEXT`")))
}

/// Returns the message of an error with words for Rust's names of types.
pub(crate) fn in_words(error: &serde_json::Error) -> String {
    let names = [
        ("usize", "a whole number of at least 0"),
        ("u32", "a whole number of at least 0"),
        ("i64", "a whole number between −2⁶³ and 2⁶³ − 1"),
        ("f64", "a number"),
        ("a map", "an object"),
        ("a sequence", "a list"),
    ];
    let message = error.to_string();
    let expected = |words| format!("expected {words}");
    names.iter().fold(message, |message, (name, words)| message.replace(&expected(name), &expected(words)))
}

/// A JSON object whose fields are taken one by one. Fields that are left at the end are refused.
pub(crate) struct Fields {
    /// The prefix of their names in errors.
    within: &'static str,
    map: Map<String, Value>,
    /// The names of all fields asked for so far.
    known: Vec<String>,
}

impl Fields {
    pub(crate) fn new(within: &'static str, map: Map<String, Value>) -> Self {
        Self { within, map, known: Vec::new() }
    }

    fn remove(&mut self, name: &str) -> Option<Value> {
        self.known.push(name.to_owned());
        self.map.remove(name)
    }

    /// Takes a field. A null counts as absent.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value).map(Some).map_err(|error| {
                let name = format!("{}{name}", self.within);
                let message = format!("`{name}`: {}", in_words(&error));
                ApiError::invalid(name, message)
            }),
        }
    }

    /// Takes a field that must be there.
    pub(crate) fn require<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::invalid(name, format!("`{name}` is missing")))
    }

    /// Takes a number that must be within a range.
    fn number(&mut self, name: &str, range: impl RangeBounds<f64>, stated: &str) -> Result<Option<f64>, ApiError> {
        match self.take::<f64>(name)? {
            Some(value) if !range.contains(&value) => {
                Err(ApiError::invalid(name, format!("`{name}` is {value}; it must be {stated}")))
            }
            value => Ok(value),
        }
    }

    /// Takes a field that is not supported, and refuses it unless its value is absent, null or one
    /// of `idle`, which have no effect.
    fn refuse_unless(&mut self, name: &str, idle: &[Value]) -> Result<(), ApiError> {
        match self.remove(name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if idle.contains(&value) => Ok(()),
            Some(_) => Err(ApiError::unsupported(&format!("{}{name}", self.within))),
        }
    }

    pub(crate) fn end(self) -> Result<(), ApiError> {
        refuse_rest(self.within, &self.map, &self.known)
    }
}

/// Refuses the first remaining field of an object that is neither null nor an empty list, which
/// clients send for options that are not set. The error suggests one of the `known` fields. `within`
/// is the prefix of the fields' names in it.
fn refuse_rest(within: &str, rest: &Map<String, Value>, known: &[String]) -> Result<(), ApiError> {
    let says_something = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    match rest.iter().find(|(_, value)| says_something(value)) {
        Some((name, _)) => {
            let meant = suggest::closest(name, known.iter().map(String::as_str)).map(|meant| format!("{within}{meant}"));
            Err(ApiError::unknown(&format!("{within}{name}"), meant.as_deref()))
        }
        None => Ok(()),
    }
}

impl Job {
    /// Parses the body of `/v1/chat/completions`. `header` is the steering from the header;
    /// steering in the body takes precedence.
    pub(crate) fn chat(body: Map<String, Value>, header: Option<SteeringBody>) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body);
        let messages: Vec<MessageBody> = fields.require("messages")?;
        let messages = messages.into_iter().map(MessageBody::message).collect::<Result<Vec<_>, _>>()?;
        if !messages.iter().any(|message| message.role == Role::User) {
            return Err(ApiError::invalid("messages", "`messages` has no message of a user"));
        }
        let wanted = fields.take("logprobs")?.unwrap_or(false);
        let likely = fields.take::<usize>("top_logprobs")?;
        if likely.is_some_and(|likely| likely > 0) && !wanted {
            return Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs`"));
        }
        let log_probs = check_likely("top_logprobs", wanted.then(|| likely.unwrap_or(0)))?;
        fields.refuse_unless("response_format", &[json!({"type": "text"})])?;
        // Clients set `tool_choice` and `parallel_tool_calls` for the tools.
        fields.refuse_unless("tools", &[json!([])])?;
        fields.refuse_unless("tool_choice", &[json!("none"), json!("auto")])?;
        fields.refuse_unless("parallel_tool_calls", &[json!(false), json!(true)])?;
        fields.refuse_unless("modalities", &[json!(["text"])])?;
        let newest = fields.take("max_completion_tokens")?;
        let job = Self::rest(fields, vec![Prompt::Messages(messages)], newest, header)?;
        Self { log_probs, ..job }.checked()
    }

    /// Parses the body of `/v1/completions`.
    pub(crate) fn completion(body: Map<String, Value>, header: Option<SteeringBody>) -> Result<Self, ApiError> {
        let mut fields = Fields::new("", body);
        let prompts = match fields.require("prompt")? {
            PromptBody::Text(text) => vec![Prompt::Text(text)],
            PromptBody::Texts(texts) => texts.into_iter().map(Prompt::Text).collect(),
            PromptBody::Tokens(tokens) => vec![Prompt::Tokens(tokens)],
            PromptBody::Many(many) => many.into_iter().map(Prompt::Tokens).collect(),
        };
        if !(1..=MOST_PROMPTS).contains(&prompts.len()) {
            let message = format!("`prompt` holds {} prompts; it must hold between 1 and {MOST_PROMPTS}", prompts.len());
            return Err(ApiError::invalid("prompt", message));
        }
        let echo = fields.take("echo")?.unwrap_or(false);
        let log_probs = check_likely("logprobs", fields.take("logprobs")?)?;
        fields.refuse_unless("suffix", &[json!("")])?;
        let job = Self::rest(fields, prompts, None, header)?;
        Self { echo, log_probs, ..job }.checked()
    }

    /// Refuses invalid combinations of fields.
    fn checked(self) -> Result<Self, ApiError> {
        match self.steering.tolerance {
            Some(tolerance) if !(0.0..1.0).contains(&tolerance) => {
                let message = format!("`tolerance` is {tolerance}; it must be in [0, 1)");
                return Err(ApiError::invalid("swiss_knife.tolerance", message));
            }
            Some(_) if !self.steering.explain => {
                return Err(ApiError::invalid("swiss_knife.tolerance", "`tolerance` needs `explain`, which tells certificates"));
            }
            _ => {}
        }
        if let Some((field, 0)) = self.max_new_tokens
            && !self.echo
        {
            return Err(ApiError::invalid(field, format!("`{field}` is 0; it must be at least 1 without `echo`")));
        }
        // The steps of all answers would be kept until the last answer is complete.
        if self.steering.explain && !self.stream && self.prompts.len() * self.choices > 1 {
            let message = "`explain` describes one answer, or those of a stream; set `stream`, or ask for one answer";
            return Err(ApiError::invalid("swiss_knife.explain", message));
        }
        if self.prompts.len() > 1 && !self.steering.prefix.is_empty() {
            return Err(ApiError::invalid("swiss_knife.prefix", "`prefix` begins one answer; send one prompt"));
        }
        Ok(self)
    }

    fn rest(
        mut fields: Fields,
        prompts: Vec<Prompt>,
        newest: Option<usize>,
        header: Option<SteeringBody>,
    ) -> Result<Self, ApiError> {
        let older = fields.take("max_tokens")?;
        let max_new_tokens = newest.map(|most| ("max_completion_tokens", most)).or(older.map(|most| ("max_tokens", most)));
        let choices = fields.take("n")?.unwrap_or(1);
        if !(1..=MOST_CHOICES).contains(&choices) {
            return Err(ApiError::invalid("n", format!("`n` is {choices}; it must be between 1 and {MOST_CHOICES}")));
        }
        let stop = match fields.take::<StopBody>("stop")? {
            None => Vec::new(),
            Some(StopBody::One(text)) => vec![text],
            Some(StopBody::Several(texts)) => texts,
        };
        if stop.len() > MOST_STOPS || stop.iter().any(String::is_empty) {
            return Err(ApiError::invalid("stop", format!("`stop` holds at most {MOST_STOPS} texts, none of them empty")));
        }
        let mut options = Fields::new("stream_options.", fields.take("stream_options")?.unwrap_or_default());
        let usage = match (options.take("include_usage")?, options.take("continuous_usage_stats")?) {
            (Some(true), Some(true)) => StreamUsage::InEveryChunk,
            (Some(true), _) => StreamUsage::AtTheEnd,
            (_, Some(true)) => {
                let field = "stream_options.continuous_usage_stats";
                return Err(ApiError::invalid(field, format!("`{field}` needs `include_usage`")));
            }
            _ => StreamUsage::None,
        };
        // Chunks are never padded, so disabling the padding has no effect.
        options.refuse_unless("include_obfuscation", &[Value::Bool(false)])?;
        options.end()?;
        let steering = fields.take("swiss_knife")?.map(|map| SteeringBody::read("swiss_knife.", map)).transpose()?;
        let steering = steering.or(header).unwrap_or_default();
        let job = Self {
            model: fields.take("model")?,
            prompts,
            max_new_tokens,
            temperature: fields.number("temperature", 0.0..=2.0, "between 0 and 2")?,
            top_p: fields.number("top_p", (Bound::Excluded(0.0), Bound::Included(1.0)), "above 0 and at most 1")?,
            ignore_eos: fields.take("ignore_eos")?.unwrap_or(false),
            choices,
            seed: fields.take::<i64>("seed")?.map(i64::cast_unsigned),
            stop,
            stream: fields.take("stream")?.unwrap_or(false),
            usage,
            echo: false,
            log_probs: None,
            steering,
        };
        // Fields for the operator, which have no effect on the answer.
        for label in [
            "user",
            "metadata",
            "store",
            "service_tier",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
        ] {
            let _: Option<Value> = fields.take(label)?;
        }
        for penalty in ["frequency_penalty", "presence_penalty"] {
            fields.refuse_unless(penalty, &[json!(0), json!(0.0)])?;
        }
        for empty in ["tools", "logit_bias"] {
            fields.refuse_unless(empty, &[json!([]), json!({})])?;
        }
        // Fields of vLLM and SGLang, which their clients send with these values.
        fields.refuse_unless("best_of", &[json!(1)])?;
        fields.refuse_unless("repetition_penalty", &[json!(1), json!(1.0)])?;
        fields.refuse_unless("top_k", &[json!(-1), json!(0)])?;
        fields.refuse_unless("min_p", &[json!(0), json!(0.0)])?;
        fields.end()?;
        Ok(job)
    }
}

/// Checks the number of most likely tokens requested.
fn check_likely(name: &str, likely: Option<usize>) -> Result<Option<usize>, ApiError> {
    match likely {
        Some(likely) if likely > MOST_LIKELY => {
            Err(ApiError::invalid(name, format!("`{name}` is {likely}; it must be at most {MOST_LIKELY}")))
        }
        likely => Ok(likely),
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum StopBody {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, token ids, or a list of either")]
enum PromptBody {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    Many(Vec<Vec<u32>>),
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct MessageBody {
    role: String,
    content: Option<ContentBody>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of parts")]
enum ContentBody {
    Text(String),
    Parts(Vec<PartBody>),
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct PartBody {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl PartBody {
    fn text(self) -> Result<String, ApiError> {
        if self.kind != "text" {
            return Err(ApiError::unsupported(&format!("messages.content of type {}", self.kind)));
        }
        refuse_rest("messages.content.", &self.rest, &[])?;
        self.text.ok_or_else(|| ApiError::invalid("messages", "a part of a message is of type text and has no `text`"))
    }
}

impl MessageBody {
    fn message(mut self) -> Result<Message, ApiError> {
        let role = match self.role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" | "developer" => Role::System,
            other => {
                return Err(ApiError::invalid(
                    "messages",
                    format!("a message is of role \"{other}\"; use system, user or assistant"),
                ));
            }
        };
        // Chat templates leave out the author's name, and the reasoning before earlier answers.
        for unread in ["name", "reasoning", "reasoning_content"] {
            if self.rest.get(unread).is_some_and(Value::is_string) {
                self.rest.remove(unread);
            }
        }
        refuse_rest("messages.", &self.rest, &[])?;
        let text = match self.content {
            None => String::new(),
            Some(ContentBody::Text(text)) => text,
            Some(ContentBody::Parts(parts)) => parts.into_iter().map(PartBody::text).collect::<Result<Vec<_>, _>>()?.concat(),
        };
        Ok(Message::new(role, text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chat(body: Value) -> Result<Job, ApiError> {
        let Value::Object(mut body) = body else { panic!("an object") };
        body.entry("messages").or_insert_with(|| json!([{"role": "user", "content": "Hi"}]));
        Job::chat(body, None)
    }

    #[test]
    fn a_blade_has_a_name_that_a_command_line_can_give() {
        assert_eq!(instruction_of("blades", "calm", "instruction:Be calm.").unwrap(), "Be calm.");
        for name in [" ", "very calm", "a,b", "a=b", "x:y"] {
            assert!(instruction_of("blades", name, "instruction:Be calm.").is_err(), "{name}");
        }
    }

    #[test]
    fn the_newer_limit_precedes_the_older() {
        assert_eq!(
            chat(json!({"max_tokens": 5, "max_completion_tokens": 7})).unwrap().max_new_tokens,
            Some(("max_completion_tokens", 7))
        );
        assert_eq!(chat(json!({"max_tokens": 5})).unwrap().max_new_tokens, Some(("max_tokens", 5)));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (body, param) in [
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"response_format": {"type": "json_object"}}), "response_format"),
            (json!({"swiss_knife": {"explain": true, "tolerance": 1}}), "tolerance"),
            (json!({"swiss_knife": {"tolerance": 0.2}}), "explain"),
            (json!({"swiss_knife": {"explain": true}, "n": 2}), "`explain` describes one answer"),
            (json!({"top_logprobs": 2}), "logprobs"),
            (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
            (json!({"frequency_penalty": 0.5}), "frequency_penalty"),
            (json!({"temprature": 0.5}), "`temprature`; did you mean `temperature`? Otherwise leave it out"),
            (json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}), "image_url"),
            (json!({"n": 9}), "n"),
            (json!({"temperature": -1}), "temperature"),
            (json!({"stop": ["a", ""]}), "stop"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"max_completion_tokens": 0}), "`max_completion_tokens` is 0"),
            (
                json!({"swiss_knife": {"set": vec!["selector.temperature=1"; MOST_FIELDS + 1]}}),
                "holds at most 128 fields, and has 129",
            ),
            (json!({"swiss_knife": {"weight": {}}}), "`swiss_knife.weight`; did you mean `swiss_knife.weights`?"),
            (json!({"swiss_knife": {"colour": 1}}), "`swiss_knife.colour`; leave it out"),
            (
                json!({"swiss_knife": {"weights": {"helpful": "1"}}}),
                "`swiss_knife.weights`: invalid type: string \"1\", expected a number",
            ),
            (
                json!({"swiss_knife": {"prefix": [-1]}}),
                "`swiss_knife.prefix`: invalid value: integer `-1`, expected a whole number",
            ),
            (json!({"swiss_knife": 5}), "`swiss_knife`: invalid type: integer `5`, expected an object"),
            (json!({"swiss_knife": [{"helpful": 1}]}), "`swiss_knife`: invalid type: sequence, expected an object"),
            (json!({"messages": [5]}), "`messages`: invalid type: integer `5`, expected an object"),
            (json!({"seed": 1_u64 << 63}), "expected a whole number between −2⁶³ and 2⁶³ − 1"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": [{"role": "user", "content": 5}]}), "expected a text or a list of parts"),
            (json!({"max_tokens": "30"}), "expected a whole number of at least 0"),
            (json!({"top_p": 0}), "`top_p` is 0; it must be above 0 and at most 1"),
            (json!({"messages": [{"role": "user", "content": "Hi", "name": 5}]}), "messages.name"),
            (json!({"tools": [{"type": "function"}], "tool_choice": "required"}), "`tools`"),
            (json!({"messages": [{"role": "user", "content": "Hi", "mood": "calm"}]}), "messages.mood"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {}}]}]}),
                "cache_control",
            ),
            (json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}), "text"),
            (json!({"stream_options": {"include_usage": true, "include_odds": true}}), "stream_options.include_odds"),
            (json!({"stream_options": {"include_obfuscation": true}}), "stream_options.include_obfuscation"),
            (json!({"stream_options": {"include_usage": "yes"}}), "stream_options.include_usage"),
            (json!({"stream_options": {"continuous_usage_stats": true}}), "continuous_usage_stats` needs `include_usage`"),
        ] {
            let error = chat(body).unwrap_err();
            assert!(error.to_string().contains(param), "{param}: {error}");
        }
    }

    #[test]
    fn what_changes_nothing_is_taken() {
        chat(json!({"swiss_knife": {"explain": true}, "n": 2, "stream": true})).unwrap();
        chat(json!({"swiss_knife": {"weights": null, "set": null, "blades": null, "explain": null, "prefix": null}})).unwrap();
        let idle = json!({"user": "me", "frequency_penalty": 0, "tools": [], "store": false, "seed": -1, "logit_bias": {},
            "stop": null, "best_of": 1, "logprobs": false, "top_logprobs": 0, "prompt_cache_retention": "24h"});
        assert_eq!(chat(idle).unwrap().seed, Some(u64::MAX));
        let parts = json!({"messages": [{"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]});
        let Prompt::Messages(messages) = chat(parts).unwrap().prompts.remove(0) else { panic!("messages") };
        assert_eq!((messages[0].role, messages[1].content.as_str()), (Role::System, "Hi"));
        // An answer as openai-python sends it back in the next request.
        let options = json!({"include_usage": true, "include_obfuscation": false, "continuous_usage_stats": false});
        chat(json!({"stream_options": options, "messages": [
            {"role": "assistant", "content": "Hi", "refusal": null, "annotations": [], "audio": null, "function_call": null,
                "tool_calls": null, "name": "agent", "reasoning": "A greeting.", "reasoning_content": "A greeting."},
            {"role": "user", "content": "Hi", "name": "me"}]}))
        .unwrap();
    }
}
