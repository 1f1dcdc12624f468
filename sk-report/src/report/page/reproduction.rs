use super::{PageContext, with_tables};
use crate::page::{Fact, Section};
use crate::report::published::Verdict;

/// The section that compares published numbers with the recomputed ones.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("reproduction", "What does not reproduce");
    let comparisons = &context.report.rows.comparisons;
    if comparisons.is_empty() {
        return section
            .missing("These are not the results of the paper, so that there are no published figures to hold them against.");
    }
    let fact = |name: &str, verdict: Verdict, detail: &str| Fact {
        name: name.to_owned(),
        value: comparisons.iter().filter(|comparison| comparison.verdict == verdict).count().to_string(),
        detail: detail.to_owned(),
    };
    let section = section
        .paragraph(
            "Every figure that the paper prints, held against what its raw cells give. A figure that can be read in two ways is listed under \
             both, so that the sums count readings. Most of what differs is a reading that the paper's words give and its figures do not follow \
             from; hypervolume follows from none.",
        )
        .facts(vec![
            fact("the same", Verdict::Same, "to every printed digit"),
            fact("within resampling", Verdict::WithinResampling, "ends of intervals"),
            fact("different", Verdict::Differs, "as read; listed below"),
        ]);
    with_tables(section, context, &["differences", "reproduction", "comparison"])
}
