//! What the broker says of itself, below `$SYS/` (MQTT 5.0 4.7.2): published by nobody else, kept
//! for those who subscribe later, and live for those who have.
//!
//! It is told at `QoS` 0, so that it never waits for a client that is away, and kept apart from what
//! clients retain, so that it takes none of their room and is not stored.

use std::sync::Arc;

use super::outgoing::Outgoing;
use super::route::Target;
use super::{Error, Switchboard, DOOR};
use crate::mqtt::encode;
use crate::mqtt::packet::{Publish, Version};
use crate::topic::{self, Filter};
use crate::Now;

/// What all of its topics begin with.
pub(super) const BELOW: &str = "$SYS/";

impl Switchboard {
    /// Says something of the broker; an empty payload takes it back.
    ///
    /// # Errors
    /// The topic is no topic name below `$SYS/`.
    pub fn announce(&mut self, topic: &str, payload: &[u8], now: Now) -> Result<(), Error> {
        let invalid = |why: &str| Err(Error::Invalid(format!("topic \"{topic}\": {why}")));
        if let Err(error) = topic::validate_name(topic) {
            return invalid(&error.to_string());
        }
        if !topic.starts_with(BELOW) {
            return invalid("what the broker says of itself is below $SYS/");
        }
        let publish = Publish {
            topic,
            payload,
            retain: true,
            ..Publish::default()
        };
        let mut packet = Vec::new();
        encode::publish(Version::V5, &publish, &mut packet);
        self.match_topic(&self.subject(&publish, DOOR));
        let route = std::mem::take(&mut self.route);
        let mut scratch = Vec::new();
        let mut outgoing = Outgoing::of(Version::V5, &packet, &publish, now.mono_ms, &mut scratch);
        self.arrivals += 1;
        if route.is_crowd || self.door.is_held_up() {
            let deferred = self.put_off(DOOR, &route, &mut outgoing, Vec::new());
            self.answer_deferred(deferred, now);
        } else {
            for Target { session, terms } in &route.targets {
                self.deliver(*session, terms, None, &mut outgoing);
            }
            self.deliver_to_groups(&route.groups, &mut outgoing);
        }
        self.route = route;
        if payload.is_empty() {
            self.announced.clear(topic);
        } else {
            let message = Arc::new(outgoing.message().fresh());
            self.announced.set(message, self.arrivals, 0);
        }
        Ok(())
    }

    /// Where that what a filter matches is kept: a wildcard in the first level matches nothing of
    /// the broker's own.
    pub(super) fn kept_for(&self, filter: Filter<'_>) -> &super::retained::Store {
        if filter.as_str().starts_with(BELOW) {
            &self.announced
        } else {
            &self.retained
        }
    }
}
