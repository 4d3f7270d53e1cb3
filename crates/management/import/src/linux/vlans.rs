//! The VLANs of a port as `bridge -j vlan` prints them.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use crate::finding::Findings;

/// The VLANs of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vlans {
    /// The VLAN of untagged frames that arrive.
    pub(crate) pvid: Option<u16>,
    /// VLANs whose frames leave without a tag.
    pub(crate) untagged: BTreeSet<u16>,
    pub(crate) tagged: BTreeSet<u16>,
}

impl Vlans {
    /// Adds the list of an interface: `[{"vlan":1,"flags":["PVID","Egress Untagged"]},{"vlan":10,"vlanEnd":20}]`.
    pub(super) fn add(&mut self, list: &Json) -> Result<(), String> {
        for item in list.as_array().ok_or("vlans: expected a list")? {
            let number = |key: &str| item[key].as_u64().and_then(|number| u16::try_from(number).ok());
            let first = number("vlan").ok_or("a VLAN without a number")?;
            let last = number("vlanEnd").unwrap_or(first);
            if !(1..=4094).contains(&first) || !(first..=4094).contains(&last) {
                return Err(format!("VLAN {first} to {last}: expected 1 to 4094"));
            }
            let has = |flag: &str| {
                item["flags"]
                    .as_array()
                    .is_some_and(|flags| flags.iter().any(|found| found == flag))
            };
            if has("PVID") {
                self.pvid = Some(first);
            }
            let set = if has("Egress Untagged") {
                &mut self.untagged
            } else {
                &mut self.tagged
            };
            set.extend(first..=last);
        }
        Ok(())
    }

    /// Writes the VLANs into a port of the configuration.
    pub(super) fn write(&self, port: &mut Map<String, Json>, place: &str, findings: &mut Findings) {
        let mut trunks: BTreeSet<u16> = self.tagged.clone();
        for vlan in self.untagged.iter().filter(|vlan| Some(**vlan) != self.pvid) {
            findings.difference(
                place,
                format!("VLAN {vlan} leaves without a tag and is not the PVID: here it leaves with one; expected one untagged VLAN for each port"),
            );
            trunks.insert(*vlan);
        }
        match self.pvid {
            Some(pvid) if trunks.remove(&pvid) => findings.difference(
                place,
                format!("VLAN {pvid} is the PVID and leaves with a tag: here it leaves without one; expected `Egress Untagged`"),
            ),
            _ => {}
        }
        if let Some(pvid) = self.pvid {
            port.insert("vlan".to_owned(), json!(pvid));
        }
        if !trunks.is_empty() {
            port.insert("trunks".to_owned(), json!(trunks));
        }
        if self.pvid.is_none() && trunks.is_empty() {
            // A port without VLANs carries nothing.
            port.insert("no_recv".to_owned(), json!(true));
            port.insert("no_fwd".to_owned(), json!(true));
        }
    }
}
