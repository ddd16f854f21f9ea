//! The search for the largest single block, downward from what may be asked for at most.
//!
//! It must not know a GPU. Invariants: nothing is asked for that is more than there is room for at that moment; once room
//! shrinks, which means that others take memory, nothing is asked for any more.

use crate::probe::Failure;

/// By how much room may vary without anybody taking memory: tables of pages, the driver's own blocks.
const SLACK: u64 = 64 << 20;

/// What a search found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The largest block that was given, bytes; 0: none.
    pub(super) given: u64,
    /// The smallest block that was not given; 0: each was given that was asked for.
    pub(super) refused: u64,
    /// The most that might be asked for.
    pub(super) most: u64,
    /// Blocks that were asked for.
    pub(super) tries: u64,
    /// Others took memory meanwhile, so that it was broken off.
    pub(super) broken_off: bool,
}

/// Searches in steps of `step` bytes. `room` says how much may be asked for right now, `gives` asks for a block.
pub(super) fn search(
    step: u64,
    mut room: impl FnMut() -> Result<u64, Failure>,
    mut gives: impl FnMut(u64) -> Result<bool, Failure>,
) -> Result<Found, Failure> {
    let most = room()? / step * step;
    let mut found = Found { most, ..Found::default() };
    let mut next = most;
    while next > found.given {
        let now = room()?;
        if now.saturating_add(SLACK) < most {
            found.broken_off = true;
            break;
        }
        let size = next.min(now / step * step);
        if size <= found.given {
            break;
        }
        found.tries += 1;
        if gives(size)? {
            found.given = size;
        } else {
            found.refused = size;
        }
        if found.refused == 0 {
            break;
        }
        // Halfway between what is given and what is not, in whole steps: it ends when they are neighbours.
        next = found.given + (found.refused - found.given) / 2 / step * step;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// A device that gives blocks of up to `largest`, and how often it was asked for how much.
    fn on(room: u64, largest: u64) -> (Found, Vec<u64>) {
        let mut asked = Vec::new();
        let found = search(
            2 * MIB,
            || Ok(room),
            |size| {
                asked.push(size);
                Ok(size <= largest)
            },
        );
        (found.unwrap(), asked)
    }

    #[test]
    fn where_all_is_given_one_try_is_enough() {
        let (found, asked) = on(132 * GIB + 12_345, 139 * GIB);
        assert_eq!(asked, [132 * GIB]);
        assert_eq!(found, Found { given: 132 * GIB, refused: 0, most: 132 * GIB, tries: 1, broken_off: false });
    }

    #[test]
    fn the_largest_block_is_found_to_the_step_and_nothing_larger_than_the_room_is_asked_for() {
        for largest in [0, MIB, 2 * MIB, 3 * MIB, 33 * GIB + 7, 64 * GIB, 128 * GIB - 2 * MIB, 128 * GIB] {
            let (found, asked) = on(128 * GIB, largest);
            assert_eq!(found.given, largest / (2 * MIB) * 2 * MIB, "{largest}");
            assert!(found.tries <= 18 && asked.len() as u64 == found.tries, "{largest}: {asked:?}");
            assert!(asked.iter().all(|size| *size > 0 && *size <= 128 * GIB && size % (2 * MIB) == 0), "{asked:?}");
            let neighbours = found.refused == 0 || found.refused == found.given + 2 * MIB;
            assert!(neighbours, "{largest}: {found:?}");
        }
    }

    #[test]
    fn where_there_is_no_room_nothing_is_asked_for() {
        for room in [0, 2 * MIB - 1] {
            let (found, asked) = on(room, GIB);
            assert!(asked.is_empty() && found == Found::default(), "{found:?}");
        }
    }

    #[test]
    fn it_breaks_off_when_others_take_memory() {
        let (mut left, mut asked) = (100 * GIB, Vec::new());
        let found = search(
            2 * MIB,
            || {
                left -= GIB;
                Ok(left)
            },
            |size| {
                asked.push(size);
                Ok(false)
            },
        )
        .unwrap();
        assert!(asked.is_empty() && found.broken_off && found.given == 0, "{found:?}");
    }

    #[test]
    fn a_little_less_room_is_no_more_than_is_asked_for() {
        // The first reading is the larger one.
        let mut rooms = [10 * GIB, 10 * GIB - 4 * MIB].into_iter().cycle();
        let mut asked = Vec::new();
        let found = search(
            2 * MIB,
            || Ok(rooms.next().unwrap_or(0)),
            |size| {
                asked.push(size);
                Ok(true)
            },
        )
        .unwrap();
        assert_eq!(asked, [10 * GIB - 4 * MIB]);
        assert!(found.given == 10 * GIB - 4 * MIB && !found.broken_off && found.refused == 0, "{found:?}");
    }

    #[test]
    fn an_error_ends_it() {
        assert_eq!(search(MIB, || Ok(GIB), |_| Err(Failure::Stopped)), Err(Failure::Stopped));
    }
}
