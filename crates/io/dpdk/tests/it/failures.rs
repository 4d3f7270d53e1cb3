//! Every mistake of an operator with EAL or a device produces a message with the next step.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use crate::eal_once::{config, eal};
use millrace_dpdk::eal::Version;
use millrace_dpdk::{AttachError, CoreId, Eal, EalConfig, EalError, Port, thread};

fn attach_error(devargs: &str) -> AttachError {
    let error = Port::attach(eal(), &devargs.parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("To fix it: "), "{error}");
    error
}

#[test]
fn eal_starts_once_in_a_process() {
    assert!(!eal().has_huge_pages());
    let error = Eal::init(&config()).unwrap_err();
    assert!(matches!(error, EalError::AlreadyUp), "{error}");
    assert!(error.to_string().contains("To fix it: "));
    assert!(Eal::current().is_some());
}

#[test]
fn eal_leaves_the_calling_thread_its_cores() {
    let before = thread::allowed_cores();
    eal();
    assert_eq!(thread::allowed_cores(), before);
}

#[test]
fn the_library_is_of_the_release_that_the_headers_are_of() {
    let Version { year, month } = millrace_dpdk::eal::running_version();
    assert!((year, month) >= (22, 11));
}

#[test]
fn a_misspelt_driver_is_named() {
    let error = attach_error("net_af_paket0,iface=lo");
    assert!(
        matches!(&error, AttachError::NoDriver { driver, .. } if driver == "net_af_paket"),
        "{error}"
    );
}

#[test]
fn a_missing_interface_is_named() {
    for devargs in ["net_af_packet90,iface=nosuch0", "net_af_xdp90,iface=nosuch0"] {
        let error = attach_error(devargs);
        assert!(
            matches!(&error, AttachError::NoInterface { interface, .. } if interface == "nosuch0"),
            "{error}"
        );
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = attach_error("net_pcap90,rx_pcap=/nonexistent/in.pcap");
    assert!(
        matches!(&error, AttachError::File { .. }) && error.to_string().contains("/nonexistent/in.pcap"),
        "{error}"
    );
}

#[test]
fn a_capture_without_packets_cannot_be_repeated() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // The header of a capture of Ethernet frames, without packets.
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let error = attach_error(&format!(
        "net_pcap5,rx_pcap={},infinite_rx=1",
        file.path().display()
    ));
    assert!(
        matches!(&error, AttachError::EmptyCapture { path, .. } if path == file.path()),
        "{error}"
    );
}

#[test]
fn a_missing_pci_device_is_named() {
    let error = attach_error("fe:1f.7");
    assert!(
        matches!(&error, AttachError::NoPciDevice { address } if address == "0000:fe:1f.7"),
        "{error}"
    );
}

#[test]
fn options_that_the_driver_does_not_take_are_quoted_with_its_reason() {
    for (devargs, reason) in [
        ("net_null7,colour=red", "net_null7,colour=red"),
        ("net_ring7,nodeaction=xx", "could not parse node value"),
        ("net_memif7,role=king", "Unknown role: king"),
        ("net_pcap7,rx_pcap=/dev/null", "truncated dump file"),
        ("net_virtio_user7,path=/nonexistent/socket", "No such file"),
    ] {
        let error = attach_error(devargs);
        assert!(matches!(error, AttachError::Options { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_device_that_is_no_network_device_is_refused_and_let_go() {
    for _ in 0..2 {
        let error = attach_error("crypto_null0");
        assert!(matches!(error, AttachError::NoPort { .. }), "{error}");
    }
}

#[test]
fn a_failed_attach_does_not_spoil_the_next() {
    attach_error("net_null8,colour=red");
    Port::attach(eal(), &"net_null8".parse().unwrap())
        .unwrap()
        .detach()
        .unwrap();
}

#[test]
fn a_core_that_is_not_there_is_refused_with_those_that_are() {
    let error = thread::pin(&[CoreId(1000)]).unwrap_err();
    assert!(error.to_string().contains("To fix it: "), "{error}");
    let error = thread::spawn(eal(), "nowhere", CoreId(1000), || ()).unwrap_err();
    assert!(error.to_string().contains("core 1000 cannot be used"), "{error}");
}

#[test]
fn impossible_settings_are_refused_before_eal_sees_them() {
    // EAL is up in this process, so each call would return AlreadyUp; only the messages are checked.
    for error in [
        EalError::Core {
            core: CoreId(64),
            allowed: vec![CoreId(0), CoreId(1)],
        },
        EalError::FilePrefix("a/b".into()),
        EalError::TooLittleMemory { memory_mib: 8 },
        EalError::FailedBefore,
        EalError::Version {
            built: Version { year: 22, month: 11 },
            running: Version { year: 23, month: 11 },
        },
    ] {
        assert!(error.to_string().contains("To fix it: "), "{error}");
    }
    let _all_have_defaults = EalConfig::default();
}
