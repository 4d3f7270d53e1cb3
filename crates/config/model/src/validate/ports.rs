//! Constraints on the settings of a port: VLANs, queues, policer, offload.

use millrace_types::BitRate;

use super::checks::{Checks, Unique};
use crate::choice::{ColorVerdict, OffloadMode, PolicerKind};
use crate::device::Device;
use crate::error::Path;
use crate::port::Port;
use crate::qos::Policer;

/// The limit of queues of a port, queue 0 included.
const QUEUES_MAX: usize = 64;

impl Checks {
    /// Checks the settings of a port.
    pub(super) fn port(&mut self, port: &Port, path: &Path) {
        let mut vids = Unique::new("VLAN");
        for (index, vid) in port.trunks.iter().enumerate() {
            vids.check(*vid, vid, path.key("trunks").index(index), &mut self.issues);
        }
        if let Some(vlan) = port.vlan
            && port.trunks.contains(&vlan)
        {
            let message =
                format!("VLAN {vlan} is untagged by `vlan` and tagged by `trunks`: expected one of the two");
            self.conflict(path.key("vlan"), message);
        }
        self.vlan_mode(port, path);
        if port.mac.is_some() && !matches!(port.device, Device::Tap(_)) {
            let message = format!(
                "{} has a MAC address of its own: expected tap:NAME, or no `mac`",
                port.device
            );
            self.conflict(path.key("mac"), message);
        }
        if let Some(queues) = port.queues
            && matches!(port.device, Device::Pcap(_))
            && queues.get() > 1
        {
            self.conflict(
                path.key("queues"),
                format!("{queues} queues on capture files: expected 1"),
            );
        }
        self.queues(port, path);
        if let Some(policer) = &port.policer {
            self.policer(policer, &path.key("policer"));
        }
        let classifies = matches!(port.device, Device::Nic(_) | Device::Pci(_) | Device::Vdev(_));
        if port.offload.is_some() && !classifies {
            let message = format!(
                "{} does not classify packets: expected nic:PATH or a device of DPDK, or no `offload`",
                port.device
            );
            self.conflict(path.key("offload"), message);
        }
        self.drops(port, path);
        self.oam(port, path);
    }

    /// Checks that the keys that change the meaning of `vlan` have one, and one meaning.
    fn vlan_mode(&mut self, port: &Port, path: &Path) {
        for (key, is_given) in [
            ("vlan_tagged", port.vlan_tagged),
            ("dot1q_tunnel", port.dot1q_tunnel.is_some()),
        ] {
            if is_given && port.vlan.is_none() {
                let message = format!("`{key}` without `vlan`: expected the VLAN that it is about");
                self.conflict(path.key(key), message);
            }
        }
        let Some(tunnel) = &port.dot1q_tunnel else {
            return;
        };
        let path = path.key("dot1q_tunnel");
        for (key, is_given) in [
            ("trunks", !port.trunks.is_empty()),
            ("vlan_tagged", port.vlan_tagged),
        ] {
            if is_given {
                let message = format!(
                    "`dot1q_tunnel` beside `{key}`: expected one of the two; all packets of the port are in its service VLAN"
                );
                self.conflict(path.clone(), message);
            }
        }
        let mut vids = Unique::new("VLAN");
        for (index, vid) in tunnel.customer_vlans.iter().enumerate() {
            vids.check(
                *vid,
                vid,
                path.key("customer_vlans").index(index),
                &mut self.issues,
            );
        }
    }

    /// Checks that a device that may drop packets counts them, and is trusted.
    fn drops(&mut self, port: &Port, path: &Path) {
        let Some(offload) = port.offload.as_ref().filter(|offload| offload.drops) else {
            return;
        };
        let path = path.key("offload").key("drops");
        if matches!(offload.mode, OffloadMode::Dispatch | OffloadMode::Verify) {
            let message = format!(
                "a device drops packets only while its marks are trusted, and `mode` is {}: expected \"trust\" or \"auto\", or no `drops`",
                offload.mode
            );
            self.conflict(path, message);
        } else if !matches!(port.device, Device::Nic(_)) {
            let message = format!(
                "{} does not count what it drops: expected nic:PATH, or no `drops`",
                port.device
            );
            self.conflict(path, message);
        }
    }

    /// Checks that the addresses of BFD are of one family, and that the names of a maintenance association exist.
    fn oam(&mut self, port: &Port, path: &Path) {
        if let Some(bfd) = &port.bfd
            && bfd.local.is_ipv4() != bfd.remote.is_ipv4()
        {
            let message = format!(
                "{} and `local`, {}, are of different families: expected two IPv4 or two IPv6 addresses",
                bfd.remote, bfd.local
            );
            self.conflict(path.key("bfd").key("remote"), message);
        }
        let Some(ccm) = &port.ccm else {
            return;
        };
        for (key, name) in [("domain", &ccm.domain), ("association", &ccm.association)] {
            if name.to_string().is_empty() {
                let message = "the name is empty: expected 1 to 22 bytes, the same at both ends".to_owned();
                self.conflict(path.key("ccm").key(key), message);
            }
        }
        if ccm.remote_mep == Some(ccm.mep) {
            let message = format!("both ends have the number {}: expected two numbers", ccm.mep);
            self.conflict(path.key("ccm").key("remote_mep"), message);
        }
    }

    /// Checks that the queues of a port can exist, and that their rates are consistent.
    fn queues(&mut self, port: &Port, path: &Path) {
        let mut ids = Unique::new("queue id");
        for (index, queue) in port.egress_queues.iter().enumerate() {
            let path = path.key("queue").index(index);
            ids.check(queue.id, &queue.id, path.key("id"), &mut self.issues);
            if let (Some(min), Some(max)) = (queue.min_rate, queue.max_rate)
                && min > max
            {
                let message = format!("{min} is more than `max_rate`, {max}: expected at most that");
                self.conflict(path.key("min_rate"), message);
            }
            if let (Some(max), Some(rate)) = (queue.max_rate, port.rate)
                && max > rate
            {
                let message =
                    format!("{max} is more than the `rate` of the port, {rate}: expected at most that");
                self.conflict(path.key("max_rate"), message);
            }
        }
        let has_default = port.egress_queues.iter().any(|queue| queue.id.0 == 0);
        let count = port.egress_queues.len() + usize::from(!has_default);
        if !port.egress_queues.is_empty() && count > QUEUES_MAX {
            let message =
                format!("{count} queues, with queue 0, which is always there: expected at most {QUEUES_MAX}");
            self.conflict(path.key("queue"), message);
        }
        let guaranteed = port.egress_queues.iter().filter_map(|queue| queue.min_rate);
        let guaranteed = BitRate::from_bps(guaranteed.map(|rate| rate.get().bps()).sum());
        if let Some(rate) = port.rate.filter(|rate| guaranteed > rate.get()) {
            let message = format!(
                "{rate} is less than the `min_rate`s of its queues together, {guaranteed}: expected at least that"
            );
            self.conflict(path.key("rate"), message);
        }
    }

    /// Checks that a policer has exactly the parameters of its kind.
    fn policer(&mut self, policer: &Policer, path: &Path) {
        let (peak, excess) = match policer.kind {
            PolicerKind::SingleRate => (false, false),
            PolicerKind::TwoRate => (true, false),
            PolicerKind::TwoRateExcess => (false, true),
        };
        let kind = policer.kind;
        for (key, is_given, is_needed) in [
            ("pir", policer.pir.is_some(), peak),
            ("eir", policer.eir.is_some(), excess),
        ] {
            match (is_given, is_needed) {
                (false, true) => {
                    self.conflict(
                        path.key("kind"),
                        format!("`{kind}` without `{key}`: expected both"),
                    );
                }
                (true, false) => {
                    self.conflict(path.key(key), format!("`{kind}` has no `{key}`: expected none"));
                }
                _ => {}
            }
        }
        let is_excess_burst = policer.kind != PolicerKind::TwoRate;
        if policer.ebs.is_some() && !is_excess_burst {
            self.conflict(path.key("ebs"), format!("`{kind}` has no `ebs`: expected none"));
        }
        if policer.pbs.is_some() && !peak {
            self.conflict(path.key("pbs"), format!("`{kind}` has no `pbs`: expected none"));
        }
        if let Some(pir) = policer.pir.filter(|pir| *pir < policer.cir) {
            let message = format!(
                "{pir} is less than `cir`, {}: expected at least that",
                policer.cir
            );
            self.conflict(path.key("pir"), message);
        }
        for (key, action) in [
            ("green", &policer.green),
            ("yellow", &policer.yellow),
            ("red", &policer.red),
        ] {
            let marks = action.dscp.is_some() || action.pcp.is_some() || action.mpls_tc.is_some();
            if action.action == ColorVerdict::Drop && marks {
                self.conflict(
                    path.key(key),
                    "marks on packets that are dropped: expected one of the two".to_owned(),
                );
            }
        }
    }
}
