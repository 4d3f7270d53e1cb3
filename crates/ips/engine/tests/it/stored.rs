//! Files that rules store, sets whose changes are reported, and the reputation of addresses.

use millrace_ips_engine::detect::dataset::FoundJson;
use millrace_ips_engine::detect::{CompileSettings, Ruleset};
use millrace_ips_engine::event::FILE_PART;
use millrace_ips_engine::{Engine, Event, Events, Frame, Mode, Settings};
use millrace_types::Time;

use crate::frames::{RAW, alerts, rules, tcp, udp};

/// Returns the events of frames, without records.
fn events(text: &str, frames: &[Vec<u8>], mode: Mode, store_limit: usize) -> Vec<Event> {
    let rules = rules(text, &CompileSettings::default());
    events_of(&rules, frames, mode, store_limit)
}

/// Returns the events of frames with a rule set, without records.
fn events_of(rules: &Ruleset, frames: &[Vec<u8>], mode: Mode, store_limit: usize) -> Vec<Event> {
    let mut settings = Settings {
        mode,
        ..Settings::default()
    };
    settings.app.store_limit = store_limit;
    let mut engine = Engine::new(settings, [1, 2]);
    let mut events = Events::default();
    for (at, bytes) in frames.iter().enumerate() {
        let frame = Frame {
            bytes: &mut bytes.clone(),
            link: RAW,
            time: Time::from_millis(at as u64),
            number: at as u64 + 1,
        };
        engine.frame(rules, frame, &mut events);
    }
    engine.finish(rules, &mut events);
    events.list
}

/// Returns the contents of the stored files, whose parts must follow each other.
fn files(events: &[Event]) -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for event in events {
        let Event::File(part) = event else { continue };
        if part.offset == 0 {
            files.push(Vec::new());
        }
        let file = files.last_mut().unwrap();
        assert_eq!(
            (part.offset, part.bytes.len() <= FILE_PART),
            (file.len() as u64, true)
        );
        file.extend_from_slice(&part.bytes);
        assert!(file.len() as u64 <= part.size);
    }
    files
}

/// Returns an upload and the download that answers it.
fn conversation(upload: &[u8], download: &[u8], size: usize) -> Vec<Vec<u8>> {
    let head = |first: &str, size: usize| {
        format!("{first}\r\nHost: a\r\nContent-Length: {size}\r\n\r\n").into_bytes()
    };
    let request = [head("POST /up HTTP/1.1", upload.len()), upload.to_vec()].concat();
    let response = [head("HTTP/1.1 200 OK", download.len()), download.to_vec()].concat();
    tcp(80, &[(false, request), (true, response)], size)
}

#[test]
fn a_rule_stores_the_files_of_its_transaction_whole_and_once() {
    let (upload, download) = (b"an upload".to_vec(), vec![b'd'; 3000]);
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 7] {
            let frames = conversation(&upload, &download, size);
            for (options, expected) in [
                ("http.uri; content:\"/up\"; filestore;", vec![upload.clone()]),
                (
                    "http.uri; content:\"/up\"; filestore:both,tx;",
                    vec![upload.clone(), download.clone()],
                ),
                (
                    "http.uri; content:\"/up\"; filestore:response;",
                    vec![download.clone()],
                ),
                ("http.uri; content:\"/other\"; filestore:both;", vec![]),
                (
                    "http.stat_code; content:\"200\"; filestore;",
                    vec![download.clone()],
                ),
                ("filestore:both,flow;", vec![upload.clone(), download.clone()]),
            ] {
                let text = format!("alert http any any -> any any ({options} sid:1;)\n");
                let mut found = files(&events(&text, &frames, mode, 1 << 20));
                found.sort();
                assert_eq!(found, expected, "{options} {mode:?} {size}");
            }
        }
    }
}

#[test]
fn a_file_beyond_the_limit_or_with_an_end_that_was_not_seen_is_not_stored() {
    let text = "alert http any any -> any any (filestore:both; sid:1;)\n";
    let frames = conversation(b"small", &[b'd'; 3000], 1000);
    assert_eq!(files(&events(text, &frames, Mode::Ids, 2999)), [b"small"]);
    assert!(files(&events(text, &frames, Mode::Ids, 0)).is_empty());
    // The connection ends within the download.
    assert_eq!(
        files(&events(text, &frames[..frames.len() - 6], Mode::Ids, 1 << 20)),
        [b"small"]
    );
}

#[test]
fn changes_of_sets_are_reported_if_their_values_are_written_to_a_file() {
    let frames = conversation(b"x", b"y", 1000);
    let changes = |text: &str| -> Vec<(String, Vec<u8>, bool)> {
        let events = events(text, &frames, Mode::Ids, 0);
        let changes = events.into_iter().filter_map(|event| match event {
            Event::Set(change) => Some((change.set.to_string(), change.value, change.is_added)),
            _ => None,
        });
        changes.collect()
    };
    // The rule that names the file comes after the rule that changes the set.
    let text = "alert http any any -> any any (http.uri; dataset:set,seen,type string; sid:1;)\n\
        alert http any any -> any any (http.host; dataset:isset,seen,type string,save seen.lst; sid:2;)\n\
        alert http any any -> any any (http.method; dataset:set,other,type string; sid:3;)\n";
    assert_eq!(changes(text), [("seen".to_owned(), b"/up".to_vec(), true)]);
}

#[test]
fn an_alert_has_the_json_value_of_the_set_that_its_rule_found() {
    let lines = b"{\"host\":\"a\",\"origin\":\"x\"}\n{\"host\":\"b\",\"origin\":\"y\"}\n";
    let settings = CompileSettings {
        data: [(("test".to_owned(), "hosts".to_owned()), lines.to_vec())].into(),
        ..CompileSettings::default()
    };
    let text = "alert http any any -> any any (http.host; \
        dataset:isset,hosts,type string,load hosts,format ndjson,value_key host,context_key threat,remove_key; sid:1;)\n\
        alert http any any -> any any (http.uri; content:\"/up\"; sid:2;)\n\
        alert http any any -> any any (http.host; dataset:isnotset,hosts; sid:3;)\n";
    let rules = rules(text, &settings);
    for (mode, size) in [
        (Mode::Ids, 1000),
        (Mode::Ips, 1000),
        (Mode::Ids, 1),
        (Mode::Ips, 1),
    ] {
        let events = events_of(&rules, &conversation(b"x", b"y", size), mode, 0);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let of = |found: &FoundJson| format!("{}={}", text(&found.key), text(&found.json));
        let alert = |event: &Event| match event {
            Event::Alert(alert) => Some((alert.sid, alert.json.iter().map(of).collect::<Vec<_>>())),
            _ => None,
        };
        let found: Vec<(u32, Vec<String>)> = events.iter().filter_map(alert).collect();
        let json = r#"threat={"origin":"x"}"#.to_owned();
        assert!(found.contains(&(1, vec![json])), "{found:?}");
        assert!(found.contains(&(2, Vec::new())), "{found:?}");
        assert!(found.iter().all(|(sid, _)| *sid != 3), "{found:?}");
    }
}

#[test]
fn the_reputation_of_an_address_is_tested_on_each_side() {
    const TABLE: &str = "1,BadHosts,Hosts that attack\n2,Good,Known\n10.0.0.1,1,90\n10.0.0.0/30,2,5\n";
    for (options, holds) in [
        ("iprep:src,BadHosts,>,50;", true),
        ("iprep:src,badhosts,=,90;", true),
        ("iprep:dst,BadHosts,>,50;", false),
        ("iprep:any,BadHosts,>=,90;", true),
        ("iprep:both,BadHosts,>,1;", false),
        ("iprep:both,Good,<,6;", true),
        ("iprep:src,BadHosts,<,90;", false),
        ("iprep:dst,BadHosts,isnotset;", true),
        ("iprep:src,BadHosts,isset;", true),
        // An address without a score has none to compare.
        ("iprep:dst,BadHosts,<,50;", false),
    ] {
        let text = format!("{TABLE}alert udp any any -> any any ({options} sid:1;)\n");
        let rules = rules(&text, &CompileSettings::default());
        for mode in [Mode::Ids, Mode::Ips] {
            let found = alerts(&rules, &[udp(9, false, b"x")], mode);
            assert_eq!(found == [1], holds, "{options} {mode:?}");
        }
    }
}
