//! Stratified samples.

use std::collections::{BTreeMap, HashSet};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::Prompt;
use crate::Error;
use crate::named::named;

named! {
    /// How many prompts each stratum gives.
    pub Allocation {
        /// The same number from each; the remainder goes to the first strata by name.
        Balanced = "balanced",
        /// In proportion to their sizes, by largest remainders.
        Proportional = "proportional",
    }
}

/// Draws `count` distinct prompts without replacement, stratum by stratum, in the order of the
/// strata's names.
///
/// Of prompts with the same text, only the first by stratum and id is used, because duplicates
/// would be dependent observations. Each stratum is shuffled by its own generator, which is seeded
/// with the seed and the stratum's name, and gives the first of its prompts. A sample therefore
/// does not depend on the order of the files or on other texts in other strata. With
/// [`Allocation::Balanced`], a smaller sample is a subset of a larger one with the same seed.
///
/// Without a label there is one stratum.
///
/// # Errors
/// If a prompt lacks the label, or a stratum has too few prompts.
pub fn sample(
    prompts: &[Prompt],
    count: usize,
    label: Option<&str>,
    allocation: Allocation,
    seed: u64,
) -> Result<Vec<Prompt>, Error> {
    let mut strata: BTreeMap<&str, Vec<&Prompt>> = BTreeMap::new();
    let mut seen = HashSet::new();
    // Of equal texts, the same one stays for any order of the prompts.
    let mut prompts: Vec<&Prompt> = prompts.iter().collect();
    prompts.sort_by_key(|prompt| (label.and_then(|label| prompt.labels.get(label)), &prompt.id));
    for prompt in prompts {
        let stratum = match label {
            None => "",
            Some(label) => prompt.labels.get(label).ok_or_else(|| {
                let hint = crate::suggest::hint(label, prompt.labels.keys().map(String::as_str));
                Error::Input(format!("prompt \"{}\" has no label \"{label}\"; {hint}", prompt.id))
            })?,
        };
        if seen.insert(&prompt.prompt) {
            strata.entry(stratum).or_default().push(prompt);
        }
    }
    let sizes: Vec<usize> = strata.values().map(Vec::len).collect();
    let available = sizes.iter().sum();
    if available < count {
        return Err(scarce("the set", available, count));
    }
    let shares = match allocation {
        Allocation::Balanced => balanced(count, sizes.len()),
        Allocation::Proportional => proportional(count, &sizes),
    };
    let mut drawn = Vec::with_capacity(count);
    for ((name, mut members), wanted) in strata.into_iter().zip(shares) {
        if members.len() < wanted {
            let stratum = label.map_or("the set".to_owned(), |label| format!("stratum {label} = \"{name}\""));
            return Err(scarce(&stratum, members.len(), wanted));
        }
        // Sort by text, so that the result does not depend on the order of the file or on ids.
        members.sort_by(|a, b| a.prompt.cmp(&b.prompt));
        members.shuffle(&mut generator(seed, name));
        drawn.extend(members.into_iter().take(wanted).cloned());
    }
    Ok(drawn)
}

fn scarce(stratum: &str, available: usize, wanted: usize) -> Error {
    Error::Input(format!("{stratum} has {available} different prompts and {wanted} are wanted; lower the count"))
}

/// Returns the generator of a stratum, seeded with the SHA-256 digest of seed and name.
fn generator(seed: u64, stratum: &str) -> ChaCha8Rng {
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(stratum).finalize();
    ChaCha8Rng::from_seed(digest.into())
}

fn balanced(count: usize, strata: usize) -> Vec<usize> {
    (0..strata).map(|index| count / strata + usize::from(index < count % strata)).collect()
}

/// Apportions `count`, at most the total, by Hamilton's method: whole quotas first, then the
/// largest remainders, ties to the first. Uses only integers, so that rounding errors have no
/// effect.
fn proportional(count: usize, sizes: &[usize]) -> Vec<usize> {
    let total: usize = sizes.iter().sum();
    let mut shares: Vec<usize> = sizes.iter().map(|size| count * size / total.max(1)).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(count * sizes[index] % total.max(1)));
    let left = count - shares.iter().sum::<usize>();
    for index in order.into_iter().cycle().take(left) {
        shares[index] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(strata: &[(&str, usize)]) -> Vec<Prompt> {
        let mut prompts = Vec::new();
        for (name, size) in strata {
            for row in 0..*size {
                prompts.push(Prompt {
                    id: format!("{name}:{row}"),
                    prompt: format!("{name} {row}"),
                    source: String::new(),
                    row,
                    labels: BTreeMap::from([("axis".to_owned(), (*name).to_owned())]),
                });
            }
        }
        prompts
    }

    fn ids(prompts: &[Prompt]) -> Vec<&str> {
        prompts.iter().map(|prompt| prompt.id.as_str()).collect()
    }

    #[test]
    fn shares_worked_by_hand() {
        assert_eq!(balanced(11, 3), [4, 4, 3]);
        // Quotas of 10 by sizes 6, 5, 2: 4.615, 3.846, 1.538; whole parts 4, 3, 1; the two left go
        // to .846 and .615.
        assert_eq!(proportional(10, &[6, 5, 2]), [5, 4, 1]);
        assert_eq!(proportional(13, &[6, 5, 2]), [6, 5, 2]);
    }

    #[test]
    fn a_sample_depends_on_the_seed_and_on_nothing_else() {
        let all = prompts(&[("a", 30), ("b", 40), ("c", 9)]);
        let draw = |all: &[Prompt], count, seed| sample(all, count, Some("axis"), Allocation::Balanced, seed).unwrap();
        let drawn = draw(&all, 15, 42);
        let mut reversed = all.clone();
        reversed.reverse();
        assert_eq!(drawn, draw(&reversed, 15, 42));
        assert_ne!(drawn, draw(&all, 15, 43));
        for stratum in ["a", "b", "c"] {
            assert_eq!(drawn.iter().filter(|prompt| prompt.labels["axis"] == stratum).count(), 5);
        }
        let fewer = draw(&all, 6, 42);
        assert!(fewer.iter().all(|prompt| drawn.contains(prompt)));
        // Without the other strata, the same prompts of this one.
        let alone = draw(&prompts(&[("b", 40)]), 5, 42);
        assert_eq!(ids(&alone), ids(&drawn[5..10]));
    }

    #[test]
    fn every_prompt_of_a_stratum_is_as_likely_as_any_other() {
        // 4 of 8 over 2,000 seeds: each is drawn 1,000 times with a standard deviation of 22.4;
        // five of those are allowed.
        const SEEDS: u64 = 2000;
        const FIVE_DEVIATIONS: i64 = 112;
        let all = prompts(&[("a", 8)]);
        let mut drawn = [0_i64; 8];
        for seed in 0..SEEDS {
            for prompt in sample(&all, 4, None, Allocation::Balanced, seed).unwrap() {
                drawn[prompt.row] += 1;
            }
        }
        assert!(drawn.iter().all(|count| (count - 1000).abs() < FIVE_DEVIATIONS), "{drawn:?}");
    }

    #[test]
    fn a_text_that_occurs_twice_is_one_prompt() {
        let mut all = prompts(&[("a", 3)]);
        all[2].prompt = all[0].prompt.clone();
        assert_eq!(sample(&all, 2, None, Allocation::Balanced, 1).unwrap().len(), 2);
        let error = sample(&all, 3, None, Allocation::Balanced, 1).unwrap_err().to_string();
        assert!(error.contains("the set has 2 different prompts and 3 are wanted"), "{error}");
    }

    #[test]
    fn a_text_of_two_strata_is_of_the_first_for_any_order() {
        let mut all = prompts(&[("a", 3), ("b", 3)]);
        all[4].prompt = all[1].prompt.clone();
        let draw = |all: &[Prompt]| sample(all, 4, Some("axis"), Allocation::Balanced, 1).unwrap();
        let drawn = draw(&all);
        all.reverse();
        assert_eq!(drawn, draw(&all));
    }

    #[test]
    fn a_stratum_that_is_too_small_is_named() {
        let all = prompts(&[("a", 9), ("b", 2)]);
        let error = sample(&all, 8, Some("axis"), Allocation::Balanced, 1).unwrap_err().to_string();
        assert!(error.contains("axis = \"b\" has 2") && error.contains("4 are wanted"), "{error}");
        for allocation in [Allocation::Balanced, Allocation::Proportional] {
            for count in [12, usize::MAX / 2, usize::MAX] {
                let error = sample(&all, count, Some("axis"), allocation, 1).unwrap_err().to_string();
                assert!(error.contains(&format!("the set has 11 different prompts and {count} are wanted")), "{error}");
            }
        }
        let error = sample(&all, 2, Some("axes"), Allocation::Balanced, 1).unwrap_err().to_string();
        assert!(error.contains("\"axes\"") && error.contains("did you mean \"axis\"?"), "{error}");
    }
}
