//! `swiss-knife compare`: one prompt under several weightings and schemes, side by side.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use sk_report::grid::{Grid, wrap};

use super::generate::conversation;
use crate::args::{GenerationArgs, OperatingArgs, PromptArgs, Sources};
use crate::pool::PlannedArm;
use crate::progress::Loading;
use crate::scheme::{NamedWeights, SchemeError, SchemeSpec};
use crate::{Error, interrupt, models, output, session, terminal};
use sk_core::Ended;
use sk_models::assets;
use sk_models::dialogue::SessionError;
use sk_serve::host::Adapters;

const EXAMPLES: &str = "\
Examples:
  # All weight on one blade after the other
  swiss-knife compare \"How do I clean my bicycle?\"

  # Two weightings
  swiss-knife compare \"How do I clean my bicycle?\" -w helpful=1 -w harmless=1

  # Two schemes, at the same weights
  swiss-knife compare \"How do I clean my bicycle?\" -w helpful=1,honest=1 \\
      --scheme swiss-knife --scheme best-of-n";

const NO_BLADE: &str = "compare scores answers with blades, and none is given; give --blade NAME=DIR or \
     --blade NAME=\"instruction:TEXT\", or use generate";

/// Options of `compare`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct CompareArgs {
    #[command(flatten)]
    prompt: PromptArgs,
    /// Weights of the blades in one column; may be repeated.
    ///
    /// They are scaled to sum to one, and a blade that is not named gets zero. NAME:W is the same as
    /// NAME=W. Without any, each blade has a column with all the weight.
    #[arg(short, long, value_name = "NAME=W,…", help_heading = "Steering")]
    weights: Vec<NamedWeights>,
    /// A scheme, by name or file; may be repeated. Each has a column for each weighting.
    ///
    /// A scheme that lists its own blades has only those, as in a sweep; `generate` adds those of
    /// --blade and --head to it.
    ///
    /// Weights that name only blades of other schemes do not apply to it. If no others are given, it
    /// has one column, with its own weights.
    #[arg(long = "scheme", value_name = "NAME|FILE", help_heading = "Steering")]
    schemes: Vec<PathBuf>,
    #[command(flatten)]
    operating: OperatingArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    models: Sources,
    /// Print JSON instead of a table.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Do not show progress.
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// One answer, with the scores of the blades.
#[derive(Debug, Serialize)]
struct Column {
    scheme: Option<PathBuf>,
    weights: NamedWeights,
    text: String,
    tokens: usize,
    steps: usize,
    ended: Ended,
    seconds: f64,
    /// μ of each blade over the whole answer.
    scores: Vec<(String, f64)>,
}

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Error> {
    let schemes: Vec<Option<PathBuf>> =
        if args.schemes.is_empty() { vec![None] } else { args.schemes.iter().cloned().map(Some).collect() };
    let mut arms = Vec::new();
    for scheme in &schemes {
        let name = scheme.as_ref().map_or_else(|| "swiss-knife".to_owned(), |scheme| scheme.display().to_string());
        let mut config = args.operating.steering(Vec::new(), scheme.clone()).spec(args.models.are_shipped())?;
        models::seat_heads(&args.models, &mut config)?;
        arms.push(PlannedArm { name, config });
    }
    // The reference scheme scores every answer with every blade. Only the options of these blades
    // apply to it.
    let mut steering = args.operating.steering(Vec::new(), None);
    let embedded = if args.models.backbone.is_none() { assets::embedded() } else { None };
    let built_in = embedded.map(assets::Embedded::blades).unwrap_or_default();
    let given = args.models.blades.iter().chain(&args.models.heads).map(|source| source.name.as_str());
    let names: Vec<&str> = built_in.into_iter().chain(given).chain(["*"]).collect();
    steering.set.retain(|edit| edit.blade().is_some_and(|blade| names.contains(&blade)));
    steering.numbers.retain(|(parameter, _)| parameter.section == "blades");
    let mut reader = steering.spec(args.models.are_shipped())?;
    let prompt = args.prompt.read()?;
    let mut loading = Loading::new(args.quiet);
    let loaded = models::load_pool(&args.models, &mut reader, &mut arms, &mut loading);
    let (host, adapters) = loaded.map_err(|error| match error {
        Error::Scheme(SchemeError::NoBlade) => Error::Input(NO_BLADE.to_owned()),
        error => error,
    })?;

    let mut plans: Vec<(Option<PathBuf>, NamedWeights, SchemeSpec)> = Vec::new();
    for (scheme, PlannedArm { name, config }) in schemes.iter().zip(&arms) {
        let named = |error: SchemeError| Error::Input(format!("scheme \"{name}\": {error}"));
        for weights in args.weightings(config, &arms).map_err(named)? {
            let config = SchemeSpec { weights: Some(weights.clone()), ..config.clone() };
            config.alignment().map_err(named)?;
            // As the blades get them: scaled to sum to one.
            let total: f64 = weights.names().map(|name| weights.of(name)).sum();
            let scaled = weights.names().map(|name| (name.to_owned(), weights.of(name) / total)).collect();
            plans.push((scheme.clone(), scaled, config));
        }
    }
    let mut dialogue = conversation(&host, &args.generation, args.operating.convention)?;
    let tokens = dialogue.begin(host.tokenizer(), &prompt)?;
    interrupt::listen();
    let adapters = Adapters::from_iter(adapters);
    let open = |config| session::open(&host, config, dialogue.framing(), host.heads(), &adapters, args.generation.seed);
    let (mut replies, mut answers, mut failed) = (Vec::new(), Vec::new(), None);
    for (place, (_, _, config)) in plans.iter().enumerate() {
        loading.show(&format!("answer {} of {}", place + 1, plans.len()));
        let length = args.generation.max_new_tokens;
        let answer = |mut session| session::reply(&mut session, &host, &dialogue, &tokens, length, |_, _| Ok(()));
        match open(config).and_then(answer) {
            Ok(reply) => {
                answers.push(reply.whole(host.tokenizer()).map_err(SessionError::from)?);
                replies.push(reply);
            }
            // The finished columns are shown first.
            Err(error) if !replies.is_empty() => {
                failed = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
        if interrupt::requested() {
            break;
        }
    }
    loading.show("scores");
    let scored = || -> Result<_, Error> {
        let mut session = open(&reader)?;
        session.instruct(|text| dialogue.instructed(host.tokenizer(), text))?;
        Ok(session.scores(&tokens, &answers)?)
    };
    let scores = scored().unwrap_or_else(|error| {
        if !interrupt::requested() {
            failed.get_or_insert(error);
        }
        vec![Vec::new(); answers.len()]
    });
    drop(loading);
    let answered = plans.into_iter().zip(replies).zip(scores);
    let columns = answered.map(|(((scheme, weights, _), reply), scores)| Column {
        scheme,
        weights,
        text: reply.text.trim().to_owned(),
        tokens: reply.tokens.len(),
        steps: reply.steps,
        ended: reply.ended,
        seconds: reply.elapsed,
        scores,
    });
    let columns: Vec<Column> = columns.collect();
    let shown = if args.json { output::json(&columns)? } else { render(&columns, args.schemes.len() > 1, terminal::columns()) };
    writeln!(io::stdout().lock(), "{shown}").map_err(Error::Output)?;
    failed.map_or(Ok(()), Err)
}

impl CompareArgs {
    /// Returns the weightings of a scheme's columns. Weights that name none of its blades, but one
    /// of another of the `arms`, are left out. If all are, the scheme has its own weights.
    fn weightings(&self, config: &SchemeSpec, arms: &[PlannedArm]) -> Result<Vec<NamedWeights>, SchemeError> {
        let corner = |name: &str| NamedWeights::from_iter([(name.to_owned(), 1.0)]);
        let is_named = |config: &SchemeSpec, weights: &NamedWeights| {
            weights.names().any(|name| config.blades.iter().any(|blade| blade.name == name))
        };
        let is_foreign =
            |weights: &NamedWeights| !is_named(config, weights) && arms.iter().any(|arm| is_named(&arm.config, weights));
        Ok(match (&self.weights[..], &config.weights) {
            ([], Some(weights)) => vec![weights.clone()],
            ([], None) => config.blades.iter().map(|blade| corner(&blade.name)).collect(),
            (given, _) if given.iter().all(is_foreign) => {
                let spec = config.alignment()?;
                let own = spec.active().map(|(seat, weight)| (seat.name().to_string(), weight));
                vec![own.collect()]
            }
            (given, _) => given.iter().filter(|weights| !is_foreign(weights)).cloned().collect(),
        })
    }
}

impl Column {
    fn heading(&self, with_scheme: bool) -> String {
        let weights: Vec<String> = self.weights.names().map(|name| format!("{name} {}", short(self.weights.of(name)))).collect();
        match &self.scheme {
            Some(scheme) if with_scheme => format!("{}: {}", scheme.display(), weights.join(", ")),
            _ => weights.join(", "),
        }
    }
}

/// Formats a weight with at most three decimals.
fn short(weight: f64) -> String {
    let text = format!("{weight:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats the answers in columns, wrapped to fit. A star marks the highest score of each blade.
fn render(columns: &[Column], with_scheme: bool, width: usize) -> String {
    let score = |column: &Column, place: usize| {
        let Some(&(_, value)) = column.scores.get(place) else { return String::new() };
        let row = || columns.iter().filter_map(|other| Some(other.scores.get(place)?.1));
        let best = row().all(|score| score <= value);
        // Three significant digits of the largest, unless it is below 0.001.
        let decimals = match row().map(f64::abs).fold(0.0, f64::max) {
            largest if largest >= 0.1 => 3,
            largest if largest >= 0.01 => 4,
            _ => 5,
        };
        format!("{value:+.decimals$}{}", if best && columns.len() > 1 { " *" } else { "" })
    };
    let scored = columns.iter().find(|column| !column.scores.is_empty());
    let names = scored.iter().flat_map(|column| &column.scores).map(|(name, _)| name);
    let line = |first: &str, cell: &dyn Fn(&Column) -> String| {
        std::iter::once(first.to_owned()).chain(columns.iter().map(cell)).collect::<Vec<_>>()
    };
    let mut grid = Grid::new(line("", &|column| column.heading(with_scheme)));
    grid.row(line("", &|column| column.text.clone()));
    for (place, name) in names.enumerate() {
        grid.row(line(name, &|column| score(column, place)));
    }
    if scored.is_none() {
        return grid.render(width);
    }
    let star = if columns.len() > 1 { "; * the highest of a row" } else { "" };
    let caption = wrap(&format!("μ of each blade over the whole answer{star}"), width, 0);
    format!("{}\n\n{caption}", grid.render(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_scores_have_more_decimals() {
        let column = |scores: [f64; 3]| Column {
            scheme: None,
            weights: std::iter::once(("calm".to_owned(), 1.0)).collect(),
            text: "Yes.".to_owned(),
            tokens: 1,
            steps: 1,
            ended: Ended::EndOfText,
            seconds: 0.0,
            scores: ["a", "b", "c"].map(str::to_owned).into_iter().zip(scores).collect(),
        };
        let text = render(&[column([0.2, -0.02, 0.002]), column([-0.1, 0.00008, 0.00008])], false, 80);
        for cell in ["+0.200 *", "-0.100", "-0.0200", "+0.0001 *", "+0.00200 *", "+0.00008", "μ of each blade"] {
            assert!(text.contains(cell), "{cell}: {text}");
        }
        let unscored = render(&[Column { scores: Vec::new(), ..column([0.0; 3]) }], false, 80);
        assert!(unscored.contains("Yes.") && !unscored.contains('μ'), "{unscored}");
    }
}
