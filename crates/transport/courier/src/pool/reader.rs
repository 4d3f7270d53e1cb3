//! The reader: a sender's thread that reads, hashes and seals.

use super::Waker;
use crate::files::{FilesError, Source, Value};
use crate::sender::SendError;
use millrace_transport::flow::Piece;
use millrace_transport::seal::ContentKey;
use millrace_transport::sender::{SealRequest, Sealer, Slab};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// The maximum number of requests for slabs without an answer.
pub(crate) const REQUESTS_MAX: usize = 32;

/// The peer that a task is done for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    /// The index of the peer.
    pub(crate) peer: usize,
    /// The number of the peer's link; answers for an earlier link are ignored.
    pub(crate) link_number: u32,
}

/// A task of the reader.
pub(crate) enum Read {
    /// Seals pieces; the slab, if given, is unused memory for the result.
    Seal(SealRequest, Option<Slab>),
    /// Compares an extent of a receiver with the source.
    CheckHave {
        requester: Requester,
        extent: u64,
        value: Value,
    },
    GroupValues {
        requester: Requester,
        extent: u64,
    },
    /// Asks for the root value.
    Root {
        requester: Requester,
    },
}

/// An answer of the reader.
pub(crate) enum ReadReply {
    Sealed(Slab),
    /// The value of an extent became known.
    Value(u64, Value),
    Withdrawn(u64, String),
    Have {
        requester: Requester,
        extent: u64,
        equal: bool,
    },
    GroupValues {
        requester: Requester,
        extent: u64,
        values: Vec<Value>,
    },
    Root {
        requester: Requester,
        root: Option<Value>,
    },
    /// The source cannot be read; the transfer ends.
    Failed(SendError),
}

/// Handles tasks until the channel closes or the source fails.
pub(crate) fn run(
    source: &mut dyn Source,
    mut sealer: Sealer<ContentKey>,
    tasks: &Receiver<Read>,
    replies: &Sender<ReadReply>,
    waker: &Arc<Waker>,
) {
    while let Ok(task) = tasks.recv() {
        let reply = act(source, &mut sealer, task);
        let failed = reply.is_err();
        let mut all = Vec::new();
        // Values come before the packets that they verify.
        while let Some((extent, value)) = source.poll_value() {
            all.push(ReadReply::Value(extent, value));
        }
        while let Some((file, reason)) = source.poll_withdrawn() {
            all.push(ReadReply::Withdrawn(file, reason));
        }
        all.push(reply.unwrap_or_else(ReadReply::Failed));
        for reply in all {
            if replies.send(reply).is_err() {
                return;
            }
        }
        waker.wake();
        if failed {
            return;
        }
    }
}

fn act(source: &mut dyn Source, sealer: &mut Sealer<ContentKey>, task: Read) -> Result<ReadReply, SendError> {
    Ok(match task {
        Read::Seal(request, old) => {
            let read = |piece: Piece, bytes: &mut Vec<u8>| -> Result<(), SendError> {
                bytes.extend_from_slice(source.read(piece.address, usize::from(piece.len))?);
                Ok(())
            };
            ReadReply::Sealed(sealer.seal(request, old, read)?)
        }
        Read::CheckHave {
            requester,
            extent,
            value,
        } => {
            let equal = extent < source.layout().extents() && source.check_have(extent, &value)?;
            ReadReply::Have {
                requester,
                extent,
                equal,
            }
        }
        Read::GroupValues { requester, extent } => {
            if extent >= source.layout().extents() {
                return Err(
                    FilesError("a receiver asks for an extent that the session has not".into()).into(),
                );
            }
            let values = source.group_values(extent)?;
            ReadReply::GroupValues {
                requester,
                extent,
                values,
            }
        }
        Read::Root { requester } => ReadReply::Root {
            requester,
            root: source.root(),
        },
    })
}
