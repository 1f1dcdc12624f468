//! vLLM: `POST /v1/completions` with token ids.
//!
//! Rows of one request share a model, so each policy is a separate request. `prompt_logprobs`
//! disables reading of the prefix cache, so each row reads its context again.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use sk_core::{Reading, TokenId};

use super::{DraftParams, Drafted, Ids, Prefix, Row, digits, drafted, most_likely, number, reading, under};
use crate::{AnswerError, Fault};

/// The path of all requests.
pub(crate) const PATH: &str = "/v1/completions";

/// Returns the body that reads rows, all under `model`.
pub(crate) fn read_body(model: Option<&str>, rows: &[Row<'_>]) -> String {
    let rows: Vec<Ids<'_>> = rows.iter().map(|row| Ids(row.prefix, row.span)).collect();
    under(model, json!({"prompt": rows, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1, "return_token_ids": true}))
}

/// Parses the answer to [`read_body`].
pub(crate) fn read_answer(body: &[u8], rows: &[Row<'_>]) -> Result<Vec<Reading>, Fault> {
    in_order(choices(body)?, rows.len())?
        .iter()
        .zip(rows)
        .enumerate()
        .map(|(at, (choice, row))| read_row(at, choice, row))
        .collect()
}

fn read_row(at: usize, choice: &Choice<'_>, row: &Row<'_>) -> Result<Reading, Fault> {
    let start = row.prefix.len();
    if let Some(returned) = &choice.prompt_token_ids {
        let sent = || row.prefix.iter().chain(row.span);
        if returned.len() != start + row.span.len() {
            return Err(AnswerError::Positions { row: at, expected: start + row.span.len(), got: returned.len() }.into());
        }
        if let Some((position, &expected)) = sent().enumerate().find(|&(place, token)| returned[place] != *token) {
            return Err(AnswerError::Tokens { row: at, position, expected }.into());
        }
    }
    let positions = choice.prompt_logprobs.as_ref().ok_or_else(|| Fault::body("a row has no prompt_logprobs"))?;
    if positions.len() != start + row.span.len() {
        return Err(AnswerError::Positions { row: at, expected: start + row.span.len(), got: positions.len() }.into());
    }
    let mut pairs = Vec::with_capacity(row.span.len());
    for (place, (position, &token)) in positions[start..].iter().zip(row.span).enumerate() {
        let entries: Option<BTreeMap<TokenId, RankedToken>> = serde_json::from_str(position.get()).map_err(Fault::body)?;
        let entries = entries.unwrap_or_default();
        let wrong = AnswerError::Tokens { row: at, position: start + place, expected: token };
        let own = entries.get(&token).ok_or(wrong)?;
        // The most probable token has rank 1. If the target ties with it, either entry is correct.
        let top = entries.values().find(|entry| entry.rank == Some(1)).unwrap_or(own);
        if top.rank != Some(1) {
            return Err(Fault::body(format!("row {at} lacks the most likely token at position {place}")));
        }
        pairs.push((number(own.logprob), number(top.logprob)));
    }
    Ok(reading(at, &pairs)?)
}

/// Returns the body that samples one continuation of each row. A row is the prefix with its tail,
/// and a seed. All rows must have the tail of the first; row i uses the seed of the first, plus i.
pub(crate) fn draft_body(model: Option<&str>, prefix: &Prefix, rows: &[(&[TokenId], u32)], params: &DraftParams<'_>) -> String {
    let (tail, seed) = rows.first().copied().unwrap_or_default();
    let DraftParams { max_tokens, sampling, stop, not_first, tops } = *params;
    let temperature = if sampling.is_greedy() { 0.0 } else { sampling.temperature() };
    let mut body = json!({
        "prompt": Ids(prefix, tail), "n": rows.len(), "max_tokens": max_tokens, "temperature": digits(temperature),
        "top_p": digits(sampling.top_p()), "top_k": sampling.top_k(), "min_p": 0,
        "repetition_penalty": digits(sampling.repetition_penalty()), "presence_penalty": 0, "frequency_penalty": 0,
        "seed": seed, "min_tokens": u8::from(not_first), "logprobs": tops, "return_token_ids": true,
        "ignore_eos": true, "stop_token_ids": stop,
    });
    if tops > 0 {
        body["return_tokens_as_token_ids"] = true.into();
    }
    under(model, body)
}

/// Parses the answer to [`draft_body`].
pub(crate) fn draft_answer(body: &[u8], rows: usize, params: &DraftParams<'_>) -> Result<Vec<Drafted>, Fault> {
    let row = |(at, choice): (usize, Choice<'_>)| {
        let missing = |what: &str| Fault::body(format!("row {at} has no {what}"));
        let unknown = || missing("token_ids; serve with a version of vLLM that knows return_token_ids");
        let tokens = choice.token_ids.ok_or_else(unknown)?;
        let log_probs = choice.logprobs.ok_or_else(|| missing("logprobs"))?.token_logprobs;
        let finish = choice.finish_reason.unwrap_or_default();
        drafted(at, tokens, log_probs.into_iter().map(number).collect(), &finish, params)
    };
    in_order(choices(body)?, rows)?.into_iter().enumerate().map(row).collect()
}

/// Parses the most probable next tokens from the answer to a [`draft_body`] of one row and one
/// token.
pub(crate) fn top_answer(body: &[u8], tops: usize) -> Result<Vec<(TokenId, f32)>, Fault> {
    let likely = in_order(choices(body)?, 1)?.pop().and_then(|choice| choice.logprobs?.top_logprobs?.into_iter().next());
    let likely = likely.ok_or_else(|| Fault::body("the answer has no top_logprobs"))?;
    let entry = |(name, value): (String, Option<f32>)| {
        let token = name.strip_prefix("token_id:").and_then(|id| id.parse().ok());
        token.map(|token| (token, number(value))).ok_or_else(|| Fault::body(format!("{name} is not token_id:ID")))
    };
    let entries = likely.into_iter().map(entry).collect::<Result<_, _>>()?;
    Ok(most_likely(entries, tops)?)
}

/// Parses the answer to `GET /v1/models`: the smallest token limit of its models; `None` if no
/// model has one.
pub(crate) fn limit_answer(body: &[u8]) -> Result<Option<usize>, Fault> {
    #[derive(Deserialize)]
    struct Models {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        max_model_len: Option<usize>,
    }
    let Models { data } = serde_json::from_slice(body).map_err(Fault::body)?;
    Ok(data.iter().filter_map(|model| model.max_model_len).min())
}

#[derive(Deserialize)]
struct Completion<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: usize,
    /// An entry per token of the prompt. Those of the context, most of the answer, are not parsed.
    #[serde(borrow, default)]
    prompt_logprobs: Option<Vec<&'a RawValue>>,
    prompt_token_ids: Option<Vec<TokenId>>,
    token_ids: Option<Vec<TokenId>>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Logprobs {
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Option<Vec<BTreeMap<String, Option<f32>>>>,
}

/// A token at a position of a prompt: that of the prompt, or the most probable one.
#[derive(Deserialize)]
struct RankedToken {
    logprob: Option<f32>,
    rank: Option<u32>,
}

fn choices(body: &[u8]) -> Result<Vec<Choice<'_>>, Fault> {
    serde_json::from_slice(body).map(|Completion { choices }| choices).map_err(Fault::body)
}

/// Sorts rows by index. The indices must be 0 to `rows` − 1, once each.
fn in_order(mut choices: Vec<Choice<'_>>, rows: usize) -> Result<Vec<Choice<'_>>, AnswerError> {
    if choices.len() != rows {
        return Err(AnswerError::Rows { expected: rows, got: choices.len() });
    }
    choices.sort_by_key(|choice| choice.index);
    match choices.iter().enumerate().find(|(place, choice)| choice.index != *place) {
        Some((_, choice)) => Err(AnswerError::Index { index: choice.index, rows }),
        None => Ok(choices),
    }
}
