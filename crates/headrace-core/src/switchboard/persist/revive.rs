//! Sessions, groups and messages as the records of the log say, made once when a node starts.
//!
//! Whoever was connected when the node ended has just left. What the log says of something that is
//! gone is noted to be written away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use super::record::{read_claims, Copy, Feed, Filter, Head, WILL_ALONE};
use super::restore::{Found, Restoring};
use super::write::wall_ms;
use super::Unit;
use crate::access::{Principal, Rules};
use crate::mqtt::packet::QoS;
use crate::session::{
    self, Claim, Delivery, Durable, Expiry, GroupId, Memory, Message, Owed, Owner, Places,
    Progress, Session, Stored, Subscription, Terms, NEVER_S,
};
use crate::switchboard::record_publish::stream_of;
use crate::switchboard::Switchboard;
use crate::topic;
use crate::Now;

/// What one session or group is owed, by place.
type Dues = BTreeMap<u64, Vec<(u64, Delivery)>>;

impl Switchboard {
    /// All of the log has been taken in: sessions, subscriptions and what waits are as they were.
    /// Retained messages come in before. Wills and ends that are due are so with the next tick:
    /// until then users and rules come in, which hold for wills too ([`Switchboard::control`]).
    pub fn restored(&mut self, now: Now) {
        let Some(mut restoring) = self.persistence.restoring.take() else {
            return;
        };
        let next_number = &mut self.persistence.next_number;
        *next_number = (*next_number).max(restoring.last_number + 1);
        let heads = std::mem::take(&mut restoring.heads);
        let slots: Vec<(u32, bool)> = heads
            .into_iter()
            .map(|(client_id, head)| self.revive_session(client_id, head, now))
            .collect();
        let feeds = std::mem::take(&mut restoring.feeds);
        self.revive_subscriptions(std::mem::take(&mut restoring.filters), feeds);
        self.revive_groups(std::mem::take(&mut restoring.groups));
        let chunks = std::mem::take(&mut restoring.chunks);
        self.revive_messages(&slots, *restoring, now);
        self.restore_chunks(chunks);
        for (slot, _) in slots {
            self.recount_session(slot);
            self.set_session_timer(slot);
        }
    }

    /// A session as it was; whether its client was there.
    fn revive_session(&mut self, client_id: Box<str>, head: Head, now: Now) -> (u32, bool) {
        let mut session = Session::new(self.hash_key, client_id, self.limits.in_flight_max);
        session.inbound.recover();
        self.births += 1;
        session.birth = self.births;
        let partition = self.persistence.partition_of(&session.client_id);
        let left_ms = head.left_ms.unwrap_or_else(|| wall_ms(now));
        let after = |seconds: u32| {
            let due_ms = left_ms + u64::from(seconds) * 1000;
            now.mono_ms + due_ms.saturating_sub(wall_ms(now))
        };
        session.expiry_s = head.expiry_s;
        session.ends_ms = (head.expiry_s < NEVER_S).then(|| after(head.expiry_s));
        let will_ms = head.will.as_ref().map(|will| after(will.delay_s));
        session.will_ms = will_ms.map(|due| session.ends_ms.map_or(due, |end| end.min(due)));
        session.will = head.will;
        // Whose it is; what that user may is asked once all are there (`Switchboard::control`).
        session.identity = head.user.map(|(username, is_certified)| {
            let principal = Principal {
                username: Some(username),
                is_certified,
                ..Principal::default()
            };
            Box::new(Rules::default().identify(principal, &session.client_id))
        });
        if head.number == WILL_ALONE {
            session.is_will_kept = true;
        } else {
            let mut durable = Durable::new(head.number, partition);
            durable.left_ms = Some(left_ms);
            session.durable = Some(Box::new(durable));
        }
        self.kept += usize::from(session.expiry_s > 0);
        let was_there = head.left_ms.is_none();
        if was_there {
            self.persistence.head_due(&mut session);
        }
        let client_id = session.client_id.clone();
        let slot = self.sessions.insert(session) as u32;
        self.by_client.insert(client_id, slot);
        (slot, was_there)
    }

    fn revive_subscriptions(
        &mut self,
        all: BTreeMap<Box<str>, BTreeMap<Box<str>, Filter>>,
        mut feeds: BTreeMap<(Box<str>, Box<str>), Feed>,
    ) {
        for (client_id, filters) in all {
            let slot = self.by_client.get(&client_id).copied();
            for (text, filter) in filters {
                let slot = slot.filter(|slot| self.is_numbered(*slot, filter.number));
                let feed = feeds.remove(&(client_id.clone(), text.clone()));
                let feed = feed.filter(|feed| feed.number == filter.number);
                // A subscription to a stream without a position in it is none. One to a stream
                // that is no more waits for its client, who is told.
                let slot = slot.filter(|_| feed.is_some() || stream_of(&text).is_none());
                let parsed = topic::Subscription::parse(&text).ok();
                let (Some(slot), Some(parsed)) = (slot, parsed) else {
                    let (client_id, text) = (client_id.clone(), text.clone());
                    if stream_of(&text).is_some() {
                        let unit = Unit::Feed(client_id.clone(), text.clone());
                        self.persistence.due.push(unit);
                    }
                    self.persistence.due.push(Unit::Filter(client_id, text));
                    continue;
                };
                let subscription = Subscription {
                    qos: filter.qos,
                    no_local: filter.no_local,
                    retain_as_published: filter.retain_as_published,
                    id: filter.id,
                    before: None,
                    since: self.arrivals,
                };
                let session = &mut self.sessions[slot as usize];
                session.filter_bytes += text.len();
                session.subscriptions.insert(text.clone(), subscription);
                if let Some(consumption) = filter.consumption {
                    self.restore_consumption(slot, text, consumption);
                    continue;
                }
                if let Some(feed) = feed {
                    self.revive_feed(slot, &text, &subscription, &feed);
                    continue;
                }
                if parsed.group.is_some() {
                    self.join_group(slot, &text, parsed.filter, subscription);
                    continue;
                }
                self.subscriptions.insert(parsed.filter, slot, subscription);
                if filter.replays {
                    self.begin_replay(slot, &text, filter.qos, filter.id);
                }
            }
        }
    }

    /// A session reads a stream on from where it was. Partitions that came later it is given on its
    /// return, if it may have them.
    fn revive_feed(&mut self, slot: u32, text: &str, as_now: &Subscription, feed: &Feed) {
        let positions = feed.positions.iter();
        let feed = session::Feed {
            number: self.feeds.number(),
            stream: feed.stream,
            qos: as_now.qos,
            id: as_now.id,
            partitions: positions.map(|at| Progress::at(*at)).collect(),
            is_due: false,
        };
        self.begin_feed(slot, text, feed, std::iter::empty());
    }

    fn revive_groups(&mut self, groups: BTreeMap<Box<str>, (u64, Places)>) {
        for (text, (number, places)) in groups {
            if let Some(durable) = self.groups.durable_of(&text) {
                (durable.number, durable.places) = (number, places);
            }
            // One that has no members is written away.
            self.persistence.group_due(&text);
        }
    }

    fn revive_messages(&mut self, slots: &[(u32, bool)], mut restoring: Restoring, now: Now) {
        let found = std::mem::take(&mut restoring.messages);
        let mut messages = BTreeMap::new();
        for (number, found) in found {
            let message = self.revive_message(number, found, now);
            messages.insert(number, message);
        }
        let owners = self.owners();
        let mut claimed = BTreeSet::new();
        let mut open: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (slot, _) in slots {
            self.revive_exchanges(*slot, &mut restoring, &messages, &owners, &mut claimed);
        }
        for (number, place) in &claimed {
            open.entry(*number).or_default().insert(*place);
        }
        for client_id in restoring.cursors.into_keys() {
            self.persistence.due.push(Unit::Cursor(client_id));
        }
        let mut dues = self.revive_claims(&messages, &owners, &claimed);
        drop(messages);
        for (number, owner) in owners {
            let mut owed = dues.remove(&number).unwrap_or_default();
            owed.sort_unstable_by_key(|(place, _)| *place);
            let open = open.entry(number).or_default();
            open.extend(owed.iter().map(|(place, _)| *place));
            let durable = self.durable_mut(owner).expect("it is an owner");
            let last = open.last().map_or(0, |place| place + 1);
            let next = durable.places.next().max(last);
            durable.places = Places::with_open(next, open.iter().copied());
            let owed = owed.into_iter().map(|(_, delivery)| delivery).collect();
            self.revive_queue(owner, owed, slots);
        }
    }

    fn revive_message(&mut self, number: u64, found: Found, now: Now) -> Arc<Message> {
        let waited_s = wall_ms(now).saturating_sub(found.arrived_ms) / 1000;
        let mut arrived_ms = now.mono_ms;
        let expiry = found.expiry.map(|expiry| {
            if waited_s > u64::from(expiry.seconds) {
                arrived_ms = arrived_ms.saturating_sub(1);
            }
            let waited_s = u32::try_from(waited_s).unwrap_or(u32::MAX);
            let seconds = expiry.seconds.saturating_sub(waited_s);
            Expiry { seconds, ..expiry }
        });
        let ends = &self.persistence.ends;
        let stored = Stored::new(found.partition, number, found.claims, ends);
        let message = Arc::new(Message {
            head: found.head,
            topic_bytes: found.topic_bytes,
            payload: found.payload,
            qos: found.qos,
            retain: found.retain,
            publisher: found.publisher,
            expiry,
            arrived_ms,
            held: OnceLock::new(),
            stored: OnceLock::from(stored),
        });
        let live = &mut self.persistence.logs[found.partition as usize].live;
        live.insert(number, Arc::downgrade(&message));
        message
    }

    /// Sessions and groups that are kept, by number.
    fn owners(&self) -> BTreeMap<u64, Owner> {
        let sessions = self.sessions.iter().filter_map(|(slot, session)| {
            let number = session.durable.as_ref()?.number;
            let slot = slot as u32;
            Some((number, Owner::Session { slot, number }))
        });
        let groups = self.groups.numbers();
        let groups = groups.map(|(slot, number)| (number, Owner::Group { slot, number }));
        sessions.chain(groups).collect()
    }

    fn durable_mut(&mut self, owner: Owner) -> Option<&mut Durable> {
        match owner {
            Owner::Session { slot, .. } => self.sessions[slot as usize].durable.as_deref_mut(),
            Owner::Group { slot, .. } => self.groups.durable(slot),
            Owner::Feed { .. } => None,
        }
    }

    /// What a session had sent and received at `QoS` 2. What a member of a group had been sent is
    /// its own, and the group does not owe it any more (MQTT-4.8.2-5).
    fn revive_exchanges(
        &mut self,
        slot: u32,
        restoring: &mut Restoring,
        messages: &BTreeMap<u64, Arc<Message>>,
        owners: &BTreeMap<u64, Owner>,
        claimed: &mut BTreeSet<(u64, u64)>,
    ) {
        let session = &mut self.sessions[slot as usize];
        let Some(cursor) = restoring.cursors.remove(&session.client_id) else {
            return;
        };
        let durable = session.durable.as_mut();
        let Some(durable) = durable.filter(|durable| durable.number == cursor.number) else {
            return; // Of a session before it; what this one writes, or its end, takes its place.
        };
        durable.places = cursor.places;
        for packet_id in cursor.unreleased {
            session.inbound.restore(packet_id);
        }
        let mut exchanges = Vec::new();
        for (id, sent) in cursor.exchanges {
            let Some(sent) = sent else {
                exchanges.push((id, None));
                continue;
            };
            let Some(message) = messages.get(&sent.number) else {
                continue; // The log lets it go once nobody is owed it.
            };
            let owner = sent.claim.and_then(|(number, _)| owners.get(&number));
            let group = match owner {
                Some(Owner::Group { slot, .. }) if session.groups.contains(slot) => {
                    Some(self.groups.id(*slot))
                }
                _ => None,
            };
            let claim = owner.zip(sent.claim).map(|(owner, (number, place))| {
                claimed.insert((number, place));
                Claim::new(*owner, place, &self.persistence.ends)
            });
            let delivery = delivery(message, sent.copy, group, claim, &self.memory);
            exchanges.push((id, Some(delivery)));
        }
        session.outbound.restore(exchanges, []);
    }

    /// What sessions and groups are owed, by number.
    fn revive_claims(
        &mut self,
        messages: &BTreeMap<u64, Arc<Message>>,
        owners: &BTreeMap<u64, Owner>,
        claimed: &BTreeSet<(u64, u64)>,
    ) -> Dues {
        let mut dues = Dues::new();
        for message in messages.values() {
            let stored = message.stored.get().expect("it came from the log");
            for (number, place, copy) in read_claims(&stored.claims).expect("they were read") {
                let Some(owner) = owners.get(&number).copied() else {
                    continue;
                };
                let durable = self.durable_mut(owner).expect("it is an owner");
                if durable.places.is_over(place) || claimed.contains(&(number, place)) {
                    continue;
                }
                let claim = Claim::new(owner, place, &self.persistence.ends);
                let delivery = delivery(message, copy, None, Some(claim), &self.memory);
                dues.entry(number).or_default().push((place, delivery));
            }
        }
        dues
    }

    /// What waits, in its order. What a client that was there may have been sent is sent again.
    fn revive_queue(&mut self, owner: Owner, mut owed: VecDeque<Delivery>, slots: &[(u32, bool)]) {
        match owner {
            Owner::Session { slot, .. } => {
                let at = slots.binary_search_by_key(&slot, |(slot, _)| *slot);
                let was_there = at.is_ok_and(|at| slots[at].1);
                let outbound = &mut self.sessions[slot as usize].outbound;
                let room = usize::from(self.limits.in_flight_max);
                let room = room.saturating_sub(outbound.in_flight());
                let mut maybe_sent = Vec::new();
                while was_there && maybe_sent.len() < room {
                    let is_at_1 = |first: &Delivery| first.terms.qos == QoS::AtLeastOnce;
                    if !owed.front().is_some_and(is_at_1) {
                        break;
                    }
                    maybe_sent.extend(owed.pop_front());
                }
                outbound.restore([].into(), maybe_sent);
                for delivery in owed {
                    outbound.enqueue(delivery);
                }
            }
            Owner::Group { slot, .. } => {
                let owed = owed.into_iter().map(Owed::from);
                self.groups.revive(slot, owed);
            }
            Owner::Feed { .. } => unreachable!("a feed is owed nothing"),
        }
    }
}

fn delivery(
    message: &Arc<Message>,
    copy: Copy,
    group: Option<GroupId>,
    claim: Option<Arc<Claim>>,
    memory: &Memory,
) -> Delivery {
    let terms = Terms {
        qos: copy.qos,
        retain: copy.retain,
        ids: copy.ids,
        group,
        // Its client is away, and who is away holds up nobody.
        lease: None,
    };
    Delivery::new(Arc::clone(message), terms, claim, memory)
}
