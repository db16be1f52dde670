//! The sorted ranks of waiting packets, for comparison with an ideal PIFO.
//!
//! Ranks are in sorted blocks of at most 128. Each operation costs a search of the blocks and a move
//! within one. Blocks are reused, so the steady state allocates no memory.

/// Maximum ranks of a block.
const BLOCK: usize = 128;

/// A multiset of ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// No block is empty. No rank of a block exceeds the first rank of the next.
    blocks: Vec<Vec<u64>>,
    spare: Vec<Vec<u64>>,
    len: usize,
}

impl Waiting {
    /// Adds a rank. O(blocks) in the worst case, O(log blocks + BLOCK) otherwise.
    pub fn add(&mut self, rank: u64) {
        self.len += 1;
        if self.blocks.is_empty() {
            let block = self.spare();
            self.blocks.push(block);
        }
        let fits = |block: &Vec<u64>| block.last().is_some_and(|last| *last < rank);
        let mut at = self.blocks.partition_point(fits).min(self.blocks.len() - 1);
        if self.blocks[at].len() == BLOCK {
            let mut upper = self.spare();
            upper.extend(self.blocks[at].drain(BLOCK / 2..));
            let is_upper = rank > self.blocks[at][BLOCK / 2 - 1];
            self.blocks.insert(at + 1, upper);
            at += usize::from(is_upper);
        }
        let block = &mut self.blocks[at];
        let place = block.partition_point(|known| *known <= rank);
        block.insert(place, rank);
    }

    fn spare(&mut self) -> Vec<u64> {
        self.spare
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(BLOCK))
    }

    /// Removes a rank. Returns the number of lower ranks, or `None` if it is missing.
    /// O(blocks + BLOCK).
    pub fn remove(&mut self, rank: u64) -> Option<u64> {
        let at = self
            .blocks
            .partition_point(|block| block[block.len() - 1] < rank);
        let block = self.blocks.get_mut(at)?;
        let place = block.partition_point(|known| *known < rank);
        if block.get(place) != Some(&rank) {
            return None;
        }
        block.remove(place);
        if block.is_empty() {
            let empty = self.blocks.remove(at);
            self.spare.push(empty);
        }
        self.len -= 1;
        let before: usize = self.blocks[..at].iter().map(Vec::len).sum();
        Some((before + place) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_statistics::Random;

    #[test]
    fn counts_match_a_sorted_list() {
        let mut random = Random::new(11);
        let (mut waiting, mut list) = (Waiting::default(), Vec::new());
        for step in 0..60_000 {
            let range = [5, 1000, u64::MAX][step / 20_000];
            if random.below(100) < 52 {
                let rank = random.below(range);
                waiting.add(rank);
                list.insert(list.partition_point(|known| *known <= rank), rank);
            } else if !list.is_empty() {
                let rank = list[random.below(list.len() as u64) as usize];
                let lower = list.partition_point(|known| *known < rank);
                list.remove(lower);
                assert_eq!(waiting.remove(rank), Some(lower as u64), "step {step}");
            }
            assert_eq!(waiting.len, list.len());
        }
        assert!(waiting.blocks.iter().all(|block| !block.is_empty()));
        assert_eq!(waiting.remove(u64::MAX - 1), None);
    }
}
