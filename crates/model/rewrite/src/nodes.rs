//! Sets of nodes of a graph, and values by node. Both are asked for each instruction of a loop again
//! and again while a thread of the program waits, so a look-up is one access to an array.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// A set of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    /// By node, up to the last one of the set.
    is_in: Vec<bool>,
    /// Ascending.
    all: Vec<usize>,
}

impl Nodes {
    pub(crate) fn contains(&self, n: &usize) -> bool {
        self.is_in.get(*n).is_some_and(|&is_in| is_in)
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> core::slice::Iter<'_, usize> {
        self.all.iter()
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl FromIterator<usize> for Nodes {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut all: Vec<usize> = nodes.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        let mut is_in = alloc::vec![false; all.last().map_or(0, |last| last + 1)];
        all.iter().for_each(|&n| is_in[n] = true);
        Self { is_in, all }
    }
}

impl<'a> IntoIterator for &'a Nodes {
    type Item = &'a usize;
    type IntoIter = core::slice::Iter<'a, usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A large value for some of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct ByNode<T>(Vec<Option<Box<T>>>);

impl<T> ByNode<T> {
    pub(crate) fn get(&self, n: &usize) -> Option<&T> {
        self.0.get(*n)?.as_deref()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = usize> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(n, value)| value.is_some().then_some(n))
    }
}

impl<T> Default for ByNode<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// From the values of all nodes, in order.
impl<T> From<Vec<Option<Box<T>>>> for ByNode<T> {
    fn from(values: Vec<Option<Box<T>>>) -> Self {
        Self(values)
    }
}

impl<T> FromIterator<(usize, T)> for ByNode<T> {
    fn from_iter<I: IntoIterator<Item = (usize, T)>>(values: I) -> Self {
        let mut all = Vec::new();
        for (n, value) in values {
            if all.len() <= n {
                all.resize_with(n + 1, || None);
            }
            all[n] = Some(Box::new(value));
        }
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_set_has_each_node_once_in_order() {
        let nodes: Nodes = [7, 2, 7, 4].into_iter().collect();
        assert_eq!(nodes.iter().copied().collect::<Vec<_>>(), [2, 4, 7]);
        assert_eq!(nodes.len(), 3);
        let is_in = [1, 2, 7, 8].map(|n| nodes.contains(&n));
        assert_eq!(is_in, [false, true, true, false]);
    }

    #[test]
    fn values_are_found_by_node() {
        let values: ByNode<char> = [(3, 'c'), (0, 'a')].into_iter().collect();
        assert_eq!(values.keys().collect::<Vec<_>>(), [0, 3]);
        let found: Vec<Option<&char>> = [0, 1, 3, 4].iter().map(|n| values.get(n)).collect();
        assert_eq!(found, vec![Some(&'a'), None, Some(&'c'), None]);
    }
}
