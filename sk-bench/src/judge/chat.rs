//! A language model behind an OpenAI-compatible endpoint, as a judge.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::endpoint::Rejection;
use super::question::{ChatMessage, WORDING, form};
use super::retry::Pace;
use super::weighted::TokenLogprob;
use super::{Endpoint, Identity, Judge, JudgeError, Question, Retry, Scale, Score, Verdict, answer, weighted};
use crate::named::named;

/// Number of times that the model is reminded of the form after an unreadable answer, before the
/// answer counts as an abstention.
const REMINDERS: usize = 2;
/// Number of alternatives (`top_logprobs`) requested per token: the maximum of common servers.
const ALTERNATIVES: u32 = 20;

named! {
    /// How the model's output is turned into a score.
    pub Scoring {
        /// The whole number that the model writes, with its reason.
        Integer = "integer",
        /// The mean of the scale under the model's probabilities of each number, as in G-Eval.
        Logprob = "logprob",
    }
}

named! {
    /// How an answer is made to have the right form, the strictest way first.
    pub Structure {
        /// `response_format` with a JSON schema.
        Schema = "schema",
        /// `response_format` with any JSON object.
        Object = "object",
        /// By asking for it.
        Plain = "plain",
    }
}

/// Settings of a [`ChatJudge`].
#[derive(Debug, Clone)]
pub struct ChatSettings {
    /// The model's name on the server.
    pub model: String,
    /// How the model's output is turned into a score.
    pub scoring: Scoring,
    /// The scale of the model's answers, unless a rubric has its own.
    pub scale: Scale,
    /// Sampling temperature.
    pub temperature: f64,
    /// Maximum number of tokens of an answer.
    pub max_tokens: u32,
    /// How the form of an answer is enforced. `None` uses the strictest way that the server
    /// supports.
    pub structure: Option<Structure>,
    /// Fields to set in each request, which override existing ones. A null removes the field.
    pub extra: Map<String, Value>,
    /// When to retry.
    pub retry: Retry,
}

impl ChatSettings {
    /// Returns the settings for greedy judging: temperature 0, with the scale and answer length
    /// that suit the scoring.
    pub fn new(model: impl Into<String>, scoring: Scoring) -> Self {
        let (scale, max_tokens) = match scoring {
            Scoring::Integer => (Scale::TENTHS, 512),
            Scoring::Logprob => (Scale::ONE_TO_FIVE, 16),
        };
        Self {
            model: model.into(),
            scoring,
            scale,
            temperature: 0.0,
            max_tokens,
            structure: None,
            extra: Map::new(),
            retry: Retry::default(),
        }
    }

    fn identity(&self) -> Identity {
        let mut settings = format!("wording {WORDING}, temperature {}, max_tokens {}", self.temperature, self.max_tokens);
        // An explicitly chosen form is part of the identity. A detected form is not, because it is
        // unknown before the first request.
        if let (Scoring::Integer, Some(structure)) = (self.scoring, self.structure) {
            settings += &format!(", structure {}", structure.name());
        }
        if !self.extra.is_empty() {
            // Sorted, so that the order on the command line does not matter.
            let mut fields: Vec<String> = self.extra.iter().map(|(name, value)| format!("{name} {value}")).collect();
            fields.sort();
            settings = format!("{settings}, {}", fields.join(", "));
        }
        Identity { model: self.model.clone(), scoring: self.scoring.name().to_owned(), scale: Some(self.scale), settings }
    }
}

/// A judge that asks a chat model.
///
/// **Form.** With [`Scoring::Integer`] the model must answer with a JSON object; a number alone is
/// accepted, too. The first request asks for a JSON schema. If the server rejects it, the next
/// request asks for any JSON object, and the one after that for no form. The accepted form is
/// remembered. The answer is always parsed strictly. With [`Scoring::Logprob`] the answer is a bare
/// number and needs no form.
///
/// **Failures.** Broken connections, timeouts, incomplete answers and the statuses 408, 409, 425,
/// 429 and 5xx except 501 are retried after a pause. The pause doubles each time, has jitter and is
/// never shorter than `Retry-After`, which all questions of this judge wait for. After an answer
/// without a readable score, the model is reminded twice; then the answer counts as an abstention.
#[derive(Debug)]
pub struct ChatJudge {
    endpoint: Endpoint,
    settings: ChatSettings,
    identity: Identity,
    /// Position in [`Structure::ALL`] of the strictest form that the server is not known to reject.
    structure: AtomicU8,
    pace: Pace,
}

#[derive(Deserialize)]
struct ChatCompletion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
    logprobs: Option<Logprobs>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default, deserialize_with = "text")]
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    /// Parts of several types, such as reasoning and text.
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// Deserializes content: a string, or a list of parts, of which the texts are joined.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text_of = |part| match part {
        Part::Text { text } => Some(text),
        Part::Other => None,
    };
    Ok(Option::deserialize(from)?.map(|content| match content {
        Content::Text(text) => text,
        Content::Parts(parts) => parts.into_iter().filter_map(text_of).collect(),
    }))
}

#[derive(Deserialize)]
struct Logprobs {
    content: Option<Vec<TokenLogprob>>,
}

impl Choice {
    /// Returns the choice of a server whose content filter rejects the question.
    fn filtered() -> Self {
        let message = Message { content: None, refusal: None };
        Self { message, finish_reason: Some("content_filter".to_owned()), logprobs: None }
    }
}

impl ChatJudge {
    /// Returns a judge at an endpoint.
    ///
    /// # Errors
    /// If scoring uses log-probabilities and the scale has two-digit numbers, which some tokenizers
    /// split.
    pub fn new(endpoint: Endpoint, settings: ChatSettings) -> Result<Self, JudgeError> {
        check(settings.scoring, settings.scale)?;
        let first = match settings.scoring {
            Scoring::Integer => settings.structure.unwrap_or(Structure::Schema),
            Scoring::Logprob => Structure::Plain,
        };
        let identity = settings.identity();
        Ok(Self { endpoint, settings, identity, structure: AtomicU8::new(first as u8), pace: Pace::default() })
    }

    /// Returns the form in use: the one that was set, or the one that the server is known to
    /// support.
    pub fn structure(&self) -> Structure {
        Structure::ALL[usize::from(self.structure.load(Ordering::Relaxed)).min(Structure::ALL.len() - 1)].2
    }

    fn body(&self, messages: &[ChatMessage], scale: Scale, pass: u32, structure: Structure) -> Value {
        let ChatSettings { model, scoring, temperature, max_tokens, extra, .. } = &self.settings;
        let mut body = json!({
            "model": model,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": max_tokens,
            // Different seeds give different passes if the server samples.
            "seed": pass,
        });
        if *scoring == Scoring::Logprob {
            body["logprobs"] = json!(true);
            body["top_logprobs"] = json!(ALTERNATIVES);
        }
        match structure {
            Structure::Schema => body["response_format"] = json!({"type": "json_schema", "json_schema": schema(scale)}),
            Structure::Object => body["response_format"] = json!({"type": "json_object"}),
            Structure::Plain => {}
        }
        if let Some(body) = body.as_object_mut() {
            for (name, value) in extra {
                if value.is_null() {
                    body.remove(name);
                } else {
                    body.insert(name.clone(), value.clone());
                }
            }
        }
        body
    }

    /// Requests a completion in the strictest form that the server supports.
    fn complete(&self, messages: &[ChatMessage], scale: Scale, pass: u32) -> Result<Choice, JudgeError> {
        let first = self.structure();
        let mut refusal = None;
        for (_, structure) in Structure::by_name().filter(|(_, structure)| *structure >= first) {
            match self.persist(&self.body(messages, scale, pass, structure)) {
                Ok(choice) => {
                    // Only the success of a less strict form shows that the form was the reason for
                    // the rejection.
                    self.structure.fetch_max(structure as u8, Ordering::Relaxed);
                    return Ok(choice);
                }
                Err(error @ JudgeError::Rejected { .. }) => {
                    // Keep the first rejection, which concerns the strictest form.
                    refusal.get_or_insert(error);
                    if self.settings.structure.is_some() {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let (url, last) = (self.endpoint.completions(), "nothing was asked".to_owned());
        Err(refusal.unwrap_or(JudgeError::Unanswered { url, attempts: 0, last }))
    }

    /// Retries until there is a complete answer or no attempt is left.
    fn persist(&self, body: &Value) -> Result<Choice, JudgeError> {
        let url = self.endpoint.completions();
        let read = |body: &str| {
            let reason = |reason| format!("its answer is no chat completion ({reason}): {}", self.endpoint.gist(body));
            first_choice(body).map_err(|error| reason(self.endpoint.without_key(error)))
        };
        let answer = self.endpoint.persist(&url, self.settings.retry, &self.pace, || self.endpoint.ask(body), read)?;
        answer.or_else(|Rejection { status, body, is_filtered }| match status {
            _ if is_filtered => Ok(Choice::filtered()),
            404 => {
                let model = &self.settings.model;
                Err(JudgeError::Invalid(format!(
                    "{url}: the server answers 404 for model \"{model}\": {body}; check endpoint and model"
                )))
            }
            _ => Err(JudgeError::Rejected { url, status, body }),
        })
    }

    /// Returns the score of a completion. The inner error is the reason why there is none.
    fn score(&self, choice: &Choice, scale: Scale) -> Result<Result<Score, String>, JudgeError> {
        if choice.finish_reason.as_deref() == Some("length") {
            return Ok(Err(format!("its answer was cut off after {} tokens; raise --max-tokens", self.settings.max_tokens)));
        }
        Ok(match self.settings.scoring {
            Scoring::Integer => {
                let text = choice.message.content.as_deref().unwrap_or_default();
                answer::score(text, scale).map(|(score, reason)| Score {
                    value: scale.to_unit(score as f64),
                    reason: reason.map(|reason| self.endpoint.without_key(reason)),
                    mass: None,
                })
            }
            Scoring::Logprob => {
                let tokens = choice.logprobs.as_ref().and_then(|logprobs| logprobs.content.as_deref());
                let tokens = tokens.filter(|tokens| !tokens.is_empty()).ok_or_else(|| JudgeError::NoLogprobs {
                    url: self.endpoint.completions(),
                    model: self.settings.model.clone(),
                })?;
                weighted::expectation(tokens, scale).map(|(mean, mass)| Score {
                    value: scale.to_unit(mean),
                    reason: None,
                    mass: Some(mass),
                })
            }
        })
    }
}

impl Judge for ChatJudge {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn stop(&self) {
        self.pace.stop();
    }

    fn judge(&self, question: &Question<'_>) -> Result<Verdict, JudgeError> {
        let scoring = self.settings.scoring;
        let scale = question.rubric.scale.unwrap_or(self.settings.scale);
        check(scoring, scale)?;
        let mut messages = question.messages(scale, scoring);
        let (mut fault, mut reply) = (String::new(), String::new());
        for reminder in 0..=REMINDERS {
            if reminder > 0 {
                let content = format!("That is no valid answer: {fault}. {}", form(scale, scoring));
                messages.push(ChatMessage { role: "user", content });
            }
            let choice = self.complete(&messages, scale, question.pass)?;
            if let Some(refusal) = choice.message.refusal.as_deref().filter(|refusal| !refusal.is_empty()) {
                return Ok(Verdict::Abstention(format!("the judge declines: {}", self.endpoint.gist(refusal))));
            }
            if choice.finish_reason.as_deref() == Some("content_filter") {
                return Ok(Verdict::Abstention(
                    "the server's content filter rejects the question or withholds the answer".to_owned(),
                ));
            }
            match self.score(&choice, scale)? {
                Ok(score) => return Ok(Verdict::Score(score)),
                Err(reason) => fault = reason,
            }
            reply = choice.message.content.unwrap_or_default();
            messages.push(ChatMessage { role: "assistant", content: reply.clone() });
        }
        Ok(Verdict::Unreadable { reason: self.endpoint.without_key(fault), reply: self.endpoint.without_key(reply) })
    }
}

/// Returns an error if log-probability scoring does not support the scale.
fn check(scoring: Scoring, scale: Scale) -> Result<(), JudgeError> {
    let readable = scoring == Scoring::Integer || scale.is_single_digit();
    if readable { Ok(()) } else { Err(JudgeError::WideScale { scale }) }
}

fn first_choice(body: &str) -> Result<Choice, String> {
    let completion: ChatCompletion = serde_json::from_str(body).map_err(|error| error.to_string())?;
    completion.choices.into_iter().next().ok_or_else(|| "it has no choice".to_owned())
}

/// Returns the JSON schema of an answer. It lists every score, because some servers ignore bounds.
fn schema(scale: Scale) -> Value {
    let scores: Vec<u8> = (scale.low()..=scale.high()).collect();
    json!({
        "name": "judgement",
        "strict": true,
        "schema": {
            "type": "object",
            "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "enum": scores}},
            "required": ["reason", "score"],
            "additionalProperties": false,
        },
    })
}
