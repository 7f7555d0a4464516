//! The programs of `scst/` give right answers, known by reasoning, and the same ones with any
//! number of threads; gcc's race detector finds nothing in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use sunder_workloads::{PARALLEL, Parallel};

/// Compiles a program; its path.
fn built(program: &Parallel) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static BUILT: OnceLock<BTreeMap<&str, PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path();
    let all = BUILT.get_or_init(|| {
        let of = |p: &Parallel| (p.name, compile(p, &[], folder));
        PARALLEL.iter().map(of).collect()
    });
    all[program.name].clone()
}

fn compile(program: &Parallel, flags: &[&str], folder: &Path) -> PathBuf {
    let file = folder.join(format!("{}{}", program.name, flags.concat()));
    program
        .compile(Command::new("gcc").args(flags), &file)
        .unwrap_or_else(|error| panic!("{error}"));
    file
}

fn run(file: &Path, arguments: &[&str]) -> Output {
    Command::new(file)
        .args(arguments)
        .env("WORKLOAD_CHECK", "1")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The output of a run of `program`: the checksum and the facts.
fn result(name: &str, threads: u32, size: u64, variant: Option<&str>) -> (String, Facts) {
    let program = Parallel::get(name).unwrap();
    let (threads, size) = (threads.to_string(), size.to_string());
    let mut arguments = vec![threads.as_str(), &size];
    arguments.extend(variant);
    let output = run(&built(program), &arguments);
    assert!(
        output.status.success(),
        "{name} {arguments:?}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut checksum = String::new();
    let mut facts = BTreeMap::new();
    for line in text.lines() {
        match line.split_once(' ').unwrap() {
            ("checksum", sum) => sum.clone_into(&mut checksum),
            (fact, value) => drop(facts.insert(fact.to_owned(), value.parse().unwrap())),
        }
    }
    assert_eq!(checksum.len(), 16, "{text}");
    (checksum, Facts(facts))
}

struct Facts(BTreeMap<String, f64>);

impl std::ops::Index<&str> for Facts {
    type Output = f64;

    fn index(&self, name: &str) -> &f64 {
        self.0.get(name).unwrap_or_else(|| panic!("no {name}"))
    }
}

#[test]
fn the_result_is_the_same_with_every_number_of_threads_and_depends_on_the_work() {
    for program in &PARALLEL {
        let of = |threads, size| result(program.name, threads, size, None).0;
        let one = of(1, program.test_size);
        for threads in [2, 5, 16] {
            assert_eq!(of(threads, program.test_size), one, "{}", program.name);
        }
        assert_ne!(of(1, program.test_size - 1), one, "{}", program.name);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for program in &PARALLEL {
        for arguments in [&["0", "100"][..], &["65", "100"], &["2", "0"], &["2"]] {
            let output = run(&built(program), arguments);
            assert_eq!(output.status.code(), Some(2), "{}", program.name);
            assert!(output.stdout.is_empty());
        }
    }
}

/// The eigenvalues of the five-point Laplacian of a square grid are known. Their product is the
/// determinant, which follows from the diagonal of L.
#[test]
fn the_factor_has_the_determinant_of_the_grid_and_multiplies_to_it() {
    for (threads, side) in [(1, 2), (3, 7), (16, 24), (4, 31)] {
        let (_, facts) = result("cholesky", threads, side, None);
        let wave = |i: u64| (std::f64::consts::PI * i as f64 / (side + 1) as f64).cos();
        let mut wanted = 0.0;
        for i in 1..=side {
            for j in 1..=side {
                wanted += (4.0 - 2.0 * wave(i) - 2.0 * wave(j)).ln();
            }
        }
        let found = facts["log_determinant"];
        assert!((found - wanted).abs() < 1e-9 * wanted, "{found} {wanted}");
        // Entries of A and x are at most 4 and 1; about 50 terms are rounded.
        assert!(facts["residual"] < 1e-12, "{}", facts["residual"]);
        assert_eq!(facts["tasks"], facts["panels"]);
        assert_eq!(facts["finished"], facts["panels"]);
    }
}

#[test]
fn the_gas_loses_no_particle_momentum_or_energy() {
    let (_, facts) = result("mp3d", 4, 2001, None);
    // Five steps.
    assert_eq!(facts["moves"], 5.0 * 2001.0);
    assert_eq!(facts["visits"], 5.0 * 2001.0);
    // About four pairs in a cell of eight, of which two in three collide.
    assert!(facts["collisions"] > 2001.0, "{}", facts["collisions"]);
    for lost in [
        "collisions_lost",
        "kinds_lost",
        "energy_lost",
        "momentum_x_lost",
        "momentum_y_lost",
        "momentum_z_lost",
    ] {
        assert_eq!(facts[lost], 0.0, "{lost}");
    }
}

#[test]
fn the_tree_holds_all_bodies_and_its_forces_are_nearly_right() {
    let (_, facts) = result("barnes", 4, 1000, None);
    assert_eq!((facts["tree_mass"], facts["tree_count"]), (1000.0, 1000.0));
    // Three steps.
    assert_eq!((facts["bodies"], facts["inserted"]), (3000.0, 3000.0));
    // It saves work, at the price of an error that is known to be below a percent or so.
    assert!(facts["pairs"] < 1000.0 * 999.0 / 2.0, "{}", facts["pairs"]);
    assert!(facts["force_error"] < 0.02, "{}", facts["force_error"]);
    assert!(facts["force_error"] > 1e-6, "{}", facts["force_error"]);
}

#[test]
fn all_pairs_give_exact_forces_and_keep_the_momentum() {
    let (_, facts) = result("barnes", 3, 200, Some("exact"));
    assert_eq!(facts["pairs"], 200.0 * 199.0);
    // The tree adds in another order, so only the rounding differs.
    assert!(facts["force_error"] < 1e-13, "{}", facts["force_error"]);
    assert!(facts["momentum"] < 1e-13, "{}", facts["momentum"]);
}

#[test]
fn an_empty_volume_is_black_and_an_opaque_one_a_square() {
    for side in [16_u64, 21] {
        // Twice the side in whole tiles of 8 pixels, four frames.
        let width = (2 * side).div_ceil(8) * 8;
        let rays = (4 * width * width) as f64;
        let (_, empty) = result("volrend", 3, side, Some("empty"));
        assert_eq!((empty["lit"], empty["samples"]), (0.0, 0.0));
        let (_, full) = result("volrend", 3, side, Some("full"));
        // The last frame is seen straight from the front: one pixel for each voxel of the face,
        // with the brightness of voxels without a slope, which is 96.
        let face = (side * side) as f64;
        assert_eq!((full["lit"], full["light"]), (face, 96.0 * face));
        for facts in [empty, full] {
            assert_eq!((facts["rays"], facts["tiles_not_drawn_once"]), (rays, 0.0));
        }
    }
}

#[test]
fn no_races_are_found() {
    let folder = tempfile::tempdir().unwrap();
    for program in &PARALLEL {
        let file = folder.path().join(program.name);
        let compiled = program.compile(Command::new("gcc").arg("-fsanitize=thread"), &file);
        if let Err(error) = compiled {
            println!("SKIP: gcc's thread sanitizer is not here: {error}");
            return;
        }
        // Without randomised addresses, with which the sanitizer sometimes fails.
        let output = Command::new("setarch")
            .args(["-R"])
            .arg(&file)
            .args(["4", &program.test_size.to_string()])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        if told.contains("unexpected memory mapping") || told.contains("setarch") {
            println!("SKIP: the thread sanitizer does not run here: {told}");
            return;
        }
        assert!(!told.contains("data race"), "{}: {told}", program.name);
        assert!(output.status.success(), "{}: {told}", program.name);
    }
}
