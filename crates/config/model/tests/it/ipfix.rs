//! IPFIX of a bridge: defaults, ranges and conflicts.

use millrace_model::Config;

fn parse(text: &str) -> Result<Config, String> {
    Config::from_toml("test.toml", text).map_err(|errors| errors.to_string())
}

fn bridge(name: &str, ipfix: &str) -> String {
    format!(
        "[[bridge]]\nname = \"{name}\"\n{ipfix}\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"memory\"\n\
         sampling_rate = 5\n"
    )
}

#[test]
fn a_collector_is_enough_and_the_domain_is_that_of_the_datapath_id() {
    let text = bridge(
        "br0",
        "dpid = \"0000000100000007\"\nipfix = { collectors = [\"udp:192.0.2.9\"] }",
    );
    let config = parse(&text).unwrap();
    let bridge = &config.bridges[0];
    let ipfix = bridge.ipfix.as_ref().unwrap();
    assert_eq!((bridge.ipfix_domain(ipfix), ipfix.sampling_rate.get()), (7, 1000));
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    for (ipfix, said) in [
        ("ipfix = { collectors = [] }", "0 collectors: expected 1 to 8"),
        (
            "ipfix = { collectors = [\"192.0.2.9\"] }",
            "expected udp:IP or tcp:IP",
        ),
        (
            "ipfix = { collectors = [\"udp:192.0.2.9\", \"udp:192.0.2.9:4739\"] }",
            "udp:192.0.2.9:4739",
        ),
        (
            "ipfix = { collectors = [\"udp:192.0.2.9\"], sampling_rate = 10 }\n\
             sflow = { agent = \"192.0.2.1\", collectors = [\"::1\"] }",
            "10 and 1000 in `sflow`: a port has one sampler",
        ),
        ("", "neither `sflow` nor `ipfix`"),
    ] {
        let error = parse(&bridge("br0", ipfix)).unwrap_err();
        assert!(error.contains(said), "{said}: {error}");
    }
    let two =
        ["br0", "br1"].map(|name| bridge(name, "ipfix = { domain = 7, collectors = [\"udp:192.0.2.9\"] }"));
    let error = parse(&two.concat()).unwrap_err();
    assert!(error.contains("IPFIX domain"), "{error}");
}
