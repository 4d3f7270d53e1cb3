//! Maps a sample to a stage of the packet path, by the names of its functions.
//!
//! The frames are searched from the innermost function outwards, and the first known name determines the stage: a
//! `sendto` below `tx_burst` is transmission (in the kernel), and a `memcpy` below `rx_burst` is reception. Functions
//! of the kernel determine the stage only if no function of the program does.

use std::fmt;

use super::perf::Frame;

/// A stage of the packet path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Reception from a device.
    Receive,
    /// Reception, in the kernel.
    ReceiveKernel,
    /// Extraction of the flow key from headers.
    Parse,
    /// Lookup in a cache of flows.
    LookupCache,
    /// Lookup in a table of exact entries.
    LookupHash,
    /// Lookup by comparison with a few entries.
    LookupDirect,
    /// Lookup of the longest prefix.
    LookupPrefix,
    /// Lookup among entries with different masks.
    LookupTuples,
    /// Lookup of an unknown kind.
    Lookup,
    /// The loop over a burst, with the functions that are inlined into it: key extraction and actions.
    Burst,
    /// Execution of actions.
    Actions,
    /// Transmission to a device.
    Transmit,
    /// Transmission in the kernel, which may include the delivery to the receiving host.
    TransmitKernel,
    /// Polling without packets.
    Poll,
    /// The control plane.
    Control,
    /// The kernel, without a known caller.
    Kernel,
    /// A program without symbols.
    Unnamed,
    /// None of the other stages.
    Other,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Receive => "receive",
            Stage::ReceiveKernel => "receive: kernel",
            Stage::Parse => "parse",
            Stage::LookupCache => "lookup: cache",
            Stage::LookupHash => "lookup: hash",
            Stage::LookupDirect => "lookup: compare",
            Stage::LookupPrefix => "lookup: prefix",
            Stage::LookupTuples => "lookup: tuples",
            Stage::Lookup => "lookup",
            Stage::Burst => "parse and actions",
            Stage::Actions => "actions",
            Stage::Transmit => "transmit",
            Stage::TransmitKernel => "transmit: kernel",
            Stage::Poll => "poll",
            Stage::Control => "control",
            Stage::Kernel => "kernel",
            Stage::Unnamed => "without names",
            Stage::Other => "other",
        })
    }
}

/// Parts of function names, the more specific ones first: Millrace and DPDK, then Open vSwitch, then the kernel.
const NAMES: &[(&str, Stage)] = &[
    ("rx_burst", Stage::Receive),
    ("tx_burst", Stage::Transmit),
    ("transmit", Stage::Transmit),
    ("WorkerEgress", Stage::Transmit),
    ("extract::", Stage::Parse),
    ("FlowKey", Stage::Parse),
    ("classify::direct", Stage::LookupDirect),
    ("classify::linear", Stage::LookupDirect),
    ("classify::prefixes", Stage::LookupPrefix),
    ("classify::trie", Stage::LookupPrefix),
    ("classify::tuple", Stage::LookupTuples),
    ("classify::masks", Stage::LookupTuples),
    ("classify::hash", Stage::LookupHash),
    ("classify::", Stage::Lookup),
    ("processor::lookup", Stage::Lookup),
    ("process_burst", Stage::Burst),
    (">::burst", Stage::Burst),
    ("millrace_pipeline::processor", Stage::Actions),
    ("millrace_pipeline::", Stage::Actions),
    ("worker::", Stage::Poll),
    ("idle::IdleBackoff", Stage::Poll),
    ("millrace_agent", Stage::Control),
    ("millrace_api", Stage::Control),
    ("millrace_openflow", Stage::Control),
    ("millraced::", Stage::Control),
    ("tokio::", Stage::Control),
    ("hyper::", Stage::Control),
    // The functions of Open vSwitch.
    ("miniflow_extract", Stage::Parse),
    ("mfex_", Stage::Parse),
    ("emc_", Stage::LookupCache),
    ("smc_", Stage::LookupCache),
    ("dfc_processing", Stage::LookupCache),
    ("dpcls_", Stage::LookupTuples),
    ("fast_path_processing", Stage::LookupTuples),
    ("rxq_recv", Stage::Receive),
    ("netdev_rxq_", Stage::Receive),
    ("netdev_send", Stage::Transmit),
    ("dpdk_eth_send", Stage::Transmit),
    ("flush_output", Stage::Transmit),
    ("odp_execute", Stage::Actions),
    ("dp_execute_cb", Stage::Actions),
    ("packet_batch_per_flow", Stage::Actions),
    ("dp_netdev_execute", Stage::Actions),
    ("dp_netdev_input", Stage::Actions),
    ("dp_netdev_upcall", Stage::Control),
    ("handle_packet_upcall", Stage::Control),
    ("pmd_thread_main", Stage::Poll),
    ("process_rxq_port", Stage::Poll),
    ("dpif_netdev_run", Stage::Poll),
    ("udpif_", Stage::Control),
    ("ofproto_", Stage::Control),
    ("xlate_", Stage::Control),
    ("poll_block", Stage::Control),
    ("bridge_run", Stage::Control),
    // System calls show the direction if the program has no symbols.
    ("recvmmsg", Stage::Receive),
    ("recvmsg", Stage::Receive),
    ("sendmmsg", Stage::Transmit),
    ("sendto", Stage::Transmit),
    ("sendmsg", Stage::Transmit),
    ("packet_rcv", Stage::Kernel),
];

/// Drivers without symbols, by file: in the cases of the bench, one only receives and the other only transmits.
const DRIVERS: [(&str, Stage); 2] = [
    ("librte_net_pcap", Stage::Receive),
    ("librte_net_null", Stage::Transmit),
];

/// Returns the stage of a sample. The innermost frame is the first.
pub(super) fn stage(frames: &[Frame]) -> Stage {
    let known = |frame: &Frame| {
        NAMES
            .iter()
            .find(|(part, _)| frame.symbol.contains(part))
            .map(|(_, stage)| *stage)
    };
    let (kernel, program): (Vec<&Frame>, Vec<&Frame>) = frames.iter().partition(|frame| frame.is_kernel());
    let named = |frames: &[&Frame]| frames.iter().find_map(|frame| known(frame));
    let innermost = frames.first();
    if let Some(stage) = named(&program).or_else(|| named(&kernel)) {
        let in_kernel = innermost.is_some_and(Frame::is_kernel);
        return match stage {
            Stage::Receive if in_kernel => Stage::ReceiveKernel,
            Stage::Transmit if in_kernel => Stage::TransmitKernel,
            other => other,
        };
    }
    let driver = innermost.and_then(|frame| DRIVERS.iter().find(|(file, _)| frame.object.contains(file)));
    if let Some((_, stage)) = driver {
        return *stage;
    }
    match innermost {
        Some(frame) if frame.is_kernel() => Stage::Kernel,
        Some(frame) if frame.symbol == Frame::UNKNOWN => Stage::Unnamed,
        // The loop of a worker is inlined into the first function of its thread.
        Some(frame) if frame.symbol.contains("__rust_begin_short_backtrace") => Stage::Poll,
        _ => Stage::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(names: &[&str]) -> Vec<Frame> {
        names
            .iter()
            .map(|name| {
                let (symbol, object) = name.split_once('@').unwrap_or((name, "/usr/sbin/millraced"));
                Frame {
                    symbol: symbol.to_owned(),
                    object: object.to_owned(),
                }
            })
            .collect()
    }

    #[test]
    fn the_innermost_name_that_is_known_decides() {
        for (names, expected) in [
            (
                &[
                    "millrace_flow::extract::<impl FlowKey>::extract",
                    "millrace_pipeline::processor::run::Run<P>::burst",
                ][..],
                Stage::Parse,
            ),
            (
                &[
                    "millrace_flow::classify::tuple::find",
                    "millrace_pipeline::processor::run::Run<P>::burst",
                ],
                Stage::LookupTuples,
            ),
            (&["millrace_flow::classify::simd::lookup_avx512"], Stage::Lookup),
            (
                &["[unknown]@/usr/lib/librte_net_pcap.so", "shim_rx_burst"],
                Stage::Receive,
            ),
            (
                &["millrace_pipeline::processor::run::Run<P,E,O>::execute"],
                Stage::Actions,
            ),
            (
                &["std::sys::backtrace::__rust_begin_short_backtrace"],
                Stage::Poll,
            ),
            (
                &["dpcls_subtable_lookup_mf_u0w5_u1w1", "dp_netdev_input__"],
                Stage::LookupTuples,
            ),
            (&["[unknown]@/usr/lib/ovs-vswitchd"], Stage::Unnamed),
            (&["memcpy@/usr/lib/libc.so.6"], Stage::Other),
            (&[], Stage::Other),
        ] {
            assert_eq!(stage(&frames(names)), expected, "{names:?}");
        }
    }

    #[test]
    fn kernel_functions_count_for_the_stage_of_their_caller() {
        let below = frames(&[
            "skb_copy@[kernel.kallsyms]",
            "__x64_sys_sendto@[kernel.kallsyms]",
            "<Tx as TxQueue>::tx_burst",
        ]);
        assert_eq!(stage(&below), Stage::TransmitKernel);
        let nameless = frames(&[
            "skb_copy@[kernel.kallsyms]",
            "__x64_sys_recvmsg@[kernel.kallsyms]",
            "[unknown]@/usr/lib/ovs",
        ]);
        assert_eq!(stage(&nameless), Stage::ReceiveKernel);
        assert_eq!(stage(&frames(&["schedule@[kernel.kallsyms]"])), Stage::Kernel);
    }
}
