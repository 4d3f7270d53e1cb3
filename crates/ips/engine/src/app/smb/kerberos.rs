//! The names of Kerberos in the session setup of SMB 2: the realm and the name of the service of the ticket (RFC 4120, sections 5.3 and
//! 5.5.1; RFC 4121, section 4.1).

use crate::app::ber::{SEQUENCE, element, tagged};
use crate::app::record::Fields;

/// The mechanism of Kerberos (1.2.840.113554.1.2.2), and the mark of a request behind it.
const REQUEST: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 1, 0];
/// Tags of AP-REQ and of a ticket.
const AP_REQ: u8 = 0x6e;
const TICKET: u8 = 0x61;
/// Tags of the fields of a sequence: those with the numbers 1, 2 and 3.
const FIELD: [u8; 4] = [0xa0, 0xa1, 0xa2, 0xa3];
const GENERAL_STRING: u8 = 0x1b;
/// Largest number of parts of a name.
const PARTS: usize = 8;

/// Writes the names of the ticket in a security buffer; `None` if it has none.
pub(super) fn names(blob: &[u8], out: &mut Fields) -> Option<()> {
    let at = memchr::memmem::find(blob, REQUEST)? + REQUEST.len();
    let mut rest = blob.get(at..)?;
    let mut request = tagged(&mut tagged(&mut rest, AP_REQ)?, SEQUENCE)?;
    // The version, the type and the options precede the ticket.
    for tag in FIELD[..3].iter() {
        tagged(&mut request, *tag)?;
    }
    let mut ticket = tagged(&mut request, FIELD[3])?;
    let mut ticket = tagged(&mut tagged(&mut ticket, TICKET)?, SEQUENCE)?;
    tagged(&mut ticket, FIELD[0])?;
    let realm = tagged(&mut tagged(&mut ticket, FIELD[1])?, GENERAL_STRING)?;
    let mut service = tagged(&mut tagged(&mut ticket, FIELD[2])?, SEQUENCE)?;
    tagged(&mut service, FIELD[0])?;
    let mut parts = tagged(&mut tagged(&mut service, FIELD[1])?, SEQUENCE)?;
    let parts: Vec<&[u8]> = core::iter::from_fn(|| element(&mut parts))
        .map(|(_, part)| part)
        .take(PARTS)
        .collect();
    out.object("kerberos", |out| {
        out.text("realm", realm).texts("snames", parts);
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        [&[tag, u8::try_from(content.len()).unwrap()][..], &content].concat()
    }

    #[test]
    fn a_ticket_has_the_realm_and_the_service() {
        let text = |text: &str| of(GENERAL_STRING, &[text.as_bytes()]);
        let parts = of(SEQUENCE, &[&text("cifs"), &text("dc1.example.com")]);
        let service = of(SEQUENCE, &[&of(0xa0, &[&[2, 1, 2]]), &of(0xa1, &[&parts])]);
        let ticket = of(
            SEQUENCE,
            &[
                &of(0xa0, &[&[2, 1, 5]]),
                &of(0xa1, &[&text("EXAMPLE.COM")]),
                &of(0xa2, &[&service]),
            ],
        );
        let request = of(
            SEQUENCE,
            &[
                &of(0xa0, &[&[2, 1, 5]]),
                &of(0xa1, &[&[2, 1, 14]]),
                &of(0xa2, &[&[3, 1, 0]]),
                &of(0xa3, &[&of(TICKET, &[&ticket])]),
            ],
        );
        let blob = [&b"spnego"[..], REQUEST, &of(AP_REQ, &[&request])].concat();
        let mut expected = Fields::default();
        expected.object("kerberos", |out| {
            out.text("realm", b"EXAMPLE.COM")
                .texts("snames", [&b"cifs"[..], b"dc1.example.com"]);
        });
        let mut found = Fields::default();
        assert_eq!(names(&blob, &mut found), Some(()));
        assert_eq!(found, expected);
        for size in 0..blob.len() {
            let mut found = Fields::default();
            assert_eq!(names(&blob[..size], &mut found), None, "{size}");
            assert!(found.list.is_empty());
        }
    }
}
