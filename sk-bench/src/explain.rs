//! `--explain`: a step as a table.

use owo_colors::OwoColorize;
use sk_core::{CandidateTrace, ScoreTrace, SpanEnd, Standardize, StepTrace};
use sk_models::text::Tokenizer;
use sk_report::grid::{Grid, wrap};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::message;
use crate::named::named;
use crate::plural::counted;
use crate::trace::{shown, span_text};

named! {
    /// How much `--explain` shows of a step.
    pub Detail {
        /// Per candidate its probability, one figure per blade, and the text.
        Brief = "brief",
        /// Every number of the step.
        Full = "full",
    }
}

/// Number of characters shown of a candidate's text.
const SHOWN: usize = 40;

/// Width of a probability bar in columns.
const BAR: usize = 8;

/// Columns before the figures of the blades: an arrow, a probability and its bar.
const LEFT: usize = 7 + BAR;

/// Minimum and maximum number of columns for a blade's name above its figures. The minimum is the
/// width of a figure.
const NAME: std::ops::RangeInclusive<usize> = 4..=9;

/// Formats a step in lines of `width` columns, one per candidate: an arrow at the drawn candidate,
/// its probability with a bar, each blade's μ as its distance from the mean of the step in standard
/// deviations, and the beginning of the text. If there is no room for all blades, those with the
/// highest weights are shown.
pub(crate) fn brief(trace: &StepTrace, tokenizer: &Tokenizer, color: bool, width: usize) -> String {
    let for_figures = width.saturating_sub(LEFT + 2 + SHOWN / 2);
    let mut blades: Vec<&ScoreTrace> = trace.blades.iter().collect();
    let most = (for_figures / (NAME.start() + 1)).max(1);
    if blades.len() > most {
        blades.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        blades.truncate(most);
    }
    let name = (for_figures / blades.len().max(1)).saturating_sub(1).clamp(*NAME.start(), *NAME.end());
    let starts: Vec<String> = blades.iter().map(|blade| fit(&blade.name, name)).collect();
    let twins = |start: &String| starts.iter().filter(|other| *other == start).count() > 1;
    let heading = |(blade, start): (&&ScoreTrace, &String)| if twins(start) { fit_end(&blade.name, name) } else { start.clone() };
    let headings: Vec<String> = blades.iter().zip(&starts).map(heading).collect();
    let widths: Vec<usize> = headings.iter().map(|heading| heading.width().max(*NAME.start())).collect();
    let figures: Vec<Vec<f64>> = blades.iter().map(|blade| standardized(&blade.mu)).collect();
    let room = width.saturating_sub(LEFT + 2 + widths.iter().map(|width| width + 1).sum::<usize>()).max(1);
    let weights: Vec<String> =
        trace.blades.iter().zip(trace.weights()).map(|(blade, weight)| format!("{} {weight:.2}", blade.name)).collect();
    let title = wrap(&format!("step {}: {}", trace.step + 1, weights.join(", ")), width, 2);
    let title_of = |(heading, width): (&String, &usize)| " ".repeat(1 + width - heading.width()) + heading;
    let titles: String = headings.iter().zip(&widths).map(title_of).collect();
    let mut text = format!("{title}\n  {:<columns$}{titles}  candidate", "p", columns = LEFT - 2);
    let rows = shown(&trace.decision, &trace.arms);
    for &i in &rows {
        let probability = trace.decision.probabilities[i];
        let chosen = i == trace.decision.chosen;
        let numbers: String =
            figures.iter().zip(&widths).map(|(figures, &width)| format!(" {:>width$}", format!("{:+.1}", figures[i]))).collect();
        let candidate = &trace.candidates[i];
        let ends = candidate.end == SpanEnd::EndOfText;
        let words = fit(visible(&spoken(candidate, tokenizer)).trim_start(), room.saturating_sub(2 * usize::from(ends)));
        let words = if ends { format!("{words} ∎") } else { words };
        let line = format!("{} {probability:.2} {}{numbers}  {words}", if chosen { '→' } else { ' ' }, bar(probability));
        let line = if chosen && color { line.green().to_string() } else { line };
        text += "\n";
        text += line.trim_end();
    }
    let mut note = |note: &str| text += &format!("\n  {}", wrap(note, width.saturating_sub(2), 4));
    if trace.candidates.len() > rows.len() {
        note(&format!("… and {} less likely candidates", trace.candidates.len() - rows.len()));
    }
    if trace.blades.len() > blades.len() {
        note(&format!("… and {}; --explain=full has their figures", counted(trace.blades.len() - blades.len(), "more blade")));
    }
    if let Some(head) = trace.head {
        note(&format!("only the {head} most likely tokens that the server returned"));
    }
    text
}

/// Returns a bar of at most [`BAR`] columns, in eighths of a column.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (8 * BAR) as f64).round() as usize;
    let text = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    format!("{text:<BAR$}")
}

/// Returns distances from the mean in standard deviations; zeros if all values are equal.
fn standardized(values: &[f64]) -> Vec<f64> {
    let rule = Standardize::EXACT;
    let moments = rule.moments(values);
    values.iter().map(|&value| rule.apply(&moments, value)).collect()
}

/// Returns the text of a candidate without the end-of-text token, which is shown as a mark.
fn spoken(candidate: &CandidateTrace, tokenizer: &Tokenizer) -> String {
    let ends = usize::from(candidate.end == SpanEnd::EndOfText);
    span_text(tokenizer, &candidate.tokens[..candidate.tokens.len() - ends])
}

/// Returns the beginning of a text, of at most `room` columns.
fn prefix(text: &str, room: usize) -> String {
    let mut columns = 0;
    let fits = |c: &char| {
        columns += c.width().unwrap_or(0);
        columns <= room
    };
    text.chars().take_while(fits).collect()
}

/// Truncates a line to `room` columns, with an ellipsis if it is longer.
fn fit(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    format!("{}…", prefix(text, room.saturating_sub(1)).trim_end())
}

/// As [`fit`], but keeps the end of a longer line.
fn fit_end(text: &str, room: usize) -> String {
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    backwards(&fit(&backwards(text), room))
}

/// Formats a step as a table. For each candidate it shows the text, each blade's μ ± σ, the fluency
/// blade's ℓ_S, the composite μ ± σ, the rating, the probability, and an arrow at the drawn
/// candidate.
///
/// `color` marks the drawn candidate's row. Lines have `width` columns.
pub(crate) fn table(trace: &StepTrace, tokenizer: &Tokenizer, color: bool, width: usize) -> String {
    let mut header = vec!["#".to_owned(), "candidate".to_owned()];
    header.extend(trace.blades.iter().zip(trace.weights()).map(|(blade, weight)| format!("{} ({weight:.2})", blade.name)));
    header.extend(trace.fluency.is_some().then(|| "fluency".to_owned()));
    header.extend(["composite", "rating", "probability", "choice"].map(str::to_owned));
    let mut grid = Grid::new(header).numbers(2..).numbers(..1);
    let rows = shown(&trace.decision, &trace.arms);
    let decision = &trace.decision;
    for &i in &rows {
        let candidate = &trace.candidates[i];
        let mut cells = vec![(i + 1).to_string(), shorten(&spoken(candidate, tokenizer), candidate.end)];
        cells.extend(trace.blades.iter().map(|blade| format!("{:+.4} ± {:.3}", blade.mu[i], blade.sigma[i])));
        cells.extend(trace.fluency.as_ref().map(|fluency| format!("{:.3}", fluency[i])));
        cells.push(format!("{:+.3} ± {:.3}", decision.mu[i], decision.sigma[i]));
        cells.push(format!("{:.3}", decision.ratings[i]));
        cells.push(format!("{:.3}", decision.probabilities[i]));
        let chosen = i == decision.chosen;
        cells.push(if chosen { "←" } else { "" }.to_owned());
        grid.row(cells);
        if chosen && color {
            grid.mark();
        }
    }
    let more = match trace.candidates.len() - rows.len() {
        0 => String::new(),
        more => format!("\n… and {more} less likely candidates"),
    };
    format!("step {}: μ ± σ per blade (weight) and of the composite\n{}{more}", trace.step + 1, grid.render(width))
}

/// Formats a candidate in one line: line breaks are spelled out, the middle of a long text is left
/// out, and a mark is added if the candidate ends the response.
pub(crate) fn shorten(text: &str, end: SpanEnd) -> String {
    let visible = visible(text);
    let length = visible.chars().count();
    let shown = if length <= SHOWN {
        visible
    } else {
        let head: String = visible.chars().take(SHOWN * 2 / 3).collect();
        let tail: String = visible.chars().skip(length - SHOWN / 3 + 1).collect();
        format!("{head}…{tail}")
    };
    match end {
        SpanEnd::EndOfText => format!("{shown} ∎"),
        SpanEnd::Complete | SpanEnd::Limit => shown,
    }
}

/// Returns a text in one line, with line breaks and other control characters spelled out.
fn visible(text: &str) -> String {
    let spell = |c: char| match c {
        '\n' => vec!['⏎'],
        '\t' => vec!['\\', 't'],
        c if message::commands(c) => c.escape_unicode().collect(),
        c => vec![c],
    };
    text.chars().flat_map(spell).collect()
}

#[cfg(test)]
mod tests {
    use sk_core::{CandidateTrace, Decision, Seconds, TokenId};

    use super::*;

    /// Returns a step with `blades` blades, whose names are long.
    fn step(blades: usize) -> StepTrace {
        let scores = |k: usize| (0..4).map(|i| (i * k) as f64).collect::<Vec<_>>();
        let blade = |k: usize| ScoreTrace {
            name: format!("blade-number-{k}"),
            weight: 1.0 / (k + 1) as f64,
            mu: scores(k),
            sigma: vec![0.5; 4],
        };
        let text = "Hello there, this candidate goes on and on without an end";
        StepTrace {
            step: 0,
            position: 0,
            candidates: vec![
                CandidateTrace {
                    tokens: text.bytes().map(TokenId::from).collect(),
                    end: SpanEnd::EndOfText,
                    scored: None
                };
                4
            ],
            unscored: Vec::new(),
            blades: (0..blades).map(blade).collect(),
            fluency: None,
            decision: Decision {
                weights: Vec::new(),
                mu: scores(1),
                sigma: vec![0.0; 4],
                ratings: scores(2),
                probabilities: vec![0.1, 0.2, 0.3, 0.4],
                chosen: 3,
            },
            arms: Vec::new(),
            rejected: None,
            head: None,
            traffic: sk_core::Traffic::default(),
            seconds: Seconds::default(),
        }
    }

    #[test]
    fn a_brief_step_fits_with_any_number_of_blades() {
        let tokenizer = Tokenizer::from_json("bytes.json", include_bytes!("../tests/fixtures/bytes.json")).unwrap();
        for width in [40, 60, 80, 120] {
            for blades in 1..=30 {
                let text = brief(&step(blades), &tokenizer, false, width);
                assert!(text.lines().all(|line| line.width() <= width), "{width}, {blades}:\n{text}");
                assert_eq!(text.lines().filter(|line| line.contains("Hello") && line.ends_with('∎')).count(), 4, "{text}");
                let named = |k: usize| text.split_whitespace().any(|word| word == format!("blade-number-{k}"));
                assert!((0..blades).all(named), "{text}");
                if width >= 60 {
                    let full = table(&step(blades), &tokenizer, false, width);
                    assert!(full.lines().all(|line| line.width() <= width), "{width}, {blades}:\n{full}");
                    assert!(full.contains('←') && full.matches("0.400").count() == 1, "{full}");
                }
            }
        }
        // No room for the text: it is left out, and the mark of the end stays.
        let narrow = brief(&step(1), &tokenizer, false, 20);
        assert_eq!(narrow.lines().filter(|line| line.ends_with("… ∎")).count(), 4, "{narrow}");
        let eight = brief(&step(8), &tokenizer, false, 80);
        assert!(!eight.contains("more blade"), "{eight}");
        assert!(brief(&step(10), &tokenizer, false, 80).contains("… and 2 more blades; --explain=full"));
    }

    #[test]
    fn equal_scores_are_at_their_mean() {
        // The mean of these is rounded to another number.
        for value in [-0.1, 0.3, -0.000_123_4] {
            assert_eq!(standardized(&[value; 12]), [0.0; 12]);
        }
        assert_eq!(standardized(&[1.0, 2.0, 3.0]), [-1.0, 0.0, 1.0]);
    }

    #[test]
    fn long_names_are_told_apart() {
        let tokenizer = Tokenizer::from_json("bytes.json", include_bytes!("../tests/fixtures/bytes.json")).unwrap();
        let text = brief(&step(2), &tokenizer, false, 60);
        assert!(text.contains(" …number-0 …number-1  candidate"), "{text}");
        let mut other = step(2);
        other.blades[1].name = "short".to_owned();
        let text = brief(&other, &tokenizer, false, 60);
        assert!(text.contains(" blade-nu… short  candidate"), "{text}");
    }

    #[test]
    fn headings_stand_above_figures_whatever_their_letters() {
        let tokenizer = Tokenizer::from_json("bytes.json", include_bytes!("../tests/fixtures/bytes.json")).unwrap();
        for name in ["礼貌", "礼貌而简短的回答", "e\u{301}le\u{301}gant", "x"] {
            let mut trace = step(2);
            trace.blades[0].name = name.to_owned();
            let text = brief(&trace, &tokenizer, false, 120);
            let column = |line: &str, word: &str| line.find(word).map(|at| line[..at].width());
            let heading = text.lines().find(|line| line.ends_with("  candidate")).unwrap();
            let row = text.lines().last().unwrap();
            assert_eq!(column(heading, "candidate"), column(row, "Hello"), "{text}");
        }
    }

    #[test]
    fn the_end_of_text_token_is_a_mark() {
        let tokenizer = Tokenizer::from_json("bytes.json", include_bytes!("../tests/fixtures/bytes.json")).unwrap();
        // The last letter stands for the token.
        for text in [brief(&step(1), &tokenizer, false, 200), table(&step(1), &tokenizer, false, 200)] {
            assert_eq!(text.matches("ithout an en ∎").count(), 4, "{text}");
        }
    }

    #[test]
    fn candidates_stay_on_one_line_and_within_the_width() {
        assert_eq!(shorten("a\nb\t", SpanEnd::Complete), "a⏎b\\t");
        assert_eq!(shorten("end", SpanEnd::EndOfText), "end ∎");
        let long = shorten(&"word ".repeat(40), SpanEnd::Complete);
        assert!(long.chars().count() <= SHOWN && long.contains('…'), "{long}");
        assert!(shorten(&"é".repeat(500), SpanEnd::Limit).starts_with('é'));
    }
}
