use std::fmt::Write;

use super::{Kind, Table, Value, print};

/// Maximum number of rows of a float, so that it fits on a page.
const ROWS: usize = 40;

/// Scales its argument to the width of the text if it is wider.
const FITTED: &str = "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}";

impl Table {
    /// Formats the table as a LaTeX `table` environment, which needs `booktabs` and `graphicx`. A
    /// table wider than the text is scaled to its width. A table of more than 40 rows is continued
    /// in further environments, on pages of their own and under the same number.
    pub fn latex(&self) -> String {
        let caption = escape(format!("{}. {}", self.title, self.notes.join(" ")).trim());
        let mut text =
            self.float(&format!("\\caption{{{caption}}}\n\\label{{tab:{}}}", self.id), &self.rows[..self.rows.len().min(ROWS)]);
        for rows in self.rows.chunks(ROWS).skip(1) {
            let title = escape(&self.title);
            text += "\\clearpage\n";
            text += &self.float(&format!("\\addtocounter{{table}}{{-1}}\n\\caption{{{title} (continued).}}"), rows);
        }
        text
    }

    /// Formats rows as a `table` environment that begins with `caption`.
    fn float(&self, caption: &str, rows: &[Vec<Value>]) -> String {
        let alignment: String = self.columns.iter().map(|column| if column.kind == Kind::Text { 'l' } else { 'r' }).collect();
        let headings: Vec<String> = self.columns.iter().map(|column| escape(&column.heading)).collect();
        let mut text = format!(
            "\\begin{{table}}\n\\centering\\small\n{caption}\n{FITTED}{{%\n\
             \\begin{{tabular}}{{@{{}}{alignment}@{{}}}}\n\\toprule\n{} \\\\\n\\midrule\n",
            row(&headings),
        );
        for cells in rows {
            let cells: Vec<String> = self.columns.iter().zip(cells).map(|(column, value)| typeset(column.kind, value)).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} \\\\", row(&cells));
        }
        text.push_str("\\bottomrule\n\\end{tabular}}\n\\end{table}\n");
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
            '–' => escaped.push_str("--"),
            '|' | '<' | '>' => escaped.extend(['$', c, '$']),
            _ => match symbol(c) {
                Some(command) => escaped.extend(["$", command, "$"]),
                None => escaped.push(c),
            },
        }
    }
    escaped
}

/// Returns the LaTeX command, in math mode, of a mathematical symbol.
fn symbol(c: char) -> Option<&'static str> {
    Some(match c {
        'Δ' => "\\Delta",
        'Π' => "\\Pi",
        'Ω' => "\\Omega",
        'α' => "\\alpha",
        'β' => "\\beta",
        'γ' => "\\gamma",
        'δ' => "\\delta",
        'ε' => "\\varepsilon",
        'η' => "\\eta",
        'λ' => "\\lambda",
        'μ' => "\\mu",
        'π' => "\\pi",
        'ρ' => "\\rho",
        'σ' => "\\sigma",
        'τ' => "\\tau",
        '𝓐' => "\\mathcal{A}",
        '𝓘' => "\\mathcal{I}",
        '𝓝' => "\\mathcal{N}",
        '𝓢' => "\\mathcal{S}",
        '½' => "\\frac12",
        '−' => "-",
        '∓' => "\\mp",
        '×' => "\\times",
        '→' => "\\rightarrow",
        '≤' => "\\le",
        '≥' => "\\ge",
        '≈' => "\\approx",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Column;

    #[test]
    fn a_long_table_is_continued_on_further_pages() {
        let floats = |rows: usize| {
            let rows = (0..rows).map(|row| vec![Value::Number(row as f64)]).collect();
            let columns = vec![Column { heading: "n".to_owned(), kind: Kind::Count }];
            let table = Table { id: "t".into(), title: "T".into(), notes: Vec::new(), columns, rows, appendix: false };
            let latex = table.latex();
            assert!(latex.contains("\\label{tab:t}") && latex.matches("\\label").count() == 1, "{latex}");
            let floats: Vec<usize> = latex.split("\\end{table}").map(|float| float.matches("$ \\\\").count()).collect();
            (floats, latex.matches("\\addtocounter{table}{-1}\n\\caption{T (continued).}").count())
        };
        assert_eq!(floats(0), (vec![0, 0], 0));
        assert_eq!(floats(40), (vec![40, 0], 0));
        assert_eq!(floats(81), (vec![40, 40, 1, 0], 2));
    }

    #[test]
    fn a_row_is_no_argument_of_the_command_before_it() {
        let rows =
            [["[sk]", "1"], ["*base", "2"], ["[", "]"], ["swiss-knife", "[3]"]].map(|cells| row(&cells.map(str::to_owned)));
        assert_eq!(rows, ["{}[sk] & 1", "{}*base & 2", "{}[ & ]", "swiss-knife & [3]"]);
    }
}
