//! What waits for one client's window, in its order.

use std::collections::VecDeque;

use super::bytes;
use crate::session::Delivery;

/// Messages, their bytes, and when the first of them may expire.
#[derive(Debug)]
pub(super) struct Queue {
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Nothing in it expires before.
    expires_ms: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            deliveries: VecDeque::new(),
            bytes: 0,
            expires_ms: u64::MAX,
        }
    }
}

impl Queue {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter()
    }

    pub fn push(&mut self, delivery: Delivery) {
        self.bytes += bytes(&delivery);
        self.expires_ms = self.expires_ms.min(delivery.message.expires_ms());
        self.deliveries.push_back(delivery);
    }

    pub fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.pop_front()?;
        self.bytes -= bytes(&delivery);
        Some(delivery)
    }

    /// Takes all messages whose expiry has passed. Costs nothing while none has.
    pub fn purge_expired(&mut self, mono_ms: u64) -> VecDeque<Delivery> {
        if mono_ms <= self.expires_ms {
            return VecDeque::new();
        }
        let expired = self.take(|delivery| delivery.message.is_expired(mono_ms));
        let expiries = self.iter().map(|each| each.message.expires_ms());
        self.expires_ms = expiries.min().unwrap_or(u64::MAX);
        expired
    }

    /// Takes the first message where its expiry has passed.
    pub fn pop_expired(&mut self, mono_ms: u64) -> Option<Delivery> {
        let first = self.deliveries.front()?;
        first.message.is_expired(mono_ms).then(|| self.pop())?
    }

    /// Takes some of the messages, in their order.
    pub fn take(&mut self, is_taken: impl Fn(&Delivery) -> bool) -> VecDeque<Delivery> {
        if !self.deliveries.iter().any(&is_taken) {
            return VecDeque::new();
        }
        let (taken, others) = std::mem::take(&mut self.deliveries)
            .into_iter()
            .partition(is_taken);
        self.deliveries = others;
        let taken: VecDeque<Delivery> = taken;
        self.bytes -= taken.iter().map(bytes).sum::<usize>();
        taken
    }

    /// All of them.
    pub fn into_all(self) -> VecDeque<Delivery> {
        self.deliveries
    }

    /// Asserts what must always hold.
    pub fn validate(&self) {
        assert_eq!(self.iter().map(bytes).sum::<usize>(), self.bytes);
        let mut expiries = self.iter().map(|each| each.message.expires_ms());
        assert!(expiries.all(|expires_ms| expires_ms >= self.expires_ms));
    }
}
