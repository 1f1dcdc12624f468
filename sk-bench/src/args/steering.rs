use std::path::PathBuf;

use clap::{Args, FromArgMatches};

use super::model::Sources;
use super::one_of;
use super::output::positive;
use crate::scheme::{Convention, FieldEdit, NamedWeights, Parameter, Preset, SchemeError, SchemeSpec, Steering, parameters};

/// How the model is steered.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Steering")]
pub struct SteeringArgs {
    /// Weights of the blades; may be repeated. Unless given, they are those of the scheme, or equal
    /// if it has none.
    ///
    /// They are scaled to sum to one, and a blade that is not named gets zero. NAME:W is the same as
    /// NAME=W.
    #[arg(short, long, value_name = "NAME=W,…")]
    pub weights: Vec<NamedWeights>,
    /// A scheme: a TOML file that fills the slots by name, or one that ships (see `swiss-knife
    /// schemes`).
    ///
    /// Its sections are [about], [proposal], [granularity], [search], [blades.NAME], [weighting],
    /// [normalizer], [aggregator], [selector] and [fallback]. Fields that it omits come from
    /// --preset and --convention.
    #[arg(long, value_name = "NAME|FILE")]
    pub scheme: Option<PathBuf>,
    /// What is changed of the scheme.
    #[command(flatten)]
    pub operating: OperatingArgs,
}

/// What is changed of a scheme.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Steering")]
pub struct OperatingArgs {
    /// Set one field of a slot after the scheme, such as `selector.top_k=50`; may be repeated.
    ///
    /// The value is TOML; a bare word is taken for a string. Fields of a blade are
    /// `blades.NAME.FIELD`, and `blades.*.FIELD` those of every blade without a section of its own.
    #[arg(long = "set", value_name = "SLOT.FIELD=VALUE")]
    pub set: Vec<FieldEdit>,
    /// Operating point: responsive unless given, and hhh under --convention paper.
    ///
    /// `responsive` is hhh with a temperature of 0.25, at which the choice follows the weights.
    /// Under it, the model that ships drafts twelve candidates. The other points are published.
    #[arg(long, value_name = "PRESET", value_parser = one_of(Preset::ALL.map(|(name, preset)| (name.into(), preset))))]
    pub preset: Option<Preset>,
    /// The rules for what the paper leaves open.
    ///
    /// `sound` keeps the paper's equations and fixes the defects of the published runs; `paper`
    /// does what they did.
    #[arg(long, value_name = "CONVENTION", default_value_t,
        value_parser = one_of(Convention::ALL.map(|(name, rule)| (name.into(), rule))))]
    pub convention: Convention,
    /// Numbers of the operating point and of drafting.
    #[command(flatten)]
    pub numbers: NumberArgs,
}

/// The numbers of a scheme that have an option, in the order of [`parameters::ALL`].
#[derive(Debug, Clone, Default)]
pub struct NumberArgs(Vec<(&'static Parameter, f64)>);

impl NumberArgs {
    fn parameters() -> impl Iterator<Item = (&'static Parameter, &'static str, &'static str)> {
        parameters::ALL.iter().filter_map(|parameter| parameter.option.map(|(option, value)| (parameter, option, value)))
    }

    /// Returns the value given for a number, by name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(parameter, _)| parameter.name == name).map(|(_, value)| *value)
    }
}

impl Args for NumberArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(Self::parameters().map(|(parameter, option, value)| {
            let drafting = ["proposal", "granularity"].contains(&parameter.section) && option != "n";
            let arg = clap::Arg::new(option)
                .long(option)
                .value_name(value)
                .help(parameter.meaning.trim_end_matches('.'))
                .help_heading(if drafting { "Drafting" } else { "Operating point" });
            match (parameter.range.whole, parameter.range.least >= 1.0) {
                (true, true) => arg.value_parser(|text: &str| positive(text).map(|count| count as f64)),
                (true, false) => arg.value_parser(|text: &str| text.parse::<usize>().map(|count| count as f64)),
                (false, _) => arg.value_parser(clap::value_parser!(f64)).allow_negative_numbers(true),
            }
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NumberArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::parameters().filter_map(|(parameter, option, _)| Some((parameter, *matches.get_one(option)?)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl OperatingArgs {
    /// Converts the options to plain data, with weights and a scheme.
    pub fn steering(&self, weights: Vec<NamedWeights>, scheme: Option<PathBuf>) -> Steering {
        let Self { set, preset, convention, numbers } = self.clone();
        Steering { weights, scheme, set, preset, convention, numbers: numbers.0 }
    }
}

impl SteeringArgs {
    /// Converts the options to plain data.
    pub fn steering(&self) -> Steering {
        self.operating.steering(self.weights.clone(), self.scheme.clone())
    }

    /// Returns the scheme that these options describe for `models`.
    ///
    /// # Errors
    /// As [`Steering::spec`].
    pub fn scheme(&self, models: &Sources) -> Result<SchemeSpec, SchemeError> {
        self.steering().spec(models.are_shipped())
    }
}
