//! The inputs of a digest.

use sk_scheme::{SHIPPED, Shipped};

#[test]
fn digests_stay_as_they_are() {
    let mut spec = Shipped::named("swiss-knife").unwrap().spec().unwrap();
    ["helpful", "honest"].iter().for_each(|name| spec.seat(name));
    // A new digest means a new version of the canonical form, and makes sweeps start again.
    assert_eq!(spec.digest(), "7e19814548a54b8875604e4d070132395b680dfc908c196c3ca02c89e3bf8480");
}

#[test]
fn digests_are_of_what_responses_depend_on() {
    let spec = Shipped::named("args").unwrap().spec().unwrap();
    let amended = |text: &str| {
        let mut amended = spec.clone();
        amended.amend("test", text).unwrap();
        amended.digest()
    };
    assert_ne!(amended("[selector]\ntop_p = 0.9\n"), spec.digest());
    assert_eq!(amended("[about]\nmethod = \"another name\"\n"), spec.digest());
    assert_eq!(amended("[blades.\"*\"]\nadapter = \"elsewhere\"\n"), amended("[blades.\"*\"]\nadapter = \"here\"\n"));
    let on = |model: &str| amended(&format!("[blades.small]\nkind = \"likelihood\"\non = {model:?}\n"));
    assert!(on("./elsewhere") == on("./here") && on("./here") != on("drafter"));
    let seated = |names: [&str; 2]| {
        let mut seated = spec.clone();
        names.iter().for_each(|name| seated.seat(name));
        seated.digest()
    };
    assert_ne!(seated(["a", "b"]), seated(["b", "a"]), "blades have an order");
    let mut all: Vec<String> = SHIPPED.iter().map(|scheme| scheme.spec().unwrap().digest()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), SHIPPED.len());
}
