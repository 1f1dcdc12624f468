use std::collections::BTreeMap;

use super::mean;

/// Differences grouped by a shared property, such as the prompt.
///
/// Cells of one prompt at several weight vectors are not independent: a prompt that suits one
/// scheme suits it at every weight vector. Resampling cells therefore overstates the evidence;
/// resampling prompts does not.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    groups: Vec<Vec<f64>>,
}

impl Clusters {
    /// Groups `differences` by `keys`, in ascending order of the keys.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn of<K: Ord + Copy>(differences: &[f64], keys: &[K]) -> Self {
        assert_eq!(differences.len(), keys.len(), "one key per difference");
        let mut groups: BTreeMap<K, Vec<f64>> = BTreeMap::new();
        for (&difference, &key) in differences.iter().zip(keys) {
            groups.entry(key).or_default().push(difference);
        }
        Self { groups: groups.into_values().collect() }
    }

    /// Returns the number of clusters.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether there are no clusters.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the mean difference of each cluster.
    pub fn means(&self) -> Vec<f64> {
        self.groups.iter().map(|group| mean(group)).collect()
    }

    /// Returns the differences of the drawn clusters, in the order of `drawn`.
    pub(crate) fn drawn(&self, drawn: &[usize]) -> Vec<f64> {
        drawn.iter().flat_map(|&cluster| &self.groups[cluster]).copied().collect()
    }

    /// Returns the sum and the number of the differences of each cluster.
    pub(super) fn totals(&self) -> Vec<(f64, f64)> {
        self.groups.iter().map(|group| (group.iter().sum(), group.len() as f64)).collect()
    }
}
