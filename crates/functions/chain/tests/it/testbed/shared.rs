//! A function that leaves its shared value, a number in a file, in packets.

use std::path::Path;
use std::sync::Arc;

use millrace_nf::{
    Buffer, Compiled, Context, Formatter, Function, InputFile, Kind, Outbox, Settings, SharedKind,
    SharedValue, Source, Verdict,
};

use super::MARKS;

/// The mark of a function that has no value.
pub(crate) const WITHOUT: u8 = 99;

struct Numbered {
    value: Option<Arc<u8>>,
    outbox: Outbox,
}

impl Function for Numbered {
    fn process(&mut self, _: &Context, burst: &mut [&mut dyn Buffer], _: &mut [Verdict]) {
        for packet in burst {
            let head = packet.head_mut();
            let free = head[MARKS..].iter().position(|mark| *mark == 0).unwrap();
            head[MARKS + free] = self.value.as_deref().copied().unwrap_or(WITHOUT);
        }
    }

    fn share(&mut self, value: SharedValue) -> Option<SharedValue> {
        let new = value.get::<u8>();
        self.outbox.send(|message| {
            message.extend(new.as_deref());
            true
        });
        let old = std::mem::replace(&mut self.value, new);
        old.map(SharedValue::from)
    }
}

struct Sentences {
    value: u8,
}

impl Formatter for Sentences {
    fn share(&mut self, value: &SharedValue) {
        self.value = value.get::<u8>().map_or(0, |value| *value);
    }

    fn format(&mut self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{message:?} beside {}\n", self.value).as_bytes());
    }
}

fn read(settings: &Settings) -> Result<Source, String> {
    let path = settings.one("file").map_err(|error| error.to_string())?;
    let path = Path::new(path.unwrap_or_default());
    let file = InputFile::before_open(path);
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Source {
        bytes,
        files: vec![file],
    })
}

fn compile(bytes: &[u8], _: Option<&SharedValue>) -> Result<Compiled, String> {
    let text = String::from_utf8_lossy(bytes);
    let number = text.trim();
    let value: u8 = number
        .parse()
        .map_err(|_| format!("`{number}`: expected a number"))?;
    Ok(Compiled {
        value: SharedValue::new(value),
        summary: format!("the number {value}"),
    })
}

pub(super) const KIND: Kind = Kind {
    name: "numbered",
    about: "for tests",
    settings: &[("file", "a file"), ("note", "anything"), ("export", "a target")],
    outbox: (16, 8),
    shared: Some(&SharedKind {
        settings: &["file"],
        read,
        compile,
        generates_code: false,
    }),
    formatter: Some(|_, _| Box::new(Sentences { value: 0 })),
    make: &|setup| {
        Ok(Box::new(Numbered {
            value: setup.shared.as_ref().and_then(SharedValue::get),
            outbox: setup.outbox.clone(),
        }))
    },
    ..Kind::DEFAULT
};
