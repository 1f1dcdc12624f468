/// Why a page cannot be written down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// A figure that is no JSON.
    #[error("figure \"{figure}\": {source}")]
    Figure {
        /// Its short name.
        figure: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The template failed.
    #[error("the page's template: {0}")]
    Template(#[from] minijinja::Error),
}
