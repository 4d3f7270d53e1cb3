//! Entries, groups and meters of an earlier run of the switch, with the ages and counters that they had then.

use millrace_types::Time;

use super::error::{GroupModError, MeterModError};
use super::groups::GroupRecord;
use super::meters::MeterRecord;
use super::writer::Control;
use crate::Op;
use crate::counters::EntryCount;
use crate::group::Group;
use crate::meter::Meter;

impl Control {
    /// Adds a group that was added at `created`, with its counters and those of its buckets. Groups that its buckets
    /// forward to must exist.
    ///
    /// # Errors
    /// [`GroupModError`]; nothing has changed.
    pub fn restore_group(
        &mut self,
        group: &Group,
        created: Time,
        count: EntryCount,
        buckets: &[EntryCount],
        ops: &mut Vec<Op>,
    ) -> Result<(), GroupModError> {
        if self.groups.contains(group.id) {
            return Err(GroupModError::Exists { group: group.id });
        }
        self.set_group(group, created, ops)?;
        if let Some(GroupRecord { compiled, .. }) = self.groups.find(group.id) {
            self.banks.set_entry(compiled.slot(), count);
            for (bucket, count) in compiled.buckets().iter().zip(buckets) {
                self.banks.set_entry(bucket.slot, *count);
            }
        }
        Ok(())
    }

    /// Adds a meter that was added at `created`, with its counters and those of its bands. Its token buckets are full at
    /// `now`.
    ///
    /// # Errors
    /// [`MeterModError`]; nothing has changed.
    pub fn restore_meter(
        &mut self,
        meter: &Meter,
        (created, now): (Time, Time),
        count: EntryCount,
        bands: &[EntryCount],
        ops: &mut Vec<Op>,
    ) -> Result<(), MeterModError> {
        if self.meters.contains_key(&meter.id) {
            return Err(MeterModError::Exists { meter: meter.id });
        }
        self.set_meter(meter, now, ops)?;
        if let Some(MeterRecord {
            compiled,
            created: at,
        }) = self.meters.get_mut(&meter.id)
        {
            *at = created;
            self.banks.set_entry(compiled.slot(), count);
            for (band, count) in compiled.bands().iter().zip(bands) {
                self.banks.set_entry(band.slot, *count);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Band, BandKind, ControlConfig, FlowFilter, FlowFlags, FlowMod, FlowModCommand, FlowModError,
        GroupKind, MeterFlags,
    };
    use millrace_flow::{Action, Bucket, Field, Instructions, Match};
    use millrace_types::{Duration, GroupId, MeterId, PortNo, Priority, TableId};

    const NOW: Time = Time::from_secs(1000);

    fn count(packets: u64) -> EntryCount {
        EntryCount {
            packets,
            bytes: packets * 60,
            last_used: Time::ZERO,
        }
    }

    fn flow(port: u32, idle_timeout: u16, hard_timeout: u16) -> FlowMod {
        let match_ = Match::exact(&[(Field::InPort, u128::from(port))]).unwrap();
        FlowMod {
            idle_timeout,
            hard_timeout,
            instructions: Instructions {
                apply_actions: Some([Action::output(PortNo::from_raw(9))].into()),
                ..Instructions::default()
            },
            ..FlowMod::new(FlowModCommand::Add, TableId(0), Priority(5), match_)
        }
    }

    #[test]
    fn an_entry_keeps_its_counters_its_age_and_the_rest_of_its_timeouts() {
        let (mut control, mut ops) = (Control::new(ControlConfig::default()), Vec::new());
        let _own = control.own_counters();
        let ago = |seconds| NOW - Duration::from_secs(seconds);
        let used = EntryCount {
            last_used: ago(7),
            ..count(3)
        };
        // Of the hard timeout 10 s remain, of the idle timeout 3 s.
        control
            .restore_entry(flow(1, 0, 100), ago(90), count(3), &mut ops)
            .unwrap();
        control
            .restore_entry(flow(2, 10, 0), ago(500), used, &mut ops)
            .unwrap();
        let mut seen = Vec::new();
        control.flow_stats(&FlowFilter::all(), crate::Cursor::default(), 10, NOW, |stat| {
            seen.push((stat.duration.as_secs(), stat.count.packets, stat.count.bytes));
        });
        assert_eq!(seen, [(90, 3, 180), (500, 3, 180)]);
        let mut left = |after: u64| {
            control.expire(NOW + Duration::from_millis(after), 100, &mut ops);
            control.entry_len()
        };
        assert_eq!(
            [left(0), left(2_900), left(3_300), left(9_900), left(10_300)],
            [2, 2, 1, 1, 0]
        );
    }

    #[test]
    fn overlaps_that_the_earlier_run_accepted_are_accepted_and_a_second_copy_is_refused() {
        let (mut control, mut ops) = (Control::new(ControlConfig::default()), Vec::new());
        let _own = control.own_counters();
        let wide = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(5), Match::any());
        let checked = FlowMod {
            flags: FlowFlags::CHECK_OVERLAP,
            ..flow(1, 0, 0)
        };
        control.restore_entry(wide, NOW, count(0), &mut ops).unwrap();
        control
            .restore_entry(checked.clone(), NOW, count(0), &mut ops)
            .unwrap();
        let again = control.restore_entry(checked, NOW, count(0), &mut ops);
        assert!(matches!(again, Err(FlowModError::Overlap { .. })), "{again:?}");
        let nowhere = FlowMod {
            instructions: Instructions {
                meter: Some(MeterId(4)),
                ..Instructions::default()
            },
            ..flow(3, 0, 0)
        };
        let refused = control.restore_entry(nowhere, NOW, count(0), &mut ops);
        assert!(
            matches!(refused, Err(FlowModError::NoSuchMeter { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn groups_and_meters_keep_their_counters_and_ages() {
        let (mut control, mut ops) = (Control::new(ControlConfig::default()), Vec::new());
        let _own = control.own_counters();
        let group = Group {
            id: GroupId(1),
            kind: GroupKind::All,
            buckets: [Bucket::new([Action::output(PortNo::from_raw(1))])].into(),
        };
        let meter = Meter {
            id: MeterId(2),
            flags: MeterFlags::KBPS,
            bands: [Band {
                rate: 100,
                burst_size: 10,
                kind: BandKind::Drop,
            }]
            .into(),
        };
        let created = NOW - Duration::from_secs(50);
        control
            .restore_group(&group, created, count(4), &[count(5)], &mut ops)
            .unwrap();
        control
            .restore_meter(&meter, (created, NOW), count(6), &[count(7)], &mut ops)
            .unwrap();
        control.group_stats(GroupId::ALL, NOW, |stat| {
            let buckets: Vec<u64> = stat.buckets.iter().map(|count| count.packets).collect();
            assert_eq!(
                (stat.count.packets, buckets, stat.duration.as_secs()),
                (4, vec![5], 50)
            );
        });
        control.meter_stats(MeterId::ALL, NOW, |stat| {
            let bands: Vec<u64> = stat.bands.iter().map(|count| count.packets).collect();
            assert_eq!(
                (stat.count.packets, bands, stat.duration.as_secs()),
                (6, vec![7], 50)
            );
        });
        let twice = control.restore_group(&group, created, count(4), &[], &mut ops);
        assert!(matches!(twice, Err(GroupModError::Exists { .. })), "{twice:?}");
        assert_eq!((control.groups().count(), control.meter_len()), (1, 1));
    }
}
