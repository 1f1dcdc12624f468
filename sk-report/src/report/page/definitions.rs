use super::PageContext;
use crate::page::Section;
use crate::report::tables::few_prompts;

/// The section on definitions, and on what was left out.
pub(super) fn section(context: &PageContext<'_>, left_out: &[String]) -> Section {
    let cells = format!(
        "A cell is one response: a method, a weight vector, a prompt. Its axes are {}. A blank judgement is left out of its mean, and a pair with a \
         side missing out of its contrast; nothing is imputed.",
        context.results.sweep.objectives.definitions().join(", ")
    );
    let paragraphs = [
        cells.as_str(),
        "F1 is the harmonic mean of the axes. It has three definitions, which differ: of the mean axes, the mean over weight vectors, and the \
         mean over cells. Every figure says which.",
        "Intervals are 95% bootstrap intervals: percentile unless they say BCa, and for steering ρ ∓ 1.96 standard errors. By cell, every response counts as one piece \
         of evidence; by prompt, whole prompts are resampled, since the cells of one prompt are not independent. p is of the two-sided Wilcoxon \
         signed-rank test, zeros dropped; Holm's correction is over the family that the table names.",
        "ρ is Spearman's rank correlation of requested weight and achieved axis, pooled over the axes, each standardised; its interval resamples \
         whole prompts, and its p permutes the weight vectors. The interval is of the ρ that this many prompts give on average. Noise in the axes \
         draws ρ towards 0, so ρ of the true means is further from 0, and ρ of sweeps with different numbers of prompts cannot be compared.",
        "The sentences above say that something differs only if p < 0.05 after Holm's correction over the methods and the interval by prompt does \
         not hold 0; otherwise that it cannot be told, or that the weight vectors or prompts are too few for any p < 0.05.",
        "A method has one colour on the whole page; what is no method is grey. A staircase joins the points of a frontier that no other point of \
         the method dominates in that plane. Pointing at a mark shows its numbers.",
        "Tables are sorted by a click on a heading, and saved with all digits.",
    ];
    let section = paragraphs.into_iter().fold(Section::new("definitions", "How to read this"), Section::paragraph);
    let few = few_prompts(context.report.rows.methods.iter().map(|row| row.prompts));
    let section = few.into_iter().fold(section, Section::paragraph);
    let section = match &context.results.recorded {
        None => section
            .missing("Made from judged results alone: no records of a sweep were given, hence no times, responses or traces."),
        Some(recorded) if !recorded.traced => {
            section.missing("The records of the sweep have no traces beside them: nothing is known of single steps.")
        }
        Some(_) => section,
    };
    if left_out.is_empty() { section } else { section.missing(format!("Left out: {}.", left_out.join(", "))) }
}
