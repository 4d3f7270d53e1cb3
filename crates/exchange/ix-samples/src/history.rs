//! The traffic of an end before an attack: a random selection of its observations, without bursts.
//!
//! Observations come in buckets of 10 s. A bucket with more than twice the mean rate of the earlier buckets
//! is left out. Otherwise an attack would become part of the traffic with which later attacks are compared.
//! After an hour of such buckets the change counts as permanent, and the selection starts again.

use millrace_ix_model::Timestamp;

use crate::Observation;
use crate::observation::total_bytes;
use crate::random::Random;

/// The duration of a bucket, in milliseconds.
const BUCKET_MS: u64 = 10_000;
/// The duration that the observations must represent before the usual traffic is known, in milliseconds.
const KNOWN_MS: u64 = 120_000;
/// The largest number of observations of an end that are kept.
const RESERVOIR_MAX: usize = 4_096;
/// The largest number of observations of a bucket that are examined.
const BUCKET_RESERVOIR_MAX: usize = 4_096;
/// The ratio to the mean rate above which a bucket is left out.
const BURST_RATIO: f64 = 2.0;
/// The minimum number of buckets for a mean.
const MEAN_MIN: u64 = 3;
/// The number of consecutive left-out buckets after which a change of the traffic counts as permanent: an
/// hour.
const LEFT_OUT_MAX: u64 = 360;

/// The history of an end's traffic.
#[derive(Clone, Debug)]
pub(crate) struct History {
    reservoir: Vec<Observation>,
    /// The number of observations from which `reservoir` was chosen, each with the same probability (Vitter,
    /// "Random Sampling with a Reservoir", ACM TOMS 1985, algorithm R).
    seen: u64,
    /// The number of buckets, and of bytes, that `reservoir` represents.
    buckets: u64,
    bytes: f64,
    /// The bucket that is being filled.
    bucket: u64,
    bucket_reservoir: Vec<Observation>,
    bucket_len: u64,
    bucket_bytes: f64,
    left_out: u64,
}

impl History {
    pub(crate) fn new(at: Timestamp) -> History {
        History {
            reservoir: Vec::new(),
            seen: 0,
            buckets: 0,
            bytes: 0.0,
            bucket: at.millis() / BUCKET_MS,
            bucket_reservoir: Vec::new(),
            bucket_len: 0,
            bucket_bytes: 0.0,
            left_out: 0,
        }
    }

    /// Adds an observation. Observations arrive in the order of time.
    pub(crate) fn take(&mut self, observation: Observation, random: &mut Random) {
        let bucket = observation.at.millis() / BUCKET_MS;
        if bucket != self.bucket {
            self.end_bucket(bucket.saturating_sub(self.bucket), random);
            self.bucket = bucket;
        }
        self.bucket_len += 1;
        self.bucket_bytes += observation.bytes;
        reservoir_insert(
            &mut self.bucket_reservoir,
            BUCKET_RESERVOIR_MAX,
            self.bucket_len,
            observation,
            random,
        );
    }

    /// Ends the bucket; the next observation is `buckets` buckets later.
    fn end_bucket(&mut self, buckets: u64, random: &mut Random) {
        let observations = core::mem::take(&mut self.bucket_reservoir);
        let (len, bytes) = (self.bucket_len, self.bucket_bytes);
        (self.bucket_len, self.bucket_bytes) = (0, 0.0);
        let mean = self.bytes / self.buckets.max(1) as f64;
        if self.buckets >= MEAN_MIN && bytes > BURST_RATIO * mean {
            self.left_out += 1;
            if self.left_out < LEFT_OUT_MAX {
                return;
            }
            (self.seen, self.buckets, self.bytes) = (0, 0, 0.0);
            self.reservoir.clear();
        }
        self.left_out = 0;
        self.buckets += buckets;
        self.bytes += bytes;
        // If only some observations of the bucket were examined, each of them counts `scale` times.
        let scale = len.div_ceil(observations.len().max(1) as u64);
        for observation in observations {
            self.seen += scale;
            reservoir_insert(&mut self.reservoir, RESERVOIR_MAX, self.seen, observation, random);
        }
    }

    /// Returns the observations, each with the traffic that it represents.
    pub(crate) fn observations(&self) -> impl Iterator<Item = Observation> + '_ {
        let sampled = total_bytes(&self.reservoir);
        let scale = if sampled > 0.0 { self.bytes / sampled } else { 0.0 };
        self.reservoir.iter().map(move |observation| Observation {
            bytes: observation.bytes * scale,
            packets: observation.packets * scale,
            ..*observation
        })
    }

    /// Returns the duration in seconds that the observations represent.
    pub(crate) fn seconds(&self) -> f64 {
        (self.buckets * BUCKET_MS) as f64 / 1000.0
    }

    /// Returns true if the observations represent enough time for the usual traffic to be known.
    pub(crate) fn is_known(&self) -> bool {
        self.buckets * BUCKET_MS >= KNOWN_MS
    }

    /// Returns the time without an observation, in milliseconds.
    pub(crate) fn idle_ms(&self, now: Timestamp) -> u64 {
        now.millis().saturating_sub((self.bucket + 1) * BUCKET_MS)
    }
}

/// Offers the `seen`-th observation to a random selection of at most `max` observations.
fn reservoir_insert(
    chosen: &mut Vec<Observation>,
    max: usize,
    seen: u64,
    observation: Observation,
    random: &mut Random,
) {
    if chosen.len() < max {
        chosen.push(observation);
    } else if let Ok(index) = usize::try_from(random.below(seen))
        && let Some(slot) = chosen.get_mut(index)
    {
        *slot = observation;
    }
}
