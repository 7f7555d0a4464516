//! The HTML pages against kept pictures (`pictures/`), as wide as a phone, a tablet and a desk, in light and
//! dark. Fonts are those of Debian's fonts-dejavu-core, which setup/debian-packages installs. Pictures are a
//! quarter as large as the screen in each direction: what one version of a browser draws otherwise at the
//! edges of letters is lost there, and what has another colour, width or place is not.
//!
//! `SUNDER_PUBLISH=1 cargo test -p sunder-report pictures` renews them; look at them before they are
//! committed.

use crate::browser::{browser, scheme, screenshot};
use crate::html::{advised, changed, everything, hostile};
use std::path::{Path, PathBuf};
use std::{env, fs};
use sunder_findings::examples;
use sunder_report::html;

/// Widths of the screens, in pixels.
const WIDTHS: [u32; 3] = [360, 768, 1440];

/// How much of a page is looked at, from its top.
const HEIGHT: u32 = 1600;

/// Each pixel of a kept picture is the mean of so many by so many.
const SHRUNK: u32 = 4;

/// How many pixels of a thousand may differ in a colour by more than so much of 255: many differ a little,
/// and few a lot, where letters have other edges.
const MAY_DIFFER: [(u8, usize); 2] = [(8, 40), (40, 4)];

/// How many times a page is drawn that does not look as it should.
const TIMES: usize = 3;

/// The largest picture that may be kept, in bytes.
const LARGEST: usize = 60_000;

/// Where the fonts are that pages are drawn with.
const FONTS: [&str; 2] = [
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf",
];

/// A picture without transparency: three bytes a pixel.
struct Picture {
    width: u32,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn read(bytes: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().expect("it is a PNG file");
        let mut data = vec![0; reader.output_buffer_size().expect("it has a size")];
        let info = reader.next_frame(&mut data).expect("it has a picture");
        let samples = info.color_type.samples();
        assert!(samples >= 3, "{:?}", info.color_type);
        Self {
            width: info.width,
            pixels: data[..info.buffer_size()]
                .chunks(samples)
                .map(|p| [p[0], p[1], p[2]])
                .collect(),
        }
    }

    fn height(&self) -> u32 {
        self.pixels.len() as u32 / self.width
    }

    /// The columns from `left` on, `width` of them, shrunk.
    fn part(&self, left: u32, width: u32) -> Self {
        let mut pixels = Vec::new();
        for y in (0..self.height()).step_by(SHRUNK as usize) {
            for x in (left..left + width).step_by(SHRUNK as usize) {
                let mut sums = [0; 3];
                for (dx, dy) in (0..SHRUNK * SHRUNK).map(|n| (n % SHRUNK, n / SHRUNK)) {
                    let pixel = self.pixels[((y + dy) * self.width + x + dx) as usize];
                    for (sum, shade) in sums.iter_mut().zip(pixel) {
                        *sum += u32::from(shade);
                    }
                }
                pixels.push(sums.map(|sum| (sum / (SHRUNK * SHRUNK)) as u8));
            }
        }
        Self {
            width: width / SHRUNK,
            pixels,
        }
    }

    /// As a file. Shades that are nearly the same become the same, since the file is then half as large.
    fn file(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height());
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header().expect("it can be written");
        let data: Vec<u8> = self
            .pixels
            .iter()
            .flatten()
            .map(|shade| shade & !3)
            .collect();
        writer.write_image_data(&data).expect("it can be written");
        writer.finish().expect("it can be written");
        bytes
    }

    /// How many of a thousand pixels differ, for each shade of [`MAY_DIFFER`].
    fn different(&self, other: &Self) -> [usize; 2] {
        if (self.width, self.height()) != (other.width, other.height()) {
            return [1000; 2];
        }
        let by = |(a, b): (&[u8; 3], &[u8; 3])| a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max();
        MAY_DIFFER.map(|(shade, _)| {
            let pairs = self.pixels.iter().zip(&other.pixels);
            let different = pairs.filter(|pair| by(*pair) > Some(shade));
            // At least one of a thousand if any does.
            (different.count() * 1000).div_ceil(self.pixels.len())
        })
    }
}

fn alike(different: [usize; 2]) -> bool {
    different
        .iter()
        .zip(MAY_DIFFER)
        .all(|(seen, (_, most))| *seen <= most)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/pictures")
}

/// The pages, drawn with the fonts above.
fn pages() -> Vec<(&'static str, String)> {
    let pages = [
        ("report", html(&everything())),
        (
            "changed",
            changed(&advised(vec![examples::mixed()]), &hostile()),
        ),
    ];
    pages
        .map(|(name, page)| (name, with_style(&page, "")))
        .into()
}

/// A page with a further rule of style.
fn with_style(page: &str, rule: &str) -> String {
    let fonts =
        "body{font-family:'DejaVu Sans'!important}:root{--mono:'DejaVu Sans Mono'!important}";
    assert!(page.contains("</style>"));
    page.replacen("</style>", &format!("{fonts}{rule}</style>"), 1)
}

/// One page at each width, side by side in one screen.
fn drawn(browser: &str, page: &str, dark: bool, options: &[&str]) -> Vec<Picture> {
    let own = tempfile::tempdir().expect("a folder for pages");
    fs::write(own.path().join("page.html"), page).expect("the page can be written");
    let frames = WIDTHS.map(|width| {
        format!("<iframe src=page.html width={width} height={HEIGHT} scrolling=no></iframe>")
    });
    let all = format!(
        "<!doctype html><meta charset=utf-8><style>body{{margin:0;display:flex}}iframe{{border:0}}</style>{}",
        frames.concat()
    );
    let file = own.path().join("all.html");
    fs::write(&file, all).expect("the page can be written");
    let size = format!("--window-size={},{HEIGHT}", WIDTHS.iter().sum::<u32>());
    let mut options = [&[size.as_str(), "--hide-scrollbars"], options].concat();
    options.extend(scheme(dark));
    let screen = Picture::read(&screenshot(
        browser,
        &format!("file://{}", file.display()),
        &options,
    ));
    let mut left = 0;
    let parts = WIDTHS.map(|width| {
        let part = screen.part(left, width);
        left += width;
        part
    });
    parts.into()
}

/// A browser, if it and the fonts are there.
fn ready() -> Option<&'static str> {
    if let Some(font) = FONTS.iter().find(|font| !Path::new(font).exists()) {
        println!(
            "SKIP: no {font}; setup/debian-packages installs it; no page was compared with its picture"
        );
        return None;
    }
    browser()
}

#[test]
fn pages_look_as_in_the_kept_pictures() {
    let Some(browser) = ready() else { return };
    let publish = env::var_os("SUNDER_PUBLISH").is_some();
    let mut wrong = Vec::new();
    for (name, page) in pages() {
        for dark in [false, true] {
            let draw = || drawn(browser, &page, dark, &[]);
            if publish {
                fs::create_dir_all(folder()).expect("a folder");
                for (width, picture) in WIDTHS.iter().zip(draw()) {
                    fs::write(kept(name, *width, dark), picture.file()).expect("it can be kept");
                }
                continue;
            }
            // Beside other programs, the browser once broke a line elsewhere.
            let mut seen = differences(name, dark, &draw());
            for _ in 1..TIMES {
                if !seen.is_empty() {
                    seen = differences(name, dark, &draw());
                }
            }
            wrong.extend(seen);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where the kept picture of a page is.
fn kept(name: &str, width: u32, dark: bool) -> PathBuf {
    let scheme = if dark { "dark" } else { "light" };
    folder().join(format!("{name}-{width}-{scheme}.png"))
}

/// What differs between pictures of a page at each width and those that are kept.
fn differences(name: &str, dark: bool, pictures: &[Picture]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (width, picture) in WIDTHS.iter().zip(pictures) {
        let kept = kept(name, *width, dark);
        let file = picture.file();
        let (size, place) = (file.len(), kept.display());
        assert!(size < LARGEST, "{place}: {size} bytes");
        let known = fs::read(&kept);
        let known = known.unwrap_or_else(|e| panic!("{place}: {e}; SUNDER_PUBLISH=1 makes it"));
        let different = Picture::read(&known).different(picture);
        if !alike(different) {
            let seen = Path::new(env!("CARGO_TARGET_TMPDIR"));
            let seen = seen.join(kept.file_name().expect("a name"));
            fs::write(&seen, &file).expect("the picture can be written");
            wrong.push(format!(
                "{different:?} of 1,000 pixels differ between {place} and {}",
                seen.display()
            ));
        }
    }
    wrong
}

#[test]
fn a_changed_colour_or_width_is_seen_and_other_edges_of_letters_are_not() {
    let Some(browser) = ready() else { return };
    let (_, page) = pages().swap_remove(0);
    let usual = drawn(browser, &page, false, &[]);
    let compared = |page: &str, options: &[&str]| -> Vec<[usize; 2]> {
        let drawn = drawn(browser, page, false, options);
        usual
            .iter()
            .zip(&drawn)
            .map(|(a, b)| a.different(b))
            .collect()
    };
    for (what, rule) in [
        ("another colour of the heading", "h1{color:#c00!important}"),
        (
            "another edge of the page",
            "main{padding-left:40px!important}",
        ),
        (
            "a background that is a little darker",
            "html,body{background:#e8e8e8!important}",
        ),
    ] {
        let different = compared(&with_style(&page, rule), &[]);
        assert!(
            !different.iter().any(|d| alike(*d)),
            "{what}: {different:?}"
        );
    }
    // As another version of the browser, or another screen, draws letters.
    let different = compared(
        &page,
        &[
            "--enable-lcd-text",
            "--disable-font-subpixel-positioning",
            "--enable-font-antialiasing",
        ],
    );
    assert!(
        different.iter().all(|d| alike(*d)),
        "other edges of letters: {different:?}"
    );
    println!("other edges of letters: {different:?}");
}
