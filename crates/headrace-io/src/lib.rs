//! Performs disk effects; decides nothing.
