//! Random exchanges as texts: read for the same exchange nothing changes, read for an empty one the plan is as large.

use millrace_ix_model::{Exchange, text};
use millrace_ix_plan::{Settings, phases, plan};

use crate::lan_world::lan;
use crate::world::{NOW, random_circuits};

const SETTINGS: Settings = Settings {
    now: NOW,
    extensions: false,
};

#[test]
fn random_exchanges_are_read_back_from_their_text() {
    for seed in 0..10 {
        for exchange in [
            random_circuits(seed, None).exchange,
            lan(seed, 6, None, 50).0.exchange,
        ] {
            let written = text::export(&exchange).unwrap();
            let same =
                text::parse(&written, &exchange, NOW).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(same, exchange, "seed {seed}");
            assert!(phases(&exchange, &same, &SETTINGS).is_empty());
            let new = text::parse(&written, &Exchange::default(), NOW).unwrap();
            assert_eq!(text::export(&new).unwrap(), written, "seed {seed}");
            let sizes = |exchange: &Exchange| {
                plan(exchange, &SETTINGS)
                    .switches
                    .values()
                    .map(millrace_ix_plan::SwitchState::len)
                    .collect::<Vec<_>>()
            };
            assert_eq!(sizes(&new), sizes(&exchange), "seed {seed}");
        }
    }
}
