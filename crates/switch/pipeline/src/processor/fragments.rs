//! IP fragments in a burst, on a bridge that drops or reassembles them.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_wire::Packet;

use super::observe::Observer;
use super::run::Run;
use super::supply::Supply;
use crate::{Assembled, Assembler, DropReason, Egress, FragmentMode, Piece};

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Removes the fragments from a burst. Where they are reassembled, a whole packet takes the place of the fragment
    /// that completes it.
    #[cold]
    #[inline(never)]
    pub(crate) fn fragments(&mut self, burst: &mut ArrayVec<P, BURST>) {
        let mut others = ArrayVec::new();
        for packet in burst.drain(..) {
            match Piece::find(packet.head(), packet.len()) {
                None => others.push(packet),
                Some(_) if self.fwd.fragments() == FragmentMode::Drop => {
                    self.drop(Supply::Move(packet), DropReason::Fragment);
                }
                Some(Err(_)) => self.drop(Supply::Move(packet), DropReason::FragmentMalformed),
                Some(Ok(piece)) => others.extend(self.assemble(packet, &piece)),
            }
        }
        *burst = others;
        self.flush();
    }

    /// Hands a fragment to the assembler. Returns the packet that it completes.
    fn assemble(&mut self, packet: P, piece: &Piece) -> Option<P> {
        let assembler = self.assembler.get_or_insert_with(|| Box::new(Assembler::new()));
        packet.copy_to(assembler.frame(), Assembler::FRAME_MAX);
        let outcome = match assembler.add(piece, self.origin.in_port, self.now) {
            Assembled::Kept => Ok(None),
            Assembled::Whole(bytes) => packet.alike(bytes).map(Some).ok_or((DropReason::NoBuffer, 0)),
            Assembled::Dropped(reason, before) => Err((reason, before)),
        };
        let (expired, evicted) = assembler.forgotten();
        for (reason, fragments) in [
            (DropReason::FragmentTimeout, expired),
            (DropReason::FragmentMemory, evicted),
        ] {
            if fragments != 0 {
                self.counters.drops.add(reason, fragments);
            }
        }
        match outcome {
            Ok(whole) => whole,
            Err((reason, before)) => {
                self.counters.drops.add(reason, before);
                self.drop(Supply::Move(packet), reason);
                None
            }
        }
    }
}
