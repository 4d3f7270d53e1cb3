//! The latency histograms of the generator, by share of the highest rate.

use std::collections::BTreeMap;

use super::quantities::LATENCY;
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::html::{Cell, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves, number};

/// The ratio of the largest to the smallest latency of a bar: a quarter of an octave.
const BAR_RATIO: f64 = 1.189_207_115_002_721;
/// The ratio up to which the bounds of two bars count as equal: both are rounded to nanoseconds.
const ROUNDING: f64 = 1.02;
/// The smallest share that is drawn: leading and trailing bars below it would be less high than a line is thick.
const DRAWN_MIN: f64 = 0.001;

/// The latencies of all runs of a system at a load.
#[derive(Debug, PartialEq)]
struct LatencyHistogram {
    /// The load in percent of the highest rate.
    load: u32,
    system: String,
    /// The number of packets by the upper bound of their latency in nanoseconds.
    bars: BTreeMap<u64, u64>,
}

impl LatencyHistogram {
    fn share(&self, count: u64) -> f64 {
        count as f64 / (self.bars.values().sum::<u64>() as f64).max(1.0)
    }

    /// Returns the corners of the steps: microseconds and percent.
    fn corners(&self) -> Vec<(f64, f64)> {
        let seen = |count: &u64| self.share(*count) >= DRAWN_MIN;
        let bars: Vec<(u64, u64)> = self.bars.iter().map(|(bound, count)| (*bound, *count)).collect();
        let (Some(first), Some(last)) = (
            bars.iter().position(|bar| seen(&bar.1)),
            bars.iter().rposition(|bar| seen(&bar.1)),
        ) else {
            return Vec::new();
        };
        let mut corners: Vec<(f64, f64)> = Vec::new();
        for (bound, count) in &bars[first..=last] {
            let to = *bound as f64 / 1e3;
            let from = to / BAR_RATIO;
            match corners.last().copied() {
                // Adjacent steps meet only approximately.
                Some((end, _)) if from <= end * ROUNDING => {}
                Some((end, _)) => corners.extend([(end, 0.0), (from, 0.0)]),
                None => corners.push((from, 0.0)),
            }
            let percent = 100.0 * self.share(*count);
            corners.extend([(from, percent), (to, percent)]);
        }
        corners.extend(corners.last().map(|(end, _)| (*end, 0.0)));
        corners
    }
}

/// Returns the plot and its table; `None` if a run has no histograms.
pub(crate) fn draw(source: &Source) -> Option<(Plot, String)> {
    let histograms = histograms(source);
    let mut loads: Vec<u32> = histograms.iter().map(|histogram| histogram.load).collect();
    loads.sort_unstable();
    loads.dedup();
    if loads.is_empty() {
        return None;
    }
    let panel = |load: u32| Panel {
        title: format!("at {load} % of its highest rate"),
        curves: histograms
            .iter()
            .filter(|histogram| histogram.load == load)
            .map(|histogram| Curve {
                label: histogram.system.clone(),
                paint: Paint::of_system(&histogram.system),
                stroke: Stroke::Area,
                points: histogram.corners(),
            })
            .collect(),
    };
    let panels: Vec<Panel> = loads.iter().copied().map(panel).collect();
    let frame = Frame {
        x: "latency, microseconds",
        y: "% of packets in each step",
        x_scale: Scale::Log,
        scale: Scale::Linear,
        x_names: Vec::new(),
        legend: true,
    };
    let plot = curves(
        &source.anchor("histogram"),
        "Distribution of latency",
        &frame,
        &panels,
    );
    Some((plot, figures(&histograms)))
}

/// Returns the histograms, in the order of loads, and of systems as they were measured.
fn histograms(source: &Source) -> Vec<LatencyHistogram> {
    let mut histograms: Vec<LatencyHistogram> = Vec::new();
    for record in &source.records {
        let Record::Trial {
            case,
            system,
            purpose,
            end,
            ..
        } = record
        else {
            continue;
        };
        // Runs of the search for the highest rate are left out.
        let load = purpose
            .strip_suffix('%')
            .and_then(|load| load.trim().parse().ok());
        let Some(load) = load.filter(|_| case == LATENCY && !end.histogram_attended.is_empty()) else {
            continue;
        };
        let same = |histogram: &LatencyHistogram| histogram.load == load && histogram.system == *system;
        let index = histograms.iter().position(same).unwrap_or_else(|| {
            histograms.push(LatencyHistogram {
                load,
                system: system.clone(),
                bars: BTreeMap::new(),
            });
            histograms.len() - 1
        });
        for (bound, count) in &end.histogram_attended {
            *histograms[index].bars.entry(*bound).or_default() += count;
        }
    }
    histograms.sort_by_key(|histogram| histogram.load);
    histograms
}

/// Returns a table with a row for each bound and a column for each histogram.
fn figures(histograms: &[LatencyHistogram]) -> String {
    let mut bounds: Vec<u64> = histograms
        .iter()
        .flat_map(|histogram| histogram.bars.keys().copied())
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut headings = vec!["latency up to, us".to_owned()];
    headings.extend(
        histograms
            .iter()
            .map(|spread| format!("#{} at {} %", spread.system, spread.load)),
    );
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let rows: Vec<Vec<Cell>> = bounds
        .iter()
        .map(|bound| {
            let mut row = vec![Cell::head(number(*bound as f64 / 1e3))];
            row.extend(
                histograms
                    .iter()
                    .map(|histogram| match histogram.bars.get(bound) {
                        None => Cell::percent(None),
                        Some(count) if histogram.share(*count) < 1e-5 => Cell::Number("< 0.001 %".to_owned()),
                        Some(count) => Cell::percent(Some(histogram.share(*count))),
                    }),
            );
            row
        })
        .collect();
    table("Share of packets by latency", &headings, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::End;

    fn trial(system: &str, purpose: &str, bars: &[(u64, u64)]) -> Record {
        Record::Trial {
            case: LATENCY.to_owned(),
            system: system.to_owned(),
            round: 0,
            purpose: purpose.to_owned(),
            core_share: 1.0,
            end: Box::new(End {
                histogram_attended: bars.to_vec(),
                ..End::default()
            }),
        }
    }

    fn source(records: Vec<Record>) -> Source {
        Source {
            id: "latency".to_owned(),
            records,
            all: [].into(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn rounds_of_a_load_are_added_and_the_search_is_left_out() {
        let source = source(vec![
            trial("millrace", "search", &[(1023, 7)]),
            trial("millrace", "90 %", &[(1023, 1)]),
            trial("millrace", "10 %", &[(1023, 1), (1217, 2)]),
            trial("millrace", "10 %", &[(1217, 1)]),
        ]);
        let histograms = histograms(&source);
        assert_eq!(histograms.len(), 2);
        assert_eq!(
            (histograms[0].load, &histograms[0].bars),
            (10, &BTreeMap::from([(1023, 1), (1217, 3)]))
        );
        let (plot, table) = draw(&source).unwrap();
        assert!(
            plot.description
                .contains("at 10 % of its highest rate, millrace: from 0 to 75"),
            "{}",
            plot.description
        );
        assert!(table.contains("millrace at 90 %") && table.contains("75 %"));
    }

    #[test]
    fn adjacent_bars_share_a_step_and_gaps_are_zero() {
        let histogram = LatencyHistogram {
            load: 10,
            system: "millrace".to_owned(),
            bars: BTreeMap::from([(64, 1), (1023, 500), (1217, 499), (9741, 1000)]),
        };
        let corners = histogram.corners();
        // The first bar, with one packet, is not drawn.
        assert_eq!(corners.len(), 2 * 3 + 2 + 2);
        assert_eq!((corners[0].1, corners.last().copied()), (0.0, Some((9.741, 0.0))));
        assert_eq!((corners[2].0, corners[5].0), (1.023, 1.217));
        assert_eq!((corners[5].1, corners[6].1), (0.0, 0.0));
        assert!((corners[8].1 - 50.0).abs() < 1e-9, "{corners:?}");
    }

    #[test]
    fn a_run_without_histograms_has_no_histogram_plot() {
        assert!(draw(&source(Vec::new())).is_none());
        assert!(draw(&source(vec![trial("millrace", "10 %", &[])])).is_none());
    }
}
