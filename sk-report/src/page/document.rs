use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minijinja::Environment;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::prompt::clipped;
use super::table::TableView;
use super::{Behind, Block, Exchange, Fact, Figure, PageError, Section};

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const PLOTLY: &str = include_str!("plotly/plotly.min.js");

/// A page of figures and tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    title: String,
    verdict: Vec<String>,
    lead: Vec<String>,
    sections: Vec<Section>,
    colophon: Vec<String>,
}

impl Page {
    /// A page without content.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), verdict: Vec::new(), lead: Vec::new(), sections: Vec::new(), colophon: Vec::new() }
    }

    /// Adds a sentence to what the page opens with: what was found.
    #[must_use]
    pub fn verdict(mut self, text: impl Into<String>) -> Self {
        self.verdict.push(text.into());
        self
    }

    /// Adds a paragraph before the contents.
    #[must_use]
    pub fn lead(mut self, text: impl Into<String>) -> Self {
        self.lead.push(text.into());
        self
    }

    /// Adds a section.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Adds a line at the end: where the page comes from.
    #[must_use]
    pub fn colophon(mut self, text: impl Into<String>) -> Self {
        self.colophon.push(text.into());
        self
    }

    /// The page as one HTML file.
    ///
    /// # Errors
    /// When a figure cannot be written as JSON, or the template fails.
    pub fn html(&self) -> Result<String, PageError> {
        let sections: Vec<SectionView<'_>> = self.sections.iter().map(SectionView::of).collect::<Result<_, _>>()?;
        let charts = sections.iter().any(|section| section.blocks.iter().any(|block| matches!(block, BlockView::Figure { .. })));
        let scripts: &[&str] = if charts { &[PLOTLY, SCRIPT] } else { &[SCRIPT] };
        let hashes: Vec<String> = scripts.iter().map(|script| format!("'sha256-{}'", digest(script))).collect();
        // Plotly adds rules of its own to the page, hence the styles; what it draws on a canvas is
        // kept for printing as a data: image.
        let policy = format!(
            "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
            hashes.join(" ")
        );
        let mut environment = Environment::new();
        // The name decides that values are escaped.
        environment.add_template("page.html", TEMPLATE)?;
        let Self { title, verdict, lead, colophon, .. } = self;
        let view = PageView { title, verdict, lead, colophon, sections, policy, style: STYLE, scripts };
        Ok(environment.get_template("page.html")?.render(minijinja::Value::from(minijinja::value::Serde(view)))?)
    }
}

fn digest(script: &str) -> String {
    STANDARD.encode(Sha256::digest(script))
}

#[derive(Debug, Serialize)]
struct PageView<'a> {
    title: &'a str,
    verdict: &'a [String],
    lead: &'a [String],
    colophon: &'a [String],
    sections: Vec<SectionView<'a>>,
    policy: String,
    style: &'a str,
    scripts: &'a [&'a str],
}

#[derive(Debug, Serialize)]
struct SectionView<'a> {
    id: &'a str,
    title: &'a str,
    blocks: Vec<BlockView<'a>>,
}

/// What the template tells blocks apart by.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "of")]
enum BlockView<'a> {
    Paragraph(&'a str),
    Missing(&'a str),
    Facts(&'a [Fact]),
    Figure(FigureView<'a>),
    Table(TableView<'a>),
    Exchange(ExchangeView<'a>),
}

#[derive(Debug, Serialize)]
struct ExchangeView<'a> {
    /// The beginning of the prompt.
    name: String,
    #[serde(flatten)]
    exchange: &'a Exchange,
}

#[derive(Debug, Serialize)]
struct FigureView<'a> {
    id: &'a str,
    title: &'a str,
    caption: &'a str,
    alt: &'a str,
    panels: Vec<PanelView<'a>>,
    table: Option<TableView<'a>>,
    elsewhere: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct PanelView<'a> {
    title: &'a str,
    height: u32,
    scene: bool,
    /// The plot as JSON that may stand in a script element.
    json: String,
}

impl<'a> SectionView<'a> {
    fn of(section: &'a Section) -> Result<Self, PageError> {
        let blocks = section.blocks.iter().map(BlockView::of).collect::<Result<_, _>>()?;
        Ok(Self { id: &section.id, title: &section.title, blocks })
    }
}

impl<'a> BlockView<'a> {
    fn of(block: &'a Block) -> Result<Self, PageError> {
        Ok(match block {
            Block::Paragraph(text) => Self::Paragraph(text),
            Block::Missing(text) => Self::Missing(text),
            Block::Facts(facts) => Self::Facts(facts),
            Block::Figure(figure) => Self::Figure(FigureView::of(figure)?),
            Block::Table(shown) => Self::Table(TableView::of(&shown.table, shown.prompts.as_ref())),
            Block::Exchange(exchange) => Self::Exchange(ExchangeView { name: clipped(&exchange.prompt), exchange }),
        })
    }
}

impl<'a> FigureView<'a> {
    fn of(figure: &'a Figure) -> Result<Self, PageError> {
        let panel = |panel: &'a super::Panel| {
            let plot = &panel.plot;
            let json = serde_json::to_string(plot);
            let json = json.map_err(|source| PageError::Figure { figure: figure.id.clone(), source })?;
            Ok(PanelView { title: &panel.title, height: plot.height, scene: plot.scene, json: inert(&json) })
        };
        let (table, elsewhere) = match &figure.behind {
            Some(Behind::Table(table)) => (Some(TableView::of(table, None)), None),
            Some(Behind::Elsewhere(id)) => (None, Some(id.as_str())),
            None => (None, None),
        };
        let Figure { id, title, caption, alt, panels, .. } = figure;
        Ok(Self {
            id,
            title,
            caption,
            alt,
            panels: panels.iter().map(panel).collect::<Result<_, PageError>>()?,
            table,
            elsewhere,
        })
    }
}

/// JSON that cannot end the script element it stands in, nor begin another: these characters occur
/// in its strings alone.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
