//! The prefix tree: keys and values that contexts with a common prefix share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sk_core::TokenId;

use super::cpu::piece::{KvPiece, NODE_TOKENS};
use crate::lora::LoraAdapter;

/// A prefix tree of contexts with a budget in bytes. A node holds the keys and values of
/// [`NODE_TOKENS`] tokens of a context under one adapter.
///
/// There is one root for the backbone and one for each adapter. The tokens that an instruction adds
/// to a context are treated like all others. Pieces are reference-counted: a piece that is evicted
/// while contexts hold it is freed with the last of them. The nodes of adapters that were dropped
/// are evicted first, then the least recently used leaf.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    budget: usize,
    nodes: Mutex<Nodes>,
}

#[derive(Debug, Default)]
struct Nodes {
    /// Adapters and the ids of their roots. The id of the backbone's root is [`ROOT`].
    roots: Vec<(Weak<LoraAdapter>, u64)>,
    by_id: HashMap<u64, PrefixNode>,
    /// Node ids by parent id and tokens. The parent of a first node is a root.
    children: HashMap<(u64, Box<[TokenId]>), u64>,
    next: u64,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct PrefixNode {
    key: (u64, Box<[TokenId]>),
    piece: Arc<KvPiece>,
    /// The id of the root above it.
    root: u64,
    children: usize,
    used: u64,
}

impl PrefixTree {
    /// Returns an empty tree that holds at most `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, nodes: Mutex::new(Nodes { next: 1, ..Nodes::default() }) }
    }

    /// Returns, for each lane, the pieces of the longest prefix of `tokens` that the tree holds for
    /// all lanes.
    pub(super) fn find(&self, lanes: &[Option<Weak<LoraAdapter>>], tokens: &[TokenId]) -> Vec<Vec<Arc<KvPiece>>> {
        let mut nodes = self.lock();
        nodes.clock += 1;
        let mut walk = |lane: &Option<_>| -> Vec<Arc<KvPiece>> {
            nodes.path(lane.as_ref(), tokens).into_iter().filter_map(|id| nodes.touch(id)).collect()
        };
        let mut found: Vec<_> = lanes.iter().map(&mut walk).collect();
        let common = found.iter().map(Vec::len).min().unwrap_or(0);
        found.iter_mut().for_each(|pieces| pieces.truncate(common));
        found
    }

    /// Adds node `index` of `tokens` for each lane. Returns whether all lanes have it now: it is
    /// not added if a node before it is missing or there is no room.
    ///
    /// The paths of the lanes are not evicted to make room, so one lane has at most one node more
    /// than another.
    pub(super) fn insert<'a, I>(&self, tokens: &[TokenId], index: usize, lanes: I) -> bool
    where
        I: Iterator<Item = (Option<&'a Weak<LoraAdapter>>, &'a Arc<KvPiece>)> + Clone,
    {
        let mut nodes = self.lock();
        nodes.clock += 1;
        for (lane, _) in lanes.clone() {
            for id in nodes.path(lane, &tokens[..index * NODE_TOKENS]) {
                nodes.touch(id);
            }
        }
        let added = { lanes }.all(|(lane, piece)| nodes.add(tokens, index, lane, piece, self.budget));
        assert!(nodes.bytes <= self.budget, "{} bytes of a budget of {}", nodes.bytes, self.budget);
        added
    }

    /// Drops all nodes.
    pub(super) fn clear(&self) {
        let mut nodes = self.lock();
        let next = nodes.next;
        *nodes = Nodes { next, ..Nodes::default() };
    }

    /// Returns the most bytes that the tree holds.
    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    /// Returns the bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        // No method panics between two changes that belong together.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bit that distinguishes the ids of roots from the ids of nodes. By itself, it is the id of
/// the backbone's root.
const ROOT: u64 = 1 << 63;

impl Nodes {
    /// Returns the id of a lane's root.
    fn root(&mut self, lane: Option<&Weak<LoraAdapter>>) -> u64 {
        let Some(adapter) = lane else { return ROOT };
        if let Some((_, id)) = self.roots.iter().find(|(known, _)| Weak::ptr_eq(known, adapter)) {
            return *id;
        }
        self.forget();
        let id = ROOT | self.next;
        self.next += 1;
        self.roots.push((Weak::clone(adapter), id));
        id
    }

    /// Returns the ids of the nodes along `tokens`.
    fn path(&mut self, lane: Option<&Weak<LoraAdapter>>, tokens: &[TokenId]) -> Vec<u64> {
        let mut at = self.root(lane);
        let mut path = Vec::new();
        for block in tokens.chunks_exact(NODE_TOKENS) {
            let Some(&id) = self.children.get(&(at, Box::from(block))) else { break };
            path.push(id);
            at = id;
        }
        path
    }

    /// Adds a node whose path was touched. Returns whether it is there now.
    fn add(
        &mut self,
        tokens: &[TokenId],
        index: usize,
        lane: Option<&Weak<LoraAdapter>>,
        piece: &Arc<KvPiece>,
        budget: usize,
    ) -> bool {
        let root = self.root(lane);
        let before = self.path(lane, &tokens[..index * NODE_TOKENS]);
        let parent = match before.last() {
            Some(last) if before.len() == index => *last,
            None if index == 0 => root,
            _ => return false,
        };
        let key = (parent, Box::from(&tokens[index * NODE_TOKENS..][..NODE_TOKENS]));
        if let Some(&id) = self.children.get(&key) {
            self.touch(id);
            return true;
        }
        let bytes = piece.bytes();
        while self.bytes.saturating_add(bytes) > budget {
            if bytes > budget || !self.evict() {
                return false;
            }
        }
        // The adapter may have been dropped since, and its nodes with it.
        let is_there = root == ROOT || self.roots.iter().any(|(_, known)| *known == root);
        if !is_there {
            return false;
        }
        let id = self.next;
        self.next += 1;
        self.bytes += bytes;
        if let Some(node) = self.by_id.get_mut(&parent) {
            node.children += 1;
        }
        self.children.insert(key.clone(), id);
        self.by_id.insert(id, PrefixNode { key, piece: Arc::clone(piece), root, children: 0, used: self.clock });
        true
    }

    fn touch(&mut self, id: u64) -> Option<Arc<KvPiece>> {
        let clock = self.clock;
        let node = self.by_id.get_mut(&id)?;
        node.used = clock;
        Some(Arc::clone(&node.piece))
    }

    /// Removes the nodes of adapters that no longer exist, since no context can find them. Returns
    /// whether there were any.
    fn forget(&mut self) -> bool {
        if self.roots.iter().all(|(known, _)| known.strong_count() > 0) {
            return false;
        }
        self.roots.retain(|(known, _)| known.strong_count() > 0);
        let (roots, before) = (&self.roots, self.bytes);
        self.by_id.retain(|_, node| {
            let is_known = node.root == ROOT || roots.iter().any(|(_, root)| *root == node.root);
            self.bytes -= if is_known { 0 } else { node.piece.bytes() };
            is_known
        });
        self.children.retain(|_, id| self.by_id.contains_key(id));
        self.bytes < before
    }

    /// Drops the nodes of dropped adapters or else the least recently used leaf, except those that
    /// the current operation uses. Returns whether there was one.
    fn evict(&mut self) -> bool {
        if self.forget() {
            return true;
        }
        let leaves = self.by_id.iter().filter(|(_, node)| node.children == 0 && node.used < self.clock);
        let Some(id) = leaves.min_by_key(|(id, node)| (node.used, **id)).map(|(id, _)| *id) else { return false };
        let Some(node) = self.by_id.remove(&id) else { return false };
        self.bytes -= node.piece.bytes();
        self.children.remove(&node.key);
        if let Some(parent) = self.by_id.get_mut(&node.key.0) {
            parent.children -= 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(blocks: &[u32]) -> Vec<TokenId> {
        blocks.iter().flat_map(|&block| std::iter::repeat_n(block, NODE_TOKENS)).collect()
    }

    /// Numbers and bytes of a piece.
    const NUMBERS: usize = 16;
    const BYTES: usize = NUMBERS * size_of::<f32>();

    /// Returns a piece that holds the blocks of the context up to it.
    fn piece(blocks: &[u32]) -> Arc<KvPiece> {
        let mut numbers: Vec<f32> = blocks.iter().map(|&block| block as f32).collect();
        numbers.resize(NUMBERS, 0.0);
        Arc::new(KvPiece::of_numbers(&numbers))
    }

    fn add(tree: &PrefixTree, lane: Option<&Weak<LoraAdapter>>, blocks: &[u32]) {
        add_all(tree, &[lane], blocks);
    }

    /// Adds nodes until there is no room. Returns how many all lanes have.
    fn add_all(tree: &PrefixTree, lanes: &[Option<&Weak<LoraAdapter>>], blocks: &[u32]) -> usize {
        let tokens = tokens(blocks);
        let insert = |index: &usize| {
            let piece = piece(&blocks[..=*index]);
            tree.insert(&tokens, *index, lanes.iter().map(|lane| (*lane, &piece)))
        };
        (0..blocks.len()).take_while(insert).count()
    }

    fn found(tree: &PrefixTree, blocks: &[u32]) -> usize {
        let mut tokens = tokens(blocks);
        // An incomplete block is ignored.
        tokens.extend([99; NODE_TOKENS - 1]);
        let pieces = tree.find(&[None], &tokens).remove(0);
        for (index, found) in pieces.iter().enumerate() {
            assert_eq!(found.numbers(), piece(&blocks[..=index]).numbers());
        }
        pieces.len()
    }

    #[test]
    fn the_longest_common_beginning_is_found() {
        let tree = PrefixTree::new(100 * BYTES);
        add(&tree, None, &[1, 2, 3]);
        add(&tree, None, &[1, 2, 4]);
        assert_eq!(tree.bytes(), 4 * BYTES);
        assert_eq!([&[1, 2, 4, 5][..], &[1, 2], &[1, 3], &[2, 2]].map(|blocks| found(&tree, blocks)), [3, 2, 1, 0]);
        // A node whose parent is missing is not added.
        assert!(!tree.insert(&tokens(&[7, 8]), 1, [(None, &piece(&[7, 8]))].into_iter()));
        assert_eq!(tree.bytes(), 4 * BYTES);
    }

    #[test]
    fn find_returns_the_prefix_that_all_lanes_hold() {
        let tree = PrefixTree::new(100 * BYTES);
        let config = crate::Qwen2Config::small([40, 32, 48, 1, 4, 4]);
        let adapter = |seed| Arc::new(LoraAdapter::random(&config, 2, seed, &burn::tensor::Device::flex()));
        let (calm, kind) = (adapter(1), adapter(2));
        add(&tree, None, &[1, 2, 3]);
        add(&tree, Some(&Arc::downgrade(&calm)), &[1, 2]);
        let count =
            |lanes: &[Option<Weak<LoraAdapter>>]| tree.find(lanes, &tokens(&[1, 2, 3])).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(count(&[None, Some(Arc::downgrade(&calm))]), [2, 2]);
        assert_eq!(count(&[None, Some(Arc::downgrade(&kind))]), [0, 0]);
    }

    #[test]
    fn the_nodes_of_a_dropped_adapter_go_first() {
        let tree = PrefixTree::new(4 * BYTES);
        let config = crate::Qwen2Config::small([40, 32, 48, 1, 4, 4]);
        let adapter = Arc::new(LoraAdapter::random(&config, 2, 1, &burn::tensor::Device::flex()));
        add(&tree, None, &[1, 2]);
        add(&tree, Some(&Arc::downgrade(&adapter)), &[7, 8]);
        drop(adapter);
        add(&tree, None, &[5, 6]);
        assert_eq!([&[1, 2][..], &[5, 6]].map(|blocks| found(&tree, blocks)), [2, 2]);
        assert_eq!(tree.bytes(), 4 * BYTES);
    }

    #[test]
    fn the_lanes_of_a_context_do_not_evict_each_other() {
        let tree = PrefixTree::new(5 * BYTES);
        let config = crate::Qwen2Config::small([40, 32, 48, 1, 4, 4]);
        let adapter = Arc::new(LoraAdapter::random(&config, 2, 1, &burn::tensor::Device::flex()));
        let calm = Arc::downgrade(&adapter);
        add(&tree, None, &[9, 8, 7]);
        // Five nodes have room, so both lanes have two.
        assert_eq!(add_all(&tree, &[None, Some(&calm)], &[1, 2, 3, 4, 5, 6]), 2);
        let lanes = [None, Some(Weak::clone(&calm))];
        assert_eq!(tree.find(&lanes, &tokens(&[1, 2, 3, 4, 5, 6])).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn the_leaf_that_was_used_least_recently_goes_first() {
        let tree = PrefixTree::new(4 * BYTES);
        add(&tree, None, &[1, 2, 3]);
        add(&tree, None, &[5]);
        assert_eq!(found(&tree, &[1, 2, 3]), 3);
        // The leaf 5 goes, then the leaf 3; their parents stay.
        add(&tree, None, &[6, 7]);
        assert_eq!(tree.bytes(), 4 * BYTES);
        assert_eq!([&[5][..], &[1, 2, 3], &[6, 7]].map(|blocks| found(&tree, blocks)), [0, 2, 2]);
        // A piece larger than the budget is not kept and evicts nothing.
        let piece = Arc::new(KvPiece::of_numbers(&[9.0; 5 * NUMBERS]));
        assert!(!tree.insert(&tokens(&[9]), 0, [(None, &piece)].into_iter()));
        assert_eq!(tree.bytes(), 4 * BYTES);
        tree.clear();
        assert_eq!((tree.bytes(), found(&tree, &[6, 7])), (0, 0));
        add(&tree, None, &[6, 7]);
        assert_eq!((tree.bytes(), found(&tree, &[6, 7])), (2 * BYTES, 2));
    }
}
