//! How latencies are spread: the histograms that the generator writes of its runs, by share of the highest rate.

use std::collections::BTreeMap;

use crate::figure::LATENCY;
use crate::page::sections::id;
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::html::{Cell, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves, number};

/// How much longer than its shortest the longest latency of a bar is: a quarter of an octave.
const WIDER: f64 = 1.189_207_115_002_721;
/// Bars below this share before the first and after the last that has it are not drawn: they would not be as high as a
/// line is thick.
const DRAWN_MIN: f64 = 0.001;

/// All runs of a system at a load.
#[derive(Debug, PartialEq)]
struct Spread {
    /// Percent of its highest rate.
    load: u32,
    system: String,
    /// Up to so many nanoseconds, so many packets.
    bars: BTreeMap<u64, u64>,
}

impl Spread {
    fn share(&self, count: u64) -> f64 {
        count as f64 / (self.bars.values().sum::<u64>() as f64).max(1.0)
    }

    /// Returns the corners of its steps: microseconds and percent.
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
            let from = to / WIDER;
            match corners.last().copied() {
                // Bounds are whole nanoseconds, so that steps meet only nearly.
                Some((end, _)) if from <= end * 1.02 => {}
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

/// A plot and its table; `None` where a run has no histograms.
pub(crate) fn draw(source: &Source) -> Option<(Plot, String)> {
    let spreads = spreads(source);
    let mut loads: Vec<u32> = spreads.iter().map(|spread| spread.load).collect();
    loads.sort_unstable();
    loads.dedup();
    if loads.is_empty() {
        return None;
    }
    let panel = |load: u32| Panel {
        title: format!("at {load} % of its highest rate"),
        curves: spreads
            .iter()
            .filter(|spread| spread.load == load)
            .map(|spread| Curve {
                label: spread.system.clone(),
                paint: Paint::of_system(&spread.system),
                stroke: Stroke::Area,
                points: spread.corners(),
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
        &id(source, "histogram"),
        "How latencies are spread",
        &frame,
        &panels,
    );
    Some((plot, figures(&spreads)))
}

/// In the order of loads, and of systems as they were measured.
fn spreads(source: &Source) -> Vec<Spread> {
    let mut spreads: Vec<Spread> = Vec::new();
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
        // Of the latency's own runs, not of the search for the highest rate.
        let load = purpose
            .strip_suffix('%')
            .and_then(|load| load.trim().parse().ok());
        let Some(load) = load.filter(|_| case == LATENCY && !end.histogram_attended.is_empty()) else {
            continue;
        };
        let same = |spread: &Spread| spread.load == load && spread.system == *system;
        let place = spreads.iter().position(same).unwrap_or_else(|| {
            spreads.push(Spread {
                load,
                system: system.clone(),
                bars: BTreeMap::new(),
            });
            spreads.len() - 1
        });
        for (bound, count) in &end.histogram_attended {
            *spreads[place].bars.entry(*bound).or_default() += count;
        }
    }
    spreads.sort_by_key(|spread| spread.load);
    spreads
}

fn figures(spreads: &[Spread]) -> String {
    let mut bounds: Vec<u64> = spreads
        .iter()
        .flat_map(|spread| spread.bars.keys().copied())
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut headings = vec!["latency up to, us".to_owned()];
    headings.extend(
        spreads
            .iter()
            .map(|spread| format!("#{} at {} %", spread.system, spread.load)),
    );
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let rows: Vec<Vec<Cell>> = bounds
        .iter()
        .map(|bound| {
            let mut row = vec![Cell::head(number(*bound as f64 / 1e3))];
            row.extend(spreads.iter().map(|spread| match spread.bars.get(bound) {
                None => Cell::percent(None),
                Some(count) if spread.share(*count) < 1e-5 => Cell::Number("< 0.001 %".to_owned()),
                Some(count) => Cell::percent(Some(spread.share(*count))),
            }));
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
        let spreads = spreads(&source);
        assert_eq!(spreads.len(), 2);
        assert_eq!(
            (spreads[0].load, &spreads[0].bars),
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
    fn steps_meet_where_bars_do_and_fall_to_zero_between_others() {
        let spread = Spread {
            load: 10,
            system: "millrace".to_owned(),
            bars: BTreeMap::from([(64, 1), (1023, 500), (1217, 499), (9741, 1000)]),
        };
        let corners = spread.corners();
        // The single packet at the beginning is not drawn.
        assert_eq!(corners.len(), 2 * 3 + 2 + 2);
        assert_eq!((corners[0].1, corners.last().copied()), (0.0, Some((9.741, 0.0))));
        assert_eq!((corners[2].0, corners[5].0), (1.023, 1.217));
        assert_eq!((corners[5].1, corners[6].1), (0.0, 0.0));
        assert!((corners[8].1 - 50.0).abs() < 1e-9, "{corners:?}");
    }

    #[test]
    fn a_run_without_histograms_has_no_such_plot() {
        assert!(draw(&source(Vec::new())).is_none());
        assert!(draw(&source(vec![trial("millrace", "10 %", &[])])).is_none());
    }
}
