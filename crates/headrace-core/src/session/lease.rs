//! What one member of a group has of a key and has not finished.

use std::sync::Arc;

use super::{Ends, GroupId, Memory, Seat};

/// Borne by all that a member was given of one key of a group whose strategy keeps keys in order.
/// While it lives, nobody else is given anything of that key. When the last message that bears it
/// is finished, given back or dropped, by whatever way, that is told.
#[derive(Debug)]
pub struct Lease {
    group: GroupId,
    key: u64,
    ends: Ends<(GroupId, u64)>,
    /// What it costs.
    _seat: Seat,
}

impl Lease {
    /// A lease whose end will be told to `ends`.
    pub fn new(
        group: GroupId,
        key: u64,
        ends: &Ends<(GroupId, u64)>,
        memory: &Memory,
    ) -> Arc<Self> {
        Arc::new(Self {
            group,
            key,
            ends: ends.clone(),
            _seat: Seat::take(memory),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ends.tell((self.group, self.key));
    }
}
