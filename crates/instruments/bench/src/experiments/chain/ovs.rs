//! Open vSwitch with DPDK and the same functions: each has a port of type `dpdkvhostuser`, the flow entries are those
//! of Millrace, and the poll-mode thread has the core of Millrace's worker.

use std::path::Path;

use super::error::{ChainBenchError, failed};
use super::plan::{OfferedLoad, SINK};
use super::steered::{Socket, Switch};
use crate::hugepages::HugePages;
use crate::peer::ofctl;
use crate::peer::ovs::{Database, PrivateOvs};

pub(super) use crate::peer::ovs::DAEMON;

/// The huge pages of Open vSwitch's pool and devices in MiB.
const MEMORY_MIB: u64 = 1024;
/// The huge pages of the functions in MiB.
const FUNCTIONS_MIB: u64 = 1024;

/// A running Open vSwitch with a sink.
pub(super) struct Ovs {
    private: PrivateOvs,
    target: String,
    has_source: bool,
    _huge_pages: Option<HugePages>,
    dir: tempfile::TempDir,
}

impl Ovs {
    /// Starts Open vSwitch and adds the sink.
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
        let mut private = PrivateOvs::start(Database::new(dir.path()), &settings, -10)?;
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
        // Open vSwitch creates the socket in its run directory, with the name of the port.
        Ok(Socket::Vhost(self.dir.path().join(&name)))
    }

    fn set_source(&mut self, offer: Option<OfferedLoad>) -> Result<(), ChainBenchError> {
        if self.has_source {
            self.private.database.vsctl(["del-port", "br0", "p1"])?;
        }
        self.has_source = offer.is_some();
        if let Some(offer) = offer {
            let device = format!("net_null_{},size={}", offer.frame, offer.size());
            let policing = offer.metered().map(|rate| {
                // The rate is in kbit/s and the burst in kbit. The burst is that of Millrace: 20 ms of the rate.
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

    fn delivered(&mut self) -> Result<u64, ChainBenchError> {
        self.private.switchd.check()?;
        let ports = ofctl::ports(&self.target)?;
        Ok(ports.get(&SINK).map_or(0, |port| port.tx))
    }

    fn tail(&self) -> String {
        self.private.switchd.tail()
    }
}
