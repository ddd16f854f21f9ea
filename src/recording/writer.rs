//! Writes a recording: header, batches, and marks up to which a cut file can be read.
//!
//! It must not know threads or files. Invariant: after [`Writer::sync`] all that was written so far
//! can be read by whoever holds the bytes, also when nothing ever follows.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::model::Batch;

use super::Header;

/// Writes a recording packed with gzip.
pub struct Writer<W: Write> {
    packed: GzEncoder<W>,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a recording: writes the header and makes it readable.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(out: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self { packed: GzEncoder::new(out, Compression::default()), line: Vec::new() };
        writer.write_line(header)?;
        writer.sync()?;
        Ok(writer)
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// What the output says.
    pub fn write(&mut self, batch: &Batch) -> io::Result<()> {
        self.write_line(batch)
    }

    fn write_line(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value)?;
        self.line.push(b'\n');
        self.packed.write_all(&self.line)
    }

    /// Makes all that was written readable. Costs some packing: about once a second is right.
    ///
    /// # Errors
    /// What the output says.
    pub fn sync(&mut self) -> io::Result<()> {
        self.packed.flush()
    }

    /// Ends the recording and gives the output back.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(self) -> io::Result<W> {
        let mut out = self.packed.finish()?;
        out.flush()?;
        Ok(out)
    }
}
