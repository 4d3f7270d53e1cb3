//! The section of the experiment `qos`: configured and measured rates of meters and shapers, and the latency of
//! packets with strict priority.

use super::quantities::{QOS, of_rates};
use super::record::{Mechanism, RateResult};
use crate::figure::{self, Quantity};
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, paragraph, table};
use millrace_report::stats::Summary;

/// Returns true if this section shows the quantities of a case.
pub(crate) fn shows(case: &str) -> bool {
    case == QOS
}

/// Returns the section; `None` if the run has neither rates nor latencies.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let results: Vec<&RateResult> = source
        .records
        .iter()
        .filter_map(|record| match record {
            Record::RateResult(result) => Some(&**result),
            _ => None,
        })
        .collect();
    let mut html = String::new();
    for mechanism in Mechanism::ALL {
        let results: Vec<&RateResult> = results
            .iter()
            .copied()
            .filter(|result| result.mechanism == mechanism)
            .collect();
        if !results.is_empty() {
            html.push_str(&rates(mechanism, &results));
        }
    }
    if !results.is_empty() {
        html.push_str(&paragraph(
            "Packets were offered at full rate. Rates count frames from the Ethernet header on, without check sequence. \
             A row without an error was offered less than the configured rate.",
        ));
    }
    let waits = waits(source);
    if !waits.is_empty() {
        html.push_str(&table(
            "Latency and loss of 64-byte packets, 10,000 a second, through a port of 1 Gbit/s",
            &["verdict", "while", "#measured", "unit"],
            &waits,
        ));
    }
    let worst = |mechanism: Mechanism| {
        let errors = results.iter().filter(|result| result.mechanism == mechanism);
        errors
            .filter_map(|result| result.error())
            .map(f64::abs)
            .reduce(f64::max)
    };
    let said = |mechanism: Mechanism, error: f64| {
        let missed = bound(mechanism).filter(|bound| bound.met(error * 100.0) == Some(false));
        let wanted = missed.and_then(Quantity::target);
        let verdict = wanted.map_or_else(String::new, |wanted| format!(" (wanted {wanted}: NOT MET)"));
        format!("within {:.2} %{verdict}", error * 100.0)
    };
    let lead = worst(Mechanism::Meter)
        .zip(worst(Mechanism::Shaper))
        .map(|(meter, shaper)| {
            format!(
                "Meters were {} of their rates, shapers {}.",
                said(Mechanism::Meter, meter),
                said(Mechanism::Shaper, shaper)
            )
        });
    (!html.is_empty()).then(|| Section {
        id: source.anchor("qos"),
        title: "Accuracy of rates".to_owned(),
        lead,
        html,
        plots: Vec::new(),
    })
}

/// Returns the bound of the deviation from a rate.
fn bound(mechanism: Mechanism) -> Option<&'static Quantity> {
    figure::find(QOS, &format!("{}-error", mechanism.name()))
}

/// Returns the table of the rates of a mechanism.
fn rates(mechanism: Mechanism, results: &[&RateResult]) -> String {
    let row = |result: &&RateResult| {
        let met = || bound(mechanism)?.met(result.error()?.abs() * 100.0);
        vec![
            Cell::Verdict(met()),
            Cell::head(format!("{} Mbit/s", result.asked_bps / 1e6)),
            Cell::number(Some(f64::from(result.frame_size))),
            Cell::number(Some(result.workers as f64)),
            Cell::number(Some((result.measured_bps / 1e3).round() / 1e3)),
            Cell::percent(result.error()),
            Cell::number(Some((result.offered_bps / 1e6).round())),
        ]
    };
    let mut sorted = results.to_vec();
    sorted.sort_by(|one, other| {
        let key = |result: &RateResult| (result.asked_bps as u64, result.frame_size, result.workers);
        key(one).cmp(&key(other))
    });
    table(
        &format!("Rates of a {}", mechanism.name()),
        &[
            "verdict",
            "configured",
            "#frame, bytes",
            "#workers",
            "#measured, Mbit/s",
            "#error",
            "#offered, Mbit/s",
        ],
        &sorted.iter().map(row).collect::<Vec<_>>(),
    )
}

/// Returns a row for each quantity of latency and loss that was measured.
fn waits(source: &Source) -> Vec<Vec<Cell>> {
    let rows = of_rates(false).filter_map(|quantity| {
        let values: Vec<f64> = source
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Figure {
                    case,
                    quantity: name,
                    value,
                    ..
                } if case == QOS && name == quantity.name => Some(*value),
                _ => None,
            })
            .collect();
        let median = Summary::of(&values)?.median;
        let verdict = match quantity.met(median) {
            None => Cell::text(""),
            met => Cell::Verdict(met),
        };
        Some(vec![
            verdict,
            Cell::head(quantity.title),
            Cell::number(Some(median)),
            Cell::text(quantity.unit),
        ])
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(mechanism: Mechanism, asked_bps: f64, measured_bps: f64) -> Record {
        Record::RateResult(Box::new(RateResult {
            mechanism,
            workers: 2,
            frame_size: 512,
            asked_bps,
            measured_bps,
            offered_bps: asked_bps * 3.0,
            seconds: 5.0,
            core_share: 1.0,
        }))
    }

    #[test]
    fn the_table_has_every_rate_in_order_and_the_lead_the_largest_deviation() {
        let source = Source {
            id: "qos".to_owned(),
            records: vec![
                record(Mechanism::Meter, 1e9, 1.002e9),
                record(Mechanism::Meter, 1e6, 0.995e6),
                record(Mechanism::Shaper, 1e6, 1e6),
                Record::Figure {
                    case: QOS.to_owned(),
                    system: "millrace".to_owned(),
                    round: 0,
                    quantity: "priority-p99".to_owned(),
                    unit: "us".to_owned(),
                    value: 77.0,
                },
            ],
            all: std::sync::Arc::new([]),
            problems: Vec::new(),
        };
        let section = section(&source).unwrap();
        assert_eq!(
            section.lead.as_deref(),
            Some("Meters were within 0.50 % of their rates, shapers within 0.00 %.")
        );
        let position = |text: &str| {
            section
                .html
                .find(text)
                .unwrap_or_else(|| panic!("{text}: {}", section.html))
        };
        assert!(position("1 Mbit/s") < position("1000 Mbit/s"));
        assert!(position("Rates of a meter") < position("Rates of a shaper"));
        position("77");
        position("us</td>");
    }

    #[test]
    fn a_rate_beyond_its_bound_is_shown_as_missed() {
        let records = vec![
            record(Mechanism::Meter, 1e9, 1.02e9),
            record(Mechanism::Meter, 1e6, 1e6),
            record(Mechanism::Shaper, 1e6, 1e6),
        ];
        let source = Source {
            id: "qos".to_owned(),
            records,
            all: std::sync::Arc::new([]),
            problems: Vec::new(),
        };
        let section = section(&source).unwrap();
        assert_eq!(section.html.matches("NOT MET").count(), 1);
        assert_eq!(
            section.lead.as_deref(),
            Some(
                "Meters were within 2.00 % (wanted at most 1 %: NOT MET) of their rates, shapers within 0.00 %."
            )
        );
    }
}
