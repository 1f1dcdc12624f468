use super::PageContext;
use crate::page::Section;

/// How to read the rest.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let cells = format!(
        "A cell is one response: a method, a weight vector, a prompt. Its axes are {}. A blank judgement is left out of its mean, and a pair with a \
         side missing out of its contrast; nothing is imputed.",
        context.results.sweep.objectives.definitions().join(", ")
    );
    let paragraphs = [
        cells.as_str(),
        "F1 is the harmonic mean of the axes. It has three definitions, which differ: of the mean axes, the mean over weight vectors, and the \
         mean over cells. Every figure says which.",
        "Intervals are 95% bootstrap intervals of mean paired differences, percentile unless they say BCa. By cell, every response counts as one piece \
         of evidence; by prompt, whole prompts are resampled, since the cells of one prompt are not independent. p is of the two-sided Wilcoxon \
         signed-rank test, zeros dropped; Holm's correction is over the family that the table names.",
        "Tables are sorted by a click on a heading, and saved with all digits.",
    ];
    let section = paragraphs.into_iter().fold(Section::new("definitions", "How to read this"), Section::paragraph);
    match &context.results.recorded {
        None => section
            .missing("Made from judged results alone: no records of a sweep were given, hence no times, responses or traces."),
        Some(recorded) if !recorded.traced => {
            section.missing("The records of the sweep have no traces beside them: nothing is known of single steps.")
        }
        Some(_) => section,
    }
}
