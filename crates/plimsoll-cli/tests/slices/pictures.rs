//! Plain images with label images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::discs;
use crate::support::{expect_same, plimsoll, run, run_error, run_json};

const SIZE: [usize; 2] = [48, 56];

/// Writes a PNG. Of `Indexed` colours none says what its index is.
fn png(path: &Path, color: png::ColorType, [height, width]: [usize; 2], samples: &[u8]) {
    let file = fs::File::create(path).unwrap();
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(color);
    if color == png::ColorType::Indexed {
        encoder.set_palette(vec![255, 255, 255, 255, 0, 0, 9, 9, 9]);
    }
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
}

fn read_png(path: &Path) -> (png::ColorType, [usize; 2], Vec<u8>) {
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut samples = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut samples).unwrap();
    (info.color_type, [info.height as usize, info.width as usize], samples)
}

/// A data set of discs: images in colour, in which only the difference of red and blue says where the disc is, and labels whose
/// palette shows other numbers than their indices. One image is of another size.
fn pictures(folder: &Path) -> PathBuf {
    let data = folder.join("pictures");
    discs::folders(&data);
    for case in 0..9 {
        let (images, labels) = if case == 8 { ("imagesTs", "labelsTs") } else { ("imagesTr", "labelsTr") };
        let size = if case == 7 { [40, 64] } else { SIZE };
        let (grey, classes) = discs::disc(size[0], size[1], case);
        let colours: Vec<u8> = grey.iter().flat_map(|value| [*value, 120, 255 - *value]).collect();
        png(&data.join(format!("{images}/photo_{case}_0000.png")), png::ColorType::Rgb, size, &colours);
        // Half of the labels as grey levels, half by a palette.
        let color = if case % 2 == 0 { png::ColorType::Grayscale } else { png::ColorType::Indexed };
        png(&data.join(format!("{labels}/photo_{case}.png")), color, size, &classes);
    }
    discs::describe(&data, &["R", "G", "B"], ".png", 8);
    data
}

fn train<'a>(data: &'a str, out: &'a str) -> Vec<&'a str> {
    let mut args =
        vec!["train", data, "--out", out, "--ram", "512MiB", "--threads", "1", "--config", "/dev/null"];
    args.extend(["--features", "8,16,16", "--batch-size", "4", "--learning-rate", "0.02", "--epochs", "4"]);
    args.extend(["--iterations", "15", "--validation-iterations", "2"]);
    args
}

#[test]
fn one_grey_or_truncated_picture_does_not_end_a_prediction() {
    let dir = tempfile::tempdir().unwrap();
    let data = pictures(dir.path());
    let place = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (out, images, labels) = (place("run"), place("images"), place("labels"));
    let mut args = train(data.to_str().unwrap(), &out);
    args.extend(["--fold", "0", "--skip-validation"]);
    let short = [("--epochs", "1"), ("--iterations", "1"), ("--validation-iterations", "1")];
    for (flag, value) in short {
        let at = args.iter().position(|arg| *arg == flag).unwrap();
        args[at + 1] = value;
    }
    run_json(&args);
    let folder = Path::new(&images);
    fs::create_dir(folder).unwrap();
    let sound = fs::read(data.join("imagesTs/photo_8_0000.png")).unwrap();
    for case in ["a", "z"] {
        fs::write(folder.join(format!("{case}_0000.png")), &sound).unwrap();
    }
    png(&folder.join("grey_0000.png"), png::ColorType::Grayscale, SIZE, &[7; SIZE[0] * SIZE[1]]);
    fs::write(folder.join("cut_0000.png"), &sound[..sound.len() / 2]).unwrap();
    fs::write(folder.join("text_0000.png"), "no picture").unwrap();
    png(&folder.join("stray.png"), png::ColorType::Grayscale, SIZE, &[7; SIZE[0] * SIZE[1]]);
    let predict = ["predict", &out, "-i", &images, "-o", &labels, "--ram", "512MiB", "--threads", "1"];
    let names = |list: &serde_json::Value| -> Vec<String> {
        let mut names: Vec<String> =
            list.as_array().unwrap().iter().map(|case| case["case"].as_str().unwrap().into()).collect();
        names.sort();
        names
    };
    let bad = ["cut", "grey", "stray", "text"];
    for plan in [&["--plan"][..], &[]] {
        let output = plimsoll().args(predict).args(plan).arg("--json").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
        assert!(!output.status.success() && said.contains(" of 6 cases could not be predicted"), "{said}");
        let (done, failed) = match plan {
            [] => (&report["cases"], &report["failed"]),
            _ => (&report[0]["cases"], &report[0]["refused"]),
        };
        // A picture that ends early has a whole header.
        let done = names(done).into_iter().filter(|case| case != "cut").collect::<Vec<_>>();
        let failed = names(failed);
        assert_eq!(done, ["a", "z"], "{report}");
        assert!(
            bad.iter()
                .all(|case| failed.iter().any(|name| name == case) || (*case == "cut" && !plan.is_empty()))
        );
    }
    for case in ["a", "z"] {
        assert!(Path::new(&labels).join(format!("{case}.png")).is_file());
    }
}

#[test]
fn plain_images_are_trained_predicted_as_label_images_scored_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let data = pictures(dir.path());
    let (data, place) =
        (data.to_str().unwrap(), |name: &str| dir.path().join(name).to_str().unwrap().to_string());
    let (out, predictions, drawn) = (place("run"), place("predictions"), place("drawn"));
    assert_eq!(run_json(&["inspect", data])["cases"], 8);
    let plan = run_json(&["plan", data, "--ram", "8GiB", "--config", "/dev/null", "--threads", "1"]);
    assert_eq!(
        (&plan["dimensions"], &plan["patch_size"][0]),
        (&2.into(), &1.into()),
        "without being asked for"
    );
    assert!(plan["decoding_bytes"].as_u64() > Some(0));
    let record = run_json(&train(data, &out));
    assert!(record["peak_rss_bytes"].as_u64() <= record["ram_budget_bytes"].as_u64());
    let images = format!("{data}/imagesTs");
    let report =
        run_json(&["predict", &out, "-i", &images, "-o", &predictions, "--ram", "512MiB", "--threads", "1"]);
    assert!(report["peak_rss_bytes"].as_u64() <= report["planned_bytes"].as_u64(), "{report}");
    let (color, size, labels) = read_png(&Path::new(&predictions).join("photo_8.png"));
    assert_eq!((color, size), (png::ColorType::Grayscale, SIZE));
    assert!(labels.iter().all(|label| *label < 2) && labels.contains(&1));
    let scores = run_json(&[
        "evaluate",
        &predictions,
        &format!("{data}/labelsTs"),
        "--metrics",
        "all",
        "--images",
        &images,
        "--pictures",
        &drawn,
    ]);
    let dice = scores["foreground_mean"]["Dice"].as_f64().unwrap();
    assert!(dice >= 0.8, "Dice {dice}");
    // Folders that no data set describes are told by their files.
    let (alone, folder) = (place("alone"), place("scores.json"));
    fs::create_dir(&alone).unwrap();
    fs::copy(format!("{data}/labelsTs/photo_8.png"), format!("{alone}/photo_8.png")).unwrap();
    let same = run_json(&["evaluate", &predictions, &alone, "--labels", "1", "-o", &folder]);
    assert_eq!(same["foreground_mean"]["Dice"], scores["foreground_mean"]["Dice"]);
    // The score equals the score of the two files, counted here.
    let (_, _, reference) = read_png(&Path::new(data).join("labelsTs/photo_8.png"));
    let both = labels.iter().zip(&reference).filter(|(one, other)| **one == 1 && **other == 1).count() as f64;
    let ones = |of: &[u8]| of.iter().filter(|label| **label == 1).count() as f64;
    assert!((dice - 2.0 * both / (ones(&labels) + ones(&reference))).abs() < 1e-9);
    // Drawn the way up that it is stored: the middle of the prediction's outline is where the disc is.
    let picture = image::open(Path::new(&drawn).join("photo_8.png")).unwrap().to_rgb8();
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    // It fills the frame's width or height, with the names of the outlines below.
    let shown_height = width * SIZE[0] / SIZE[1];
    assert!(width == 1200 || shown_height.abs_diff(1000) < 3, "{height} × {width}");
    assert!((20..60).contains(&(height - shown_height)), "{height} × {width}");
    let drawn = picture.into_raw();
    let middle = |place: &dyn Fn(usize) -> bool, count: usize, width: usize| {
        let rows: Vec<usize> = (0..count).filter(|at| place(*at)).map(|at| at / width).collect();
        rows.iter().sum::<usize>() as f64 / rows.len() as f64
    };
    let outline = |at: usize| drawn[3 * at] != drawn[3 * at + 1];
    let shown = middle(&outline, shown_height * width, width) / shown_height as f64;
    let stored = middle(&|at| reference[at] == 1, reference.len(), SIZE[1]) / SIZE[0] as f64;
    assert!((shown - stored).abs() < 0.05, "{shown} and {stored}");
}

#[test]
fn a_run_on_images_that_is_killed_or_has_no_room_for_a_cache_comes_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = pictures(dir.path());
    let data = data.to_str().unwrap();
    let (whole, killed, tight) =
        (dir.path().join("whole"), dir.path().join("killed"), dir.path().join("tight"));
    run_json(&train(data, whole.to_str().unwrap()));
    let args = train(data, killed.to_str().unwrap());
    let mut child = plimsoll().args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (start, log) = (Instant::now(), killed.join("fold_0/metrics.jsonl"));
    while fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < 2 {
        assert!(start.elapsed() < Duration::from_secs(300) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    run_json(&[&args[..], &["--resume"]].concat());
    expect_same(&killed, &whole, "after a kill");
    // Under the least limit every image is decoded for each patch.
    let mut args = train(data, tight.to_str().unwrap());
    let plan = run_json(&[&["plan"], &args[1..2], &args[4..]].concat());
    let least = (plan["minimum_ram_bytes"].as_u64().unwrap() + 4096).to_string();
    let limit = args.iter().position(|arg| *arg == "512MiB").unwrap();
    args[limit] = &least;
    run_json(&args);
    let metrics = |run: &Path| fs::read(run.join("fold_0/metrics.jsonl")).unwrap();
    let losses = |run: &Path| -> Vec<String> {
        let text = String::from_utf8(metrics(run)).unwrap();
        let line =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["train_loss"].to_string();
        text.lines().map(line).collect()
    };
    assert_eq!(losses(&tight), losses(&whole));
}

#[test]
fn jpeg_and_bmp_images_have_png_labels_and_tiff_images_those_in_tiff() {
    let dir = tempfile::tempdir().unwrap();
    for ending in ["jpg", "tif", "bmp"] {
        let data = pictures(dir.path()).parent().unwrap().join(ending);
        fs::rename(dir.path().join("pictures"), &data).unwrap();
        for folder in ["imagesTr", "imagesTs", "labelsTr", "labelsTs"] {
            let is_label = folder.starts_with("labels");
            for file in fs::read_dir(data.join(folder)).unwrap().map(|entry| entry.unwrap().path()) {
                if is_label && ending == "jpg" {
                    continue;
                }
                let to = file.with_extension(ending);
                if is_label {
                    // By their indices, which the crate that writes them would turn into colours.
                    let source = std::io::BufReader::new(fs::File::open(&file).unwrap());
                    let mut decoder = png::Decoder::new(source);
                    decoder.set_transformations(png::Transformations::IDENTITY);
                    let mut reader = decoder.read_info().unwrap();
                    let mut classes = vec![0; reader.output_buffer_size().unwrap()];
                    let info = reader.next_frame(&mut classes).unwrap();
                    image::GrayImage::from_raw(info.width, info.height, classes).unwrap().save(&to).unwrap();
                } else {
                    image::open(&file).unwrap().to_rgb8().save(&to).unwrap();
                }
                fs::remove_file(file).unwrap();
            }
        }
        discs::describe(&data, &["R", "G", "B"], &format!(".{ending}"), 8);
        let (data, out) = (data.to_str().unwrap(), dir.path().join(format!("run {ending}")));
        let out = out.to_str().unwrap();
        let args = train(data, out);
        run_json(&[&args[..args.len() - 6], &["--epochs", "1", "--iterations", "2"]].concat());
        let (images, predictions) =
            (format!("{data}/imagesTs"), dir.path().join(format!("predicted {ending}")));
        let predictions = predictions.to_str().unwrap();
        run_json(&["predict", out, "-i", &images, "-o", predictions, "--ram", "512MiB"]);
        let labels = if ending == "tif" { "photo_8.tif" } else { "photo_8.png" };
        assert!(Path::new(predictions).join(labels).is_file(), "{ending}");
        let scores = run_json(&["evaluate", predictions, &format!("{data}/labelsTs")]);
        assert!(scores["foreground_mean"]["Dice"].is_number(), "{ending}");
    }
}

#[test]
fn images_and_labels_that_do_not_fit_are_refused_with_the_file_and_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let data = pictures(dir.path());
    let text = data.to_str().unwrap();
    let refused = || run_error(&["plan", text, "--ram", "1GiB", "--config", "/dev/null"]);
    let label = data.join("labelsTr/photo_3.png");
    let good = fs::read(&label).unwrap();
    // A class that the data set does not have.
    let mut classes = vec![0; SIZE[0] * SIZE[1]];
    classes[5 * SIZE[1] + 7] = 9;
    png(&label, png::ColorType::Grayscale, SIZE, &classes);
    let error = refused();
    assert!(error.contains("photo_3.png") && error.contains("1 voxels are 9"), "{error}");
    assert!(error.contains("[0, 5, 7]"), "the pixel: {error}");
    // Labels of another extent.
    png(&label, png::ColorType::Grayscale, [48, 55], &vec![0; 48 * 55]);
    let error = refused();
    assert!(error.contains("photo_3.png") && error.contains("[1, 48, 55]"), "{error}");
    // Labels in colours.
    png(&label, png::ColorType::Rgb, SIZE, &vec![0; 3 * SIZE[0] * SIZE[1]]);
    let error = refused();
    assert!(error.contains("photo_3.png") && error.contains("3 channels of 8 bits"), "{error}");
    // A JPEG, whatever it is called.
    let jpeg = dir.path().join("label.jpg");
    image::GrayImage::new(SIZE[1] as u32, SIZE[0] as u32).save(&jpeg).unwrap();
    fs::copy(&jpeg, &label).unwrap();
    let error = refused();
    assert!(error.contains("photo_3.png is a JPEG"), "{error}");
    fs::write(&label, &good).unwrap();
    // An image with another number of channels.
    let photo = data.join("imagesTr/photo_2_0000.png");
    let image = fs::read(&photo).unwrap();
    png(&photo, png::ColorType::Grayscale, SIZE, &vec![7; SIZE[0] * SIZE[1]]);
    let error = refused();
    assert!(error.contains("photo_2_0000.png") && error.contains("it has 1 channels, but 3"), "{error}");
    // One that is cut off, and one that is none.
    fs::write(&photo, &image[..image.len() / 2]).unwrap();
    assert!(refused().contains("photo_2_0000.png"));
    fs::write(&photo, "no image").unwrap();
    assert!(refused().contains("photo_2_0000.png is not a PNG"));
    fs::write(&photo, &image).unwrap();
    assert!(run(&["plan", text, "--ram", "1GiB", "--config", "/dev/null"]).status.success());
}
