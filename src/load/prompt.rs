//! Prompts: token ids or words at random, like no other but for what they are meant to share.
//!
//! It must not know JSON bodies or endpoints. Invariants: the unique part of a prompt differs from that of every other
//! prompt of the same maker: at its first piece until every piece was first once, at its third at the latest, so that no
//! prefix cache helps; the shared part is the start of one endless text; the same seed makes the same prompts in the
//! same order. A server that has seen a seed before therefore has its prompts in the cache: each sweep takes a fresh
//! one, unless it is told to repeat another.

use std::sync::LazyLock;

/// Short common English words, most of them a token each.
static WORDS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("../../assets/load-words.txt").split_whitespace().collect());
/// How many pieces at the start of the unique part say which prompt it is.
const MARK: usize = 3;

/// The words that prompts are made of.
pub(super) fn words() -> &'static [&'static str] {
    &WORDS
}

/// Makes prompts of pieces.
#[derive(Debug)]
pub(super) struct Prompts {
    /// As they stand in a body.
    pieces: Vec<String>,
    between: u8,
    /// Share of each prompt that all have in common, 0 to 1.
    shared_share: f64,
    /// What they have in common, as far as it was needed; numbers of pieces.
    shared: Vec<usize>,
    of_shared: fastrand::Rng,
    random: fastrand::Rng,
    /// The numbers of all pieces, in the order in which they begin unique parts.
    order: Vec<usize>,
    made: usize,
}

impl Prompts {
    /// Of token ids from `least` to `most`.
    pub(super) fn of_ids((least, most): (u32, u32), shared_share: f64, seed: u64) -> Self {
        Self::new((least..=most.max(least)).map(|id| id.to_string()).collect(), b',', shared_share, seed)
    }

    /// Of words.
    pub(super) fn of_words(shared_share: f64, seed: u64) -> Self {
        Self::new(words().iter().map(|word| (*word).to_owned()).collect(), b' ', shared_share, seed)
    }

    fn new(pieces: Vec<String>, between: u8, shared_share: f64, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let of_shared = random.fork();
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        random.shuffle(&mut order);
        let shared_share = if shared_share.is_finite() { shared_share.clamp(0.0, 1.0) } else { 0.0 };
        Self { pieces, between, shared_share, shared: Vec::new(), of_shared, random, order, made: 0 }
    }

    /// Writes the next prompt: so many pieces, with a comma or a space between them.
    pub(super) fn write(&mut self, length: usize, into: &mut Vec<u8>) {
        let shared = ((self.shared_share * length as f64).round() as usize).min(length);
        while self.shared.len() < shared {
            self.shared.push(self.of_shared.usize(..self.pieces.len()));
        }
        let mark = self.mark();
        for i in 0..length {
            let piece = match i.checked_sub(shared) {
                None => self.shared[i],
                Some(place) if place < MARK => mark[place],
                Some(_) => self.random.usize(..self.pieces.len()),
            };
            if i > 0 {
                into.push(self.between);
            }
            into.extend_from_slice(self.pieces[piece].as_bytes());
        }
    }

    /// What begins the unique part of this prompt: its number, its lowest digit first, with pieces as digits. Each digit
    /// is counted from the one before it, so that all of them change from prompt to prompt.
    fn mark(&mut self) -> [usize; MARK] {
        let (mut number, mut digit, all) = (self.made, 0, self.order.len());
        self.made += 1;
        std::array::from_fn(|_| {
            digit = (digit + 1 + number % all) % all;
            number /= all;
            self.order[digit]
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn next(prompts: &mut Prompts, length: usize) -> Vec<String> {
        let mut text = Vec::new();
        prompts.write(length, &mut text);
        let text = String::from_utf8(text).unwrap();
        text.split([',', ' ']).map(ToOwned::to_owned).collect()
    }

    fn made(ids: bool, shared: f64, seed: u64) -> Prompts {
        if ids { Prompts::of_ids((100, 999), shared, seed) } else { Prompts::of_words(shared, seed) }
    }

    #[test]
    fn the_words_are_short_and_no_two_are_the_same() {
        let all: HashSet<_> = words().iter().collect();
        assert_eq!((words().len(), all.len()), (256, 256));
        assert!(words().iter().all(|word| word.len() <= 8 && word.bytes().all(|c| c.is_ascii_lowercase())));
    }

    #[test]
    fn every_piece_is_first_once_before_one_is_first_again() {
        let mut prompts = Prompts::of_ids((100, 999), 0.0, 7);
        let firsts: Vec<_> = (0..900).map(|_| next(&mut prompts, 4)[0].clone()).collect();
        assert_eq!(firsts.iter().collect::<HashSet<_>>().len(), 900);
        let sorted = firsts.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((350..550).contains(&sorted), "they come in no order: {sorted}");
        // And then the second tells them apart.
        let again: Vec<_> = (0..9_000).map(|_| next(&mut prompts, 2)).collect();
        assert_eq!(again.iter().collect::<HashSet<_>>().len(), 9_000);
        assert!(again.windows(2).all(|pair| pair[0][1] != pair[1][1]), "the second changes too");
    }

    #[test]
    fn the_rest_is_spread_over_all_pieces() {
        let mut prompts = Prompts::of_ids((1_000, 9_999), 0.0, 3);
        let all = next(&mut prompts, 200_000);
        let (mut seen, mut sum) = (HashSet::new(), 0.0);
        for id in all.iter().skip(MARK) {
            let id: u32 = id.parse().unwrap();
            assert!((1_000..=9_999).contains(&id));
            seen.insert(id);
            sum += f64::from(id);
        }
        // 9,000 · e^(−200,000/9,000) are never drawn on average: none. The mean's standard deviation is 5.8.
        assert_eq!(seen.len(), 9_000);
        assert!((sum / 199_997.0 - 5_499.5).abs() < 30.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_seed_makes_the_same_prompts_and_another_does_not(ids: bool, shared in 0.0f64..0.9, seed: u64) {
            let all = |seed| {
                let mut prompts = made(ids, shared, seed);
                (1..30).map(|n| next(&mut prompts, n)).collect::<Vec<_>>()
            };
            prop_assert_eq!(all(seed), all(seed));
            prop_assert_ne!(all(seed), all(seed ^ 1));
        }

        #[test]
        fn prompts_are_as_long_as_asked_and_share_what_they_should(
            ids: bool,
            shared in 0.0f64..=1.0,
            seed: u64,
            lengths in prop::collection::vec(1usize..200, 2..40),
        ) {
            let mut prompts = made(ids, shared, seed);
            let all: Vec<_> = lengths.iter().map(|n| next(&mut prompts, *n)).collect();
            let longest = all.iter().max_by_key(|prompt| prompt.len()).unwrap();
            for (prompt, length) in all.iter().zip(&lengths) {
                prop_assert_eq!(prompt.len(), *length);
                let common = (shared * *length as f64).round() as usize;
                prop_assert_eq!(&prompt[..common], &longest[..common]);
            }
            for (i, a) in all.iter().enumerate() {
                for b in &all[..i] {
                    let common = (shared * a.len() as f64).round() as usize;
                    if a.len() == b.len() && common < a.len() {
                        // Fewer than there are pieces, so the very first unique one differs.
                        prop_assert_ne!(&a[common], &b[common]);
                    }
                }
            }
        }
    }
}
