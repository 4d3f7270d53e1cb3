//! Classification, reference and threshold tables, variables, and the import of a suricata.yaml.

use millrace_ips_rules::address::{AddressSpec, PortSpec};
use millrace_ips_rules::files::{self, ThresholdEffect};
use millrace_ips_rules::options::state::RateKind;
use millrace_ips_rules::suricata_yaml::SuricataYaml;
use millrace_ips_rules::{Syntax, Variables};

#[test]
fn the_tables_are_read_and_wrong_rows_are_refused() {
    let text = "config classification: trojan-activity,A network trojan, with a comma,1\nconfig reference: url http://\n\
        suppress gen_id 1, sig_id 7, track by_src, ip [10.0.0.0/8,10.1.1.1]\nsuppress gen_id 1, sig_id 8\n\
        event_filter gen_id 1, sig_id 9, type limit, track by_dst, count 1, seconds 60\n\
        rate_filter gen_id 1, sig_id 9, track by_rule, count 5, seconds 1, new_action drop, timeout 10\n\
        threshold gen_id 1, sig_id 9\nvar HOME 10.0.0.0/8\ninclude other.rules\n";
    let file = files::parse(Syntax::Snort2, "threshold.config", text.as_bytes());
    let class = &file.classes["trojan-activity"];
    assert_eq!(
        (class.description.as_str(), class.priority),
        ("A network trojan, with a comma", 1)
    );
    assert_eq!(file.references["url"], "http://");
    assert_eq!(file.thresholds.len(), 4);
    assert_eq!(file.thresholds[1].effect, ThresholdEffect::Suppress(None));
    assert!(
        matches!(&file.thresholds[2].effect, ThresholdEffect::Limit(rate) if rate.kind == Some(RateKind::Limit))
    );
    assert_eq!(file.variables, [("HOME".to_owned(), "10.0.0.0/8".to_owned())]);
    assert_eq!(file.includes, ["other.rules"]);
    assert_eq!(file.refusals.len(), 1);
    assert!(
        file.refusals[0]
            .to_string()
            .starts_with("threshold.config:7:1: threshold: type is missing")
    );
}

#[test]
fn sets_are_resolved_with_nested_variables_and_negation() {
    let mut variables = Variables::default();
    variables.set("HOME_NET", "[10.0.0.0/8,!10.1.0.0/16]").unwrap();
    variables.set("EXTERNAL_NET", "!$HOME_NET").unwrap();
    let resolve = |text: &str| {
        variables
            .resolve_addresses(&AddressSpec::parse(text).unwrap())
            .unwrap()
    };
    let address = |text: &str| u128::from(text.parse::<std::net::Ipv4Addr>().unwrap().to_bits());
    assert_eq!(
        resolve("$HOME_NET").first(),
        [
            (address("10.0.0.0"), address("10.0.255.255")),
            (address("10.2.0.0"), address("10.255.255.255"))
        ]
    );
    let outside = resolve("$EXTERNAL_NET");
    assert_eq!(outside.first().len(), 3);
    assert_eq!(outside.second(), [(0, u128::MAX)]);
    let ports = variables
        .resolve_ports(&PortSpec::parse("[1:10,!5,20:,!65535]").unwrap())
        .unwrap();
    assert_eq!(ports.first(), [(1, 4), (6, 10), (20, 65534)]);
}

#[test]
fn a_suricata_yaml_gives_variables_and_files() {
    let text = "%YAML 1.1\n---\nvars:\n  # comment\n  address-groups:\n    HOME_NET: \"[192.168.0.0/16,10.0.0.0/8]\"\n    EXTERNAL_NET: any # all\n\
          \n  port-groups:\n    HTTP_PORTS: \"80\"\n    BROKEN:\ndefault-log-dir: /var/log\noutputs:\n  - fast:\n      enabled: no\n\
          default-rule-path: /var/lib/suricata/rules\nrule-files:\n  - suricata.rules\n- \"local.rules\"\nclassification-file: /etc/c.config\n";
    let yaml = SuricataYaml::parse(text);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        yaml.variables,
        [
            pair("HOME_NET", "[192.168.0.0/16,10.0.0.0/8]"),
            pair("EXTERNAL_NET", "any"),
            pair("HTTP_PORTS", "80")
        ]
    );
    assert_eq!(yaml.rule_files, ["suricata.rules", "local.rules"]);
    assert_eq!(yaml.rule_path.as_deref(), Some("/var/lib/suricata/rules"));
    assert_eq!(yaml.classification_file.as_deref(), Some("/etc/c.config"));
    assert_eq!(yaml.ignored, ["11: BROKEN: "]);
}

#[test]
fn the_suricata_yaml_of_a_site_is_read() {
    let yaml = SuricataYaml::parse(include_str!("../data/suricata.yaml"));
    let value = |name: &str| {
        let found = yaml.variables.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(yaml.variables.len(), 14);
    assert_eq!(value("SMTP_SERVERS"), Some("[192.168.1.25, 192.168.1.26]"));
    assert_eq!(value("DC_SERVERS"), Some("$HOME_NET"));
    assert_eq!(value("ORACLE_PORTS"), Some("1521"));
    assert_eq!(
        yaml.rule_files,
        ["suricata.rules", "/etc/suricata/rules/local.rules"]
    );
    assert_eq!(
        yaml.threshold_file.as_deref(),
        Some("/etc/suricata/threshold.config")
    );
    assert_eq!(yaml.ignored, ["79: include: site.yaml"]);
    let mut variables = Variables::usual();
    for (name, value) in &yaml.variables {
        variables.set(name, value).unwrap();
    }
    let home = variables
        .resolve_addresses(&AddressSpec::parse("$DC_SERVERS").unwrap())
        .unwrap();
    assert_eq!(home.first().len(), 3);
}
