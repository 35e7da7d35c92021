//! Exchanges that outlive a connection or the node (MQTT 5.0 4.4).

use super::{bytes, InFlight, Outbound, State};
use crate::mqtt::packet::QoS;
use crate::session::Delivery;

/// An exchange at `QoS` 2 that is not over.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// Packet id.
    pub id: u16,
    /// What was published; None where PUBREC has come.
    pub sent: Option<&'a Delivery>,
}

impl Outbound {
    /// Exchanges at `QoS` 2 that are not over, in the order in which a new connection goes on with
    /// them.
    pub fn exchanges(&self) -> Vec<Exchange<'_>> {
        if self.exactly_once == 0 {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (id, entry) in (1..).zip(&self.slots) {
            let Some(entry) = entry else { continue };
            match &entry.state {
                State::Released => found.push((entry.ordinal, Exchange { id, sent: None })),
                State::Published(QoS::ExactlyOnce, Some(kept)) => {
                    let sent = Some(kept);
                    found.push((entry.ordinal, Exchange { id, sent }));
                }
                State::Published(..) => {}
            }
        }
        found.sort_unstable_by_key(|(ordinal, exchange)| (exchange.sent.is_some(), *ordinal));
        found.into_iter().map(|(_, exchange)| exchange).collect()
    }

    /// Takes in exchanges as the log has them, in their order: those at `QoS` 2, `None` where
    /// PUBREC has come, and at `QoS` 1 what may have been sent, whose ids nobody knows.
    pub fn restore(
        &mut self,
        known: Vec<(u16, Option<Delivery>)>,
        maybe_sent: impl IntoIterator<Item = Delivery>,
    ) {
        let last = known.iter().map(|(id, _)| *id).max().unwrap_or(0);
        self.in_flight_max = self.in_flight_max.max(last);
        let slots = self.slots.len().max(usize::from(last));
        self.slots.resize_with(slots, || None);
        for (id, sent) in known {
            self.exactly_once += 1;
            let state = sent.map_or(State::Released, |delivery| {
                State::Published(QoS::ExactlyOnce, Some(delivery))
            });
            let entry = self.restored(state);
            self.slots[usize::from(id) - 1] = Some(entry);
        }
        let unused = (1..).zip(&self.slots).filter(|(_, entry)| entry.is_none());
        self.free = unused.map(|(id, _)| id).collect();
        for delivery in maybe_sent {
            let entry = self.restored(State::Published(QoS::AtLeastOnce, Some(delivery)));
            match self.free.pop_front() {
                Some(id) => self.slots[usize::from(id) - 1] = Some(entry),
                None => self.slots.push(Some(entry)),
            }
        }
    }

    fn restored(&mut self, state: State) -> InFlight {
        if let State::Published(_, Some(kept)) = &state {
            self.kept_bytes += bytes(kept);
        }
        self.next_ordinal += 1;
        InFlight {
            state,
            ordinal: self.next_ordinal - 1,
            is_counted: false,
        }
    }
}
