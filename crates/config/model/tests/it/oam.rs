//! BFD, continuity checks and flap damping of a port: defaults, ranges and conflicts.

use millrace_model::{CcmInterval, Config};

fn port(settings: &str) -> Result<Config, String> {
    let text = format!(
        "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"memory\"\n{settings}\n"
    );
    Config::from_toml("test.toml", &text).map_err(|errors| errors.to_string())
}

#[test]
fn a_port_with_empty_tables_has_the_defaults_of_open_vswitch() {
    let config = port("bfd = {}\nccm = { mep = 7 }\ndamping = {}").unwrap();
    let port = &config.bridges[0].ports[0];
    let bfd = port.bfd.as_ref().unwrap();
    assert_eq!((bfd.min_tx_ms.get(), bfd.multiplier.get()), (300, 3));
    assert_eq!(
        (
            bfd.local.to_string(),
            bfd.remote.to_string(),
            bfd.remote_mac.to_string()
        ),
        (
            "169.254.1.0".to_owned(),
            "169.254.1.1".to_owned(),
            "00:23:20:00:00:01".to_owned()
        )
    );
    let ccm = port.ccm.as_ref().unwrap();
    assert_eq!(
        (ccm.interval, ccm.domain.as_str(), ccm.level.get()),
        (CcmInterval::S1, "ovs", 0)
    );
    let damping = port.damping.as_ref().unwrap();
    assert_eq!(
        (
            damping.flaps.get(),
            damping.window_s.get(),
            damping.hold_down_s.get()
        ),
        (3, 5, 30)
    );
    assert_eq!(port.wait_to_restore_s.get(), 60);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    for (settings, said) in [
        ("bfd = { min_tx_ms = 10 }", "50 to 1000 ms"),
        ("bfd = { remote = \"fe80::1\" }", "different families"),
        ("ccm = {}", "mep"),
        ("ccm = { mep = 8192 }", "1 to 8191"),
        ("ccm = { mep = 1, remote_mep = 1 }", "both ends have the number 1"),
        ("ccm = { mep = 1, domain = \"\" }", "the name is empty"),
        ("ccm = { mep = 1, interval = \"50ms\" }", "100ms"),
        ("damping = { flaps = 0 }", "1 to 100"),
    ] {
        let error = port(settings).unwrap_err();
        assert!(error.contains(said), "{settings}: {error}");
    }
}
