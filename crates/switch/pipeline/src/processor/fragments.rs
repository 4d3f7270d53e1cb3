//! IP fragments in a burst, on a bridge that drops or reassembles them.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_wire::Packet;

use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::{Assembled, Assembler, DropReason, Egress, FragmentMode, FragmentView};

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Removes the fragments from a burst. On a bridge that reassembles, the reassembled packet replaces the
    /// fragment that completes it.
    #[cold]
    #[inline(never)]
    pub(crate) fn fragments(&mut self, burst: &mut ArrayVec<P, BURST>) {
        let mut others = ArrayVec::new();
        for packet in burst.drain(..) {
            match FragmentView::find(packet.head(), packet.len()) {
                None => others.push(packet),
                Some(_) if self.fwd.fragments() == FragmentMode::Drop => {
                    self.drop(PacketSource::Move(packet), DropReason::Fragment);
                }
                Some(Err(_)) => self.drop(PacketSource::Move(packet), DropReason::FragmentMalformed),
                Some(Ok(fragment)) => others.extend(self.assemble(packet, &fragment)),
            }
        }
        *burst = others;
        self.flush();
    }

    /// Hands a fragment to the assembler. Returns the packet that it completes.
    fn assemble(&mut self, packet: P, fragment: &FragmentView) -> Option<P> {
        let assembler = self.assembler.get_or_insert_with(|| Box::new(Assembler::new()));
        packet.copy_to(assembler.frame(), Assembler::FRAME_MAX);
        // Keys of networks and path headers have 32 bits. The bits above are the TTL of a service path, in which fragments of
        // one packet may differ.
        let source = (self.origin.in_port, u64::from(self.origin.tunnel_id as u32));
        let outcome = match assembler.add(fragment, source, self.now) {
            Assembled::Kept => {
                self.observer.kept_fragment();
                Ok(None)
            }
            Assembled::Whole(bytes) => packet
                .alloc_like(bytes)
                .map(Some)
                .ok_or((DropReason::NoBuffer, 0)),
            Assembled::Dropped(reason, before) => Err((reason, before)),
        };
        for (reason, fragments) in assembler.take_discarded() {
            if fragments != 0 {
                self.counters.drops.add(reason, fragments);
            }
        }
        match outcome {
            Ok(whole) => whole,
            Err((reason, before)) => {
                self.counters.drops.add(reason, before);
                self.drop(PacketSource::Move(packet), reason);
                None
            }
        }
    }
}
