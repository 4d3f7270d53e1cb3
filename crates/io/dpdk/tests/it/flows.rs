//! Flow rules in devices: a driver without them says so, and one with them accepts a rule or reports why not. No
//! software device of DPDK 22.11 supports all of it: `net_softnic` lost its rules with that release, and `net_tap`
//! passes them to the kernel, which may be built without the required classifier.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::eal_once::eal;
use millrace_dpdk::{
    FlowAction, FlowError, FlowHeader, FlowItem, FlowOffload, FlowSpec, Mempool, MempoolConfig, Port,
    PortConfig, PortError, Queues,
};

fn open(devargs: &str, rx_queues: u16, pool: &str) -> (Port, Queues) {
    let mut port = Port::attach(eal(), &devargs.parse().unwrap()).unwrap();
    let config = PortConfig {
        rx_queues,
        tx_queues: rx_queues,
        ..PortConfig::default()
    };
    let pool = Mempool::new(eal(), &MempoolConfig::new(pool, 4095)).unwrap();
    let queues = port.start(&config, pool).unwrap();
    (port, queues)
}

/// Returns an exact 5-tuple with the source port `source`.
fn five_tuple(source: u16, action: FlowAction) -> FlowSpec {
    let mut header = [0; 20];
    let mut mask = [0; 20];
    header[9] = 17;
    header[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    mask[9] = 0xff;
    mask[12..].fill(0xff);
    let ports = [source.to_be_bytes(), 53_u16.to_be_bytes()].concat();
    let items = [
        FlowItem::any(FlowHeader::Ethernet),
        FlowItem::new(FlowHeader::Ipv4, &header, &mask).unwrap(),
        FlowItem::new(FlowHeader::Udp, &ports, &[0xff; 4]).unwrap(),
    ];
    FlowSpec::new(items, [action])
}

#[test]
fn a_device_without_rules_says_so() {
    let (port, _queues) = open("net_null20", 1, "flows-null");
    assert_eq!(port.flow_offload(), FlowOffload::default());
    let spec = five_tuple(1, FlowAction::Queue(0));
    let refused = port.flows().validate(&spec).unwrap_err();
    assert!(
        matches!(&refused, FlowError::NotOffered { port, .. } if port == "net_null20"),
        "{refused}"
    );
    assert!(port.flows().create(&spec).is_err());
    assert!(port.flows().flush().is_err());
}

#[test]
fn a_tap_takes_rules_as_far_as_the_kernel_does_and_tells_why_not() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not root: no tap");
        return;
    }
    // A network namespace of its own, which ends with this thread.
    std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let (port, queues) = open("net_tap22,iface=flows22", 2, "flows-tap");
        let offload = port.flow_offload();
        assert!(offload.steer && offload.steer_vlan, "{offload:?}");
        assert!(offload.mark.is_none() && !offload.steer_mpls, "{offload:?}");
        let flows = port.flows();
        let marked = flows.validate(&five_tuple(1, FlowAction::Mark(7))).unwrap_err();
        let FlowError::Refused { detail, .. } = &marked else {
            panic!("{marked}")
        };
        assert_eq!(detail, "action not supported");
        match flows.create(&five_tuple(1, FlowAction::Queue(1))) {
            Ok(rule) => {
                drop((queues, flows));
                let kept = port.detach();
                assert!(
                    matches!(&kept, Err(PortError::FlowRules { .. })),
                    "a rule keeps its port: {kept:?}"
                );
                rule.destroy().unwrap();
            }
            // The kernel lacks the classifier that the driver needs (CONFIG_NET_CLS_FLOWER).
            Err(FlowError::Refused { detail, .. }) => {
                assert!(
                    detail.contains("flower") || detail.contains("Kernel refused"),
                    "{detail}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_header_takes_no_more_bytes_than_it_has() {
    assert!(FlowItem::new(FlowHeader::Vlan, &[0; 5], &[0; 5]).is_none());
    assert!(FlowItem::new(FlowHeader::Ipv6, &[0; 40], &[0; 39]).is_none());
    assert!(FlowItem::new(FlowHeader::Ipv6, &[0; 40], &[0; 40]).is_some());
}
