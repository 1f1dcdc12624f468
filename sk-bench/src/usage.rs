//! Error messages for an invalid command line.

use std::process::ExitCode;

use clap::ColorChoice;
use clap::error::ErrorKind;
use sk_bench::{Error, message};

/// Exit status for an invalid command line.
pub(crate) const BAD_INPUT: u8 = 2;

/// Prints help or the version if requested, or else the error on one line.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => crate::ended(error.print().map_err(Error::Output)),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(BAD_INPUT)
        }
        ErrorKind::InvalidUtf8 => {
            let wrong = std::env::args_os().skip(1).filter(|argument| argument.to_str().is_none());
            let wrong: Vec<String> = wrong.map(|argument| format!("'{}'", argument.to_string_lossy())).collect();
            message::error(&format!("an argument is not UTF-8: {}", wrong.join(", ")));
            ExitCode::from(BAD_INPUT)
        }
        _ => {
            message::error(&gist(&error.to_string()));
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// The messages of the standard library's parsers, and those that are shown in their place.
const PARSERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "it must be a whole number that is not negative"),
    ("cannot parse integer from empty string", "it must be a whole number that is not negative"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "it must be a number"),
];

/// Returns a message of clap without its label, usage and pointers: the error and the suggestions,
/// separated by semicolons.
fn gist(message: &str) -> String {
    let lines = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: ").trim_start_matches("tip: "));
    let mut gist = String::new();
    for line in lines {
        match gist.chars().next_back() {
            None => {}
            Some(':') => gist.push(' '),
            Some(_) => gist.push_str("; "),
        }
        gist.push_str(line);
    }
    for (theirs, ours) in PARSERS {
        gist = gist.replace(theirs, ours);
    }
    // A value after a space is parsed as a subcommand, which conflicts with the options.
    match gist.strip_prefix("the subcommand '").and_then(|rest| rest.split_once("' cannot be used with")) {
        Some((value, rest)) if rest.contains("--offline") => format!("--offline takes its folder after \"=\": --offline={value}"),
        _ => gist,
    }
}

/// Applies the colour choice to all output of the program.
pub(crate) fn set_color(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_clap_fit_on_a_line() {
        let message = "error: unexpected argument '--wieghts' found\n\n  tip: a similar argument exists: '--weights'\n\n\
                       Usage: swiss-knife generate [OPTIONS]\n\nFor more information, try '--help'.\n";
        assert_eq!(gist(message), "unexpected argument '--wieghts' found; a similar argument exists: '--weights'");
        let message = "error: the following required arguments were not provided:\n  --data <FILE>\n  --output <DIR>\n\n\
                       Usage: swiss-knife train lm\n";
        assert_eq!(gist(message), "the following required arguments were not provided: --data <FILE>; --output <DIR>");
        let message = format!("error: invalid value 'x' for '--seed <SEED>': {}\n", "x".parse::<u64>().unwrap_err());
        assert_eq!(gist(&message), "invalid value 'x' for '--seed <SEED>': it must be a whole number that is not negative");
        let message = "error: the subcommand 'nope' cannot be used with:\n  <RESPONSES>\n  --offline[=<DIR>]\n";
        assert_eq!(gist(message), "--offline takes its folder after \"=\": --offline=nope");
    }
}
