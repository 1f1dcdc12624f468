//! The scheme files in the book parse.

use std::path::Path;

use sk_bench::scheme::{Base, Convention, SchemeSpec};

#[test]
fn the_schemes_of_the_book_are_read() {
    let pages = [
        include_str!("../../docs/src/schemes.md"),
        include_str!("../../docs/src/guarantees.md"),
        include_str!("../../docs/src/mix.md"),
    ];
    let of_page = |page: &'static str| page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let schemes: Vec<&str> = pages.into_iter().flat_map(of_page).collect();
    assert!(schemes.len() > 2, "the pages show {} schemes", schemes.len());
    for scheme in schemes {
        for convention in [Convention::Sound, Convention::Paper] {
            let mut config = SchemeSpec::reference(Base { convention, ..Base::default() });
            config.overlay("the book", scheme, Path::new("")).unwrap_or_else(|error| panic!("{error}:\n{scheme}"));
            config.check().unwrap_or_else(|error| panic!("{error}:\n{scheme}"));
        }
    }
}

#[test]
fn the_scheme_of_the_guarantees_has_them() {
    let page = include_str!("../../docs/src/guarantees.md");
    let scheme = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let mut config = SchemeSpec::default();
    assert!(config.stability().is_err(), "the reference scheme has none");
    config.overlay("docs/src/guarantees.md", scheme, Path::new("")).unwrap();
    config.stability().unwrap_or_else(|reason| panic!("{reason}:\n{scheme}"));
}
