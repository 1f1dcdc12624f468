//! The scheme files that the book shows are scheme files.

use std::path::Path;

use sk_bench::scheme::{Convention, SchemeConfig};
use sk_core::OperatingPoint;

#[test]
fn the_schemes_of_the_book_are_read() {
    let page = include_str!("../../docs/src/schemes.md");
    let schemes: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(schemes.len() > 1, "the page shows {} schemes", schemes.len());
    for scheme in schemes {
        for convention in [Convention::Sound, Convention::Paper] {
            let mut config = SchemeConfig::reference(convention, &OperatingPoint::HHH);
            config.overlay("docs/src/schemes.md", scheme, Path::new("")).unwrap_or_else(|error| panic!("{error}:\n{scheme}"));
            config.check().unwrap_or_else(|error| panic!("{error}:\n{scheme}"));
        }
    }
}
