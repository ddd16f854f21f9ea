//! What server and GPUs did during a level of a load sweep, beside what its client measured, and what held it back.

use crate::load::Level;
use crate::store::Data;

/// Fills in the level's server, GPUs and bottleneck from what was read in its measured time. `engine` is the one that was
/// loaded, `gpus` those that it may use; none where it is on another host.
pub fn attach(data: &Data, engine: u8, gpus: &[u8], level: &mut Level) {
    let _ = (data, engine, gpus, level);
    todo!()
}
