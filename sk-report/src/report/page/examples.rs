use super::{PageContext, score};
use crate::page::{Answer, Exchange, Section};
use crate::report::{Cell, Example, Method};

/// The index of the prompt column in the table of examples.
const PROMPT: usize = 1;

/// The section with the best and worst responses of the reference, beside those of its closest
/// rival.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("examples", "Best and worst examples");
    let rival = context.results.sweep.rivals(&context.reference.name).next();
    let examples = Example::choose(context.reference, rival);
    let exchanges: Vec<Exchange> = examples.iter().filter_map(|example| exchange(context, example, rival)).collect();
    let warning = "What stands here was written by models and by people who tested them; some of it is meant to harm.";
    let section = match rival {
        Some(_) if examples.is_empty() => section.missing("No examples: no prompt has every axis judged, in the reference and its rival at the same weights."),
        None if examples.is_empty() => section.missing("No examples: no answer has every axis judged."),
        _ if exchanges.is_empty() => section.missing("The results hold scores without responses, so that the table says where to look and no text is shown. Give the records of the sweep to have it."),
        Some(rival) => section.paragraph(format!(
            "Responses of {} and, beside each, that of {} to the same prompt at the same weights. {warning}",
            context.report.reference, rival.name
        )),
        None => section.paragraph(warning),
    };
    // The table has one row per example.
    let prompt =
        |example: &Example<'_>| context.results.text(&context.reference.name, example.cell).map(|text| text.prompt.clone());
    let section = match context.report.table("examples") {
        Some(table) => section.table_on_prompts(table.clone(), PROMPT, &examples.iter().map(prompt).collect::<Vec<_>>()),
        None => section,
    };
    exchanges.into_iter().fold(section, Section::exchange)
}

fn exchange(context: &PageContext<'_>, example: &Example<'_>, rival: Option<&Method>) -> Option<Exchange> {
    let reference = context.reference;
    let text = context.results.text(&reference.name, example.cell)?;
    let weights = context.weights(&context.results.sweep.points[example.cell.configuration]);
    let mut answers = vec![answer(context, &reference.name, example.cell, &text.response)];
    if let (Some(rival), Some(cell)) = (rival, example.rival)
        && let Some(theirs) = context.results.text(&rival.name, cell)
    {
        answers.push(answer(context, &rival.name, cell, &theirs.response));
    }
    let case = match example.case {
        "best" => "Among the best",
        "worst" => "Among the worst",
        "most gained" => "Furthest ahead",
        _ => "Furthest behind",
    };
    Some(Exchange { title: format!("{case}, {weights}"), prompt: text.prompt.trim().to_owned(), answers })
}

fn answer(context: &PageContext<'_>, name: &str, cell: &Cell, text: &str) -> Answer {
    let names = context.results.sweep.objectives.names();
    let objectives = names.into_iter().zip(cell.scores.objectives.iter().copied());
    let figures = std::iter::once(("F1", cell.f1(0.0).unwrap_or(f64::NAN))).chain(objectives);
    let figures = figures.map(|(name, value)| (name.to_owned(), score(value))).collect();
    let text = if text.trim().is_empty() { "(an empty response)" } else { text };
    Answer { heading: name.to_owned(), figures, text: text.to_owned() }
}
