use super::columns::numbers;
use super::{PageContext, with_tables};
use crate::page::{Fact, Section};

/// Published figures against the cells.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("reproduction", "What does not reproduce");
    let Some(table) = context.report.table("reproduction") else {
        return section
            .missing("These are not the results of the paper, so that there are no published figures to hold them against.");
    };
    let total = |heading: &str| numbers(table, heading).iter().sum::<f64>();
    let fact = |name: &str, heading: &str, detail: &str| Fact {
        name: name.to_owned(),
        value: total(heading).to_string(),
        detail: detail.to_owned(),
    };
    let section = section
        .paragraph(
            "Every figure that the paper prints, held against what its raw cells give. A figure that can be read in two ways is listed under \
             both, so that the sums count readings. Most of what differs is a reading that the paper's words give and its figures do not follow \
             from; hypervolume follows from none.",
        )
        .facts(vec![
            fact("the same", "same", "to every printed digit"),
            fact("within resampling", "within resampling", "ends of intervals"),
            fact("different", "differ", "as read; listed below"),
        ]);
    with_tables(section, context, &["differences", "reproduction", "comparison"])
}
