//! The section of the experiment `chain` (E4 in docs/gates.md): the rate of chains by length, frame size and kind.

use super::record::Point;
use crate::page::source::Source;
use crate::record::Record;
use millrace_report::Section;
use millrace_report::html::{Cell, figure, paragraph, table};
use millrace_report::plot::{Curve, Frame, Paint, Panel, Plot, Scale, Stroke, curves};

/// Returns the section; `None` if the run has no chains.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let points: Vec<&Point> = source
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Chain(point) => Some(&**point),
            _ => None,
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let drawn = plot(source, &points);
    let path = source.systems().find(|(system, ..)| *system == "millrace-wan");
    if let Some((system, _, configuration)) = path {
        let text = format!(
            "{system} is {configuration}. The functions are at the first site and leave frames as they are; the rate is \
             that of one TCP stream by iperf3 from a host at the first site to one at the second, in the frames of 1,518 \
             bytes that its data need."
        );
        let caption = "Frames of one TCP stream through a chain and the path, by length";
        return Some(Section {
            id: source.anchor("chain"),
            title: "Chains of network functions over a WAN (E5)".to_owned(),
            lead: lead(&points),
            html: figure(&drawn, caption, &rates(&points)) + &failures(source) + &paragraph(&text),
            plots: vec![drawn],
        });
    }
    let html = [
        figure(&drawn, "Packets that reached the sink, by length; the axis is logarithmic", &rates(&points)),
        failures(source),
        paragraph(
        "Every function swaps the MAC addresses of every frame. The worker of the switch has a core of its own, and all \
         processes of functions share another. The offered load exceeds the capacity. The source and the functions of \
         Millrace have backpressure = true, so that packets wait in their devices while the next one has no room; Open \
         vSwitch has no such setting, forwards them, and drops those that find no room. The ratios to Open vSwitch \
         include that difference. Inline functions run in the \
         worker; ring functions map the memory of packets; for isolated ones packets are copied through a window. Behind \
         vhost, virtio-user and memif a function is a process with a virtual NIC, and flow entries steer from one to the \
         next: that of vhost is millrace-nf with its own virtio driver, those of the others have DPDK's. ovs-vhost and \
         ovs-virtio-user are the same processes and entries with Open vSwitch and DPDK.",
        ),
        if points.iter().any(|point| point.kind.contains("guest")) {
            paragraph(
                "Guests are virtual machines that forward (the kernel's bridge), steered by the same entries; the rate is that \
                 of one TCP stream by iperf3 between two more guests, in the frames of 1,518 bytes that its data need. Without \
                 KVM, guests are emulated (TCG), as the configuration of the systems says: all of them then share the \
                 processors with the switch, each further guest slows the others down, and only the order of the \
                 systems is meaningful. guest-tso leaves TCP segmentation to the switch, so that packets have \
                 up to 64 KiB until they leave it; ovs-guest is Open vSwitch with DPDK.",
            )
        } else {
            String::new()
        },
    ]
    .concat();
    Some(Section {
        id: source.anchor("chain"),
        title: "Chains of network functions".to_owned(),
        lead: lead(&points),
        html,
        plots: vec![drawn],
    })
}

/// Returns the distinct values of a field of the points, in the order of their first appearance.
fn distinct<T: PartialEq>(points: &[&Point], part: impl Fn(&Point) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in points.iter().map(|point| part(point)) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Returns the colour of a kind, the same in every report.
fn paint(kind: &str) -> Paint {
    const KINDS: [&str; 11] = [
        "inline",
        "ovs-virtio-user",
        "isolated",
        "guest",
        "memif",
        "ring",
        "wasm",
        "guest-tso",
        "ovs-guest",
        "vhost",
        "ovs-vhost",
    ];
    Paint::Series(
        KINDS
            .iter()
            .position(|known| *known == kind)
            .unwrap_or(KINDS.len()),
    )
}

/// Returns a plot with one panel for each frame size and one curve for each kind.
fn plot(source: &Source, points: &[&Point]) -> Plot {
    let panel = |frame: u16| Panel {
        title: format!("{frame}-byte frames"),
        curves: distinct(points, |point| point.kind.clone())
            .into_iter()
            .map(|kind| {
                let of_kind = points
                    .iter()
                    .filter(|point| point.frame == frame && point.kind == kind);
                Curve {
                    paint: paint(&kind),
                    stroke: Stroke::Line,
                    points: of_kind
                        .map(|point| (f64::from(point.length), point.mpps))
                        .collect(),
                    label: kind,
                }
            })
            .collect(),
    };
    let panels: Vec<Panel> = distinct(points, |point| point.frame)
        .into_iter()
        .map(panel)
        .collect();
    let frame = Frame {
        x: "functions in the chain",
        y: "million packets a second",
        x_scale: Scale::Linear,
        scale: Scale::Log,
        x_names: Vec::new(),
        legend: true,
    };
    curves(
        &source.anchor("lengths"),
        "Rate of a chain as it grows",
        &frame,
        &panels,
    )
}

/// Returns the table of all points.
fn rates(points: &[&Point]) -> String {
    let rows: Vec<Vec<Cell>> = points
        .iter()
        .map(|point| {
            vec![
                Cell::head(point.kind.as_str()),
                Cell::number(Some(f64::from(point.length))),
                Cell::number(Some(f64::from(point.frame))),
                Cell::number(Some(point.mpps)),
                Cell::number(Some(point.gbps)),
                Cell::number(Some(point.ratio_one_hop)),
                Cell::number(point.ratio_ovs),
            ]
        })
        .collect();
    table(
        "Rates of chains",
        &[
            "kind",
            "#functions",
            "#frame, bytes",
            "#Mpps",
            "#Gbit/s",
            "#of one function",
            "#of Open vSwitch",
        ],
        &rows,
    )
}

/// Returns a paragraph for each kind that could not be measured in all rounds.
fn failures(source: &Source) -> String {
    let failure = |record: &Record| match record {
        Record::Failed { system, reason, .. } => {
            let reason = reason.lines().next().unwrap_or_default();
            Some(paragraph(&format!(
                "{system} was not measured in all rounds: {reason}."
            )))
        }
        _ => None,
    };
    source.records.iter().filter_map(failure).collect()
}

/// Returns a sentence with the ratios to Open vSwitch for four functions and the shortest frames.
fn lead(points: &[&Point]) -> Option<String> {
    let of = |kind: &str| {
        let point = points
            .iter()
            .find(|point| point.kind == kind && (point.length, point.frame) == (4, 64));
        point.and_then(|point| point.ratio_ovs)
    };
    let parts: Vec<String> = [
        ("ring", "that share packet memory"),
        ("vhost", "behind vhost-user ports"),
        ("virtio-user", "behind vhost-user ports, with DPDK's driver"),
    ]
    .into_iter()
    .filter_map(|(kind, words)| of(kind).map(|ratio| format!("{ratio:.1} times for functions {words}")))
    .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "Rate of four functions and 64-byte frames, relative to Open vSwitch with DPDK and vhost-user ports: {}.",
            parts.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(kind: &str, length: u16, frame: u16, mpps: f64, ratio_ovs: Option<f64>) -> Record {
        Record::Chain(Box::new(Point {
            kind: kind.to_owned(),
            length,
            frame,
            mpps,
            gbps: mpps * f64::from(frame + 20) * 8.0 / 1e3,
            ratio_one_hop: 1.0,
            ratio_ovs,
        }))
    }

    fn source(records: Vec<Record>) -> Source {
        Source {
            id: "chain".to_owned(),
            all: records.clone().into(),
            records,
            problems: Vec::new(),
        }
    }

    #[test]
    fn there_is_a_panel_for_each_frame_size_and_a_row_for_each_point() {
        let section = section(&source(vec![
            point("ovs-virtio-user", 4, 64, 1.0, Some(1.0)),
            point("ring", 1, 64, 9.0, None),
            point("ring", 4, 64, 3.5, Some(3.5)),
            point("ring", 4, 1518, 1.2, None),
            Record::Failed {
                case: "chain".to_owned(),
                system: "memif".to_owned(),
                quantity: None,
                reason: "no packet passes\nmore".to_owned(),
            },
        ]))
        .unwrap();
        assert_eq!(section.plots.len(), 1);
        assert!(section.html.contains("1518"));
        let failure = "memif was not measured in all rounds: no packet passes.";
        assert!(section.html.contains(failure), "{}", section.html);
        assert!(section.html.contains("Open vSwitch has no such setting"));
        let lead = section.lead.unwrap();
        assert!(
            lead.contains("3.5 times for functions that share packet memory"),
            "{lead}"
        );
        assert!(!lead.contains("functions behind"), "{lead}");
    }

    #[test]
    fn a_run_without_chains_has_no_section() {
        assert!(section(&source(Vec::new())).is_none());
    }
}
