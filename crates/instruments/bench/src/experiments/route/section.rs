//! The section of the experiment `route`: its rows.

use millrace_report::Section;
use millrace_report::html::paragraph;

use super::RouteRecord;
use crate::gated::recorder::rows_of;
use crate::gated::section::{lead, rows_table};
use crate::page::source::Source;

/// Returns the section; `None` if the run has no records of the experiment.
pub(crate) fn section(source: &Source) -> Option<Section> {
    let rows = rows_of::<RouteRecord>(&source.records);
    if rows.is_empty() {
        return None;
    }
    let mut html = paragraph(
        "The router: lookups in tables with the lengths of the Internet's prefixes, the rate at which routes are programmed, \
         and the rate of routing on one worker beside that of the bridge with as many destinations.",
    );
    html.push_str(&rows_table(&rows));
    Some(Section {
        id: source.anchor("rows"),
        title: "The router".to_owned(),
        lead: Some(lead(&rows)),
        html,
        plots: Vec::new(),
    })
}
