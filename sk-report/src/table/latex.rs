use std::fmt::Write;

use super::{Kind, Table, Value, print};

impl Table {
    /// Formats the table as a LaTeX `table` environment, which needs `booktabs`.
    pub fn latex(&self) -> String {
        let alignment: String = self.columns.iter().map(|column| if column.kind == Kind::Text { 'l' } else { 'r' }).collect();
        let headings: Vec<String> = self.columns.iter().map(|column| escape(&column.heading)).collect();
        let mut text = format!(
            "\\begin{{table}}\n\\centering\\small\n\\caption{{{}}}\n\\label{{tab:{}}}\n\\begin{{tabular}}{{@{{}}{alignment}@{{}}}}\n\\toprule\n{} \
             \\\\\n\\midrule\n",
            escape(format!("{}. {}", self.title, self.notes.join(" ")).trim()),
            self.id,
            row(&headings),
        );
        for cells in &self.rows {
            let cells: Vec<String> = self.columns.iter().zip(cells).map(|(column, value)| typeset(column.kind, value)).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} \\\\", row(&cells));
        }
        text.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
        text
    }
}

/// Joins the cells of a row. The command before a row takes a bracket or an asterisk for its own.
fn row(cells: &[String]) -> String {
    let apart = if cells.first().is_some_and(|cell| cell.starts_with(['[', '*'])) { "{}" } else { "" };
    format!("{apart}{}", cells.join(" & "))
}

fn typeset(kind: Kind, value: &Value) -> String {
    match value {
        Value::Empty => "--".to_owned(),
        Value::Text(text) => escape(text),
        Value::Number(_) | Value::Interval(_) => {
            format!("${}$", print(kind, value, |mantissa, exponent| format!("{mantissa}{{\\times}}10^{{{exponent}}}")))
        }
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', c]),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            'Δ' => escaped.push_str("$\\Delta$"),
            'Π' => escaped.push_str("$\\Pi$"),
            'α' => escaped.push_str("$\\alpha$"),
            'λ' => escaped.push_str("$\\lambda$"),
            'μ' => escaped.push_str("$\\mu$"),
            'π' => escaped.push_str("$\\pi$"),
            'ρ' => escaped.push_str("$\\rho$"),
            'σ' => escaped.push_str("$\\sigma$"),
            '𝓐' => escaped.push_str("$\\mathcal{A}$"),
            '𝓝' => escaped.push_str("$\\mathcal{N}$"),
            '𝓢' => escaped.push_str("$\\mathcal{S}$"),
            '−' => escaped.push_str("$-$"),
            '∓' => escaped.push_str("$\\mp$"),
            '×' => escaped.push_str("$\\times$"),
            '→' => escaped.push_str("$\\rightarrow$"),
            '|' => escaped.push_str("$|$"),
            '<' | '>' => escaped.extend(['$', c, '$']),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_no_argument_of_the_command_before_it() {
        let rows =
            [["[sk]", "1"], ["*base", "2"], ["[", "]"], ["swiss-knife", "[3]"]].map(|cells| row(&cells.map(str::to_owned)));
        assert_eq!(rows, ["{}[sk] & 1", "{}*base & 2", "{}[ & ]", "swiss-knife & [3]"]);
    }
}
