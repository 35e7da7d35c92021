//! What a session holds, for sums over all of them.

use super::{Session, Will};
use crate::sums::sums;

sums! {
    /// What sessions hold.
    Holding {
        /// Bytes that wait for windows and clients.
        queued_bytes,
        /// Bytes in flight that may have to be sent again.
        kept_bytes,
        /// Messages that wait.
        queued,
        /// Messages to clients whose exchange is not over.
        in_flight,
        /// Bytes of wills, with what each costs beside.
        will_bytes,
        /// Messages at `QoS` 2 from clients that are not released.
        unreleased,
    }
}

impl Holding {
    /// That of one.
    pub fn of(session: &Session) -> Self {
        Self {
            queued_bytes: session.outbound.queued_bytes(),
            kept_bytes: session.outbound.kept_bytes(),
            queued: session.outbound.queued(),
            in_flight: session.outbound.in_flight(),
            will_bytes: session.will.as_ref().map_or(0, Will::bytes),
            unreleased: session.inbound.unreleased(),
        }
    }
}
