//! Whom a rule is about.

use std::net::IpAddr;

use super::pattern::Who;
use super::RuleError;

/// Somebody who was let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// User name; None for a client without one.
    pub username: Option<Box<str>>,
    /// Of the user.
    pub roles: Box<[Box<str>]>,
    /// Where the client is; None where that is no network.
    pub address: Option<IpAddr>,
    /// A certificate has said the user name, and no list of users needs to have it.
    pub is_certified: bool,
}

impl Principal {
    pub(super) fn who<'a>(&'a self, client_id: &'a str) -> Who<'a> {
        Who {
            client_id,
            username: self.username.as_deref(),
        }
    }
}

/// Addresses that begin alike. IPv4 addresses, mapped or not, are as in `::ffff:0:0/96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    bits: u128,
    mask: u128,
}

impl Network {
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        Self::read(text).ok_or_else(|| RuleError::Address(text.into()))
    }

    fn read(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width: u32 = if address.is_ipv4() { 32 } else { 128 };
        let host = width.checked_sub(length.unwrap_or(width))?;
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        let bits = bits(address);
        (bits & !mask == 0).then_some(Self { bits, mask })
    }

    pub fn has(self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.bits
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
