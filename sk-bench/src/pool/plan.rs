//! Selection of arms: the schemes that can choose from the candidates of another scheme.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Error;
use crate::models::Sources;
use crate::scheme::{BladeSpec, FieldEdit, SHIPPED, SchemeSpec, Steering};

/// An arm and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedArm {
    /// Its name in reports.
    pub name: String,
    /// The scheme.
    pub config: SchemeSpec,
}

/// A parsed `[NAME=]SCHEME[,SLOT.FIELD=VALUE…]`: a scheme with optional changes and an optional
/// name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArmArg {
    name: String,
    scheme: PathBuf,
    set: Vec<FieldEdit>,
}

impl FromStr for ArmArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, set) = text.split_once(',').map_or((text, None), |(scheme, set)| (scheme, Some(set)));
        let (name, scheme) = scheme.split_once('=').unwrap_or((text, scheme));
        if name.trim().is_empty() || scheme.trim().is_empty() {
            return Err(
                "an arm is [NAME=]SCHEME[,SLOT.FIELD=VALUE…], such as cold=swiss-knife,selector.temperature=0.5".to_owned()
            );
        }
        let set = set.map_or_else(Vec::new, |set| set.split(',').map(str::parse).collect());
        Ok(Self {
            name: name.trim().to_owned(),
            scheme: scheme.trim().into(),
            set: set.into_iter().collect::<Result<_, String>>()?,
        })
    }
}

impl ArmArg {
    /// Returns the name or the file of its scheme.
    pub(crate) fn scheme(&self) -> &Path {
        &self.scheme
    }

    /// Returns the arm. It takes the settings of candidates and scores from the scheme that
    /// `steering` describes, and all other settings from its own scheme.
    pub(crate) fn plan(&self, steering: &Steering, models: &Sources) -> Result<PlannedArm, Error> {
        planned(&self.name, &steering.of_arm(self.scheme.clone(), &self.set), models)
    }
}

fn planned(name: &str, steering: &Steering, models: &Sources) -> Result<PlannedArm, Error> {
    let config = steering.spec(models.are_shipped());
    let config = config.map_err(|error| Error::from(error).within(format!("arm \"{name}\"")))?;
    Ok(PlannedArm { name: name.to_owned(), config })
}

/// Returns the bundled schemes that can choose from the candidates of `driver`, which `steering`
/// describes. If `replayed`, they must also use its scores. Schemes with heads are included only if
/// `driver` has heads, and schemes that the options do not apply to are excluded.
pub(crate) fn companions(
    name: &str,
    driver: &SchemeSpec,
    steering: &Steering,
    models: &Sources,
    replayed: bool,
) -> Result<Vec<PlannedArm>, Error> {
    let reads_heads =
        |config: &SchemeSpec| config.blades.iter().chain(&config.template).any(|blade| blade.rule.head_kind().is_some());
    let fits =
        |arm: &PlannedArm| same_candidates(name, driver, arm).is_ok() && (!replayed || same_scores(name, driver, arm).is_ok());
    let others = SHIPPED.iter().filter(|scheme| scheme.name != name);
    let (arms, with_heads): (Vec<PlannedArm>, Vec<PlannedArm>) = others
        .filter_map(|scheme| planned(scheme.name, &steering.of_arm(scheme.name.into(), &[]), models).ok())
        .filter(fits)
        .partition(|arm| reads_heads(driver) || !reads_heads(&arm.config));
    if arms.is_empty() {
        let cure = match with_heads.first() {
            Some(arm) => format!("name one that reads heads with --arm, such as {}", arm.name),
            None => "give one with --arm: a file, or a scheme with changed fields".to_owned(),
        };
        return Err(Error::Input(format!("no other scheme that ships can be compared with \"{name}\" by default; {cure}")));
    }
    Ok(arms)
}

/// Checks that an arm can choose from the candidates of `driver`.
pub(crate) fn same_candidates(name: &str, driver: &SchemeSpec, arm: &PlannedArm) -> Result<(), Error> {
    let found = difference(&arm.config.drafting_fields(), &driver.drafting_fields());
    found.map_or(Ok(()), |difference| {
        Err(Error::Input(format!(
            "arm \"{}\" cannot share the candidates of \"{name}\": its {difference}; arms agree in [proposal] and [granularity]",
            arm.name
        )))
    })
}

/// Checks that an arm can choose by the scores of `driver` in a trace. Its blades must give the
/// same scores, except that an ablation may remove or permute σ.
pub(crate) fn same_scores(name: &str, driver: &SchemeSpec, arm: &PlannedArm) -> Result<(), Error> {
    let refused = |difference: String| {
        let reason = format!("cannot use the recorded scores of \"{name}\": its {difference}; give a prompt instead of --replay");
        Error::Input(format!("arm \"{}\" {reason}", arm.name))
    };
    for blade in arm.config.blades.iter().chain(&arm.config.template) {
        let theirs = driver.blades.iter().find(|other| other.name == blade.name).or(driver.template.as_ref());
        let Some(theirs) = theirs else {
            let seated = driver.blades.iter().map(|blade| blade.name.clone()).collect::<Vec<_>>().join(", ");
            return Err(refused(differs("blades", &blade.name, &seated)));
        };
        let fields = |of: &BladeSpec| {
            let named = |(field, value)| (format!("blades.{}.{field}", blade.name), value);
            of.score_fields().into_iter().map(named).collect::<Vec<_>>()
        };
        if let Some(difference) = difference(&fields(blade), &fields(theirs)) {
            return Err(refused(difference));
        }
        if !blade.is_certain() && (theirs.rule.dispersion_name() != blade.rule.dispersion_name() || theirs.is_ablated()) {
            let words = |blade: &BladeSpec| format!("{} ({})", blade.rule.dispersion_name(), blade.arm);
            let field = format!("blades.{}.dispersion", blade.name);
            return Err(refused(differs(&field, &words(blade), &words(theirs))));
        }
    }
    Ok(())
}

/// Describes the first field that differs.
fn difference(own: &[(String, String)], theirs: &[(String, String)]) -> Option<String> {
    fn value<'f>(fields: &'f [(String, String)], name: &str) -> &'f str {
        fields.iter().find(|(field, _)| field == name).map_or("absent", |(_, value)| value)
    }
    let mut names = own.iter().chain(theirs).map(|(field, _)| field);
    let field = names.find(|field| value(own, field) != value(theirs, field))?;
    Some(differs(field, value(own, field), value(theirs, field)))
}

/// Describes a field of an arm that differs from that of the driving scheme.
fn differs(field: &str, own: &str, theirs: &str) -> String {
    format!("{field} is {own}, not {theirs}")
}
