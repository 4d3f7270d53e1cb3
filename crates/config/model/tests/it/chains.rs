//! Chains of network functions: decoding, encoding and rejection of contradictions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_model::{Config, Device, HopClass, OnFailure, diff};

const HEAD: &str = r#"[[bridge]]
name = "br0"
[[bridge.port]]
name = "p1"
number = 1
device = "memory"
"#;

#[track_caller]
fn assert_messages(text: &str, expected: &[&str]) {
    let errors = Config::from_toml("m.toml", &format!("{HEAD}{text}")).unwrap_err();
    let messages: Vec<String> = errors.iter().map(|error| error.problem.to_string()).collect();
    assert_eq!(messages, expected);
}

const FULL: &str = r#"
[[bridge.chain]]
name = "edge"
number = 100
far = 101
lanes = 2
[[bridge.chain.hop]]
name = "fw"
function = "firewall"
settings = ["default=allow", "rule=deny tcp port 22"]
instances = 3
on_failure = "open"
number = 110
steer = true
[[bridge.chain.hop]]
name = "watch"
function = "monitor"
class = "isolated"
drained = true
"#;

#[test]
fn chains_are_read_and_written_back_the_same() {
    let config = Config::from_toml("m.toml", &format!("{HEAD}{FULL}")).unwrap();
    let chain = &config.bridges[0].chains[0];
    assert_eq!(
        (chain.hops[0].settings[1].key(), chain.hops[1].class),
        ("rule", HopClass::Isolated)
    );
    assert_eq!(chain.hops[0].on_failure, OnFailure::Open);
    let ports: Vec<(u32, String)> = chain.ports().map(|(number, name)| (number.raw(), name)).collect();
    let wanted = [(100, "edge"), (101, "edge.far"), (110, "fw")];
    assert_eq!(ports, wanted.map(|(number, name)| (number, name.to_owned())));
    assert_eq!(Config::from_toml("m.toml", &config.to_toml()).unwrap(), config);
    assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
    let mut other = config.clone();
    other.bridges[0].chains[0].hops[0].settings.pop();
    let changes = diff(&config, &other);
    assert!(changes.iter().all(|change| !change.restart));
    assert_eq!(changes.len(), 1);
}

#[test]
fn what_contradicts_itself_is_refused() {
    assert_messages(
        "[[bridge.chain]]\nname = \"p1\"\nnumber = 1\n",
        &[
            "port name p1 is already used by bridge[0].port[0].name",
            "port number 1 is already used by bridge[0].port[0].number",
        ],
    );
    assert_messages(
        "[[bridge.chain]]\nname = \"twelve_chars\"\nnumber = 2\nfar = 3\n",
        &["the far end would be `twelve_chars.far`: expected a chain's name of at most 11 characters"],
    );
    assert_messages(
        "[[bridge.chain]]\nname = \"c\"\nnumber = 2\n[[bridge.chain.hop]]\nname = \"h\"\nfunction = \"macswap\"\nsteer = true\n",
        &["`steer` without `number`: expected the port at which its packets come in"],
    );
    let hop = |more: &str| {
        format!(
            "[[bridge.chain]]\nname = \"c\"\nnumber = 2\nlanes = 2\n[[bridge.chain.hop]]\nname = \"h\"\n{more}\n"
        )
    };
    assert_messages(
        &hop("function = \"nat44\"\nsettings = [\"outside=192.0.2.1\"]\ninstances = 3"),
        &[
            "`lanes = 2` with `nat44`: return packets would reach an instance without their translation; expected 1",
            "`instances = 3` with `nat44`: return packets would reach an instance without their translation; expected 1",
        ],
    );
    assert_messages(
        &hop("function = \"ratelimit\"\nsettings = [\"rate=1Gbps\"]"),
        &["`lanes = 2` with `ratelimit`: each instance would let packets of the whole rate pass; expected 1"],
    );
    assert_messages(
        &hop("function = \"library:/x.so\"\nfuel = 5000\nmemory_mib = 8\nweight = 50\ncpu_percent = 50"),
        &[
            "`fuel` bounds WebAssembly modules: expected a function `wasm:PATH`",
            "`memory_mib` of a function in the worker: expected class ring or isolated, or `wasm:PATH`",
            "`weight` of a function in the worker: expected class ring or isolated",
            "`cpu_percent` of a function in the worker: expected class ring or isolated",
        ],
    );
    let text = hop(
        "function = \"wasm:/f.wasm\"\nfuel = 5000\nmemory_mib = 8\nclass = \"isolated\"\nweight = 50\ncpu_percent = 100",
    );
    let config = Config::from_toml("m.toml", &format!("{HEAD}{text}")).unwrap();
    assert_eq!(Config::from_toml("m.toml", &config.to_toml()).unwrap(), config);
    let none = text.replace("cpu_percent = 100", "cpu_percent = 0");
    let error = Config::from_toml("m.toml", &format!("{HEAD}{none}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cpu_percent: 0 is out of range: expected 1 to 100 %"),
        "{error}"
    );
    let error =
        Config::from_toml("m.toml", &format!("{HEAD}{}", hop("function = \"wasm:f.wasm\""))).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`wasm:f.wasm` is not a function: expected an absolute path"),
        "{error}"
    );
    assert!(
        "chain:edge"
            .parse::<Device>()
            .unwrap_err()
            .to_string()
            .contains("[[bridge.chain]]")
    );
}

/// Returns the errors of a hop with the given lines.
fn of_hop(lines: &str) -> String {
    let chain = "[[bridge.chain]]\nname = \"c\"\nnumber = 2\n[[bridge.chain.hop]]\nname = \"h\"\n";
    let errors = Config::from_toml("m.toml", &format!("{HEAD}{chain}{lines}\n")).unwrap_err();
    errors.to_string()
}

#[test]
fn a_function_that_is_not_there_is_refused_with_the_one_that_was_meant() {
    assert_eq!(
        of_hop("function = \"firewal\"\nsettings = [\"foo=1\"]"),
        "m.toml:12:12: bridge[0].chain[0].hop[0].function: there is no function `firewal`: expected firewall, ids, ips, lb, macswap, \
         monitor, nat44, ratelimit, tap, wasm:PATH, library:PATH or attached:PATH; did you mean `firewall`?"
    );
}

#[test]
fn settings_that_a_function_refuses_are_refused_each_at_its_place() {
    let text = of_hop("function = \"macswap\"\nsettings = [\n\"foo=1\",\n\"bar=2\"]");
    assert_eq!(
        text,
        "m.toml:14:1: bridge[0].chain[0].hop[0].settings[0]: macswap: `foo` is not known: expected no settings\n\
         m.toml:15:1: bridge[0].chain[0].hop[0].settings[1]: macswap: `bar` is not known: expected no settings"
    );
    let text = of_hop(
        "function = \"firewall\"\nsettings = [\"default=allow\", \"rule=allow tcp\", \"rule=allow tcp to 10.0.0.2/33 port 80\"]",
    );
    assert!(
        text.starts_with(
            "m.toml:13:48: bridge[0].chain[0].hop[0].settings[2]: firewall: `rule=allow tcp to 10.0.0.2/33"
        ) && text.contains("expected an address, or ADDRESS/LENGTH"),
        "{text}"
    );
    let text = of_hop("function = \"firewall\"\nsettings = [\"idle_s=1\", \"idle_s=2\"]");
    assert!(
        text.contains("settings[1]: firewall: `idle_s` is given more than once"),
        "{text}"
    );
    let text = of_hop("function = \"firewall\"\nsettings = [\"connections=99999999\"]");
    assert!(text.contains("expected 8 to 16777216"), "{text}");
    let text = of_hop("function = \"ratelimit\"");
    assert!(
        text.contains("hop[0]") && text.contains("ratelimit: `rate` is missing: expected a bit rate"),
        "{text}"
    );
    // The setting that is not decoded may be the missing one, so only one of the two errors is reported.
    let text = of_hop("function = \"ratelimit\"\nsettings = [\"rate\"]");
    assert!(
        text.contains("`rate` is not a setting") && !text.contains("missing"),
        "{text}"
    );
}

#[test]
fn settings_are_checked_without_the_memory_that_they_ask_for() {
    // The test measures the memory of the whole process.
    millrace_testing::own_process!();
    let peak_kib = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
        line.unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    let text = "[[bridge.chain]]\nname = \"c\"\nnumber = 2\n[[bridge.chain.hop]]\nname = \"h\"\n\
                function = \"firewall\"\nsettings = [\"connections=16777216\"]\n";
    let before = peak_kib();
    Config::from_toml("m.toml", &format!("{HEAD}{text}")).unwrap();
    let grown = peak_kib() - before;
    assert!(grown < 128 << 10, "a table was made, of {grown} KiB");
}

#[test]
fn a_revision_that_was_kept_can_be_read_whatever_its_functions_take_now() {
    let config = Config::from_toml("m.toml", &format!("{HEAD}{FULL}")).unwrap();
    let mut kept = config.to_json();
    kept["bridge"][0]["chain"][0]["hop"][0]["function"] = "firewal".into();
    assert!(Config::from_json(&kept).is_err());
    let read: Config = serde_json::from_value(kept).unwrap();
    assert_eq!(read.bridges[0].chains[0].hops[0].function.as_str(), "firewal");
    assert!(read.validate().is_err(), "it is not taken again");
}

#[test]
fn a_revision_that_was_kept_can_be_read_whatever_values_go_together_now() {
    let text = "[[bridge.chain]]\nname = \"c\"\nnumber = 2\n[[bridge.chain.hop]]\nname = \"h\"\n\
                function = \"ratelimit\"\nsettings = [\"rate=1Gbps\"]\n";
    let mut kept = Config::from_toml("m.toml", &format!("{HEAD}{text}"))
        .unwrap()
        .to_json();
    kept["bridge"][0]["chain"][0]["lanes"] = 2.into();
    assert!(Config::from_json(&kept).is_err());
    let read: Config = serde_json::from_value(kept.clone()).unwrap();
    assert_eq!(read.to_json(), kept);
    assert!(read.validate().is_err(), "it is not taken again");
    kept["bridge"][0]["chain"][0]["lanes"] = "two".into();
    assert!(
        serde_json::from_value::<Config>(kept).is_err(),
        "no value of its type"
    );
}

#[test]
fn ports_of_a_chain_that_clash_are_told_at_their_keys_with_the_other_port() {
    let text = "[[bridge.chain]]\nname = \"c\"\nnumber = 2\nfar = 1\n[[bridge.chain.hop]]\nname = \"p1\"\n\
                function = \"macswap\"\nnumber = 2\n[[bridge.chain.hop]]\nname = \"br0\"\n\
                function = \"macswap\"\nnumber = 3\n";
    let errors = Config::from_toml("m.toml", &format!("{HEAD}{text}")).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "m.toml:10:7: bridge[0].chain[0].far: port number 1 is already used by bridge[0].port[0].number\n\
         m.toml:12:8: bridge[0].chain[0].hop[0].name: port name p1 is already used by bridge[0].port[0].name\n\
         m.toml:14:10: bridge[0].chain[0].hop[0].number: port number 2 is already used by \
         bridge[0].chain[0].number\n\
         m.toml:16:8: bridge[0].chain[0].hop[1].name: `br0` is the name of the bridge's LOCAL port: expected another"
    );
}

#[test]
fn an_attached_function_has_a_process_that_the_switch_does_not_limit_and_a_socket_of_its_own() {
    let text = of_hop("function = \"attached:/run/a.sock\"");
    assert!(
        text.contains("hop[0]") && text.contains("expected class isolated or ring"),
        "{text}"
    );
    let text = of_hop(
        "function = \"attached:/run/a.sock\"\nclass = \"isolated\"\nmemory_mib = 64\nweight = 50\n\
         settings = [\"export=file:/x\", \"rate=1\"]",
    );
    for wanted in [
        "`memory_mib` of a function",
        "`weight` of a function",
        "settings[1]: `rate`",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    let hop = |name: &str| {
        format!(
            "[[bridge.chain.hop]]\nname = \"{name}\"\nfunction = \"attached:/run/a.sock\"\nclass = \"isolated\"\n"
        )
    };
    let chain = "[[bridge.chain]]\nname = \"c\"\nnumber = 2\n";
    Config::from_toml("m.toml", &format!("{HEAD}{chain}{}", hop("a"))).unwrap();
    let errors = Config::from_toml("m.toml", &format!("{HEAD}{chain}{}{}", hop("a"), hop("b")));
    let text = errors.unwrap_err().to_string();
    assert!(text.contains("/run/a.sock") && text.contains("hop[1]"), "{text}");
}

#[test]
fn fragments_cannot_evade_a_function_that_reassembles_packets() {
    let text = |more: &str, setting: &str| {
        format!(
            "[[bridge.chain]]\nname = \"edge\"\nnumber = 100\nlanes = 2\n{more}\n[[bridge.chain.hop]]\nname = \"ips\"\n\
             function = \"ips\"\nsettings = [\"rules=/x\"{setting}]\n"
        )
    };
    let read = |text: &str| Config::from_toml("m.toml", &format!("{HEAD}{text}"));
    assert!(read(&text("", "")).is_ok());
    assert!(read(&text("spread = \"flow\"", ", \"tcp_fragments=drop\"")).is_ok());
    assert_messages(
        &text("spread = \"flow\"", ""),
        &[
            "`ips` with several instances and `spread = \"flow\"` of its chain: fragments of a flow would evade inspection; \
             expected `spread = \"addresses\"`, or the setting `tcp_fragments=drop`",
        ],
    );
}
