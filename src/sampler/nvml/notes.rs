//! What is to be said of GPUs: the same of several is said once.

use std::fmt::Write as _;

/// What is to be said of a GPU: `GPU 3`, then these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// Which it is, besides its number; may be empty.
    pub(super) of: String,
    /// What is said of one, and of several.
    pub(super) is: [&'static str; 2],
    /// The rest of the sentence.
    pub(super) rest: String,
}

/// Each note once, with the numbers of the GPUs that it is about, in the order of the first of them.
pub(super) fn together(notes: impl IntoIterator<Item = (u32, Note)>) -> Vec<String> {
    let mut groups: Vec<(Vec<u32>, Note)> = Vec::new();
    for (gpu, note) in notes {
        match groups.iter_mut().find(|(_, known)| *known == note) {
            Some((gpus, _)) => gpus.push(gpu),
            None => groups.push((vec![gpu], note)),
        }
    }
    let say = |(gpus, Note { of, is: [one, several], rest }): (Vec<u32>, Note)| match gpus.as_slice() {
        [gpu] => format!("GPU {gpu}{of}{one}{rest}"),
        gpus => format!("GPUs {}{of}{several}{rest}", numbers(gpus)),
    };
    groups.into_iter().map(say).collect()
}

/// `0 to 3, 6 and 7`, of numbers that rise.
fn numbers(all: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in all {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let mut parts = Vec::new();
    for (first, last) in runs {
        match last - first {
            0 => parts.push(first.to_string()),
            1 => parts.extend([first.to_string(), last.to_string()]),
            _ => parts.push(format!("{first} to {last}")),
        }
    }
    let end = parts.pop().unwrap_or_default();
    let mut text = parts.join(", ");
    if !text.is_empty() {
        text.push_str(" and ");
    }
    let _ = write!(text, "{end}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once() {
        let split = Note { of: String::new(), is: [" is split", " are split"], rest: " (MIG)".to_owned() };
        let lost = Note { of: " (H200)".to_owned(), is: [" answers", " answer"], rest: " nothing".to_owned() };
        let said = together([(0, split.clone()), (1, split.clone()), (2, lost.clone()), (3, split.clone())]);
        assert_eq!(said, ["GPUs 0, 1 and 3 are split (MIG)", "GPU 2 (H200) answers nothing"]);
        assert_eq!(together((0..8).map(|gpu| (gpu, split.clone()))), ["GPUs 0 to 7 are split (MIG)"]);
        let some = [0, 1, 2, 3, 6, 7].map(|gpu| (gpu, lost.clone()));
        assert_eq!(together(some), ["GPUs 0 to 3, 6 and 7 (H200) answer nothing"]);
    }
}
