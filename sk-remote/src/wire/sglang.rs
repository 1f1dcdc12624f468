//! SGLang: `POST /generate` with token ids.
//!
//! Each row has its own adapter, so one request serves all policies. The prefix cache is used up to
//! the last token of the context.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sk_core::{Reading, TokenId};

use super::{DraftParams, Drafted, Ids, Prefix, Row, digits, drafted, most_likely, number, reading};
use crate::{AnswerError, Fault};

/// The path of all requests.
pub(crate) const PATH: &str = "/generate";

/// Returns the body that reads rows, each under its own adapter.
///
/// Log-probabilities start at the last token of the context. With a later start, that of the first
/// token of the span would be missing.
pub(crate) fn read_body(rows: &[Row<'_>]) -> String {
    let body = json!({
        "input_ids": rows.iter().map(|row| Ids(row.prefix, row.span)).collect::<Vec<_>>(),
        "logprob_start_len": rows.iter().map(|row| row.prefix.len() - 1).collect::<Vec<_>>(),
        "return_logprob": true, "top_logprobs_num": 1,
        "sampling_params": {"max_new_tokens": 0, "temperature": 0, "ignore_eos": true},
    });
    adapted(body, rows.iter().map(|row| row.adapter))
}

/// Parses the answer to [`read_body`].
pub(crate) fn read_answer(body: &[u8], rows: &[Row<'_>]) -> Result<Vec<Reading>, Fault> {
    let metas = generated(body, rows.len())?;
    let largest = rows.iter().flat_map(|row| row.prefix.iter().chain(row.span)).max().copied();
    metas.into_iter().zip(rows).enumerate().map(|(at, (meta, row))| read_row(at, meta, row, largest)).collect()
}

/// `largest` is the largest token id sent: the server returns the last token of the vocabulary as
/// 0, with its correct log-probability.
fn read_row(at: usize, meta: Meta, row: &Row<'_>, largest: Option<TokenId>) -> Result<Reading, Fault> {
    let (own, tops) = (meta.input_token_logprobs.unwrap_or_default(), meta.input_top_logprobs.unwrap_or_default());
    // The last token of the context comes first, without a log-probability.
    let expected = 1 + row.span.len();
    for got in [own.len(), tops.len()] {
        if got != expected {
            return Err(AnswerError::Positions { row: at, expected, got }.into());
        }
    }
    let sent = row.prefix.last().into_iter().chain(row.span).copied();
    let is_wrong = |sent: TokenId, got: TokenId| sent != got && (got != 0 || Some(sent) != largest);
    if let Some((place, (expected, _))) =
        sent.zip(&own).enumerate().find(|(_, (sent, ScoredToken(_, got, _)))| is_wrong(*sent, *got))
    {
        return Err(AnswerError::Tokens { row: at, position: row.prefix.len() - 1 + place, expected }.into());
    }
    let top = |entries: &Option<Vec<ScoredToken>>| {
        entries.as_ref().and_then(|entries| entries.first()).map_or(f32::NAN, |ScoredToken(value, ..)| number(*value))
    };
    let pairs: Vec<(f32, f32)> =
        own.iter().zip(&tops).skip(1).map(|(ScoredToken(value, ..), tops)| (number(*value), top(tops))).collect();
    Ok(reading(at, &pairs)?)
}

/// Returns the body that reads prefixes into the cache.
pub(crate) fn warm_body(lanes: &[(Option<&str>, &Prefix)]) -> String {
    let body = json!({
        "input_ids": lanes.iter().map(|(_, prefix)| prefix).collect::<Vec<_>>(),
        "sampling_params": {"max_new_tokens": 0, "temperature": 0, "ignore_eos": true},
    });
    adapted(body, lanes.iter().map(|(adapter, _)| *adapter))
}

/// Validates the answer to [`warm_body`] as JSON; its contents are ignored.
pub(crate) fn warm_answer(body: &[u8]) -> Result<(), Fault> {
    serde_json::from_slice::<IgnoredAny>(body).map(|_| ()).map_err(Fault::body)
}

/// Returns the body that samples one continuation of each row. A row is the prefix with its tail,
/// and a seed.
///
/// Rows are listed instead of requested by `n`, since those would share a seed.
pub(crate) fn draft_body(prefix: &Prefix, rows: &[(&[TokenId], u32)], params: &DraftParams<'_>) -> String {
    let DraftParams { max_tokens, sampling, stop, not_first, tops } = *params;
    let temperature = if sampling.is_greedy() { 0.0 } else { sampling.temperature() };
    let top_k = i64::try_from(sampling.top_k()).ok().filter(|&top_k| top_k > 0).unwrap_or(-1);
    let sampled = |(_, seed): &(&[TokenId], u32)| {
        json!({
            "max_new_tokens": max_tokens, "temperature": digits(temperature), "top_p": digits(sampling.top_p()),
            "top_k": top_k, "min_p": 0, "repetition_penalty": digits(sampling.repetition_penalty()),
            // If SGLang ignores the model's own end of text, it also ignores the stop tokens.
            "min_new_tokens": u8::from(not_first), "ignore_eos": stop.is_empty(), "no_stop_trim": true,
            "sampling_seed": seed, "stop_token_ids": stop,
        })
    };
    json!({
        "input_ids": rows.iter().map(|(tail, _)| Ids(prefix, tail)).collect::<Vec<_>>(),
        "return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": tops,
        "sampling_params": rows.iter().map(sampled).collect::<Vec<_>>(),
    })
    .to_string()
}

/// Parses the answer to [`draft_body`].
pub(crate) fn draft_answer(body: &[u8], rows: usize, params: &DraftParams<'_>) -> Result<Vec<Drafted>, Fault> {
    let row = |(at, meta): (usize, Meta)| {
        let drawn = meta.output_token_logprobs.ok_or_else(|| Fault::body(format!("row {at} has no output_token_logprobs")))?;
        let (log_probs, tokens) = drawn.into_iter().map(|ScoredToken(value, token, _)| (number(value), token)).unzip();
        let finish = meta.finish_reason.map(|finish| finish.kind).unwrap_or_default();
        drafted(at, tokens, log_probs, &finish, params)
    };
    generated(body, rows)?.into_iter().enumerate().map(row).collect()
}

/// Parses the most probable next tokens from the answer to a [`draft_body`] of one row and one
/// token.
pub(crate) fn top_answer(body: &[u8], tops: usize) -> Result<Vec<(TokenId, f32)>, Fault> {
    let likely = generated(body, 1)?.pop().and_then(|meta| meta.output_top_logprobs?.into_iter().next()?);
    let likely = likely.ok_or_else(|| Fault::body("the answer has no output_top_logprobs"))?;
    Ok(most_likely(likely.into_iter().map(|ScoredToken(value, token, _)| (token, number(value))).collect(), tops)?)
}

/// Parses the token limit of the server from the answer to `GET /get_server_info` or
/// `/server_info`, if it is given.
pub(crate) fn limit_answer(body: &[u8]) -> Result<Option<usize>, Fault> {
    #[derive(Deserialize)]
    struct Info {
        context_length: Option<usize>,
        max_req_input_len: Option<usize>,
    }
    let info: Info = serde_json::from_slice(body).map_err(Fault::body)?;
    Ok(info.context_length.into_iter().chain(info.max_req_input_len).min())
}

/// Parses the answer to the loading of an adapter: the reason why it failed, if it did.
pub(crate) fn load_answer(body: &[u8]) -> Result<Option<String>, Fault> {
    #[derive(Deserialize)]
    struct Loaded {
        success: bool,
        error_message: Option<String>,
    }
    let Loaded { success, error_message } = serde_json::from_slice(body).map_err(Fault::body)?;
    Ok((!success).then(|| error_message.unwrap_or_else(|| "it gives no reason".to_owned())))
}

/// Returns a body with the adapters of its rows. A server without adapters rejects the field.
fn adapted<'a>(mut body: Value, adapters: impl Iterator<Item = Option<&'a str>> + Clone) -> String {
    if adapters.clone().any(|adapter| adapter.is_some()) {
        body["lora_path"] = adapters.collect();
    }
    body.to_string()
}

#[derive(Deserialize)]
struct Generated {
    meta_info: Meta,
}

#[derive(Deserialize)]
struct Meta {
    finish_reason: Option<Finish>,
    input_token_logprobs: Option<Vec<ScoredToken>>,
    input_top_logprobs: Option<Vec<Option<Vec<ScoredToken>>>>,
    output_token_logprobs: Option<Vec<ScoredToken>>,
    output_top_logprobs: Option<Vec<Option<Vec<ScoredToken>>>>,
}

#[derive(Deserialize)]
struct Finish {
    #[serde(rename = "type")]
    kind: String,
    message: Option<String>,
}

/// Log-probability, token id, text.
#[derive(Deserialize)]
struct ScoredToken(Option<f32>, TokenId, IgnoredAny);

fn generated(body: &[u8], rows: usize) -> Result<Vec<Meta>, Fault> {
    let generated: Vec<Generated> = serde_json::from_slice(body).map_err(Fault::body)?;
    if generated.len() != rows {
        return Err(AnswerError::Rows { expected: rows, got: generated.len() }.into());
    }
    let row = |(row, Generated { meta_info }): (usize, Generated)| match &meta_info.finish_reason {
        Some(Finish { kind, message: Some(message) }) => {
            let tokens = meta_info.output_token_logprobs.as_ref().map_or(0, Vec::len);
            Err(AnswerError::Finish { row, reason: format!("{kind}: {message}"), tokens }.into())
        }
        _ => Ok(meta_info),
    };
    generated.into_iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_largest_token_may_come_back_as_zero() {
        let prefix = vec![3, 9];
        let row = Row { adapter: None, prefix: &prefix, span: &[5, 47] };
        let read = |tokens: [TokenId; 2]| {
            let [first, second] = tokens;
            let own = format!(r#"[[null,9,null],[-1.5,{first},null],[-0.5,{second},null]]"#);
            let tops = r#"[null,[[-1.0,8,null]],[[-0.5,47,null]]]"#;
            let body = format!(r#"[{{"meta_info":{{"input_token_logprobs":{own},"input_top_logprobs":{tops}}}}}]"#);
            read_answer(body.as_bytes(), &[row])
        };
        let expected = Reading { log_probs: vec![-1.5, -0.5], min_entropy: vec![1.0, 0.5], ..Reading::default() };
        for tokens in [[5, 47], [5, 0]] {
            assert_eq!(read(tokens).unwrap(), vec![expected.clone()]);
        }
        for (tokens, position, expected) in [([0, 47], 2, 5), ([5, 46], 3, 47)] {
            let Fault::Answer(error) = read(tokens).unwrap_err() else { panic!("{tokens:?} are refused for another reason") };
            assert_eq!(error, AnswerError::Tokens { row: 0, position, expected });
        }
    }
}
