//! The shipped schemes: one file per published method, as settings of the tuple.

use std::path::Path;

use crate::{SchemeError, SchemeSpec, suggest};

/// A scheme file included in the program.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// The name of the scheme and of its file.
    pub name: &'static str,
    /// The contents of the file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../schemes/", $name, ".toml")) }),*]
    };
}

/// All shipped schemes, in the order of the table of methods.
pub const SHIPPED: &[Shipped] = shipped![
    "swiss-knife",
    "swiss-knife-paper",
    "swiss-knife-thurstone",
    "swiss-knife-bradley-terry",
    "swiss-knife-weakest-link",
    "swiss-knife-asinh",
    "swiss-knife-raced",
    "swiss-knife-waves",
    "base",
    "greedy",
    "drafter",
    "best-of-n",
    "args",
    "args-greedy",
    "args-reward-head",
    "fudge",
    "contrastive",
    "rewarded-soups",
    "mod",
    "mod-forward-kl",
    "mod-jensen-shannon",
    "mod-alpha",
    "gsi",
    "max-min",
    "satisficing",
    "cards",
    "prompt-contrast",
    "no-cbn",
    "unstandardized-blades",
    "unstandardized-entry",
    "unstandardized-champion",
    "elo",
    "softmax-mu",
    "sigma-shuffled",
    "sigma-zero",
];

impl Shipped {
    /// Returns the shipped scheme of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SHIPPED.iter().find(|scheme| scheme.name == name)
    }

    /// Builds the scheme: its file applied to the published operating point of all three
    /// objectives, [`OperatingPoint::HHH`](sk_core::OperatingPoint::HHH) with T = 8.
    ///
    /// The program's default point is
    /// [`OperatingPoint::RESPONSIVE`](sk_core::OperatingPoint::RESPONSIVE). For another point,
    /// [adopt](SchemeSpec::adopt) the scheme in a [reference](SchemeSpec::reference) at that point.
    ///
    /// # Errors
    /// If the file is invalid. The tests check that every shipped file is valid.
    pub fn spec(&self) -> Result<SchemeSpec, SchemeError> {
        let mut spec = SchemeSpec::default();
        spec.overlay(&format!("{}.toml", self.name), self.text, Path::new(""))?;
        spec.check()?;
        Ok(spec)
    }
}

impl SchemeSpec {
    /// Applies the shipped scheme `name`, or else the file at that path. To read a file that has
    /// the name of a shipped scheme, give it as a path such as `./base`.
    ///
    /// # Errors
    /// If there is no such scheme or file, or as for [`read`](Self::read).
    pub fn adopt(&mut self, name: &Path) -> Result<(), SchemeError> {
        let text = name.to_string_lossy();
        if let Some(shipped) = Shipped::named(&text) {
            return self.overlay(&format!("{}.toml", shipped.name), shipped.text, Path::new(""));
        }
        let is_path = name.extension().is_some() || name.components().count() != 1;
        if !is_path && !name.exists() {
            let hint = suggest::hint(&text, SHIPPED.iter().map(|scheme| scheme.name));
            return Err(SchemeError::NoScheme { name: text.into_owned(), hint });
        }
        self.read(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_ships_and_can_be_built() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemes");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut names: Vec<&str> = SHIPPED.iter().map(|scheme| scheme.name).collect();
        files.sort();
        names.sort_unstable();
        assert_eq!(files, names);
        for scheme in SHIPPED {
            let spec = scheme.spec().unwrap_or_else(|error| panic!("{error}"));
            assert!(!spec.about.method.is_empty(), "{}", scheme.name);
        }
    }

    #[test]
    fn a_slip_in_the_name_is_answered() {
        let mut spec = SchemeSpec::default();
        let refused = |spec: &mut SchemeSpec, name: &str| spec.adopt(Path::new(name)).unwrap_err().to_string();
        assert_eq!(refused(&mut spec, "contrastiv"), "unknown scheme \"contrastiv\"; did you mean \"contrastive\"?");
        assert!(refused(&mut spec, "missing/mod").starts_with("cannot read scheme missing/mod"));
        assert!(refused(&mut spec, "mod.toml").starts_with("cannot read scheme mod.toml"));
        spec.adopt(Path::new("mod")).unwrap();
        assert_eq!(spec.about.method, "MOD");
    }
}
