use std::error::Error;

use sk_core::TokenId;
use sk_remote::Role;

/// Returns the tokens of a text, by the first server.
pub(crate) fn tokens_of(text: &str, role: &Role) -> Result<Vec<TokenId>, Box<dyn Error>> {
    let url = format!("{}/tokenize", role.urls.first().ok_or("no address")?);
    let mut body = serde_json::json!({"prompt": text, "add_special_tokens": false});
    if let Some(model) = &role.model {
        body["model"] = model.as_str().into();
    }
    let answer = ureq::post(&url).content_type("application/json").send(body.to_string())?.body_mut().read_to_string()?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    Ok(serde_json::from_value(answer["tokens"].clone())?)
}
