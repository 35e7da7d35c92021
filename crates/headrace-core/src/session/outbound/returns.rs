//! Work that a group gave and that comes back to it (MQTT 5.0 4.8.2).

use super::{Outbound, State};
use crate::mqtt::packet::QoS;
use crate::session::{Delivery, GroupId, Owed};

impl Outbound {
    /// Takes back what groups that it leaves gave and what has not been sent, in the order in which
    /// it was given.
    pub fn withdraw(&mut self, is_left: impl Fn(GroupId) -> bool) -> Vec<(GroupId, Owed)> {
        owed(
            self.queue
                .take(|delivery| delivery.terms.group.is_some_and(&is_left)),
        )
    }

    /// Takes back, of a client that is away, what groups gave and what it has not finished at `QoS`
    /// 1, sent or not: of those groups that still are, each in the order in which it gave.
    pub fn withdraw_all(&mut self, is_there: impl Fn(GroupId) -> bool) -> Vec<(GroupId, Owed)> {
        let is_lent = |delivery: &Delivery| delivery.terms.group.is_some_and(&is_there);
        let mut in_flight = Vec::new();
        for (id, entry) in (1..).zip(&mut self.slots) {
            let Some(entry) = entry else { continue };
            let State::Published(qos, Some(delivery)) = &mut entry.state else {
                continue;
            };
            // What stays with it at `QoS` 2 holds up nobody while it is away.
            delivery.terms.lease = None;
            if *qos == QoS::AtLeastOnce && is_lent(delivery) {
                in_flight.push((entry.ordinal, id, delivery.clone()));
            }
        }
        in_flight.sort_unstable_by_key(|(ordinal, ..)| *ordinal);
        let mut returned = Vec::new();
        for (_, id, delivery) in in_flight {
            self.end(id);
            returned.push(delivery);
        }
        returned.extend(self.queue.take(is_lent));
        owed(returned)
    }
}

fn owed(returned: impl IntoIterator<Item = Delivery>) -> Vec<(GroupId, Owed)> {
    let owed = returned.into_iter().filter_map(|delivery| {
        let group = delivery.terms.group?;
        Some((group, delivery.into()))
    });
    owed.collect()
}

impl From<Delivery> for Owed {
    fn from(delivery: Delivery) -> Self {
        Self {
            message: delivery.message,
            claim: delivery.claim,
            seat: delivery.seat,
        }
    }
}
