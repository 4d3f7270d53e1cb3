//! Options for the flow and for state that rules share: `flow`, bits, counters, thresholds, `tag`.

use std::fmt;

use crate::refusal::Reason;
use crate::text::{is_name, list, number32, quote, required, words};

words! {
    /// A condition on the flow.
    FlowState "established, not_established, stateless, to_server, to_client, from_server, from_client, only_stream, no_stream, only_frag or no_frag" {
        /// After the handshake.
        Established "established";
        /// Before the handshake ends.
        NotEstablished "not_established";
        /// In any state.
        Stateless "stateless";
        /// From the client.
        ToServer "to_server" | "from_client";
        /// From the server.
        ToClient "to_client" | "from_server";
        /// In reassembled data only.
        OnlyStream "only_stream" | "only_stream_reassembly";
        /// In packets only.
        NoStream "no_stream";
        /// In reassembled fragments only.
        OnlyFrag "only_frag";
        /// In packets that were not fragmented.
        NoFrag "no_frag";
    }
}

/// Reads the value of `flow`.
pub(crate) fn flow(value: Option<&str>) -> Result<Vec<FlowState>, Reason> {
    let value = required(value, "states with commas between them")?;
    let mut states = Vec::new();
    for word in list(value) {
        let state = FlowState::from_word(&word.to_ascii_lowercase())?;
        if !states.contains(&state) {
            states.push(state);
        }
    }
    let both = |a, b| states.contains(&a) && states.contains(&b);
    if both(FlowState::ToServer, FlowState::ToClient)
        || both(FlowState::Established, FlowState::NotEstablished)
        || both(FlowState::OnlyStream, FlowState::NoStream)
        || both(FlowState::OnlyFrag, FlowState::NoFrag)
    {
        return Err(Reason::invalid(
            "the states contradict each other",
            "one direction, one state, and packets or the stream",
        ));
    }
    Ok(states)
}

words! {
    /// The table in which a bit is stored.
    BitScope "flowbits, xbits or hostbits" {
        /// The bits of the flow.
        Flow "flowbits";
        /// The bits of an address pair, or of an address.
        Cross "xbits";
        /// The bits of a host.
        Host "hostbits";
    }
}

words! {
    /// An operation with a bit.
    BitOperation "set, isset, isnotset, unset, toggle or noalert" {
        /// Set the bit.
        Set "set";
        /// Continue if the bit is set.
        IsSet "isset";
        /// Continue if the bit is not set.
        IsNotSet "isnotset";
        /// Unset the bit.
        Unset "unset";
        /// Invert the bit.
        Toggle "toggle";
        /// Raise no alert.
        NoAlert "noalert";
    }
}

/// An operation with bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    /// The table.
    pub scope: BitScope,
    pub operation: BitOperation,
    /// The names. Several names are alternatives (`|`), or all are required (`&`).
    pub names: Vec<String>,
    /// True if all names are required, false if one is enough.
    pub is_all: bool,
    /// The other arguments: `track ip_pair`, `expire 60`, a group.
    pub arguments: Vec<String>,
}

impl Bits {
    /// Reads the value.
    pub(crate) fn parse(scope: BitScope, value: Option<&str>) -> Result<Bits, Reason> {
        const FORM: &str = "OPERATION,NAME";
        let mut parts = list(required(value, FORM)?);
        let operation = BitOperation::from_word(parts.next().unwrap_or_default())?;
        let text = if operation == BitOperation::NoAlert {
            ""
        } else {
            parts.next().unwrap_or_default()
        };
        let is_all = text.contains('&');
        let mut names = Vec::new();
        if operation != BitOperation::NoAlert {
            for name in text.split(if is_all { '&' } else { '|' }).map(str::trim) {
                let is_bit = !name.is_empty() && !name.contains(['|', '&', '"']);
                if !is_bit {
                    return Err(Reason::invalid(
                        format!("{} is not the name of a bit", quote(name)),
                        FORM,
                    ));
                }
                names.push(name.to_owned());
            }
        }
        let mut arguments = Vec::new();
        for part in parts {
            let is_known = match part.split_once(char::is_whitespace) {
                Some(("track", track)) => matches!(track.trim(), "ip_src" | "ip_dst" | "ip_pair" | "tx"),
                Some(("expire", seconds)) => number32(seconds, "seconds").is_ok(),
                _ => is_name(part) && scope != BitScope::Cross,
            };
            if !is_known {
                return Err(Reason::invalid(
                    quote(part),
                    "track ip_src|ip_dst|ip_pair, or expire SECONDS",
                ));
            }
            arguments.push(part.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        // With one name, "all" and "any" mean the same.
        let is_all = is_all && names.len() > 1;
        Ok(Bits {
            scope,
            operation,
            names,
            is_all,
            arguments,
        })
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scope, self.operation)?;
        if !self.names.is_empty() {
            write!(f, ",{}", self.names.join(if self.is_all { "&" } else { "|" }))?;
        }
        for argument in &self.arguments {
            write!(f, ",{argument}")?;
        }
        f.write_str(";")
    }
}

/// An operation with a counter of the flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInt {
    /// The counter.
    pub name: String,
    pub operation: String,
    /// The number, or the other counter.
    pub value: Option<String>,
}

impl FlowInt {
    /// Reads the value.
    pub(crate) fn parse(value: Option<&str>) -> Result<FlowInt, Reason> {
        const FORM: &str =
            "NAME,OPERATION,VALUE with +, -, =, ==, !=, <, >, <= or >=; or NAME,isset, isnotset or notset";
        let mut parts = list(required(value, FORM)?);
        let name = parts.next().unwrap_or_default().to_owned();
        let operation = parts.next().unwrap_or_default().to_owned();
        // Suricata reads a value behind a test of existence, and does not use it.
        let is_existence = matches!(operation.as_str(), "isset" | "isnotset" | "notset");
        let value = parts
            .next()
            .filter(|value| !is_existence || !is_name(value))
            .map(str::to_owned);
        let is_valid = is_name(&name)
            && parts.next().is_none()
            && match &value {
                None => is_existence,
                Some(value) => {
                    is_name(value)
                        && matches!(
                            operation.as_str(),
                            "+" | "-" | "=" | "==" | "!=" | "<" | ">" | "<=" | ">="
                        )
                }
            };
        let wrong = || Reason::invalid("the operation is not valid", FORM);
        is_valid
            .then_some(FlowInt {
                name,
                operation,
                value,
            })
            .ok_or_else(wrong)
    }
}

impl fmt::Display for FlowInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flowint:{},{}", self.name, self.operation)?;
        if let Some(value) = &self.value {
            write!(f, ",{value}")?;
        }
        f.write_str(";")
    }
}

words! {
    /// The kind of limit on alerts.
    RateKind "limit, threshold, both or backoff" {
        /// The first COUNT alerts in each interval.
        Limit "limit";
        /// Each COUNT-th alert.
        Threshold "threshold";
        /// One alert in each interval, after COUNT matches.
        Both "both";
        /// An alert at the match COUNT of a flow, then after MULTIPLIER times as many each time.
        Backoff "backoff";
    }
}

words! {
    /// The key by which matches are counted.
    Track "by_src, by_dst, by_rule, by_both or by_flow" {
        /// The source address.
        Source "by_src";
        /// The destination address.
        Destination "by_dst";
        Rule "by_rule";
        /// Both addresses.
        Both "by_both";
        Flow "by_flow";
    }
}

words! {
    /// The addresses of a packet that a suppression compares.
    SuppressTrack "by_src, by_dst or by_either" {
        /// The source address.
        Source "by_src";
        /// The destination address.
        Destination "by_dst";
        /// One of both.
        Either "by_either";
    }
}

/// A rate: `threshold` with a kind, or `detection_filter` without a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The kind of threshold; `None` for a detection filter, which passes the matches after the first COUNT.
    pub kind: Option<RateKind>,
    /// The key by which matches are counted.
    pub track: Track,
    /// The number of matches.
    pub count: u32,
    /// The interval, in seconds; 0 for a backoff, which has none.
    pub seconds: u32,
    /// The factor of a backoff; 0 for other kinds.
    pub multiplier: u32,
}

impl Rate {
    /// Reads the value of `threshold` or `detection_filter`.
    pub(crate) fn parse(is_threshold: bool, value: Option<&str>) -> Result<Rate, Reason> {
        const FORM: &str = "[type limit|threshold|both,] track by_src|by_dst|by_rule|by_both|by_flow, count N, seconds N, or type backoff, track by_flow, count N, multiplier N";
        let (mut kind, mut track, mut count, mut seconds, mut multiplier) = (None, None, None, None, None);
        for part in list(required(value, FORM)?) {
            let (name, text) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let text = text.trim();
            match name {
                "type" => kind = Some(RateKind::from_word(text)?),
                "track" => track = Some(Track::from_word(text)?),
                "count" => count = Some(number32(text, FORM)?),
                "seconds" => seconds = Some(number32(text, FORM)?),
                "multiplier" => multiplier = Some(number32(text, FORM)?),
                _ => return Err(Reason::invalid(quote(part), FORM)),
            }
        }
        let is_backoff = kind == Some(RateKind::Backoff);
        if is_backoff && track != Some(Track::Flow) {
            return Err(Reason::invalid("a backoff that is not counted by flows", FORM));
        }
        // A backoff has a factor in place of an interval.
        let (seconds, multiplier) = match is_backoff {
            true => (seconds.xor(Some(0)), multiplier),
            false => (seconds.filter(|seconds| *seconds > 0), multiplier.xor(Some(0))),
        };
        match (track, count, seconds, multiplier) {
            (Some(track), Some(count), Some(seconds), Some(multiplier))
                if kind.is_some() == is_threshold && count > 0 && is_backoff == (multiplier > 0) =>
            {
                Ok(Rate {
                    kind,
                    track,
                    count,
                    seconds,
                    multiplier,
                })
            }
            _ => Err(Reason::invalid("an argument is missing or zero", FORM)),
        }
    }

    /// Returns the rate in plain words.
    pub fn words(&self) -> String {
        let Rate {
            track,
            count,
            seconds,
            multiplier,
            ..
        } = self;
        let each = match track {
            Track::Source => "of each source address",
            Track::Destination => "of each destination address",
            Track::Rule => "of all addresses",
            Track::Both => "of each pair of addresses",
            Track::Flow => "of each flow",
        };
        match self.kind {
            None => format!("match only after {count} matches {each} in {seconds} s"),
            Some(RateKind::Backoff) => {
                format!(
                    "raise an alert at match {count} {each}, then after {multiplier} times as many each time"
                )
            }
            Some(RateKind::Limit) => format!("raise at most {count} alerts {each} in {seconds} s"),
            Some(RateKind::Threshold) => {
                format!("raise one alert for every {count} matches {each} in {seconds} s")
            }
            Some(RateKind::Both) => {
                format!("raise one alert in {seconds} s, once there were {count} matches {each}")
            }
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "threshold:type {kind}, ")?,
            None => f.write_str("detection_filter:")?,
        }
        write!(f, "track {}, count {}, ", self.track, self.count)?;
        match self.kind {
            Some(RateKind::Backoff) => write!(f, "multiplier {};", self.multiplier),
            _ => write!(f, "seconds {};", self.seconds),
        }
    }
}
