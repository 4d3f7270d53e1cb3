//! `macswap`: exchanges the two Ethernet addresses.

use millrace_nf::{Access, Buffer, Context, Function, Kind, Verdict};

/// The kind `macswap`.
pub const KIND: Kind = Kind {
    name: "macswap",
    about: "exchanges the two Ethernet addresses",
    settings: &[],
    counters: &["swapped"],
    reads: Access::LINK,
    writes: Access::LINK,
    keeps_flows: false,
    outbox: (0, 0),
    report: 0,
    make: &|setup| {
        Ok(Box::new(MacSwap {
            counters: setup.counters.clone(),
        }))
    },
    ..Kind::DEFAULT
};

struct MacSwap {
    counters: millrace_nf::Counters,
}

impl Function for MacSwap {
    fn process(&mut self, _: &Context, burst: &mut [&mut dyn Buffer], _: &mut [Verdict]) {
        let mut swapped = 0;
        for packet in burst {
            if let Some((destination, rest)) = packet.head_mut().split_first_chunk_mut::<6>()
                && let Some(source) = rest.first_chunk_mut()
            {
                core::mem::swap(destination, source);
                swapped += 1;
            }
        }
        self.counters.add(0, swapped);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::{SettingError, Settings};
    use millrace_wire::Frame;

    use super::*;

    #[test]
    fn addresses_change_places_and_short_frames_stay() {
        let setup = KIND.setup(&Settings::default(), 0, 0);
        let mut function = KIND.make_function(&setup).unwrap();
        let mut long = Frame::new(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0, 9]);
        let mut short = Frame::new(&[1, 2, 3]);
        let mut verdicts = [Verdict::Next; 2];
        function.process(&Context::default(), &mut [&mut long, &mut short], &mut verdicts);
        assert_eq!(long.bytes(), [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 8, 0, 9]);
        assert_eq!(short.bytes(), [1, 2, 3]);
        assert_eq!(verdicts, [Verdict::Next; 2]);
        assert_eq!(setup.counters.value("swapped"), Some(1));
    }

    #[test]
    fn a_setting_that_it_does_not_have_is_refused() {
        let settings = Settings::parse(["fast=yes"]).unwrap();
        let error = KIND.make_function(&KIND.setup(&settings, 0, 0)).err().unwrap();
        assert!(matches!(
            error,
            millrace_nf::MakeError::Setting {
                source: SettingError::UnknownKey { .. },
                ..
            }
        ));
    }
}
