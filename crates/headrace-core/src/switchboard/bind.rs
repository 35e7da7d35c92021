//! Which streams store what, as the shell says.

use super::{Error, KeyRule, Switchboard};
use crate::record::Codec;
use crate::topic::Filter;

impl Switchboard {
    /// Stores publishes that match a filter in `stream`; replaces an earlier binding of it.
    ///
    /// # Errors
    /// A filter or the key is malformed, or there is no partition.
    pub fn bind(
        &mut self,
        stream: u64,
        partitions: u32,
        filters: &[&str],
        key: &str,
    ) -> Result<(), Error> {
        if partitions == 0 {
            let text = format!("stream {stream} needs at least one partition");
            return Err(Error::Invalid(text));
        }
        let key = KeyRule::parse(key).map_err(Error::Invalid)?;
        let parsed: Vec<Filter> = filters
            .iter()
            .map(|filter| parse_filter(filter))
            .collect::<Result<_, _>>()?;
        let slot = self.streams.bind(stream, partitions, key);
        self.widen_feeds(stream, partitions);
        self.remove_filters(stream, slot);
        for filter in parsed {
            self.bound.insert(filter, slot, ());
        }
        let filters = filters.iter().map(|filter| (*filter).into()).collect();
        self.filters.insert(stream, filters);
        Ok(())
    }

    /// Compresses what is stored in `stream` from the next batch on; none is larger than
    /// `batch_bytes_max` before that, and a publish that makes a larger one is refused. Where it
    /// `compacts`, a publish without payload removes its key.
    ///
    /// # Errors
    /// The stream is not bound.
    pub fn shape(
        &mut self,
        stream: u64,
        codec: Codec,
        batch_bytes_max: usize,
        compacts: bool,
    ) -> Result<(), Error> {
        let bound = self.streams.shape(stream, codec, batch_bytes_max, compacts);
        bound.then_some(()).ok_or(Error::Stream(stream, 0))
    }

    /// Stores nothing more in `stream`; what it was given is still appended.
    ///
    /// # Errors
    /// The stream is not bound.
    pub fn unbind(&mut self, stream: u64) -> Result<(), Error> {
        let slot = self
            .streams
            .unbind(stream)
            .ok_or(Error::Stream(stream, 0))?;
        self.remove_filters(stream, slot);
        self.feeds.stream_gone(stream);
        self.queues.stream_gone(stream);
        Ok(())
    }

    fn remove_filters(&mut self, stream: u64, slot: u32) {
        for filter in self.filters.remove(&stream).unwrap_or_default() {
            if let Ok(filter) = Filter::parse(&filter) {
                self.bound.remove(filter, &slot);
            }
        }
    }

    /// Notes the sources that a partition's log holds.
    ///
    /// # Errors
    /// The stream is not bound, or has no such partition.
    pub fn load_sources<'a>(
        &mut self,
        stream: u64,
        partition: u32,
        sources: impl IntoIterator<Item = (&'a str, u64, u64)>,
    ) -> Result<(), Error> {
        let loaded = self.streams.load_sources(stream, partition, sources);
        loaded.ok_or(Error::Stream(stream, partition))
    }

    /// `(source, epoch, sequence)` of a partition's sources.
    ///
    /// # Errors
    /// The stream is not bound, or has no such partition.
    pub fn sources(
        &mut self,
        stream: u64,
        partition: u32,
    ) -> Result<Vec<(String, u64, u64)>, Error> {
        let window = self.streams.sources(stream, partition);
        let window = window.ok_or(Error::Stream(stream, partition))?;
        Ok(window
            .list()
            .map(|(name, epoch, sequence)| (name.to_owned(), epoch, sequence))
            .collect())
    }
}

fn parse_filter(filter: &str) -> Result<Filter<'_>, Error> {
    if filter.starts_with("$share/") {
        let text = format!("filter \"{filter}\": a stream stores a filter, not a share of it");
        return Err(Error::Invalid(text));
    }
    Filter::parse(filter).map_err(|error| Error::Invalid(format!("filter \"{filter}\": {error}")))
}
