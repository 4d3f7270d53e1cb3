//! The keywords of Suricata 8: each that the documentation names is known, and a refused one has a reason.

use millrace_ips_rules::keywords::keywords;
use millrace_ips_rules::{Rule, Syntax};

/// The keywords of Suricata's documentation, chapter "Rules".
const DOCUMENTED: &str = include_str!("documented.txt");

#[test]
fn each_documented_keyword_is_known_and_a_refused_one_has_a_reason() {
    let known = keywords();
    let missing: Vec<&str> = DOCUMENTED
        .split_whitespace()
        .filter(|name| known.iter().all(|keyword| keyword.name != *name))
        .collect();
    assert_eq!(missing, [""; 0]);
    for keyword in known {
        assert!(
            keyword.refused.is_none_or(|why| why.len() > 10),
            "{}",
            keyword.name
        );
    }
}

#[test]
fn each_refused_keyword_is_in_the_requirements_with_its_reason() {
    const PAGE: &str = include_str!("../../../../../docs/ips-requirements.md");
    let is_there = |name: &str, why: &str| {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| {why} |")));
        row.is_some_and(|row| row.contains(&format!("`{name}`")))
    };
    let missing: Vec<&str> = keywords()
        .iter()
        .filter(|keyword| keyword.refused.is_some_and(|why| !is_there(keyword.name, why)))
        .map(|keyword| keyword.name)
        .collect();
    assert_eq!(missing, [""; 0]);
}

fn parsed(text: &str) -> Rule {
    Rule::parse(Syntax::Suricata, "a", text).unwrap_or_else(|refusal| panic!("{refusal}"))
}

#[test]
fn lenient_forms_that_suricata_reads_are_read_and_printed_again() {
    for options in [
        "pcre:/a;b/;",
        "pcre:\"/(a)(b)/i, flow:one, pkt:two\";",
        "bsize:&0xc0=0x80;",
        "bsize:!19-22;",
        "filesize:>100KB;",
        "dataset:set,seen,type string,state seen.lst,memcap 10mb;",
        "datarep:rep,>,200,load rep.lst,type md5;",
        "http.host; dataset:isset,bad,type string,load bad.json,format json,value_key host,enrichment_key bad_ones,array_key a.b,remove_key;",
        "ip.dst; dataset:isnotset,bad,type ip,load bad.lst,format ndjson,value_key ip,context_key bad_ones;",
        "ip.dst; dataset:isset,bad,type ip,load bad.lst,format jsonline,value_key ip;",
        "dns.query; dotprefix; dataset:isset,bad,type string,match subdomain,load bad.lst;",
        "dcerpc.opnum:>10;",
        "dcerpc.opnum:!10,12-15;",
        "icmp_id:\"300\";",
        "ssh.protoversion:\"1.99\";",
        "http2.window:count>5;",
        "http2.window:count <5;",
        "http.uri; from_base64:mode rfc2045,offset 2,bytes 8; xor:\"0d0a\"; subslice:-4,2; content:\"a\";",
        "http.uri; pcrexform:\"(a\\;b)\"; content:\"a\";",
        "mqtt.flags:dup,!retain;",
        "mqtt.reason_code:<200,all;",
        "flow.pkts:either,>2;",
        "tls_cert_notbefore:1998-05-01<>2008-05-01;",
        "dns.query; absent:or_else;",
        "requires:version >= 7.0.4 < 8 | >= 8.0.0;",
        "threshold:type backoff, track by_flow, count 1, multiplier 10;",
        "websocket.flags:+fin;",
        "websocket.flags:*fin,comp;",
        "websocket.flags:=fin;",
        "websocket.flags:-fin;",
        "tos:!x88;",
        "frame:tls:pdu; content:\"a\";",
        "config:logging disable, type tx, scope tx;",
        "config: tracking disable,type flow,scope packet;",
    ] {
        // A semicolon in an expression has an escape.
        let options = options.replace("/a;b/", "/a\\;b/");
        let rule = parsed(&format!("alert TCP any any -> any any ({options} sid:1;)"));
        let printed = rule.to_string();
        assert_eq!(parsed(&printed), rule, "{printed}");
    }
    assert_eq!(
        parsed("alert HTTP any any => any any (sid:1;)").to_string(),
        "alert http any any => any any (sid:1;)"
    );
    for header in [
        "config dns any any -> any any",
        "alert http1:request_line any any -> any any",
        "alert tcp:flow_start any any <> any 80",
    ] {
        let printed = parsed(&format!("{header} (sid:1;)")).to_string();
        assert_eq!(
            printed.replace("alert http:", "alert http1:"),
            format!("{header} (sid:1;)")
        );
    }
}

#[test]
fn sets_with_json_values_and_subdomains_have_their_form_and_do_not_change() {
    for wrong in [
        "dataset:isset,a,type string,load a.json,format json;",
        "dataset:set,a,type string,load a.json,format json,value_key v;",
        "dataset:isset,a,type string,load a.json,value_key v;",
        "dataset:isset,a,type string,load a.json,remove_key;",
        "dataset:isset,a,type string,load a.json,format xml,value_key v;",
        "dataset:set,a,type string,match subdomain;",
        "dataset:isset,a,type md5,match subdomain;",
        "dataset:isset,a,type string,match domain;",
    ] {
        let text = format!("alert http any any -> any any (http.host; {wrong} sid:1;)");
        let refusal = Rule::parse(Syntax::Suricata, "a", &text).unwrap_err();
        assert_eq!(refusal.option, "dataset", "{wrong}");
    }
}

#[test]
fn a_semicolon_or_a_comment_may_follow_a_rule() {
    let rule = "alert tcp any any -> any any (content:\"(x)\"; sid:1;)";
    let expected = parsed(rule);
    for trailer in [";", " ;", " # a comment", "# (see sid 2;)x"] {
        assert_eq!(parsed(&format!("{rule}{trailer}")), expected, "{trailer}");
    }
    assert!(Rule::parse(Syntax::Suricata, "a", &format!("{rule} x")).is_err());
}

#[test]
fn a_rule_for_another_version_is_skipped_and_no_error() {
    let text = "alert tcp any any -> any any (unheard:1; requires:version >= 9; sid:1;)\n\
        alert tcp any any -> any any (requires:version >= 8, keyword content; sid:2;)\n";
    let file = millrace_ips_rules::files::parse(Syntax::Suricata, "a", text.as_bytes());
    assert_eq!((file.rules.len(), file.skipped, file.refusals.len()), (1, 1, 0));
}

#[test]
fn a_rule_for_another_version_may_have_a_header_that_is_not_known() {
    let text = "alert tomorrow any any -> any any (requires:version >= 9; sid:1;)\n\
        shout tcp any any -> any any (requires:keyword unheard; sid:2;)\n\
        alert tomorrow any any -> any any (requires:version >= 8; sid:3;)\n\
        alert tomorrow any any -> any any (sid:4;)\n";
    let file = millrace_ips_rules::files::parse(Syntax::Suricata, "a", text.as_bytes());
    let refused: Vec<_> = file
        .refusals
        .iter()
        .map(|refusal| (refusal.sid, &refusal.option[..]))
        .collect();
    assert_eq!((file.rules.len(), file.skipped), (0, 2));
    assert_eq!(refused, [(Some(3), "protocol"), (Some(4), "protocol")]);
}

#[test]
fn a_comment_may_follow_a_row_of_the_threshold_table() {
    let text = "suppress gen_id 1, sig_id 2, track by_src, ip 10.0.0.1 # the scanner\n\
        threshold gen_id 1, sig_id 3, type limit, track by_src, count 1, seconds 60 # once a minute\n";
    let file = millrace_ips_rules::files::parse(Syntax::Suricata, "threshold.config", text.as_bytes());
    assert_eq!((file.thresholds.len(), &file.refusals[..]), (2, &[][..]));
}
