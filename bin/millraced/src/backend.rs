//! Start of the switch with DPDK or without.

use std::sync::Arc;

use anyhow::Result;
use millrace_api::view;
use millrace_datapath::io::HeapBackend;

use crate::log::Log;
use crate::machine::Machine;
use crate::start::Start;

pub(crate) fn without_dpdk() -> Arc<HeapBackend> {
    tracing::info!("running without DPDK: no NICs, no DPDK devargs, no virtio-user");
    Arc::new(HeapBackend::new())
}

/// Returns the DPDK entry of `show status` if DPDK is linked and not used.
pub(crate) fn unused_dpdk() -> Option<view::Dpdk> {
    #[cfg(feature = "dpdk")]
    return Some(view::Dpdk {
        version: millrace_dpdk::eal::running_version().to_string(),
        used: false,
        huge_pages: false,
    });
    #[cfg(not(feature = "dpdk"))]
    None
}

#[cfg(not(feature = "dpdk"))]
pub(crate) fn run_with_dpdk(_: &Start, _: Machine, _: Arc<Log>) -> Result<()> {
    anyhow::bail!(
        "this millraced was built without DPDK: start it with --no-dpdk, or build it with the feature dpdk"
    )
}

/// Starts EAL, runs the switch on it, and releases EAL's resources of the machine.
#[cfg(feature = "dpdk")]
pub(crate) fn run_with_dpdk(start: &Start, machine: Machine, log: Arc<Log>) -> Result<()> {
    use anyhow::Context;
    use millrace_datapath::io::dpdk::DpdkBackend;
    use millrace_dpdk::eal::Pci;
    use millrace_dpdk::{CoreId, Eal, EalConfig};
    use millrace_model as model;

    let settings = &start.config().system;
    let is_needed = start.config().needs_dpdk();
    let config = EalConfig {
        worker_cores: settings
            .worker_cores
            .iter()
            .map(|core| CoreId(core.get()))
            .collect(),
        memory_mib: settings.memory_mib.get(),
        huge_pages: huge_pages(settings.huge_pages, is_needed),
        pci: Pci::OnDemand,
        file_prefix: format!("millraced-{}", std::process::id()),
        log_level: crate::dpdk_log::level(&log.filter()),
        ..EalConfig::default()
    };
    let eal = Eal::init(&config).with_context(|| match settings.huge_pages {
        model::HugePages::Required => {
            "DPDK does not start (system.huge_pages = \"auto\" uses ordinary pages if there are none, and with \
             --no-dpdk the switch runs with all devices but NICs, DPDK devargs and virtio-user)"
        }
        _ => {
            "DPDK does not start (with --no-dpdk the switch runs with all devices but NICs, DPDK devargs and \
             virtio-user)"
        }
    })?;
    let buffers = match is_needed {
        true => buffers(settings.memory_mib.get()),
        false => buffers(settings.memory_mib.get()).min(BUFFERS_WITHOUT_DEVICES),
    };
    if !is_needed {
        tracing::info!(
            buffers,
            "no port needs DPDK: no huge pages are taken; start again after a port that needs it is added"
        );
    }
    let backend =
        DpdkBackend::new(eal, buffers).context("the packet pool does not fit into system.memory_mib")?;
    tracing::info!(version = %millrace_dpdk::eal::running_version(), huge_pages = eal.has_huge_pages(), buffers, "DPDK is up");
    let dpdk = view::Dpdk {
        version: millrace_dpdk::eal::running_version().to_string(),
        used: true,
        huge_pages: eal.has_huge_pages(),
    };
    let outcome = crate::run::run(Arc::new(backend), start, machine, log, Some(dpdk));
    eal.unmount_hugetlbfs();
    outcome
}

/// The number of packet buffers if no port of the configuration needs DPDK: as many as without DPDK, one less than a power
/// of two.
#[cfg(feature = "dpdk")]
const BUFFERS_WITHOUT_DEVICES: u32 = 8191;

/// Returns the number of packet buffers that half of the memory holds, one less than a power of two. The other half is
/// for rings of drivers and alignment.
#[cfg(feature = "dpdk")]
fn buffers(memory_mib: u32) -> u32 {
    // The size of a buffer with its header and its entry in the pool's ring, rounded up.
    const BUFFER_SIZE: u64 = 2560;
    let fit = u64::from(memory_mib) * 1024 * 1024 / 2 / BUFFER_SIZE;
    let power = fit.max(2).ilog2();
    (1u32 << power.min(22)) - 1
}

/// Returns how DPDK takes huge pages. Without a device of DPDK, it takes none unless they are required.
#[cfg(feature = "dpdk")]
fn huge_pages(wanted: millrace_model::HugePages, is_needed: bool) -> millrace_dpdk::eal::HugePages {
    use millrace_dpdk::eal::HugePages;
    use millrace_model as model;

    match (wanted, is_needed) {
        (model::HugePages::Off, _) | (model::HugePages::Auto, false) => HugePages::Off,
        (model::HugePages::Auto, true) => HugePages::Prefer,
        (model::HugePages::Required, _) => HugePages::Require,
    }
}

#[cfg(all(test, feature = "dpdk"))]
mod tests {
    use super::huge_pages;
    use millrace_dpdk::eal::HugePages;
    use millrace_model::HugePages::{Auto, Off, Required};

    #[test]
    fn ports_of_the_kernel_alone_take_no_huge_pages_unless_they_are_required() {
        for (wanted, of_kernel, of_dpdk) in [
            (Auto, HugePages::Off, HugePages::Prefer),
            (Off, HugePages::Off, HugePages::Off),
            (Required, HugePages::Require, HugePages::Require),
        ] {
            assert!(huge_pages(wanted, false) == of_kernel && huge_pages(wanted, true) == of_dpdk);
        }
    }
}
