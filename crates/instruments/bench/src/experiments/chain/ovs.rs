//! Open vSwitch with DPDK steering the same functions: a port of type `dpdkvhostuser` for each, the entries that
//! Millrace has, and its poll-mode thread on the core that Millrace's worker has.

use std::path::Path;

use super::steered::{Socket, Switch};
use super::{ChainBenchError, Offer, SINK, failed};
use crate::hugepages::HugePages;
use crate::peer::ofctl;
use crate::peer::ovs::{Database, Private};

pub(super) use crate::peer::ovs::DAEMON;

/// What its pool and its devices take of huge pages, MiB.
const MEMORY_MIB: u64 = 1024;
/// What the functions take beside, MiB.
const FUNCTIONS_MIB: u64 = 1024;

/// The switch.
pub(super) struct Ovs {
    private: Private,
    target: String,
    has_source: bool,
    _huge_pages: Option<HugePages>,
    dir: tempfile::TempDir,
}

impl Ovs {
    /// Starts it, with a sink.
    pub(super) fn start(core: usize, control_core: usize) -> Result<Ovs, ChainBenchError> {
        let dir = tempfile::tempdir().map_err(failed(Path::new("/tmp")))?;
        let huge_pages = HugePages::reserve(MEMORY_MIB + FUNCTIONS_MIB);
        let extra = format!("--no-pci --no-telemetry --file-prefix ovs{}", std::process::id());
        let mut settings = vec![
            "dpdk-init=true".to_owned(),
            format!("dpdk-lcore-mask={:#x}", 1_u64 << control_core),
            format!("pmd-cpu-mask={:#x}", 1_u64 << core),
        ];
        if huge_pages.is_some() {
            settings.push(format!("dpdk-socket-mem={MEMORY_MIB}"));
            settings.push(format!("dpdk-extra={extra} --in-memory --single-file-segments"));
        } else {
            settings.push(format!(
                "dpdk-extra={extra} --no-huge --legacy-mem -m {MEMORY_MIB}"
            ));
        }
        let mut private = Private::start(Database::new(dir.path()), &settings, -10)?;
        private
            .database
            .add_port(SINK, &format!("net_null{SINK},no-rx=1"), &[])?;
        Ok(Ovs {
            private,
            target: format!("unix:{}", dir.path().join("br0.mgmt").display()),
            has_source: false,
            _huge_pages: huge_pages,
            dir,
        })
    }
}

impl Switch for Ovs {
    fn add_function(&mut self, number: u32) -> Result<Socket, ChainBenchError> {
        let name = format!("f{number}");
        let database = &mut self.private.database;
        database.add_interface(&name, number, "dpdkvhostuser", &[])?;
        // The socket is in its run directory, by the name of the port.
        Ok(Socket::Vhost(self.dir.path().join(&name)))
    }

    fn set_source(&mut self, offer: Option<Offer>) -> Result<(), ChainBenchError> {
        if self.has_source {
            self.private.database.vsctl(["del-port", "br0", "p1"])?;
        }
        self.has_source = offer.is_some();
        if let Some(offer) = offer {
            let device = format!("net_null_{},size={}", offer.frame, offer.size());
            let policing = offer.metered().map(|rate| {
                // In kbit/s, and a burst in kbit, as ours: what comes in 20 ms.
                let kbps = rate.bps() / 1000;
                [
                    format!("ingress_policing_rate={kbps}"),
                    format!("ingress_policing_burst={}", kbps / 50),
                ]
            });
            let options: Vec<String> = policing.into_iter().flatten().collect();
            self.private.database.add_port(1, &device, &options)?;
        }
        Ok(())
    }

    fn target(&self) -> &str {
        &self.target
    }

    fn carried(&mut self) -> Result<u64, ChainBenchError> {
        self.private.switchd.check()?;
        let ports = ofctl::ports(&self.target)?;
        Ok(ports.get(&SINK).map_or(0, |port| port.tx))
    }

    fn tail(&self) -> String {
        self.private.switchd.tail()
    }
}
