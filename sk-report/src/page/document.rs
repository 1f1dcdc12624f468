use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Section;
use super::block::Block;
use super::prompt::clipped;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const PLOTLY: &str = include_str!("plotly/plotly.min.js");

/// A page of figures and tables.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Page {
    /// The title.
    pub title: String,
    /// The summary of findings at the top, a sentence each.
    pub verdict: Vec<String>,
    /// The paragraph above the table of contents.
    pub lead: String,
    /// The sections.
    pub sections: Vec<Section>,
    /// The line on the origin of the page at its end.
    pub colophon: String,
}

/// An error of the page's template.
#[derive(Debug, thiserror::Error)]
#[error("the page's template: {0}")]
pub struct PageError(#[from] minijinja::Error);

impl Page {
    /// Renders the page as one HTML file.
    ///
    /// # Errors
    /// If the template fails.
    pub fn html(&self) -> Result<String, PageError> {
        let charts = self.sections.iter().flat_map(|section| &section.blocks).any(|block| matches!(block, Block::Figure(_)));
        let scripts = if charts { vec![PLOTLY, SCRIPT] } else { vec![SCRIPT] };
        let digest = |script: &&str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script)));
        let hashes: Vec<String> = scripts.iter().map(digest).collect();
        // Plotly adds style rules to the page, hence `unsafe-inline`. For printing, its canvases
        // are stored as data: images.
        let policy = format!(
            "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
            hashes.join(" ")
        );
        let mut environment = Environment::new();
        environment.add_filter("clipped", clipped);
        environment.add_filter("json", inert_json);
        // The extension .html enables escaping of values.
        environment.add_template("page.html", TEMPLATE)?;
        let context = context! { policy, style => STYLE, scripts, ..Value::from(Serde(self)) };
        Ok(environment.get_template("page.html")?.render(context)?)
    }
}

/// Serialises a plot as JSON that can neither close its script element nor open another one. The
/// replaced characters occur only inside JSON strings.
fn inert_json(plot: &Value, figure: &str) -> Result<Value, minijinja::Error> {
    let json = serde_json::to_string(plot)
        .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, format!("figure \"{figure}\": {error}")))?;
    Ok(Value::from_safe_string(json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")))
}
