//! What must always hold of groups, asserted.

use super::members::Group;
use super::table::OfGroups;
use super::work::Waits;
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::Switchboard;

impl Switchboard {
    pub(in crate::switchboard) fn validate_groups(&self) {
        let mut sums = OfGroups::default();
        for (slot, group) in &self.groups.slots {
            let slot = slot as u32;
            assert!(group.len() > 0, "a group has a member");
            assert_eq!(self.groups.by_text.get(&group.text), Some(&slot));
            group.work.validate();
            let queued = group.work.queued();
            assert_eq!(self.groups.waiting.contains(&slot), queued > 0);
            sums += OfGroups {
                members: group.len(),
                queued,
                queued_bytes: group.work.bytes(),
            };
            self.validate_lanes(slot, group);
            assert_eq!(group.places.len(), group.here.len());
            for (place, member) in group.here.iter().enumerate() {
                assert_eq!(group.places.get(&member.session), Some(&place));
            }
            let here = group.here.iter().map(|member| (member, true));
            let away = group.away.values().map(|member| (member, false));
            for (member, is_here) in here.chain(away) {
                let state = &self.sessions[member.session as usize];
                assert_eq!(state.connection.is_some(), is_here);
                assert!(state.groups.contains(&slot));
                assert!(state.subscriptions.contains_key(&group.text));
            }
        }
        for (_, state) in &self.sessions {
            for slot in &state.groups {
                assert!(self.groups.slots.contains(*slot as usize));
            }
            for id in state.outbound.groups() {
                let slot = self.groups.by_id.get(&id).expect("it is there");
                assert!(state.groups.contains(slot), "it is a member's");
            }
        }
        assert_eq!(sums, self.groups.sums);
        assert_eq!(self.groups.by_text.len(), self.groups.slots.len());
        assert_eq!(self.groups.tree.len(), self.groups.slots.len());
    }

    fn validate_lanes(&self, slot: u32, group: &Group) {
        let has_keys = group.strategy.has_keys();
        let in_ring = if has_keys { group.here.len() } else { 0 };
        group.ring.validate(in_ring);
        let in_order = group.strategy.has_standings();
        let standing = if in_order { group.here.len() } else { 0 };
        group.standings.validate(standing);
        for (key, waits) in group.work.waiting() {
            match waits {
                Waits::Due => {}
                Waits::Anyone => assert!(!has_keys || group.here.is_empty()),
                Waits::Lease => {
                    let holder = group.work.holder(key);
                    assert!(holder.is_some() || self.groups.has_ends());
                }
                Waits::Member(session) => {
                    assert!(has_keys && group.places.contains_key(&session));
                }
            }
        }
        for member in &group.here {
            let Some(key) = group.work.first(Waits::Member(member.session)) else {
                continue;
            };
            let connection = self.sessions[member.session as usize].connection;
            let connection = &self.connections[connection.expect("it is there") as usize];
            let message = &group.work.front(key).message;
            let outgoing = Outgoing::of_message(message, message.arrived_ms).placed();
            let place = group.places[&member.session];
            assert!(
                connection.touched || !self.can_take(slot, place, &outgoing),
                "who has room is visited"
            );
        }
    }
}
