//! How whole the GPU's free memory is: the largest single block against what is free, and what blocks cost.
//!
//! The largest block is searched downward from what the guard leaves, with physical memory that gets no address and is
//! given back at once; the headroom is never asked for, so a server that grows meanwhile finds it. What a block takes of
//! free memory, and how long the driver needs for it, is what a caching allocator hides from a framework.

mod search;

use super::cuda::Gpu;
use super::guard;
use super::plan::Plan;
use super::{Better, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target};
use crate::model::text::Plural;
use search::{Found, search};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "frag",
    key: 'f',
    name: "memory blocks",
    help: "The largest single block of device memory against what is free, the pages it is given in, and the time for \
           taking and giving back: what a framework's own allocator saves.",
    needs: Needs::Gpu,
    params: &[Param {
        name: "tries",
        help: "how often blocks of each size are taken and given back",
        kind: Kind::Count { default: 20.0, least: 5.0, most: 50.0 },
    }],
    cost,
    cool_ms: 5_000,
    headline: "largest",
    hidden: false,
};

const KIB: f64 = 1024.0;
const GIB: f64 = 1_073_741_824.0;
/// One block has to have so much of what may be asked for, %; the rest is tables and rounding.
const WHOLE_PCT: f64 = 98.0;
/// Small blocks that are taken one by one, to see the steps in which free memory falls: pages of up to 2 MiB.
const STEP_BLOCKS: usize = 1536;
/// Free memory may differ by this much before and after, bytes: what the driver keeps for the next one.
const KEPT: f64 = 64.0 * MIB;

/// Blocks of one size.
#[derive(Clone, Copy, Debug)]
struct Size {
    id: &'static str,
    label: &'static str,
    bytes: u64,
    /// How many are taken at once: so many that pages of 2 MiB do not blur what one of them takes.
    blocks: usize,
    /// Whether what a block takes of free memory is a question at all.
    costs: bool,
}

const fn size(id: &'static str, label: &'static str, bytes: u64, blocks: usize, costs: bool) -> Size {
    Size { id, label, bytes, blocks, costs }
}

const SIZES: [Size; 9] = [
    size("4kib", "4 KiB", 4 << 10, 8192, true),
    size("64kib", "64 KiB", 64 << 10, 512, true),
    size("1mib", "1 MiB", 1 << 20, 64, true),
    size("2mib", "2 MiB", 2 << 20, 32, true),
    size("2mib_1b", "2 MiB and a byte", (2 << 20) + 1, 32, true),
    size("16mib", "16 MiB", 16 << 20, 8, false),
    size("64mib", "64 MiB", 64 << 20, 4, false),
    size("256mib", "256 MiB", 256 << 20, 2, false),
    size("1gib", "1 GiB", 1 << 30, 1, false),
];

fn cost(params: &Params, _: &Target) -> Cost {
    Cost {
        seconds: 3.0 + params.number("tries") * 0.15,
        gpu_bytes: Cost::THE_REST,
        host_bytes: 256 << 20,
        watts: None,
        load: None,
        disturbs:
            "a process that wants more device memory than stays free for others (2 GiB or 5 %) in the very moment \
                   of a try, and those that allocate just then: the driver serves one after the other"
                .to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    link.progress(0.0, None, "starting CUDA")?;
    let gpu = Gpu::open(link)?;
    let tries = params.number("tries") as usize;
    let mut plan = Plan::new(SIZES.len() + 2, 0.3);
    let mut outcome = Outcome { facts: gpu.facts()?, ..Outcome::default() };
    // The first block pays for what the driver sets up.
    gpu.take(4096, 1, || link.micros())?;
    let (free, total) = gpu.memory()?;
    outcome.facts.insert("memory in all".to_owned(), format!("{:.1} GiB", total as f64 / GIB));
    outcome.figures.extend(one("free", "Free, as the driver says", "GiB", free as f64 / GIB));
    plan.tell(link, 0.0, "the largest block")?;
    largest(link, &gpu, &mut outcome)?;
    plan.step();
    plan.tell(link, 0.0, "steps of free memory")?;
    steps(link, &gpu, &mut outcome)?;
    plan.step();
    for size in SIZES {
        blocks(link, &gpu, &plan, size, tries, &mut outcome)?;
        plan.step();
    }
    let lost = free as f64 - gpu.memory()?.0 as f64;
    if lost > KEPT {
        outcome.notes.push(format!(
            "free memory fell by {:.0} MiB during the run although all was given back: others took it meanwhile, or the \
             driver lost it; run it again on an idle GPU to tell which",
            lost / MIB
        ));
    }
    Ok(outcome)
}

/// A figure that is read once.
fn one(id: &str, label: &str, unit: &str, value: f64) -> Option<Figure> {
    Figure::median(id, label, unit, Better::Neither, &[value])
}

fn largest(link: &mut Link, gpu: &Gpu, outcome: &mut Outcome) -> Result<(), Failure> {
    let Some((least, recommended)) = gpu.granularity()? else {
        outcome.notes.push(
            "this device gives no memory without addresses: the largest block is not searched for, since anything else \
             would hold it longer"
                .to_owned(),
        );
        return Ok(());
    };
    let mut held_us = 0;
    let room = || {
        link.check()?;
        let (free, total) = gpu.memory()?;
        Ok(free.saturating_sub(guard::headroom(total as f64) as u64).min(gpu.room()))
    };
    let found = search(recommended.max(least).max(1), room, |bytes| {
        let start = link.micros();
        let given = gpu.gives(bytes)?;
        let us = link.micros().saturating_sub(start);
        held_us = held_us.max(us);
        link.rest(us)?;
        Ok(given)
    })?;
    outcome.notes.extend(words(found));
    outcome.figures.extend(figures(found));
    if found.tries > 0 {
        let held = one("held", "Longest try", "ms", held_us as f64 / 1e3);
        outcome.figures.extend(held.map(|figure| figure.by("from asking for a block until it was given back")));
    }
    let properties = [
        ("granularity", "Step of physical memory", least),
        ("granularity_good", "Step that is recommended", recommended),
    ];
    for (id, label, bytes) in properties {
        outcome.figures.extend(one(id, label, "KiB", bytes as f64 / KIB).map(|f| f.by("what the driver answers")));
    }
    Ok(())
}

/// The largest block, and what share that is of what was asked for.
fn figures(found: Found) -> Vec<Figure> {
    let mut out = Vec::new();
    if found.given == 0 {
        return out;
    }
    let label = if found.refused == 0 || found.broken_off { "Largest block, at least" } else { "Largest block" };
    let method = if found.refused == 0 {
        "all was given that may be asked for; what stays free for others is never asked for".to_owned()
    } else {
        let refused = found.refused as f64 / GIB;
        format!("{refused:.3} GiB were refused; {} blocks were asked for", found.tries)
    };
    let largest = one("largest", label, "GiB", found.given as f64 / GIB);
    out.extend(largest.map(|figure| Figure { n: found.tries, ..figure }.by(&method)));
    // Broken off, the next try might have been given.
    if !found.broken_off {
        let share = [found.given as f64 / found.most as f64 * 100.0];
        let share = Figure::median("share", "In one block", "%", Better::Higher, &share);
        out.extend(share.map(|figure| figure.by("of the free memory that may be asked for")));
    }
    out
}

/// What has to be known of the search.
fn words(found: Found) -> Option<String> {
    let gib = |bytes: u64| bytes as f64 / GIB;
    if found.broken_off {
        return Some(
            "others took memory during the search for the largest block, which was broken off: nothing is taken from a \
             server that grows"
                .to_owned(),
        );
    }
    if found.most == 0 {
        return Some("too little memory is free beside what stays free for others: no block was asked for".to_owned());
    }
    let share = found.given as f64 / found.most as f64 * 100.0;
    (share < WHOLE_PCT).then(|| {
        format!(
            "the driver gives no single block above {:.1} GiB although {:.1} GiB were there to be asked for. Pages are \
             mapped, so gaps between the blocks of others do not explain it: memory is reserved or lost. Stop the \
             processes on this GPU one by one and measure again; if it stays so when none is left, look for retired \
             pages and a MIG or vGPU profile, then reset the GPU or restart the machine",
            gib(found.given),
            gib(found.most)
        )
    })
}

/// In which steps free memory falls while small blocks are taken one by one.
fn steps(link: &Link, gpu: &Gpu, outcome: &mut Outcome) -> Result<(), Failure> {
    let mut taken = Vec::with_capacity(STEP_BLOCKS);
    let mut falls = Vec::new();
    let mut last = gpu.memory()?.0;
    let start = link.micros();
    for _ in 0..STEP_BLOCKS {
        taken.push(gpu.buffer(4096)?);
        let now = gpu.memory()?.0;
        if now < last {
            falls.push((last - now) as f64 / KIB);
        }
        last = now;
    }
    drop(taken);
    link.rest(link.micros().saturating_sub(start))?;
    let page = Figure::median("page", "Page of small blocks", "KiB", Better::Neither, &falls);
    let method =
        format!("by how much free memory falls at once while {STEP_BLOCKS} blocks of 4 KiB are taken one by one");
    outcome.figures.extend(page.map(|figure| figure.by(&method)));
    Ok(())
}

/// What blocks of one size take of free memory, and how long taking and giving back lasts.
fn blocks(
    link: &mut Link,
    gpu: &Gpu,
    plan: &Plan,
    size: Size,
    tries: usize,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let Size { id, label, bytes, blocks, costs } = size;
    if bytes.next_multiple_of(2 << 20).saturating_mul(blocks as u64) > gpu.room() {
        outcome.notes.push(format!("no room for {} of {label}: left out", Plural(blocks as u64, "block", "blocks")));
        return Ok(());
    }
    let n = blocks as f64;
    let (mut take, mut give_back, mut kib) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..=tries {
        plan.tell(link, i as f64 / (tries + 1) as f64, &format!("blocks of {label}"))?;
        let taken = gpu.take(bytes, blocks, || link.micros())?;
        link.rest((taken.take_us + taken.give_back_us) as u64)?;
        // The first one warms up: the driver keeps small pieces for later.
        if i == 0 {
            continue;
        }
        take.push(taken.take_us / n);
        give_back.push(taken.give_back_us / n);
        link.sample(&format!("take_{id}"), "µs", taken.take_us / n)?;
        link.sample(&format!("give_{id}"), "µs", taken.give_back_us / n)?;
        kib.push(taken.fell as f64 / n / KIB);
    }
    let method =
        if blocks == 1 { "host time".to_owned() } else { format!("host time, {blocks} blocks at once, of one") };
    let times = [("take", "Take", take), ("give", "Give back", give_back)];
    for (what, name, values) in times {
        let figure =
            Figure::median(&format!("{what}_{id}"), &format!("{name} {label}"), "µs", Better::Neither, &values);
        outcome.figures.extend(figure.map(|figure| figure.by(&method)));
    }
    if !costs {
        return Ok(());
    }
    let figure =
        Figure::median(&format!("block_{id}"), &format!("Memory of a block of {label}"), "KiB", Better::Neither, &kib);
    let asked = bytes as f64 / KIB;
    outcome.figures.extend(
        figure.map(|figure| figure.by(&format!("by how much free memory falls; {asked:.0} KiB are asked for"))),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u64 = 132 << 30;

    fn value(figures: &[Figure], id: &str) -> Option<f64> {
        figures.iter().find(|figure| figure.id == id).map(|figure| figure.value)
    }

    #[test]
    fn a_block_that_was_not_refused_is_a_lower_bound() {
        let found = Found { given: WHOLE, refused: 0, most: WHOLE, tries: 1, broken_off: false };
        let figures = figures(found);
        assert_eq!((value(&figures, "largest"), value(&figures, "share")), (Some(132.0), Some(100.0)));
        assert!(figures[0].label.contains("at least"), "{figures:?}");
        assert_eq!(words(found), None);
    }

    #[test]
    fn a_block_far_below_what_is_free_comes_with_advice() {
        let found =
            Found { given: WHOLE / 4, refused: WHOLE / 4 + (2 << 20), most: WHOLE, tries: 18, broken_off: false };
        let figures = figures(found);
        assert_eq!((value(&figures, "largest"), value(&figures, "share")), (Some(33.0), Some(25.0)));
        assert!(!figures[0].label.contains("at least") && figures[0].n == 18, "{figures:?}");
        assert!(words(found).unwrap().contains("above 33.0 GiB although 132.0 GiB"));
        // The driver's own tables: no reason for advice.
        assert_eq!(words(Found { given: WHOLE - (33 << 20), ..found }), None);
    }

    #[test]
    fn what_was_not_found_is_no_figure() {
        let none = Found { most: WHOLE, broken_off: true, ..Found::default() };
        assert!(figures(none).is_empty() && words(none).unwrap().contains("broken off"));
        let some = Found { given: WHOLE / 2, refused: WHOLE, tries: 2, ..none };
        let figures = figures(some);
        assert_eq!(value(&figures, "share"), None, "the next try might have been given");
        assert!(figures[0].label.contains("at least"), "{figures:?}");
        assert!(super::figures(Found::default()).is_empty() && words(Found::default()).unwrap().contains("too little"));
    }

    #[test]
    fn pages_blur_no_block_by_more_than_a_tenth() {
        for size in SIZES.iter().filter(|size| size.costs) {
            assert!(size.bytes * size.blocks as u64 >= 10 * (2 << 20), "{}", size.id);
        }
    }
}
