//! Handshakes of TLS, with certificates (RFC 5246, RFC 5280).

/// The parts of a handshake that rules ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handshake {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    pub(crate) serial: Vec<u8>,
    /// Bytes that the certificate has in an extension.
    pub(crate) inside: Vec<u8>,
    /// The second byte of the version: 1 for TLS 1.0, 3 for TLS 1.2.
    pub(crate) minor: u8,
}

fn sized(bytes: &[u8], width: usize) -> Vec<u8> {
    let mut out = (bytes.len() as u32).to_be_bytes()[4 - width..].to_vec();
    out.extend(bytes);
    out
}

fn record(minor: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind][..], &sized(body, 3)].concat();
    let records = message.chunks(16_000);
    records
        .flat_map(|part| [&[22, 3, minor][..], &sized(part, 2)].concat())
        .collect()
}

impl Handshake {
    /// Returns the hello of the client.
    pub(crate) fn client(&self) -> Vec<u8> {
        let mut body = vec![3, self.minor];
        body.extend([7; 32]);
        body.extend([0, 0, 4, 0xc0, 0x2f, 0, 0x9c, 1, 0]);
        let mut extensions = vec![0, 10, 0, 4, 0, 2, 0, 29];
        if let Some(name) = &self.name {
            let entry = [&[0][..], &sized(name, 2)].concat();
            extensions.extend([&[0, 0][..], &sized(&sized(&entry, 2), 2)].concat());
        }
        body.extend(sized(&extensions, 2));
        record(self.minor, 1, &body)
    }

    /// Returns the hello of the server, its certificate, and the end of its hello.
    pub(crate) fn server(&self) -> Option<Vec<u8>> {
        let mut hello = vec![3, self.minor];
        hello.extend([9; 32]);
        hello.extend([0, 0xc0, 0x2f, 0]);
        let certificate = self.certificate()?;
        let list = sized(&sized(&certificate, 3), 3);
        Some(
            [
                record(self.minor, 2, &hello),
                record(self.minor, 11, &list),
                record(self.minor, 14, &[]),
            ]
            .concat(),
        )
    }

    fn certificate(&self) -> Option<Vec<u8>> {
        let algorithm = der(0x30, &der(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]));
        let times = [der(0x17, b"200101000000Z"), der(0x17, b"400101000000Z")].concat();
        let key = [
            der(
                0x30,
                &[
                    &der(6, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1])[..],
                    &[5, 0],
                ]
                .concat(),
            ),
            der(
                3,
                &[
                    &[0][..],
                    &der(0x30, &[der(2, &[0x51; 64]), der(2, &[1, 0, 1])].concat()),
                ]
                .concat(),
            ),
        ]
        .concat();
        let mut body = [
            der(0xa0, &[2, 1, 2]),
            der(2, &self.serial),
            algorithm.clone(),
            name(&self.issuer)?,
            der(0x30, &times),
            name(&self.subject)?,
            der(0x30, &key),
        ]
        .concat();
        if !self.inside.is_empty() {
            let extension = der(
                0x30,
                &[
                    der(6, &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x15]),
                    der(4, &self.inside),
                ]
                .concat(),
            );
            body.extend(der(0xa3, &der(0x30, &extension)));
        }
        let signature = der(3, &[0; 65]);
        Some(der(0x30, &[der(0x30, &body), algorithm, signature].concat()))
    }
}

/// Returns a value in DER (ITU-T X.690, section 8.1).
fn der(tag: u8, body: &[u8]) -> Vec<u8> {
    let size = body.len();
    let mut out = vec![tag];
    match size {
        0..0x80 => out.push(size as u8),
        0x80..0x100 => out.extend([0x81, size as u8]),
        _ => out.extend([0x82, (size >> 8) as u8, size as u8]),
    }
    out.extend(body);
    out
}

/// Returns a distinguished name of a text such as "C=US, O=a, CN=b"; other texts become the common name.
fn name(text: &[u8]) -> Option<Vec<u8>> {
    const ATTRIBUTES: [(&str, &[u8]); 11] = [
        ("CN", &[0x55, 4, 3]),
        ("C", &[0x55, 4, 6]),
        ("L", &[0x55, 4, 7]),
        ("ST", &[0x55, 4, 8]),
        ("O", &[0x55, 4, 10]),
        ("OU", &[0x55, 4, 11]),
        ("serialNumber", &[0x55, 4, 5]),
        ("street", &[0x55, 4, 9]),
        ("emailAddress", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]),
        ("Email", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]),
        ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 0x19]),
    ];
    let text = std::str::from_utf8(text).ok()?;
    // A text that begins or ends with a separator is the middle of a name.
    let before = if text.starts_with(", ") { "C=US" } else { "" };
    let after = if text.ends_with(", ") { "CN=a" } else { "" };
    let text = [before, text, after].concat();
    let mut parts: Vec<(&[u8], String)> = Vec::new();
    for piece in text.split(", ") {
        let piece = piece.trim_start_matches(',');
        let known = piece.split_once('=').and_then(|(key, value)| {
            let attribute = ATTRIBUTES.iter().find(|(name, _)| *name == key.trim_start())?;
            Some((attribute.1, value.to_owned()))
        });
        match (known, parts.last_mut()) {
            (Some(part), _) => parts.push(part),
            (None, Some((_, value))) => *value += &format!(", {piece}"),
            (None, None) if piece.is_empty() => {}
            (None, None) => parts.push((ATTRIBUTES[0].1, piece.to_owned())),
        }
    }
    let attribute = |(oid, value): &(&[u8], String)| {
        let pair = [der(6, oid), der(0x0c, value.as_bytes())].concat();
        der(0x31, &der(0x30, &pair))
    };
    Some(der(0x30, &parts.iter().flat_map(attribute).collect::<Vec<u8>>()))
}
