//! The section of the experiment `nic`: its rows.

use millrace_report::Section;
use millrace_report::html::paragraph;

use super::NicRecord;
use crate::gated::recorder::rows_of;
use crate::gated::section::{lead, rows_table};
use crate::page::source::Source;

/// Returns the section; `None` if the run has no records of the experiment.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows_of::<NicRecord>(&source.records);
    if rows.is_empty() {
        return None;
    }
    let mut html = paragraph(
        "Marks of a NIC that classifies: the time of a packet without them, with each compared (verify), and with one in 1,024 \
         compared (trust). The device is ideal: its marks cost nothing. Rows say if they are measured or modelled.",
    );
    html.push_str(&rows_table(&rows));
    Some(Section {
        id: source.anchor("rows"),
        title: "The classifying NIC".to_owned(),
        lead: Some(lead(&rows)),
        html,
        plots: Vec::new(),
    })
}
