//! sFlow of a bridge: defaults, ranges and conflicts.

use millrace_model::Config;

/// Returns the configuration of a bridge with this setting `sflow`, and a port with these settings.
fn bridge(name: &str, sflow: &str, port: &str) -> String {
    format!(
        "[[bridge]]\nname = \"{name}\"\n{sflow}\n[[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"memory\"\n{port}\n"
    )
}

fn parse(text: &str) -> Result<Config, String> {
    Config::from_toml("test.toml", text).map_err(|errors| errors.to_string())
}

#[test]
fn an_agent_and_a_collector_are_enough() {
    let text = bridge(
        "br0",
        "sflow = { agent = \"192.0.2.1\", collectors = [\"192.0.2.9\"] }",
        "",
    );
    let config = parse(&text).unwrap();
    let sflow = config.bridges[0].sflow.as_ref().unwrap();
    assert_eq!(
        (
            sflow.collectors[0].to_string(),
            sflow.sampling_rate.get(),
            sflow.header_size.get(),
            sflow.polling_interval_s.get(),
            sflow.discard_limit.get(),
            sflow.datagram_size.get(),
        ),
        ("192.0.2.9:6343".to_owned(), 1000, 128, 20, 0, 1400)
    );
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
    let port = bridge(
        "br0",
        "sflow = { agent = \"::1\", collectors = [\"::1\"], sampling_rate = 0 }",
        "sampling_rate = 64",
    );
    let config = parse(&port).unwrap();
    assert_eq!(config.bridges[0].ports[0].sampling_rate.unwrap().get(), 64);
}

#[test]
fn values_that_cannot_work_are_refused_with_the_reason() {
    for (sflow, port, said) in [
        ("sflow = { collectors = [\"192.0.2.9\"] }", "", "agent"),
        (
            "sflow = { agent = \"192.0.2.1\", collectors = [] }",
            "",
            "0 collectors: expected 1 to 8",
        ),
        (
            "sflow = { agent = \"192.0.2.1\", collectors = [\"host.example\"] }",
            "",
            "not a valid collector: expected IP or IP:PORT",
        ),
        (
            "sflow = { agent = \"192.0.2.1\", collectors = [\"192.0.2.9\", \"192.0.2.9:6343\"] }",
            "",
            "192.0.2.9:6343",
        ),
        (
            "sflow = { agent = \"192.0.2.1\", collectors = [\"::1\"], source = \"127.0.0.1\" }",
            "",
            "different families",
        ),
        (
            "sflow = { agent = \"0.0.0.0\", collectors = [\"::1\"] }",
            "",
            "identifies no switch",
        ),
        (
            "sflow = { agent = \"192.0.2.1\", collectors = [\"::1\"], header_size = 32 }",
            "",
            "64 to 256 bytes",
        ),
        (
            "sflow = { agent = \"192.0.2.1\", collectors = [\"::1\"], sampling_rate = 16777216 }",
            "",
            "0 to 16777215",
        ),
        (
            "",
            "sampling_rate = 100",
            "the bridge has neither `sflow` nor `ipfix`",
        ),
    ] {
        let error = parse(&bridge("br0", sflow, port)).unwrap_err();
        assert!(error.contains(said), "{sflow} {port}: {error}");
    }
}

#[test]
fn two_bridges_of_one_agent_need_two_sub_agents_and_a_port_number_has_24_bits() {
    let sflow = "sflow = { agent = \"192.0.2.1\", collectors = [\"192.0.2.9\"] }";
    let two = bridge("br0", sflow, "") + &bridge("br1", sflow, "");
    let error = parse(&two).unwrap_err();
    assert!(error.contains("sub_agent"), "{error}");
    let other = sflow.replace(" }", ", sub_agent = 1 }");
    parse(&(bridge("br0", sflow, "") + &bridge("br1", &other, ""))).unwrap();
    let error = parse(&bridge("br0", sflow, "").replace("number = 1\n", "number = 16777216\n")).unwrap_err();
    assert!(error.contains("24 bits"), "{error}");
}
