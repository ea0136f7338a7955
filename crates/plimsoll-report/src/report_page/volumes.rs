//! Volumes of the worst cases to be sliced and turned in the page, with NiiVue.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_memory::Budget;

use super::cases::{CaseFiles, Images, Wanted, ranked};
use super::read::Fold;
use super::scores::Cases;
use crate::error::Outcome;
use crate::markup::escaped;
use crate::preview::{Small, shrunk_image, shrunk_labels};

/// The viewer, compressed, and the notices of it and of what is part of it.
const VIEWER: &[u8] = include_bytes!("../../assets/niivue-0.69.0.umd.js.gz");
const NOTICES: &str = include_str!("../../assets/niivue.LICENSES.txt");

/// The most voxels of a volume.
const MOST_VOXELS: usize = 3_000_000;

/// Decompresses the viewer, starts it, and shows the case that is chosen.
const SCRIPT: &str = r#"<script>
(async function () {
  var note = document.getElementById('viewer-note');
  try {
    var text = document.getElementById('viewer').textContent.trim();
    var bytes = Uint8Array.from(atob(text), function (c) { return c.charCodeAt(0) });
    var unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    var script = document.createElement('script');
    script.textContent = await new Response(unpacked).text();
    document.head.appendChild(script);
    var nv = new niivue.Niivue({ backColor: [0.06, 0.07, 0.09, 1], crosshairWidth: 0.5, isRadiologicalConvention: true, multiplanarShowRender: niivue.SHOW_RENDER.ALWAYS });
    await nv.attachToCanvas(document.getElementById('volumes'));
    nv.setSliceType(nv.sliceTypeMultiplanar);
    nv.setMultiplanarLayout(2);
    var map = function (r, g, b) { return { R: [0, r], G: [0, g], B: [0, b], A: [0, 255], I: [0, 255] } };
    nv.addColormap('reference', map(60, 220, 90));
    nv.addColormap('prediction', map(255, 90, 30));
    var choice = document.getElementById('volume-case');
    var shown = function (name) { return document.getElementById('show-' + name).checked ? 0.5 : 0 };
    var load = async function () {
      while (nv.volumes.length) nv.removeVolume(nv.volumes[0]);
      for (var name of ['image', 'reference', 'prediction']) {
        var of = { base64: document.getElementById('volume-' + choice.value + '-' + name).textContent.trim(), name: name + '.nii.gz' };
        if (name === 'image') Object.assign(of, { colormap: 'gray', cal_min: 0, cal_max: 205 });
        else Object.assign(of, { colormap: name, cal_min: 0, cal_max: 1, opacity: shown(name), colorbarVisible: false });
        nv.addVolume(await niivue.NVImage.loadFromBase64(of));
      }
      note.textContent = '';
    };
    choice.addEventListener('change', load);
    ['reference', 'prediction'].forEach(function (name, at) {
      document.getElementById('show-' + name).addEventListener('change', function () { nv.setOpacity(at + 1, shown(name)) });
    });
    await load();
  } catch (error) {
    note.textContent = 'The volumes cannot be shown: ' + error;
  }
})();
</script>
"#;

/// Returns the viewer with the requested number of volumes of the worst cases. A message replaces a volume that cannot be read.
pub fn section(
    folds: &[Fold],
    cases: &Cases<'_>,
    wanted: &Wanted<'_>,
    budget: &Budget,
    put: &mut dyn FnMut(&str) -> Outcome,
) -> Outcome {
    let ranked = ranked(cases);
    let Some(first) = folds.first().filter(|_| wanted.volumes > 0 && !ranked.is_empty()) else {
        return Ok(());
    };
    put("<h2 id=\"volumes-of-cases\">Volumes of the worst cases</h2>\n")?;
    let images = match Images::open(first, wanted, budget) {
        Ok(images) => images,
        Err(failure) => {
            return put(&format!(
                "<p class=\"flag\">Volumes are left out: {}; {}.</p>\n",
                escaped(&failure.line()),
                escaped(&failure.remedy())
            ));
        }
    };
    let mut options = String::new();
    for (number, (dice, place, case)) in ranked.iter().take(wanted.volumes).enumerate() {
        let Some(fold) = folds.get(*place) else { continue };
        let name = Cases::name(case);
        let volumes = match images.files(fold, &name, case).and_then(|found| shrunk(&found, budget)) {
            Ok(volumes) => volumes,
            Err(failure) => {
                put(&format!(
                    "<p class=\"flag\">{} cannot be shown: {}; {}.</p>\n",
                    escaped(&name),
                    escaped(&failure.line()),
                    escaped(&failure.remedy())
                ))?;
                continue;
            }
        };
        for (what, volume) in ["image", "reference", "prediction"].into_iter().zip(volumes) {
            put(&format!("<script type=\"text/plain\" id=\"volume-{number}-{what}\">"))?;
            put(&BASE64_STANDARD.encode(&volume.bytes))?;
            put("</script>\n")?;
        }
        // Writing to a string cannot fail.
        let _ = write!(options, "<option value=\"{number}\">{}: Dice {dice:.4}</option>", escaped(&name));
    }
    if options.is_empty() {
        return Ok(());
    }
    put(&format!(
        "<p><label>Case <select id=\"volume-case\">{options}</select></label> <label><input type=\"checkbox\" id=\"show-reference\" \
         checked> reference (green)</label> <label><input type=\"checkbox\" id=\"show-prediction\" checked> prediction (orange)</label> \
         <span id=\"viewer-note\">This needs scripts and WebGL 2.</span></p>\n<p>Reduced to at most {MOST_VOXELS} voxels of 8 bits. A \
         click moves the crosshair, the wheel scrolls through slices, and dragging turns the three-dimensional view.</p>\n<div \
         class=\"viewer\"><canvas id=\"volumes\"></canvas></div>\n"
    ))?;
    put(&format!("<script type=\"text/plain\" id=\"viewer\">{}</script>\n", BASE64_STANDARD.encode(VIEWER)))?;
    put(SCRIPT)?;
    put(&format!(
        "<details><summary>Notices of the viewer</summary><pre>{}</pre></details>\n",
        escaped(NOTICES)
    ))
}

/// The image, the reference and the prediction of a case.
fn shrunk(found: &CaseFiles, budget: &Budget) -> Outcome<[Small; 3]> {
    Ok([
        shrunk_image(&found.image, MOST_VOXELS, budget)?,
        shrunk_labels(
            &found.reference,
            &found.image,
            found.values.as_deref(),
            found.ignore,
            MOST_VOXELS,
            budget,
        )?,
        shrunk_labels(&found.prediction, &found.image, None, None, MOST_VOXELS, budget)?,
    ])
}
