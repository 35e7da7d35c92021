//! Bytes of one client that wait to be served.

/// Bytes that came, of which those at the front may have been served.
#[derive(Debug, Default)]
pub struct InBuffer {
    bytes: Vec<u8>,
    /// Served, and not yet let go: moving the rest up for each packet would cost all of it each
    /// time for a client that is let go on one packet at a time.
    served: usize,
}

impl InBuffer {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.served
    }

    /// True where nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What waits.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.served..]
    }

    /// Appends what came.
    pub fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    /// So many bytes of what waits are served.
    pub fn serve(&mut self, count: usize) {
        self.served += count;
        if self.is_empty() {
            *self = Self::default();
        } else if self.served > self.bytes.len() / 2 {
            self.bytes.drain(..self.served);
            self.served = 0;
        }
    }

    /// All that waits.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.served);
        self.bytes
    }
}

impl From<Vec<u8>> for InBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, served: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_moved_no_more_than_it_has_bytes() {
        let mut input = InBuffer::default();
        let expected: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        input.push(&expected);
        let (mut moved, mut served) = (0, 0);
        while !input.is_empty() {
            assert_eq!(input.bytes(), &expected[served..]);
            let before = input.served;
            let part = input.len().min(10);
            input.serve(part);
            served += part;
            if input.served < before {
                moved += input.len();
            }
        }
        assert_eq!(served, expected.len());
        assert!(moved <= expected.len(), "{moved} bytes were moved");
        assert_eq!(input.bytes.capacity(), 0, "what is idle holds nothing");
    }
}
