//! What the SCSTallocator paper measured: its Tables 1 to 3. Figures only.

/// One program.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Its name in our tables.
    pub name: &'static str,
    /// Table 1: memory references in millions.
    pub references: f64,
    /// Table 1: megabytes.
    pub working_set: f64,
    /// Table 3: pages under the general allocator.
    pub pages: u64,
    /// Tables 2 and 3, by policy: the number of buckets, which is also that of additional pages
    /// there, and false-sharing misses.
    rows: [(&'static str, u64, u64); 3],
}

impl Paper {
    /// The paper's figures for the program of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        PAPER.iter().find(|program| program.name == name)
    }

    /// Buckets and false-sharing misses under a policy, if the paper has them.
    pub fn row(&self, policy: &str) -> Option<(u64, u64)> {
        let found = self.rows.iter().find(|row| row.0 == policy)?;
        Some((found.1, found.2))
    }
}

const PAPER: [Paper; 4] = [
    Paper {
        name: "cholesky",
        references: 39.341,
        working_set: 2.88,
        pages: 738,
        rows: rows([(10, 44_717), (17, 36_599), (21, 34_687)]),
    },
    Paper {
        name: "barnes",
        references: 58.716,
        working_set: 1.20,
        pages: 308,
        rows: rows([(27, 5_805_705), (7, 5_104_413), (29, 4_814_970)]),
    },
    Paper {
        name: "mp3d",
        references: 8.935,
        working_set: 2.02,
        pages: 553,
        rows: rows([(8, 6_147_589), (5, 5_754_143), (11, 5_312_768)]),
    },
    Paper {
        name: "volrend",
        references: 31.186,
        working_set: 3.91,
        pages: 441,
        rows: rows([(11, 953), (12, 883), (17, 798)]),
    },
];

const fn rows(of: [(u64, u64); 3]) -> [(&'static str, u64, u64); 3] {
    [
        ("sized", of[0].0, of[0].1),
        ("call-site", of[1].0, of[1].1),
        ("sized-call-site", of[2].0, of[2].1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reductions that the paper prints follow from its misses, in percent.
    #[test]
    fn the_papers_figures_give_its_reductions() {
        for (name, call_site, both) in [
            ("cholesky", 18.2, 22.4),
            ("barnes", 12.1, 17.1),
            ("mp3d", 6.4, 13.6),
            ("volrend", 7.3, 16.3),
        ] {
            let paper = Paper::of(name).expect("in the paper");
            let misses = |policy| paper.row(policy).expect("a row").1 as f64;
            let saved = |policy| (1.0 - misses(policy) / misses("sized")) * 100.0;
            assert!((saved("call-site") - call_site).abs() < 0.06, "{name}");
            assert!((saved("sized-call-site") - both).abs() < 0.06, "{name}");
        }
    }

    /// Table 3: 21 pages more are 2.85 % of cholesky's 738.
    #[test]
    fn the_additional_pages_are_the_buckets() {
        let paper = Paper::of("cholesky").expect("in the paper");
        let more = paper.row("sized-call-site").expect("a row").0 as f64;
        let percent = more / paper.pages as f64 * 100.0;
        assert_eq!((percent * 100.0).round(), 285.0);
    }
}
