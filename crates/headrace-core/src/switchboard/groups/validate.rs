//! What must always hold of groups, asserted.

use super::table::OfGroups;
use crate::switchboard::Switchboard;

impl Switchboard {
    pub(in crate::switchboard) fn validate_groups(&self) {
        let mut sums = OfGroups::default();
        for (slot, group) in &self.groups.slots {
            let slot = slot as u32;
            assert!(group.len() > 0, "a group has a member");
            assert_eq!(self.groups.by_text.get(&group.text), Some(&slot));
            assert_eq!(self.groups.waiting.contains(&slot), !group.queue.is_empty());
            let bytes: usize = group.queue.iter().map(|owed| owed.message.bytes()).sum();
            assert_eq!(bytes, group.queued_bytes);
            sums += OfGroups {
                members: group.len(),
                queued: group.queue.len(),
                queued_bytes: bytes,
            };
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
}
