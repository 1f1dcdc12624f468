//! Responses in the format of the OpenAI API.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value, json};
use sk_core::{Ended, Seconds, TokenId};
use sk_models::engine::TokenScore;
use sk_models::text::Tokenizer;

use crate::step::Step;

/// The response format of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Chat,
    Text,
}

impl Shape {
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Text => "cmpl",
        }
    }
}

/// The fields that all chunks of a response share.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) shape: Shape,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) usage: StreamUsage,
}

/// Which chunks of a stream tell the usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StreamUsage {
    None,
    /// A last chunk without choices.
    AtTheEnd,
    /// The last chunk, and those before it the tokens so far.
    InEveryChunk,
}

/// Returns the Unix time in seconds.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn reason(ended: Option<Ended>) -> &'static str {
    match ended {
        Some(Ended::Limit | Ended::ContextFull | Ended::Interrupted) => "length",
        _ => "stop",
    }
}

impl Envelope {
    fn object(&self, streamed: bool) -> &'static str {
        match (self.shape, streamed) {
            (Shape::Chat, true) => "chat.completion.chunk",
            (Shape::Chat, false) => "chat.completion",
            (Shape::Text, _) => "text_completion",
        }
    }

    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({"id": self.id, "object": self.object(true), "created": self.created, "model": self.model,
            "choices": choices});
        if self.usage != StreamUsage::None {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn part(&self, choice: usize, delta: &Value, text: &str, reason: Option<&str>) -> Value {
        match self.shape {
            Shape::Chat => json!([{"index": choice, "delta": delta, "logprobs": null, "finish_reason": reason}]),
            Shape::Text => json!([{"index": choice, "text": text, "logprobs": null, "finish_reason": reason}]),
        }
    }

    /// Returns the chunk that opens a choice; `None` for text completions.
    pub(crate) fn opening(&self, choice: usize) -> Option<Value> {
        (self.shape == Shape::Chat)
            .then(|| self.chunk(&self.part(choice, &json!({"role": "assistant", "content": ""}), "", None)))
    }

    /// Returns the chunk of a span. The step, if any, is in the field `swiss_knife`.
    pub(crate) fn span(&self, choice: usize, text: &str, step: Option<&Step>) -> Value {
        let mut chunk = self.chunk(&self.part(choice, &json!({"content": text}), text, None));
        if let Some(step) = step {
            chunk["swiss_knife"] = json!({"step": step});
        }
        chunk
    }

    /// Returns the chunk that ends a choice. It holds the log-probabilities of all tokens, because
    /// they are computed in one pass at the end.
    pub(crate) fn closing(&self, choice: usize, ended: Option<Ended>, scores: Option<&Scores>, tokenizer: &Tokenizer) -> Value {
        let mut part = self.part(choice, &json!({}), "", Some(reason(ended)));
        part[0]["logprobs"] = json!(scores.map(|scores| self.log_probs(scores, tokenizer)));
        self.chunk(&part)
    }

    /// Returns the usage chunk, which has no choices.
    pub(crate) fn usage_chunk(&self, usage: &Value) -> Value {
        let mut chunk = self.chunk(&json!([]));
        chunk["usage"] = usage.clone();
        chunk
    }

    fn log_probs(&self, scores: &Scores, tokenizer: &Tokenizer) -> Value {
        match self.shape {
            Shape::Chat => of_chat(scores, tokenizer),
            Shape::Text => of_text(scores, tokenizer),
        }
    }

    /// Returns the response without streaming.
    pub(crate) fn whole(&self, choices: &[Choice], usage: &Value, tokenizer: &Tokenizer) -> Value {
        let choice = |(index, choice): (usize, &Choice)| {
            let reason = reason(choice.summary.ended);
            let log_probs = choice.scores.as_ref().map(|scores| self.log_probs(scores, tokenizer));
            let mut value = match self.shape {
                Shape::Chat => json!({"index": index, "message": {"role": "assistant", "content": choice.text, "refusal": null},
                    "logprobs": log_probs, "finish_reason": reason}),
                Shape::Text => json!({"index": index, "text": choice.text, "logprobs": log_probs, "finish_reason": reason}),
            };
            if !choice.steps.is_empty() {
                value["swiss_knife"] = json!({"steps": choice.steps});
            }
            value
        };
        let choices: Vec<Value> = choices.iter().enumerate().map(choice).collect();
        json!({"id": self.id, "object": self.object(false), "created": self.created, "model": self.model, "choices": choices,
            "usage": usage})
    }
}

/// The cost of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    #[serde(skip)]
    pub(crate) ended: Option<Ended>,
    #[serde(skip)]
    pub(crate) tokens: usize,
    pub(crate) steps: usize,
    /// The number of tokens of all candidates.
    pub(crate) drafted_tokens: usize,
    /// The number of tokens that the backbone read to score candidates, summed over its lanes.
    pub(crate) scored_tokens: usize,
    pub(crate) seconds: Seconds,
}

impl Summary {
    /// Returns whether the time ended before the first step.
    pub(crate) fn is_unstarted(&self) -> bool {
        self.steps == 0 && self.ended == Some(Ended::Interrupted)
    }
}

/// Tokens with the scores that the frozen backbone gives them. The first token of a text has no
/// score.
#[derive(Debug)]
pub(crate) struct Scores {
    /// The number of tokens that are of the prompt, whose special tokens are part of the text.
    pub(crate) echoed: usize,
    pub(crate) tokens: Vec<(TokenId, Option<TokenScore>)>,
}

/// A complete choice.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) text: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) summary: Summary,
    pub(crate) scores: Option<Scores>,
}

/// Returns log-probabilities in the format of the text endpoint: four lists with an entry per
/// token.
fn of_text(scores: &Scores, tokenizer: &Tokenizer) -> Value {
    let text = |token: u32| tokenizer.decode(&[token]).unwrap_or_default();
    let (mut tokens, mut own, mut top, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut offset = 0;
    for (place, (token, score)) in scores.tokens.iter().enumerate() {
        offsets.push(offset);
        if place < scores.echoed || !tokenizer.is_special(*token) {
            // A character of several tokens counts where it begins.
            let bytes = tokenizer.token_bytes(*token).unwrap_or_default();
            offset += bytes.iter().filter(|byte| *byte & 0xC0 != 0x80).count();
        }
        tokens.push(text(*token));
        own.push(score.as_ref().map(|score| score.log_prob));
        let most_probable = |score: &TokenScore| -> Map<String, Value> {
            // The token itself is always there. If several tokens have the same text, keep the most
            // likely one.
            let all = std::iter::once((token, &score.log_prob)).chain(score.top.iter().rev().map(|(token, p)| (token, p)));
            all.map(|(token, log_prob)| (text(*token), json!(log_prob))).collect()
        };
        top.push(score.as_ref().map(most_probable));
    }
    json!({"tokens": tokens, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets})
}

/// Returns log-probabilities in the format of the chat endpoint: an entry per token.
fn of_chat(scores: &Scores, tokenizer: &Tokenizer) -> Value {
    let entry = |token: u32, log_prob: f32| {
        json!({"token": tokenizer.decode(&[token]).unwrap_or_default(), "logprob": log_prob,
            "bytes": tokenizer.token_bytes(token).unwrap_or_default()})
    };
    let content = scores.tokens.iter().filter_map(|(token, score)| {
        let score = score.as_ref()?;
        let mut value = entry(*token, score.log_prob);
        value["top_logprobs"] = score.top.iter().map(|(token, log_prob)| entry(*token, *log_prob)).collect();
        Some(value)
    });
    json!({"content": content.collect::<Vec<_>>(), "refusal": null})
}

/// Returns the numbers of tokens of the prompts and of the answers.
pub(crate) fn token_counts(prompt: usize, completion: usize) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
}

/// Returns the token counts and the cost of the search.
pub(crate) fn usage(prompt: usize, choices: &[Summary]) -> Value {
    let completion: usize = choices.iter().map(|summary| summary.tokens).sum();
    let mut cost = Summary::default();
    for summary in choices {
        cost.steps += summary.steps;
        cost.drafted_tokens += summary.drafted_tokens;
        cost.scored_tokens += summary.scored_tokens;
        cost.seconds += summary.seconds;
    }
    let mut usage = token_counts(prompt, completion);
    usage["swiss_knife"] = json!(cost);
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_characters_not_tokens() {
        let tokenizer = Tokenizer::bytes();
        let text = "é☃a";
        let tokens = text.bytes().map(|byte| (TokenId::from(byte), None)).collect();
        assert_eq!(of_text(&Scores { echoed: 0, tokens }, &tokenizer)["text_offset"], json!([0, 1, 1, 2, 2, 2]));
    }

    #[test]
    fn offsets_count_special_tokens_of_the_prompt_alone() {
        let backbone = sk_models::assets::embedded().unwrap().backbone();
        let tokenizer = Tokenizer::from_file(&backbone.join("tokenizer.json")).unwrap();
        let special = tokenizer.id_of("<|im_end|>").unwrap();
        let day = tokenizer.encode(" day").unwrap()[0];
        let offsets = |echoed| {
            let tokens = [day, special, day].map(|token| (token, None)).to_vec();
            of_text(&Scores { echoed, tokens }, &tokenizer)["text_offset"].clone()
        };
        let first = tokenizer.decode(&[day]).unwrap().len();
        assert_eq!(offsets(0), json!([0, first, first]));
        assert_eq!(offsets(2), json!([0, first, first + "<|im_end|>".len()]));
    }
}
