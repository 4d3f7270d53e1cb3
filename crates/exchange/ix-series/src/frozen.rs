//! The figures of a month that has ended, as a CSV file that is written once. The audit chain has the same figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::billing::{Figure, Month, Percentile};
use crate::store::SeriesError;

/// The columns. Rates are in bit/s, the shares of known time in thousandths; an unknown rate is empty.
const HEADER: &str = "connection,in_bps,in_coverage,out_bps,out_coverage,in_ipv4_bps,in_ipv4_coverage,out_ipv4_bps,\
    out_ipv4_coverage,in_ipv6_bps,in_ipv6_coverage,out_ipv6_bps,out_ipv6_coverage";

fn path(folder: &Path, month: Month) -> PathBuf {
    folder.join(name(month))
}

/// Returns the name of the file of a month.
fn name(month: Month) -> String {
    format!("billing-{month}.csv")
}

/// Returns the month whose file has a name; `None` if it is no name of such a file.
pub(crate) fn month(name: &str) -> Option<Month> {
    name.strip_prefix("billing-")?.strip_suffix(".csv")?.parse().ok()
}

/// Returns the names of the files of all months in a folder, the oldest first.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| month(name).is_some()).collect();
    names.sort_unstable();
    names
}

/// Writes the file of a month with the bytes of another engine's file. Returns false if these are none of this form.
pub(crate) fn put(folder: &Path, month: Month, bytes: &[u8]) -> Result<bool, SeriesError> {
    if core::str::from_utf8(bytes).ok().and_then(parse).is_none() {
        return Ok(false);
    }
    let path = path(folder, month);
    let written = millrace_durable::replace(&path, bytes, millrace_durable::READABLE);
    written.map_err(|reason| SeriesError { path, reason })?;
    Ok(true)
}

fn parts(figure: &Figure) -> [Percentile; 6] {
    let [in4, out4] = figure.ipv4;
    let [in6, out6] = figure.ipv6;
    [figure.incoming, figure.outgoing, in4, out4, in6, out6]
}

/// Writes the figures of a month.
pub(crate) fn write(folder: &Path, month: Month, figures: &BTreeMap<u32, Figure>) -> Result<(), SeriesError> {
    let mut text = format!("{HEADER}\n");
    for (connection, figure) in figures {
        text += &connection.to_string();
        for part in parts(figure) {
            let value = part.value.map(|value| value.to_string()).unwrap_or_default();
            text += &format!(",{value},{}", part.coverage_permille);
        }
        text.push('\n');
    }
    let path = path(folder, month);
    let written = millrace_durable::replace(&path, text.as_bytes(), millrace_durable::READABLE);
    written.map_err(|reason| SeriesError { path, reason })
}

/// Returns the figures of a month; `None` if there is no file of this form.
pub(crate) fn read(folder: &Path, month: Month) -> Option<BTreeMap<u32, Figure>> {
    parse(&fs::read_to_string(path(folder, month)).ok()?)
}

fn parse(text: &str) -> Option<BTreeMap<u32, Figure>> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    lines.map(row).collect()
}

fn row(line: &str) -> Option<(u32, Figure)> {
    let mut fields = line.split(',');
    let connection = fields.next()?.parse().ok()?;
    let mut part = || {
        let value = fields.next()?;
        let value = if value.is_empty() {
            None
        } else {
            Some(value.parse().ok()?)
        };
        let coverage_permille = fields.next()?.parse().ok()?;
        Some(Percentile {
            value,
            coverage_permille,
        })
    };
    let figure = Figure {
        incoming: part()?,
        outgoing: part()?,
        ipv4: [part()?, part()?],
        ipv6: [part()?, part()?],
    };
    Some((connection, figure))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn frozen_figures_are_read_back_and_a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let month: Month = "2026-11".parse().unwrap();
        assert_eq!(read(folder.path(), month), None);
        let known = |value, coverage_permille| Percentile {
            value: Some(value),
            coverage_permille,
        };
        let figure = Figure {
            incoming: known(1_000_000, 1000),
            outgoing: known(0, 979),
            ipv4: [known(900_000, 1000), Percentile::default()],
            ipv6: [known(100_000, 999), Percentile::default()],
        };
        let figures = BTreeMap::from([(7, figure), (9, Figure::default())]);
        write(folder.path(), month, &figures).unwrap();
        assert_eq!(read(folder.path(), month), Some(figures));
        let path = path(folder.path(), month);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("1000000", "1000x00")).unwrap();
        assert_eq!(read(folder.path(), month), None);
    }
}
