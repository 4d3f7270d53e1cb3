//! Curves over the cases `PREFIX-N`, which differ in a number: the cost of further tables, the gain of further
//! workers.

use super::verdict::{self, OURS};
use crate::case;
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, figure, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves};
use millrace_report::stats::Summary;

/// The rates of a system in one of the cases.
#[derive(Debug, PartialEq)]
struct Point {
    number: u32,
    case: String,
    /// Million packets per second, one for each measurement.
    mpps: Vec<f64>,
}

impl Point {
    fn median(&self) -> f64 {
        Summary::of(&self.mpps).map_or(f64::NAN, |summary| summary.median)
    }
}

/// The cases of one prefix.
#[derive(Debug, PartialEq)]
struct Group {
    prefix: String,
    /// True if the number is the number of workers.
    of_workers: bool,
    /// The systems in the order of measurement, each with its points in the order of their numbers.
    systems: Vec<(String, Vec<Point>)>,
}

impl Group {
    /// Returns the noun that the number counts.
    fn words(&self) -> &str {
        if self.of_workers { "workers" } else { &self.prefix }
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.systems.iter().flat_map(|(_, points)| points)
    }

    /// Returns the numbers in ascending order, each once.
    fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.points().map(|point| point.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns the system whose ideal line is drawn, and its rate with one worker: Millrace, or else the first system.
    fn one_worker(&self) -> Option<(&str, f64)> {
        let one = |(system, points): &'_ (String, Vec<Point>)| {
            let point = points.iter().find(|point| point.number == 1)?;
            Some((system.clone(), point.median()))
        };
        let ours = self.systems.iter().find(|(system, _)| system == OURS);
        let (name, rate) = ours
            .and_then(one)
            .or_else(|| self.systems.iter().find_map(one))
            .filter(|_| self.of_workers)?;
        let system = self.systems.iter().find(|(system, _)| *system == name)?;
        Some((system.0.as_str(), rate))
    }
}

/// Splits a name into prefix and number: `tables-8` into `tables` and 8.
fn split(case: &str) -> Option<(&str, u32)> {
    let (prefix, number) = case.rsplit_once('-')?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|number| digits && *number > 0)?;
    (!prefix.is_empty()).then_some((prefix, number))
}

/// Returns the section; `None` if no system was measured at two numbers.
pub(super) fn section(source: &Source) -> Option<Section> {
    let mut html = String::new();
    let mut plots = Vec::new();
    let groups = groups(source);
    for group in &groups {
        let missed: Vec<String> = cases(group)
            .into_iter()
            .flat_map(|case| {
                let of_case = verdict::missed(case, &source.all);
                of_case.into_iter().map(move |text| format!("{case}: {text}"))
            })
            .collect();
        let plot = plot(source, group, &verdict::titled(&title(group), &missed));
        html.push_str(&verdict::paragraphs(&missed));
        html.push_str(&figure(&plot, &caption(group), &figures(source, group)));
        plots.push(plot);
    }
    let mut words: Vec<&str> = groups.iter().map(Group::words).collect();
    words.dedup();
    (!plots.is_empty()).then(|| Section {
        id: source.anchor("numbered"),
        title: format!("By number of {}: {}", words.join(", of "), source.id),
        lead: None,
        html,
        plots,
    })
}

/// Returns the groups in which a system was measured at two numbers at least.
fn groups(source: &Source) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for record in &source.records {
        let Record::Sample {
            case, system, pps, ..
        } = record
        else {
            continue;
        };
        let Some((prefix, number)) = split(case) else {
            continue;
        };
        let group = find_or_insert(
            &mut groups,
            |group| group.prefix == prefix,
            || Group {
                prefix: prefix.to_owned(),
                of_workers: prefix == "workers",
                systems: Vec::new(),
            },
        );
        group.of_workers |=
            number > 1 && case::find(case).is_some_and(|case| case.workers == number as usize);
        let (_, points) = find_or_insert(
            &mut group.systems,
            |known| known.0 == *system,
            || (system.clone(), Vec::new()),
        );
        let point = find_or_insert(
            points,
            |point| point.number == number,
            || Point {
                number,
                case: case.clone(),
                mpps: Vec::new(),
            },
        );
        point.mpps.push(pps.iter().sum::<f64>() / 1e6);
    }
    for (_, points) in groups.iter_mut().flat_map(|group| &mut group.systems) {
        points.sort_by_key(|point| point.number);
    }
    groups.retain(|group| group.systems.iter().any(|(_, points)| points.len() > 1));
    groups
}

/// Returns the first item for which `is` holds, after appending `new` if there is none.
fn find_or_insert<T>(items: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let index = items.iter().position(is).unwrap_or_else(|| {
        items.push(new());
        items.len() - 1
    });
    &mut items[index]
}

/// Returns the cases of a group, in the order of their numbers.
fn cases(group: &Group) -> Vec<&str> {
    let mut cases: Vec<(u32, &str)> = group
        .points()
        .map(|point| (point.number, point.case.as_str()))
        .collect();
    cases.sort_unstable();
    cases.dedup();
    cases.into_iter().map(|(_, case)| case).collect()
}

fn title(group: &Group) -> String {
    if group.prefix == group.words() {
        format!("Packets a second by number of {}", group.words())
    } else {
        format!(
            "{}: packets a second by number of {}",
            group.prefix,
            group.words()
        )
    }
}

fn caption(group: &Group) -> String {
    let ideal = match group.one_worker() {
        Some((system, _)) => {
            format!(" Dashed line: the rate of {system} with one worker times the number of workers.")
        }
        None => String::new(),
    };
    format!("{}: medians.{ideal}", title(group))
}

/// Returns the curves of a group, with the ideal line of one system.
fn plot(source: &Source, group: &Group, title: &str) -> Plot {
    let numbers = group.numbers();
    let mut lines: Vec<Curve> = group
        .systems
        .iter()
        .map(|(system, points)| Curve {
            label: system.clone(),
            paint: Paint::of_system(system),
            stroke: Stroke::Line,
            points: points
                .iter()
                .map(|point| (f64::from(point.number), point.median()))
                .collect(),
        })
        .collect();
    if let Some((system, rate)) = group.one_worker() {
        let most = numbers.last().copied().map_or(1.0, f64::from);
        lines.push(Curve {
            label: format!("ideal for {system}"),
            paint: Paint::of_system(system),
            stroke: Stroke::Dashes,
            points: vec![(0.0, 0.0), (most, most * rate)],
        });
    }
    let frame = Frame {
        x: &format!("number of {}", group.words()),
        y: "million packets a second",
        x_scale: Scale::Linear,
        scale: Scale::Linear,
        x_names: numbers
            .iter()
            .map(|number| (f64::from(*number), number.to_string()))
            .collect(),
        legend: true,
    };
    let panel = Panel {
        title: String::new(),
        curves: lines,
    };
    let name = format!("{}-by-number", group.prefix);
    curves(&source.anchor(&name), title, &frame, &[panel])
}

/// Returns the table of a group.
fn figures(source: &Source, group: &Group) -> String {
    let wanted = cases(group)
        .into_iter()
        .any(|case| verdict::of_case(case, &source.all).is_some());
    let mut rows = Vec::new();
    for (system, points) in &group.systems {
        let first = points.first().map(|point| (point.number, point.median()));
        for point in points {
            let summary = Summary::of(&point.mpps);
            let times = first
                .filter(|(_, rate)| *rate > 0.0)
                .map(|(number, rate)| (number, point.median() / rate));
            let mut row = vec![
                Cell::head(system.as_str()),
                Cell::Number(point.number.to_string()),
                Cell::number(summary.map(|summary| summary.median)),
                Cell::number(summary.map(|summary| summary.min)),
                Cell::number(summary.map(|summary| summary.max)),
                Cell::number(times.map(|(_, times)| times)),
            ];
            if group.of_workers {
                let more = |number: u32| f64::from(point.number) / f64::from(number);
                row.push(Cell::percent(times.map(|(number, times)| times / more(number))));
            }
            if wanted {
                let of_case = verdict::of_case(&point.case, &source.all);
                row.push(verdict::cell(of_case, system).unwrap_or_else(|| Cell::text("")));
            }
            rows.push(row);
        }
    }
    let words = format!("#{}", group.words());
    let mut headings = vec!["system", &words, "#median", "#min", "#max", "#times its first"];
    if group.of_workers {
        headings.push("#of the ideal");
    }
    if wanted {
        headings.push("verdict");
    }
    table(&format!("{}, million", title(group)), &headings, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(case: &str, system: &str, mpps: f64) -> Record {
        Record::Sample {
            case: case.to_owned(),
            system: system.to_owned(),
            round: 0,
            window: 0,
            pps: [mpps * 1e6, 0.0],
            core_share: 1.0,
            right: true,
        }
    }

    fn source(records: Vec<Record>) -> Source {
        Source {
            id: "x".to_owned(),
            all: records.clone().into(),
            records,
            problems: Vec::new(),
        }
    }

    #[test]
    fn a_name_ends_in_its_number() {
        assert_eq!(split("tables-16"), Some(("tables", 16)));
        assert_eq!(split("a-b-2"), Some(("a-b", 2)));
        for other in ["pipeline-8-100k", "exact-10k", "veth", "-3", "x-", "x-0", "x-+4"] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn each_system_has_a_curve_in_the_order_of_numbers_and_missed_targets_are_named() {
        let section = section(&source(vec![
            sample("tables-1", "millrace", 20.0),
            sample("tables-16", "millrace", 3.0),
            sample("tables-8", "millrace", 4.0),
            sample("tables-1", "millrace-no-cache", 18.0),
            sample("tables-8", "millrace-no-cache", 2.0),
            sample("access-1k", "millrace", 9.0),
        ]))
        .unwrap();
        assert_eq!(section.title, "By number of tables: x");
        assert_eq!(section.plots.len(), 1);
        let plot = &section.plots[0];
        assert!(plot.title.ends_with("by number of tables: NOT MET"));
        assert!(
            plot.description
                .ends_with("millrace: from 3 to 20; millrace-no-cache: from 2 to 18."),
            "{}",
            plot.description
        );
        let position = |text: &str| section.html.find(text).unwrap();
        assert!(position(">8</td>") < position(">16</td>"));
        let target = case::find("tables-8").unwrap().targets[0];
        position(&format!("tables-8: wanted at least {target}, reached 0.2"));
    }

    #[test]
    fn workers_have_an_ideal_line_for_unknown_numbers_too() {
        let section = section(&source(vec![
            sample("workers-1", "testpmd-io", 50.0),
            sample("workers-1", "millrace", 10.0),
            sample("workers-64", "millrace", 320.0),
        ]))
        .unwrap();
        let plot = &section.plots[0];
        assert!(
            plot.description.contains("ideal for millrace: from 0 to 640"),
            "{}",
            plot.description
        );
        assert!(section.html.contains("50 %") && section.html.contains("of the ideal"));
    }

    #[test]
    fn the_number_of_a_case_with_another_prefix_may_be_that_of_workers() {
        let section = section(&source(vec![
            sample("million-1", "millrace", 4.0),
            sample("million-2", "millrace", 7.0),
        ]))
        .unwrap();
        assert_eq!(section.title, "By number of workers: x");
        assert!(section.html.contains("87.5 %"));
    }

    #[test]
    fn one_point_makes_no_curve() {
        let records = vec![
            sample("pipeline-8", "millrace", 6.0),
            sample("workers-1", "millrace", 6.0),
            sample("workers-2", "ovs-dpdk", 6.0),
        ];
        assert!(section(&source(records)).is_none());
    }
}
