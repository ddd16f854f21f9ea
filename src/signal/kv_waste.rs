//! KV memory that live requests hold and do not use: empty tails of blocks and slots, and what is reserved.
//!
//! It must not mix this with an idle pool, which is headroom, nor with a long context, which holds no blocks
//! of a paged pool. Invariant: an estimate says that it is one.

use crate::derive::kv::{Basis, Buffers, Kv, kv};
use crate::engine::Setting;
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, engine_label, engines, flag};

pub(super) const DETECTOR: Detector = Detector {
    id: "kv_waste",
    help: "Places that live requests hold and that are empty or reserved. Watch from a fifth of what is held, as long as at \
           least a fifth of the pool is held.",
    judge,
};

/// Shares from which it is worth a word: of what is held, and of the pool that is held.
const NOTABLE: f64 = 0.2;

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    let mut buffers = Buffers::default();
    let of_engine = |engine| {
        let kv = kv(data, engine, window, &mut buffers);
        let held = kv.held_tokens.value()?;
        let pool = kv.pool_tokens.value().filter(|pool| *pool > 0.0)?;
        let wasted = if kv.reserved_in_held { kv.reserved_tokens } else { kv.tail_tokens }.value()?;
        let share = if held > 0.0 { wasted / held } else { 0.0 };
        let level = if share >= NOTABLE && held / pool >= NOTABLE { Level::Watch } else { Level::Ok };
        let about = if kv.reserved_in_held || kv.live_tokens_is == Basis::Estimate { "about " } else { "" };
        let what = if kv.reserved_in_held { "reserved for output that has not come" } else { "empty" };
        let label = engine_label(data, engine, window.end);
        let (share, held) = (share * 100.0, held / pool * 100.0);
        let evidence =
            format!("{about}{share:.1} % of what requests hold is {what}; they hold {held:.0} % of the pool");
        let flag = |setting| flag(data, engine, window.end, setting);
        Some(Finding { level, label, evidence, advice: advice(&kv, flag).into() })
    };
    engines(data, window.end).filter_map(of_engine).collect()
}

/// What helps, with the engine's own names for it.
fn advice(kv: &Kv, flag: impl Fn(Setting) -> String) -> String {
    if kv.reserved_in_held {
        return "The engine sets max_new_tokens aside for each request when it lets it in: have clients ask for no more than \
                they need."
            .to_owned();
    }
    if kv.has_slots() {
        let (context, running) = (flag(Setting::Context), flag(Setting::Running));
        return format!(
            "Each slot has its share of the context, used or not: lower the context{context}, cut it into more slots\
             {running}, or let slots share one pool (--kv-unified)."
        );
    }
    "Requests are short against a KV block: a smaller block size wastes less of each one's last block.".to_owned()
}
