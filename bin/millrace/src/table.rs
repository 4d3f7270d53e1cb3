//! Text tables: columns as wide as their contents, numbers right-aligned, without rules.

use std::fmt;

/// A table for a terminal, whose columns are as wide as their longest cell.
#[derive(Debug)]
pub(crate) struct Table {
    /// Headings; `>` at the beginning marks a column of numbers, which is right-aligned.
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// The text that is printed if there is no row.
    empty: &'static str,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str], empty: &'static str) -> Table {
        Table {
            headings: headings.to_vec(),
            rows: Vec::new(),
            empty,
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

/// Returns a text that others wrote, for a cell.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return writeln!(f, "{}", self.empty);
        }
        let headings: Vec<String> = self
            .headings
            .iter()
            .map(|text| text.trim_start_matches('>').to_owned())
            .collect();
        let width = |column: usize| {
            let cells = std::iter::once(&headings)
                .chain(&self.rows)
                .filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(&widths).zip(&self.headings) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let pad = " ".repeat(width - cell.chars().count());
                if heading.starts_with('>') {
                    line += &pad;
                    line += cell;
                } else {
                    line += cell;
                    line += &pad;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_contents_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["NAME", ">COUNT"], "none");
        assert_eq!(table.to_string(), "none\n");
        table.row(["grün".to_owned(), "7".to_owned()]);
        table.row(["a-long-name".to_owned(), "123456".to_owned()]);
        assert_eq!(
            table.to_string(),
            "NAME          COUNT\ngrün              7\na-long-name  123456\n"
        );
    }
}
