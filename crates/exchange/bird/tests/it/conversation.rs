//! Rounds of queries, with the replies of BIRD 2.0.12 in `tests/transcripts`.

use millrace_bird::{Cause, Client, Error, Report, Route, SessionState, Settings};
use millrace_types::{Duration, Time};

pub(crate) const GREETING: &str = "0001 BIRD 2.0.12 ready.\n";
pub(crate) const RESTRICTED: &str = "0016 Access restricted\n";
pub(crate) const PROTOCOLS: &str = include_str!("../transcripts/protocols.txt");
pub(crate) const TAGGED: &str = include_str!("../transcripts/tagged.txt");
pub(crate) const FILTERED: &str = include_str!("../transcripts/filtered.txt");
const ROUTES: &str = include_str!("../transcripts/routes.txt");
pub(crate) const NOTHING: &str = "0000 \n";

pub(crate) fn settings() -> Settings {
    Settings {
        asn: 64_999,
        reject_cause: "65520:*".parse().unwrap(),
        interval: Duration::from_secs(30),
    }
}

/// Returns a client that is connected and waits for the greeting.
pub(crate) fn connected() -> Client {
    let mut client = Client::new(settings());
    client.connected(Time::ZERO);
    client
}

/// Passes answers to a client in parts of `size` bytes, and returns the report.
pub(crate) fn converse(client: &mut Client, answers: &[&str], size: usize) -> Result<Option<Report>, Error> {
    let mut report = None;
    for part in answers.concat().as_bytes().chunks(size) {
        report = client.receive(part, Time::ZERO)?.or(report);
    }
    Ok(report)
}

fn report(answers: &[&str]) -> Report {
    converse(&mut connected(), answers, 4096).unwrap().unwrap()
}

/// Returns the rejected routes of a session as text: prefix, next hop, path, causes.
fn rejected(report: &Report, name: &str) -> Vec<String> {
    let session = report
        .sessions
        .iter()
        .find(|session| session.name == name)
        .unwrap();
    let text = |route: &Route| {
        let causes: Vec<String> = route.causes.iter().map(Cause::to_string).collect();
        let next_hop = route.next_hop.map(|address| address.to_string());
        format!(
            "{} {} [{}] {}",
            route.prefix,
            next_hop.unwrap_or_default(),
            route.as_path,
            causes.join(" ")
        )
    };
    session.rejected.iter().map(text).collect()
}

#[test]
fn answers_of_bird_3_are_read_as_those_of_bird_2() {
    let report = report(&[
        "0001 BIRD 3.1.8 ready.\n",
        RESTRICTED,
        include_str!("../transcripts/bird3_protocols.txt"),
        include_str!("../transcripts/bird3_tagged.txt"),
        include_str!("../transcripts/bird3_filtered.txt"),
    ]);
    assert_eq!(report.version, "BIRD 3.1.8");
    assert_eq!((report.is_truncated, report.skipped_lines), (false, 0));
    let [up, down] = report.sessions.as_slice() else {
        panic!("{:?}", report.sessions)
    };
    assert_eq!(
        (
            up.state,
            up.neighbor.to_string(),
            up.asn,
            up.imported,
            up.filtered
        ),
        (
            SessionState::Established,
            "127.0.0.32".to_owned(),
            Some(64_500),
            Some(2),
            Some(2)
        )
    );
    assert_eq!(
        rejected(&report, "as64500_1"),
        [
            "5.5.6.0/25 127.0.0.32 [64500] ",
            "198.51.100.0/24 127.0.0.32 [64500] 64999:1101:13",
            "203.0.113.0/24 127.0.0.32 [64500] 65520:2",
        ]
    );
    assert_eq!((down.state, down.imported), (SessionState::Active, None));
    assert_eq!(down.last_error.as_deref(), Some("Socket: Connection refused"));
}

#[test]
fn a_round_reads_the_sessions_and_the_rejected_routes_of_both_forms() {
    let report = report(&[GREETING, RESTRICTED, PROTOCOLS, TAGGED, FILTERED]);
    assert_eq!(report.version, "BIRD 2.0.12");
    assert_eq!((report.is_truncated, report.skipped_lines), (false, 0));
    let rows = report.sessions.iter().map(|session| {
        let counts = (session.imported, session.filtered);
        (
            session.name.as_str(),
            session.neighbor.to_string(),
            session.asn,
            session.state,
            counts,
        )
    });
    let expected = [
        (
            "AS64500_1",
            "127.0.0.10",
            64_500,
            SessionState::Established,
            (Some(1), Some(3)),
        ),
        (
            "AS64501_1",
            "127.0.0.11",
            64_501,
            SessionState::Established,
            (Some(3), None),
        ),
        (
            "AS64502_1",
            "127.0.0.12",
            64_502,
            SessionState::Idle,
            (None, None),
        ),
        (
            "AS64503_1",
            "127.0.0.13",
            64_503,
            SessionState::Passive,
            (None, None),
        ),
        (
            "AS64504_1",
            "2001:db8::13",
            64_504,
            SessionState::Down,
            (None, None),
        ),
    ];
    let expected = expected
        .map(|(name, address, asn, state, counts)| (name, address.to_owned(), Some(asn), state, counts));
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    let errors: Vec<Option<&str>> = report
        .sessions
        .iter()
        .map(|session| session.last_error.as_deref())
        .collect();
    assert_eq!(errors, [None, None, Some("BGP Error: Bad peer AS"), None, None]);
    assert_eq!(
        rejected(&report, "AS64500_1"),
        [
            "203.0.113.0/24 127.0.0.10 [64500 4200000001 64500] 65520:2 64999:1101:3",
            "2001:db8:dead::/48 2001:db8::10 [64500] 64999:1101:13",
            "2001:db8:dead:1::/64 2001:db8::10 [64500] 64999:1101:13",
        ]
    );
    // A pipe copies both routes to a second table, so BIRD lists them twice.
    assert_eq!(
        rejected(&report, "AS64501_1"),
        [
            "203.0.113.0/24 127.0.0.11 [64501] 65520:2",
            "203.0.113.0/25 127.0.0.11 [64501] 65520:2",
        ]
    );
}

#[test]
fn routes_without_cause_are_rejected_only_if_bird_filtered_them() {
    let report = report(&[GREETING, RESTRICTED, PROTOCOLS, ROUTES, ROUTES]);
    let path = "[64500 4200000001 64500] ";
    assert_eq!(
        rejected(&report, "AS64500_1"),
        [format!("5.5.5.0/24 127.0.0.10 {path}")]
    );
    assert_eq!(rejected(&report, "AS64501_1").len(), 3);
    let tagged = self::report(&[GREETING, RESTRICTED, PROTOCOLS, ROUTES, NOTHING]);
    assert!(rejected(&tagged, "AS64500_1").is_empty());
    assert_eq!(rejected(&tagged, "AS64501_1").len(), 2);
}

#[test]
fn the_connection_is_restricted_before_anything_is_asked() {
    let mut client = connected();
    assert!(client.take_output().is_empty(), "BIRD speaks first");
    let mut sent = Vec::new();
    for answer in [GREETING, RESTRICTED, PROTOCOLS, TAGGED, FILTERED] {
        client.receive(answer.as_bytes(), Time::ZERO).unwrap();
        sent.push(String::from_utf8(client.take_output()).unwrap());
    }
    let condition = "(bgp_community ~ [(65520, *)]) || (bgp_large_community ~ [(64999, 1101, *)])";
    let expected = [
        "restrict\n".to_owned(),
        "show protocols all\n".to_owned(),
        format!("show route table all all where {condition}\n"),
        "show route table all all filtered\n".to_owned(),
        String::new(),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn the_parts_in_which_bytes_arrive_change_nothing() {
    let answers = [GREETING, RESTRICTED, PROTOCOLS, TAGGED, FILTERED];
    let whole = report(&answers);
    for size in [1, 2, 3, 7, 100] {
        assert_eq!(
            converse(&mut connected(), &answers, size).unwrap(),
            Some(whole.clone())
        );
    }
}

#[test]
fn the_next_round_begins_after_the_interval_on_the_same_connection() {
    let mut client = connected();
    converse(
        &mut client,
        &[GREETING, RESTRICTED, PROTOCOLS, TAGGED, FILTERED],
        4096,
    )
    .unwrap();
    client.take_output();
    assert_eq!(client.deadline(), Some(Time::from_secs(30)));
    client.poll(Time::from_millis(29_999)).unwrap();
    assert!(client.take_output().is_empty());
    client.poll(Time::from_secs(30)).unwrap();
    assert_eq!(client.take_output(), b"show protocols all\n");
    let second = converse(&mut client, &[PROTOCOLS, NOTHING, NOTHING], 4096)
        .unwrap()
        .unwrap();
    assert!(second.sessions.iter().all(|session| session.rejected.is_empty()));
}

#[test]
fn an_answer_that_does_not_come_is_an_error_that_names_the_command() {
    let mut client = connected();
    assert_eq!(client.poll(Time::from_secs(60)), Err(Error::NoGreeting));
    converse(&mut client, &[GREETING, RESTRICTED], 4096).unwrap();
    client.poll(Time::from_secs(59)).unwrap();
    let error = client.poll(Time::from_secs(60)).unwrap_err().to_string();
    assert_eq!(error, "BIRD did not answer `show protocols all` within 60 s");
}

#[test]
fn errors_say_what_was_answered_and_what_was_expected() {
    let refused = |answers: &[&str]| converse(&mut connected(), answers, 4096).unwrap_err().to_string();
    let texts = [
        refused(&["220 mail.example ESMTP\n"]),
        refused(&["0220 mail.example ESMTP\n"]),
        refused(&["9000 Command too long\n"]),
        refused(&[GREETING, "9001 syntax error, unexpected CF_SYM_UNDEFINED\n"]),
        refused(&[GREETING, RESTRICTED, "8007 Access denied\n"]),
        refused(&[
            GREETING,
            RESTRICTED,
            PROTOCOLS,
            "8004 Stopped due to reconfiguration\n",
        ]),
    ];
    for text in &texts {
        assert!(text.contains("expected"), "{text}");
    }
    assert!(
        texts[4].contains("show protocols all") && texts[4].contains("Access denied"),
        "{}",
        texts[4]
    );
    assert!(texts[0].contains("220 mail.example ESMTP"), "{}", texts[0]);
}
