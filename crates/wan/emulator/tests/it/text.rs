//! Settings as texts: what is read is printed the same, and what is wrong is named with what was expected.

use millrace_wan_emulator::{DirectionConfig, PathConfig};

use crate::config;

#[test]
fn every_example_of_the_documentation_is_read_and_printed_the_same_again() {
    let examples = [
        ("mtu", "1400"),
        ("over-mtu", "too-big"),
        ("framing", "ethernet-gap"),
        ("framing", "custom:26"),
        ("rate", "2.5Mbps"),
        ("rate", "300bps"),
        ("rate", "400Gbps"),
        ("rate", "mahimahi:/tmp/lte.up"),
        ("queue", "250ms"),
        ("queue", "100packets"),
        ("queue", "64KiB"),
        ("queue", "250ms,red,min=25%,max=75%,probability=10%,weight=0.2%"),
        ("background", "30%"),
        ("background", "on-off:80%,on=100ms,off=400ms,pareto=1.5"),
        ("loss", "1%"),
        ("loss", "ge:1%,burst=8"),
        ("loss", "ge:p=1%,r=10%,bad=100%,good=0%"),
        ("loss", "4-state:p13=1%,p31=50%,p32=10%,p23=50%,p14=0%"),
        ("loss", "every:100;ber:1e-14"),
        ("loss", "outage:at=10s,for=2s,every=60s"),
        ("loss", "outage:up=30s,down=2s"),
        ("loss", "trace:losses.txt"),
        ("delay", "100ms"),
        ("delay", "trace:delays.txt"),
        ("jitter", "5ms"),
        ("jitter", "5ms,normal,half-life=50ms"),
        ("jitter", "5ms,gamma,shape=2.5"),
        ("jitter", "5ms,table:/usr/lib/tc/pareto.dist,correlation=25%"),
        ("order", "reordering"),
        ("reorder", "1%,extra=5ms"),
        ("reorder", "25%,ahead,gap=5"),
        ("duplicate", "0.1%,extra=1ms"),
        ("corrupt", "0.1%,bits=3,deliver"),
        ("corrupt", "ber:1e-9,undetectable"),
    ];
    for (key, text) in examples {
        let path = config(&[(key, text)]);
        let printed = path.text(key).unwrap();
        assert_eq!(config(&[(key, &printed)]), path, "{key} {text} {printed}");
        let toml = toml::to_string(&path).unwrap();
        assert_eq!(toml::from_str::<PathConfig>(&toml).unwrap(), path, "{toml}");
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<PathConfig>(&json).unwrap(), path, "{json}");
        let mut unset = path;
        unset.set(key, "none").unwrap();
        assert_eq!(unset, PathConfig::default());
    }
}

#[test]
fn a_file_has_a_text_for_each_stage_and_a_list_of_losses() {
    let text = r#"
        memory = "64MiB"
        bypass = ["arp-nd"]
        [path]
        delay = "100ms"
        loss = ["ge:1%,burst=8", "outage:up=30s,down=2s"]
        [[class]]
        name = "voice"
        match = "udp,tp_dst=5060"
        path = { delay = "20ms", jitter = "2ms,normal,half-life=50ms" }
    "#;
    let config: DirectionConfig = toml::from_str(text).unwrap();
    assert_eq!(config.path.loss.0.len(), 2);
    assert_eq!(config.class[0].filter, "udp,tp_dst=5060");
    assert_eq!(
        toml::from_str::<DirectionConfig>(&toml::to_string(&config).unwrap()).unwrap(),
        config
    );
}

#[test]
fn what_is_wrong_is_named_with_what_was_expected() {
    for (key, text, parts) in [
        ("delay", "-1ms", ["`-1ms` is not a delay", "0s to 10s"]),
        ("delay", "11s", ["the delay is 11s", "the range is 0ns to 10s"]),
        ("rate", "10", ["`10` is not a rate", "300bps to 400Gbps"]),
        ("rate", "500Gbps", ["the rate is 500Gbps", "400Gbps"]),
        (
            "jitter",
            "5ms,gauss",
            ["there is no distribution `gauss`", "`uniform`, `normal`"],
        ),
        (
            "jitter",
            "5ms,normal,half-life=1ms,correlation=2%",
            ["exclude each other", "half-life"],
        ),
        ("loss", "1", ["`1` is not a probability", "`0.5%`"]),
        (
            "loss",
            "ge:95%,burst=2",
            ["bursts of 2 frames cannot lose 95%", "`ge:1%,burst=8`"],
        ),
        (
            "loss",
            "ge:bad=50%,r=10%",
            ["p is not the first", "`ge:p=1%,r=10%"],
        ),
        ("loss", "ge:r=10%,p=1%", ["p is not the first", "`ge:p=1%,r=10%"]),
        (
            "loss",
            "ge:0.0001%,burst=10000000",
            ["is too rare", "`ge:1%,burst=8`"],
        ),
        ("loss", "1%,correlation=100%", ["correlation of 100%", "`1%`"]),
        (
            "duplicate",
            "1%,correlation=100%",
            ["correlation of 100%", "`0.1%`"],
        ),
        (
            "reorder",
            "1%,ahead,correlation=100%",
            ["correlation of 100%", "`25%,ahead`"],
        ),
        (
            "corrupt",
            "1%,correlation=100%",
            ["correlation of 100%", "`0.1%`"],
        ),
        (
            "loss",
            "1%;2%",
            ["this model is there already", "each model once"],
        ),
        (
            "loss",
            "gilbert:1%",
            ["there is no model `gilbert`", "`ge:1%,burst=8`"],
        ),
        ("corrupt", "1%,bits=65", ["bits is 65", "1 to 64"]),
        (
            "corrupt",
            "1%,drop,deliver",
            ["more than one of", "`undetectable`"],
        ),
        (
            "reorder",
            "1%",
            ["neither `extra=` nor `ahead`", "`1%,extra=5ms`"],
        ),
        ("queue", "10", ["`10` is not a duration", "`100packets`"]),
        (
            "queue",
            "10ms,red,min=80%",
            ["min is not below max", "`250ms,red"],
        ),
        ("mtu", "10", ["`10` is not an MTU", "68 to 65535"]),
        ("background", "on-off:50%,on=1us,off=1s", ["on is 1us", "1ms"]),
        ("speed", "1", ["there is no such setting", "mtu, over-mtu"]),
    ] {
        let error = PathConfig::default().set(key, text).unwrap_err();
        let shown = error.to_string();
        assert_eq!(error.key, key);
        assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
    }
}

#[test]
fn settings_that_need_each_other_are_checked_together() {
    for (settings, part) in [
        (&[("jitter", "5ms,normal")][..], "expected a delay above 0"),
        (&[("background", "10%")][..], "set `rate`"),
        (
            &[("rate", "1Mbps"), ("background", "10%"), ("queue", "10packets")][..],
            "milliseconds or bytes",
        ),
    ] {
        let path = config(settings);
        let error =
            millrace_wan_emulator::PathModel::compile(&path, &millrace_wan_emulator::NoSources).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_jitter_that_reaches_below_0_is_warned_of() {
    let warns = |delay: &str, jitter: &str| {
        let path = config(&[("delay", delay), ("jitter", jitter), ("order", "reordering")]);
        path.warnings().iter().any(|text| text.contains("below 0"))
    };
    for (least, jitter) in [
        ("5ms", "5ms"),
        ("5ms", "5ms,exponential"),
        ("10ms", "5ms,gamma"),
        ("4ms", "6ms,pareto"),
    ] {
        assert!(!warns(least, jitter), "{least} {jitter}");
        assert!(warns("3ms", jitter), "{jitter}");
    }
}

#[test]
fn ordered_jitter_without_correlation_is_warned_of() {
    let warnings = |settings: &[(&str, &str)]| config(settings).warnings();
    assert!(warnings(&[("delay", "50ms"), ("jitter", "5ms")])[0].contains("ordered mode"));
    assert!(warnings(&[("delay", "50ms"), ("jitter", "5ms,half-life=10ms")]).is_empty());
    assert!(warnings(&[("delay", "50ms"), ("jitter", "5ms"), ("order", "reordering")]).is_empty());
    assert!(warnings(&[("queue", "10ms")])[0].contains("set `rate`"));
}
