//! The verdicts on targets, shown beside the figures that they belong to.

use crate::case;
use crate::figure;
use crate::record::Record;
use crate::table::{INCOMPLETE, Outcome, outcomes};
use millrace_report::html::{self, Cell, escape};
use millrace_report::plot::number;

/// The system that has targets.
pub(crate) const OURS: &str = "millrace";

/// Returns the verdict on the targets of a case. The outer `None` means that the case has no target. The
/// inner `None` means that the targets could not be compared.
pub(crate) fn of_case(case: &str, records: &[Record]) -> Option<Option<bool>> {
    let met: Vec<Option<bool>> = found(case, records).iter().map(Outcome::met).collect();
    if met.is_empty() {
        None
    } else if met.contains(&Some(false)) {
        Some(Some(false))
    } else {
        Some(met.iter().all(Option::is_some).then_some(true))
    }
}

fn found(case: &str, records: &[Record]) -> Vec<Outcome> {
    case::find(case).map_or_else(Vec::new, |case| outcomes(case, records))
}

/// Returns the missed targets of a case, a sentence each.
pub(crate) fn missed(case: &str, records: &[Record]) -> Vec<String> {
    found(case, records)
        .iter()
        .filter(|outcome| outcome.met() == Some(false))
        .map(|outcome| {
            let wanted = format!("at least {}", outcome.target);
            sentence(&wanted, outcome.reached, &outcome.flaws())
        })
        .collect()
}

/// Returns the verdict on a quantity, as [`of_case`] does for a case.
pub(crate) fn of_quantity(case: &str, name: &str, records: &[Record]) -> Option<Option<bool>> {
    let quantity = figure::find(case, name)?;
    quantity.target()?;
    Some(quantity.verdict(records, OURS))
}

/// Returns the missed targets of a quantity, as [`missed`] does for a case.
pub(crate) fn missed_quantity(case: &str, name: &str, records: &[Record]) -> Vec<String> {
    let sentence = || {
        let quantity = figure::find(case, name)?;
        (quantity.verdict(records, OURS) == Some(false)).then_some(())?;
        let reached = quantity.aggregate(&quantity.values(records, OURS));
        let flaw = quantity.failure(records, OURS).map_or("", |_| INCOMPLETE);
        Some(sentence(&quantity.target()?, reached, flaw))
    };
    sentence().into_iter().collect()
}

fn sentence(wanted: &str, reached: Option<f64>, flaws: &str) -> String {
    let reached = reached.map_or_else(String::new, |reached| format!(", reached {}", number(reached)));
    let sentence = format!("wanted {wanted}{reached}; {flaws}");
    sentence.trim_end_matches("; ").to_owned()
}

/// Returns a paragraph for each missed target.
pub(crate) fn paragraphs(missed: &[String]) -> String {
    let verdict = html::verdict(Some(false));
    missed
        .iter()
        .map(|text| format!("<p class=\"missed\">{verdict}: {}</p>\n", escape(text)))
        .collect()
}

/// Returns the cell of a system in a table with verdicts. Only the cell of Millrace has a text.
pub(crate) fn cell(verdict: Option<Option<bool>>, system: &str) -> Option<Cell> {
    let met = verdict?;
    Some(if system == OURS {
        Cell::Verdict(met)
    } else {
        Cell::text("")
    })
}

/// Returns the title of a plot with its verdict, because a plot may be used without its page.
pub(crate) fn titled(title: &str, missed: &[String]) -> String {
    if missed.is_empty() {
        title.to_owned()
    } else {
        format!("{title}: NOT MET")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::install::quantities::INSTALL;
    use crate::experiments::updates::quantities::UPDATES;

    fn sample(case: &str, mpps: f64) -> Record {
        Record::Sample {
            case: case.to_owned(),
            system: "millrace".to_owned(),
            round: 0,
            window: 0,
            pps: [mpps * 1e6, 0.0],
            core_share: 1.0,
            right: true,
        }
    }

    #[test]
    fn a_missed_target_is_shown_with_the_measured_value() {
        let records = [sample("tables-1", 20.0), sample("tables-8", 4.0)];
        let target = case::find("tables-8").unwrap().targets[0];
        assert_eq!(
            missed("tables-8", &records),
            [format!("wanted at least {target}, reached 0.2")]
        );
        assert_eq!(of_case("tables-8", &records), Some(Some(false)));
        assert_eq!(of_case("tables-8", &records[1..]), Some(None));
        assert_eq!(
            of_case("tables-8", &[sample("tables-1", 1.0), sample("tables-8", 1.0)]),
            Some(Some(true))
        );
        assert_eq!(
            (of_case("tables-1", &records), missed("tables-1", &records)),
            (None, Vec::new())
        );
        assert_eq!(
            titled("8 tables", &missed("tables-8", &records)),
            "8 tables: NOT MET"
        );
        let wrong = Record::Sample {
            case: "tables-8".to_owned(),
            system: OURS.to_owned(),
            round: 0,
            window: 0,
            pps: [2e7, 0.0],
            core_share: 1.0,
            right: false,
        };
        assert_eq!(
            missed("tables-8", &[sample("tables-1", 20.0), wrong]),
            [format!(
                "wanted at least {target}, reached 1; packets left by the wrong port"
            )]
        );
        let html = paragraphs(&missed("tables-8", &records));
        assert!(html.contains(">NOT MET</strong>: wanted"), "{html}");
    }

    #[test]
    fn a_bound_of_every_round_is_missed_by_the_worst_one() {
        let figure = |value: f64| Record::Figure {
            case: UPDATES.to_owned(),
            system: "millrace".to_owned(),
            round: 0,
            quantity: "lost".to_owned(),
            unit: "packets".to_owned(),
            value,
        };
        let records = [0.0, 5.0, 0.0].map(figure);
        assert_eq!(of_quantity(UPDATES, "lost", &records), Some(Some(false)));
        assert_eq!(
            missed_quantity(UPDATES, "lost", &records),
            ["wanted no packets in any round, reached 5"]
        );
        assert_eq!(
            of_quantity(UPDATES, "lost", &[0.0, 0.0].map(figure)),
            Some(Some(true))
        );
    }

    #[test]
    fn a_quantity_beyond_its_bound_is_shown_as_missed() {
        let figure = |value: f64| Record::Figure {
            case: INSTALL.to_owned(),
            system: "millrace".to_owned(),
            round: 0,
            quantity: "install".to_owned(),
            unit: "s".to_owned(),
            value,
        };
        let said = |value: f64| missed_quantity(INSTALL, "install", &[figure(value)]);
        assert_eq!(said(7.0), ["wanted at most 6 s, reached 7"]);
        assert_eq!(said(5.0), Vec::<String>::new());
        let verdict = of_quantity(INSTALL, "install", &[figure(7.0)]);
        assert_eq!(verdict, Some(Some(false)));
        assert_eq!(cell(verdict, OURS), Some(Cell::Verdict(Some(false))));
        assert_eq!(cell(verdict, "ovs-dpdk"), Some(Cell::text("")));
        assert_eq!(of_quantity(INSTALL, "expire", &[]), None);
        assert_eq!(
            missed_quantity(INSTALL, "nothing", &[figure(9.0)]),
            Vec::<String>::new()
        );
    }
}
