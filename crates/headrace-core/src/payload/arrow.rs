//! Columns as Arrow lays them out, built row by row.
//!
//! Source: Arrow columnar format 1.0, "Validity bitmaps", "Fixed-size primitive layout",
//! "Variable-size binary layout"; all little-endian.

/// Which rows are not null; nothing is kept while none is.
#[derive(Clone, Debug, Default)]
struct Validity {
    rows: usize,
    bits: Option<Vec<u8>>,
}

impl Validity {
    fn push(&mut self, valid: bool) {
        if self.bits.is_none() && !valid {
            self.bits = Some(vec![u8::MAX; self.rows / 8 + 1]);
        }
        if let Some(bits) = &mut self.bits {
            set(bits, self.rows, valid);
        }
        self.rows += 1;
    }
}

fn set(bits: &mut Vec<u8>, at: usize, on: bool) {
    if bits.len() <= at / 8 {
        bits.push(0);
    }
    let mask = 1 << (at % 8);
    if on {
        bits[at / 8] |= mask;
    } else {
        bits[at / 8] &= !mask;
    }
}

/// A finished column: validity where a row is null, then the buffers of its layout in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// One bit per row, clear for a null; None without a null.
    pub validity: Option<Vec<u8>>,
    /// Offsets (an i32 per row and one more) and data, or the values alone.
    pub buffers: Vec<Vec<u8>>,
}

/// Texts or byte strings, with i32 offsets: below 2 GiB together.
#[derive(Clone, Debug)]
pub struct Bytes {
    validity: Validity,
    offsets: Vec<u8>,
    data: Vec<u8>,
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            validity: Validity::default(),
            offsets: vec![0; 4],
            data: Vec::new(),
        }
    }
}

impl Bytes {
    /// Adds a row.
    pub fn push(&mut self, row: Option<&[u8]>) {
        self.validity.push(row.is_some());
        self.data.extend_from_slice(row.unwrap_or_default());
        self.offsets
            .extend_from_slice(&(self.data.len() as i32).to_le_bytes());
    }

    /// Adds a row of text.
    pub fn push_text(&mut self, row: Option<&str>) {
        self.push(row.map(str::as_bytes));
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.validity.rows
    }

    /// The column.
    pub fn finish(self) -> Column {
        Column {
            validity: self.validity.bits,
            buffers: vec![self.offsets, self.data],
        }
    }
}

/// Numbers of one width.
#[derive(Clone, Debug)]
pub struct Numbers<const WIDTH: usize> {
    validity: Validity,
    data: Vec<u8>,
}

impl<const WIDTH: usize> Default for Numbers<WIDTH> {
    fn default() -> Self {
        Self {
            validity: Validity::default(),
            data: Vec::new(),
        }
    }
}

impl<const WIDTH: usize> Numbers<WIDTH> {
    /// Adds a row, as its little-endian bytes.
    pub fn push(&mut self, row: Option<[u8; WIDTH]>) {
        self.validity.push(row.is_some());
        self.data.extend_from_slice(&row.unwrap_or([0; WIDTH]));
    }

    /// The column.
    pub fn finish(self) -> Column {
        Column {
            validity: self.validity.bits,
            buffers: vec![self.data],
        }
    }
}

/// Booleans, a bit each.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    validity: Validity,
    bits: Vec<u8>,
}

impl Flags {
    /// Adds a row.
    pub fn push(&mut self, row: Option<bool>) {
        set(&mut self.bits, self.validity.rows, row == Some(true));
        self.validity.push(row.is_some());
    }

    /// The column.
    pub fn finish(self) -> Column {
        Column {
            validity: self.validity.bits,
            buffers: vec![self.bits],
        }
    }
}
