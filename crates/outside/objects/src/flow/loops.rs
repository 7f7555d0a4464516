//! The loops of a function: sets of blocks each of which leads to each other. Called once a
//! function's blocks are known; must know nothing of what the instructions do.

/// The number of the loop of each block, of which `next` has the blocks that may follow; `None` for
/// blocks that are run once a call. Loops within loops count as the outermost.
pub(super) fn loops(next: &[Vec<usize>]) -> Vec<Option<u32>> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); next.len()];
    for (from, all) in next.iter().enumerate() {
        for &to in all {
            before[to].push(from);
        }
    }
    // Kosaraju: blocks in the order in which a search leaves them, then backwards.
    let mut left = Vec::with_capacity(next.len());
    let mut seen = vec![false; next.len()];
    for start in 0..next.len() {
        let mut path = vec![(start, 0)];
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        while let Some((block, at)) = path.last_mut() {
            match next[*block].get(*at) {
                Some(&to) => {
                    *at += 1;
                    if !std::mem::replace(&mut seen[to], true) {
                        path.push((to, 0));
                    }
                }
                None => {
                    left.push(*block);
                    path.pop();
                }
            }
        }
    }
    let mut found: Vec<Option<u32>> = vec![None; next.len()];
    let mut taken = vec![false; next.len()];
    let mut number = 0;
    for &start in left.iter().rev() {
        let mut members = Vec::new();
        let mut work = vec![start];
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut taken[block], true) {
                members.push(block);
                work.extend(&before[block]);
            }
        }
        let cyclic = members.len() > 1 || members.first().is_some_and(|&b| next[b].contains(&b));
        if cyclic {
            members.iter().for_each(|&b| found[b] = Some(number));
            number += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::loops;

    #[test]
    fn blocks_that_lead_back_to_themselves_are_a_loop() {
        // 0 -> 1 <-> 2 -> 3 -> 3 -> 4, and 5 that nothing leads to.
        let next = [vec![1], vec![2], vec![1, 3], vec![3, 4], vec![], vec![0]];
        let found = loops(&next);
        assert!(found[1].is_some() && found[1] == found[2]);
        assert!(found[3].is_some() && found[3] != found[1]);
        assert_eq!((found[0], found[4], found[5]), (None, None, None));
        assert!(loops(&[]).is_empty());
    }
}
