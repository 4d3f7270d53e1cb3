//! One detection in three syntaxes, and the differences between them.

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::explain::explain;
use millrace_ips_rules::options::RuleOption;
use millrace_ips_rules::options::content::{FastPattern, Operand};
use millrace_ips_rules::{Rule, Syntax, files};

#[test]
fn modifiers_after_a_content_and_after_commas_give_the_same_content() {
    let old =
        "alert tcp any any -> any 80 (content:\"a|3a|b\"; nocase; depth:5; offset:1; fast_pattern; sid:1;)";
    let new = "alert tcp any any -> any 80 (content:\"a|3a|b\",nocase,depth 5,offset 1,fast_pattern; sid:1;)";
    let suricata = Rule::parse(Syntax::Suricata, "a", old).unwrap();
    let snort2 = Rule::parse(Syntax::Snort2, "a", old).unwrap();
    let snort3 = Rule::parse(Syntax::Snort3, "a", new).unwrap();
    assert_eq!(suricata.options, snort2.options);
    assert_eq!(suricata.options, snort3.options);
    let RuleOption::Content(content) = &suricata.options[0] else {
        panic!("{:?}", suricata.options);
    };
    assert_eq!(content.pattern, b"a:b");
    assert_eq!(content.depth, Some(Operand::Number(5)));
    assert_eq!(content.fast_pattern, Some(FastPattern::Whole));
}

#[test]
fn a_buffer_is_named_before_or_after_its_content() {
    let sticky = Rule::parse(
        Syntax::Suricata,
        "a",
        "alert http any any -> any any (http.uri; content:\"x\"; sid:1;)",
    )
    .unwrap();
    assert_eq!(sticky.options[0], RuleOption::Buffer(Buffer::HttpUri, None));
    for text in [
        "alert tcp any any -> any any (content:\"x\"; http_uri; sid:1;)",
        "alert tcp any any -> any any (uricontent:\"x\"; sid:1;)",
    ] {
        let rule = Rule::parse(Syntax::Snort2, "a", text).unwrap();
        assert!(
            matches!(&rule.options[0], RuleOption::Content(content) if content.buffer == Some(Buffer::HttpUri))
        );
    }
}

#[test]
fn snort_3_reads_over_lines_comments_and_semicolons_in_quotes() {
    let text = "# head\nalert http ( # first\n  msg:\"a; (b)\"; /* two\n lines */ http_header:field host;\n  content:\"x\",nocase;\n  sid:9;\n)\n\
        alert tcp any any -> any any (sid:10;)\n";
    let file = files::parse(Syntax::Snort3, "a", text.as_bytes());
    assert_eq!(file.refusals, []);
    assert_eq!(file.rules.len(), 2);
    assert_eq!(file.rules[0].rule.msg(), Some("a; (b)"));
    assert_eq!(file.rules[0].rule.header.endpoints, None);
    assert_eq!(file.rules[0].positions[0].line, 3);
    assert_eq!(
        file.rules[0].rule.options[1],
        RuleOption::Buffer(Buffer::HttpHeader, Some("field host".to_owned()))
    );
    assert_eq!(file.rules[1].line, 8);
}

#[test]
fn the_actions_of_snort_3_that_need_responses_are_refused_by_name() {
    let refusal = Rule::parse(Syntax::Snort3, "a", "react http (sid:1;)").unwrap_err();
    assert!(
        refusal
            .to_string()
            .contains("action: not supported: the actions block, rewrite and react"),
        "{refusal}"
    );
}

#[test]
fn keywords_of_another_syntax_are_refused() {
    let refusal = Rule::parse(Syntax::Snort3, "a", "alert http (uricontent:\"x\"; sid:1;)").unwrap_err();
    assert!(
        refusal
            .to_string()
            .contains("uricontent: the keyword belongs to another syntax"),
        "{refusal}"
    );
}

#[test]
fn an_unclosed_rule_of_snort_3_does_not_hide_the_next() {
    let text = "alert http (msg:\"a; sid:1;)\nalert http (sid:2;)\n";
    let file = files::parse(Syntax::Snort3, "a", text.as_bytes());
    assert_eq!((file.rules.len(), file.refusals.len()), (1, 1));
    assert_eq!(file.rules[0].rule.sid(), Some(2));
}

#[test]
fn comments_are_skipped_and_disabled_rules_counted() {
    let text = "# a comment (with parentheses)\n#alert tcp any any -> any any (sid:1;)\n# alert tcp any any -> any any (lua:x; sid:2;)\n\
        alert tcp any any -> any any (sid:3;)\r\n";
    let file = files::parse(Syntax::Suricata, "a", text.as_bytes());
    assert_eq!(
        (file.rules.len(), file.disabled.len(), file.disabled_refused),
        (1, 1, 1)
    );
    assert_eq!(file.refusals, []);
}

#[test]
fn a_rule_is_explained_option_by_option() {
    let text = "alert http $HOME_NET any -> any any (msg:\"m\"; flow:established,to_server; http.host; content:\"a.example\"; endswith; nocase; \
        pcre:\"/x/R\"; flowbits:isset,seen; sid:1;)";
    let lines = explain(&Rule::parse(Syntax::Suricata, "a", text).unwrap());
    assert_eq!(
        lines,
        [
            "alert: for http, from $HOME_NET port any to any port any",
            "message: m",
            "the connection is established; the packet goes to the server",
            "the normalised HTTP host contains \"a.example\", in upper or lower case, at its end",
            "the normalised HTTP host matches /x/R, after the match before",
            "seen was set for the flow by another rule",
            "sid (number of the rule): 1",
        ]
    );
}

#[test]
fn procedures_of_nfs_have_names_in_each_version_and_ranges_with_both_ends() {
    let parse = |value: &str| {
        let text = format!("alert nfs any any -> any any ({value}; sid:1;)");
        Rule::parse(Syntax::Suricata, "a", &text)
    };
    for (value, printed) in [
        ("nfs_procedure:getattr", "nfs_procedure:getattr;"),
        ("nfs_procedure:!OPEN", "nfs_procedure:!open;"),
        ("nfs_procedure:statfs", "nfs_procedure:statfs;"),
        ("nfs_procedure:read_plus", "nfs_procedure:read_plus;"),
        ("nfs_procedure:9", "nfs_procedure:9;"),
        ("nfs_procedure:1<>2", "nfs_procedure:1-2;"),
        ("nfs_procedure:3-4", "nfs_procedure:3-4;"),
        ("nfs.version:3-4", "nfs.version:3-4;"),
        ("nfs.version:>=4", "nfs.version:>=4;"),
    ] {
        let rule = parse(value).unwrap();
        let text = rule.to_string();
        assert!(text.contains(printed), "{text}");
        let again = Rule::parse(Syntax::Suricata, "a", &text).unwrap();
        assert_eq!(again.options, rule.options);
    }
    for wrong in [
        "nfs_procedure:getattributes",
        "nfs_procedure:<getattr",
        "nfs_procedure:getattr-lookup",
        "nfs_procedure:4-3",
        "nfs.version:4-4",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
