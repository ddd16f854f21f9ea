//! Figures of pairs as a matrix: fifty rows of "GPU 3 → GPU 5" are not read, a square is.
//!
//! It must not know what the figures mean. Invariant: every figure is in a matrix or is left to the list, none in both.

use std::collections::BTreeSet;
use std::fmt;

use crate::probe::report::Judged;

use super::{cell, number};

/// Between the title of a matrix and a pair, and between the two of a pair, in a figure's label.
const TITLE: &str = ": ";
const ARROW: &str = " → ";

/// Figures with one title, by row and column.
pub(super) struct Matrix<'a> {
    title: &'a str,
    cells: Vec<(&'a str, &'a str, f64)>,
}

impl<'a> Matrix<'a> {
    /// Takes the figures of pairs out of a list: those with labels such as `Copy: GPU 0 → GPU 1`.
    pub(super) fn take(results: &'a [Judged]) -> (Vec<Self>, Vec<&'a Judged>) {
        let (mut matrices, mut rest) = (Vec::<Self>::new(), Vec::new());
        for judged in results {
            let pair = judged.figure.label.split_once(TITLE);
            let Some((title, (row, column))) = pair.and_then(|(title, pair)| Some((title, pair.split_once(ARROW)?)))
            else {
                rest.push(judged);
                continue;
            };
            let cell = (row, column, judged.figure.value);
            match matrices.iter_mut().find(|matrix| matrix.title == title) {
                Some(matrix) => matrix.cells.push(cell),
                None => matrices.push(Self { title, cells: vec![cell] }),
            }
        }
        (matrices, rest)
    }

    /// Names of rows or columns, GPU 2 before GPU 10.
    fn names(&self, of: impl Fn(&(&'a str, &'a str, f64)) -> &'a str) -> Vec<&'a str> {
        let names: BTreeSet<_> = self.cells.iter().map(|cell| (of(cell).len(), of(cell))).collect();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

impl fmt::Display for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns) = (self.names(|cell| cell.0), self.names(|cell| cell.1));
        write!(f, "| {} |", cell(self.title))?;
        for column in &columns {
            write!(f, " → {} |", cell(column))?;
        }
        write!(f, "\n| --- |{}\n", " ---: |".repeat(columns.len()))?;
        for row in rows {
            write!(f, "| {} |", cell(row))?;
            for column in &columns {
                let found = self.cells.iter().find(|cell| (cell.0, cell.1) == (row, *column));
                write!(f, " {} |", number(found.map(|cell| cell.2)))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Target;
    use crate::probe::protocol::{Better, Figure};

    fn judged(label: &str, value: f64) -> Judged {
        let figure = Figure::median("id", label, "GB/s", Better::Higher, &[value]).unwrap();
        Judged::new(figure, "p2p", &Target::default(), None, None)
    }

    #[test]
    fn pairs_become_a_square_and_the_rest_stays() {
        let results = [
            judged("Slowest pair", 24.0),
            judged("Copy, GB/s: GPU 0 → GPU 2", 380.0),
            judged("Copy, GB/s: GPU 0 → GPU 10", 24.0),
            judged("Copy, GB/s: GPU 10 → GPU 0", 25.0),
            judged("Both ways: GPU 0 → GPU 2", 700.0),
        ];
        let (matrices, rest) = Matrix::take(&results);
        assert_eq!(rest.iter().map(|judged| judged.figure.label.as_str()).collect::<Vec<_>>(), ["Slowest pair"]);
        assert_eq!(matrices.len(), 2);
        let right = "| Copy, GB/s | → GPU 0 | → GPU 2 | → GPU 10 |\n| --- | ---: | ---: | ---: |\n\
                     | GPU 0 | – | 380.0 | 24.00 |\n| GPU 10 | 25.00 | – | – |\n";
        assert_eq!(matrices[0].to_string(), right);
    }
}
