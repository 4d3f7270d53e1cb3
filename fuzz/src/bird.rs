//! The control protocol of BIRD.

use millrace_bird::{Client, Settings, limits};
use millrace_types::{Duration, Time};

/// Feeds a client of a control socket with text: a byte 0 ends a part, before the next one a second goes by, and after an error or a
/// refused report the client connects again.
///
/// Properties: the numbers of sessions, routes and causes, and the sizes of texts, stay within their limits.
pub(crate) fn control(bytes: &[u8]) {
    let mut now = Time::ZERO;
    let mut client = Client::new(Settings {
        asn: 64_999,
        reject_cause: "65520:*".parse().unwrap(),
        interval: Duration::from_secs(2),
    });
    client.connected(now);
    for part in bytes.split(|byte| *byte == 0) {
        now = now + Duration::from_secs(1);
        let received = client.poll(now).and_then(|()| client.receive(part, now));
        let _sent = client.take_output();
        if received.is_err() || client.deadline().is_none() {
            client.connection_lost();
            client.connected(now);
        }
        let Ok(Some(report)) = received else {
            continue;
        };
        // An ellipsis stands for the rest of a text.
        let text_max = limits::TEXT_SIZE + '…'.len_utf8();
        assert!(report.sessions.len() <= limits::SESSIONS && report.version.len() <= text_max);
        for session in &report.sessions {
            assert!(session.name.len() <= text_max && session.rejected.len() <= limits::SESSION_ROUTES);
            assert!(
                session
                    .last_error
                    .as_ref()
                    .is_none_or(|error| error.len() <= text_max)
            );
            assert!(session.rejected.is_sorted());
            for route in &session.rejected {
                assert!(route.as_path.len() <= text_max && route.causes.len() <= limits::CAUSES);
            }
        }
    }
}
